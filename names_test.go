package killick_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// nameBudget is how many exported top-level names (types, functions, constants) a reader of this
// package has to hold. Raising it takes a reason in the commit; a name that only the engine
// needs belongs into an internal package.
const nameBudget = 67

func TestNames(t *testing.T) {
	var names, undocumented []string
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	note := func(n *ast.Ident, top bool, docs ...*ast.CommentGroup) {
		if !n.IsExported() {
			return
		}
		if top {
			names = append(names, n.Name)
		}
		if !slices.ContainsFunc(docs, func(d *ast.CommentGroup) bool { return d != nil }) {
			undocumented = append(undocumented, n.Name)
		}
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil || receiver(d).IsExported() {
					note(d.Name, d.Recv == nil, d.Doc)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						note(s.Name, true, d.Doc, s.Doc)
					case *ast.ValueSpec:
						for _, n := range s.Names {
							note(n, true, d.Doc, s.Doc, s.Comment)
						}
					}
				}
			}
		}
	}
	slices.Sort(names)
	if len(names) > nameBudget {
		t.Errorf("%d exported names, the budget is %d: %s", len(names), nameBudget, strings.Join(names, " "))
	}
	if len(names) < nameBudget-10 {
		t.Errorf("%d exported names: lower the budget of %d", len(names), nameBudget)
	}
	if len(undocumented) > 0 {
		t.Errorf("no doc comment: %s", strings.Join(undocumented, " "))
	}
}

func receiver(d *ast.FuncDecl) *ast.Ident {
	e := d.Recv.List[0].Type
	if s, ok := e.(*ast.StarExpr); ok {
		e = s.X
	}
	switch x := e.(type) {
	case *ast.Ident:
		return x
	case *ast.IndexExpr:
		return x.X.(*ast.Ident)
	}
	return ast.NewIdent("_")
}
