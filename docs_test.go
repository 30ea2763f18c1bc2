package killick_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/worker"
)

const fromStorm = "docs/from-storm.md"

func document(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestFromStormCode: each Go block of the document is what a checked example runs, whole: all
// that stands between the imports and the example's function.
func TestFromStormCode(t *testing.T) {
	text := document(t, fromStorm)
	files, err := filepath.Glob("examples/storm/example_*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	checked := regexp.MustCompile(`\n\t// (?:Output|Unordered output):\s+(?:// )?\S`)
	blocks := 0
	for _, file := range files {
		code := document(t, file)
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, file, code, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		from, to := 0, 0 // of what the document shows
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				if d.Tok == token.IMPORT {
					from = fset.Position(d.End()).Offset
				}
			case *ast.FuncDecl:
				if !strings.HasPrefix(d.Name.Name, "Example") {
					continue
				}
				if to != 0 {
					t.Errorf("%s has two examples", file)
				}
				begin := d.Pos()
				if d.Doc != nil {
					begin = d.Doc.Pos()
				}
				to = fset.Position(begin).Offset
				if body := code[fset.Position(d.Pos()).Offset:fset.Position(d.End()).Offset]; !checked.MatchString(body) {
					t.Errorf("%s: the example's output is not checked", file)
				}
			}
		}
		if to == 0 {
			continue // what the examples share
		}
		blocks++
		// The link to the file stands before the block.
		want := "](../" + file + ")\n\n```go\n" + strings.TrimSpace(code[from:to]) + "\n```\n"
		if !strings.Contains(text, want) {
			t.Errorf("%s does not show what %s runs; after the link to the file it should say\n%s", fromStorm, file, want)
		}
	}
	if n := strings.Count(text, "```go\n"); n != blocks || n < 6 {
		t.Errorf("%s has %d blocks of Go, and there are %d examples", fromStorm, n, blocks)
	}
	if n := strings.Count(text, "```java\n"); n != blocks {
		t.Errorf("%s has %d blocks of Java for %d examples", fromStorm, n, blocks)
	}
}

// TestFromStormNames: what the document calls killick's is there: exported names, metrics,
// configuration keys and their defaults.
func TestFromStormNames(t *testing.T) {
	text := document(t, fromStorm)
	have := exported(t)
	metrics := document(t, "worker/metrics.go")
	keys := configDefaults(t)
	counts := map[string]int{}
	goName := regexp.MustCompile(`^(?:(?:killick|spout|bolt|worker|testenv|embedded)\.[A-Z]\w*|[A-Z]\w*\.[A-Z]\w*)$`)
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(text, -1) {
		name := m[1]
		switch {
		case goName.MatchString(name):
			counts["name"]++
			if !have[name] {
				t.Errorf("%s names %s, which is not exported", fromStorm, name)
			}
		case strings.HasPrefix(name, "killick_"):
			counts["metric"]++
			if !strings.Contains(metrics, `{"`+name+`", `) {
				t.Errorf("%s names %s, which is no metric", fromStorm, name)
			}
		case strings.HasPrefix(name, "kafka."):
			counts["key"]++
			if _, ok := keys[name]; !ok {
				t.Errorf("%s names %s, which is no configuration key", fromStorm, name)
			}
		}
	}
	// What has come since a first version said that it is missing.
	for _, name := range []string{"`worker-death`", "`killick_tree_duration_seconds`", "`killick_backpressure_seconds_total`"} {
		if !strings.Contains(text, name) {
			t.Errorf("%s does not tell of %s", fromStorm, name)
		}
	}
	for _, name := range []string{"killick.ExactlyOnce", "killick.Later"} {
		if have[name] {
			t.Errorf("there is %s, and %s says that what it is for is not there yet", name, fromStorm)
		}
	}
	// Rows of the table of parameters: Storm's name, its default, ours, its default, why.
	for _, m := range regexp.MustCompile("(?m)^\\|[^|]*\\|[^|]*\\| `([^`]+)` \\| ([^|]*) \\|[^|]*\\|$").FindAllStringSubmatch(text, -1) {
		if def, ok := keys[m[1]]; ok {
			counts["default"]++
			if m[2] != def {
				t.Errorf("%s: the default of %s is %q, not %q", fromStorm, m[1], def, m[2])
			}
		}
	}
	for what, least := range map[string]int{"name": 60, "metric": 12, "key": 8, "default": 12} {
		if counts[what] < least {
			t.Errorf("%s: %d times a %s, want at least %d: this test does not see them", fromStorm, counts[what], what, least)
		}
	}
}

// exported returns the exported names of the public packages: package.Name, and Type.Member.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	have := map[string]bool{}
	for _, dir := range []string{".", "spout", "bolt", "worker", "testenv", "testenv/embedded"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				for _, name := range declared(d) {
					if !strings.Contains(name, ".") {
						name = f.Name.Name + "." + name
					}
					have[name] = true
				}
			}
		}
	}
	return have
}

// declared returns the names that d declares: Name, and Type.Member.
func declared(d ast.Decl) (names []string) {
	if f, ok := d.(*ast.FuncDecl); ok {
		if f.Recv == nil {
			return []string{f.Name.Name}
		}
		typ := f.Recv.List[0].Type
		if p, ok := typ.(*ast.StarExpr); ok {
			typ = p.X
		}
		if id, ok := typ.(*ast.Ident); ok {
			names = append(names, id.Name+"."+f.Name.Name)
		}
		return names
	}
	for _, s := range d.(*ast.GenDecl).Specs {
		switch s := s.(type) {
		case *ast.ValueSpec:
			for _, n := range s.Names {
				names = append(names, n.Name)
			}
		case *ast.TypeSpec:
			names = append(names, s.Name.Name)
			var members *ast.FieldList
			switch typ := s.Type.(type) {
			case *ast.StructType:
				members = typ.Fields
			case *ast.InterfaceType:
				members = typ.Methods
			default:
				continue
			}
			for _, m := range members.List {
				for _, n := range m.Names {
					names = append(names, s.Name.Name+"."+n.Name)
				}
			}
		}
	}
	return names
}

// configDefaults returns the configuration keys and their defaults, as a program's help has them.
func configDefaults(t *testing.T) map[string]string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := worker.Command(killick.New("help"), []string{"help"}, nil, &out, &errs); code != 0 {
		t.Fatalf("help ends with %d: %s", code, &errs)
	}
	keys := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^  (?:--)?(?:\w+, --)?([\w.]+) \(env \w+\)\n.*\(default: (.*)\)$`).FindAllStringSubmatch(out.String(), -1) {
		keys[m[1]] = m[2]
	}
	return keys
}
