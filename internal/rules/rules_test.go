package rules_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"
)

// declared returns the exported names of a file.
func declared(t *testing.T, file string) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok == token.IMPORT {
			continue
		}
		for _, s := range g.Specs {
			for _, n := range s.(*ast.ValueSpec).Names {
				if n.IsExported() {
					names = append(names, n.Name)
				}
			}
		}
	}
	return names
}

// TestTwins: both builds have the same rules, and in the normal one they are constants.
func TestTwins(t *testing.T) {
	normal, mutants := declared(t, "rules.go"), declared(t, "rules_mutants.go")
	if !slices.Equal(normal, mutants) {
		t.Errorf("rules.go has %v, rules_mutants.go %v", normal, mutants)
	}
	if len(normal) < 10 {
		t.Errorf("only %d rules", len(normal))
	}
	f, err := parser.ParseFile(token.NewFileSet(), "rules.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		g := d.(*ast.GenDecl)
		if g.Tok != token.CONST {
			t.Errorf("rules.go declares a %s: rules must cost nothing", g.Tok)
		}
		for _, s := range g.Specs {
			for _, v := range s.(*ast.ValueSpec).Values {
				if id, ok := v.(*ast.Ident); !ok || id.Name != "true" {
					t.Errorf("a rule is %v in the normal build", v)
				}
			}
		}
	}
}
