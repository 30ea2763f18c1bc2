package crash

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// points returns the constants of points.go.
func points(t *testing.T) map[string]Point {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "points.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Point{}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			out[v.Names[0].Name] = Point(text)
			if !strings.HasPrefix(v.Doc.Text(), v.Names[0].Name+": ") {
				t.Errorf("%s does not say what it means", v.Names[0].Name)
			}
		}
	}
	return out
}

// TestPointsArePlaced: each point is in the list of rows, and stands in the code exactly once.
func TestPointsArePlaced(t *testing.T) {
	all := points(t)
	if got, want := slices.Sorted(maps.Values(all)), slices.Sorted(maps.Keys(table())); !slices.Equal(got, want) || len(got) < 15 {
		t.Errorf("points %v, rows for %v", got, want)
	}
	placed := map[string][]string{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "crash" || strings.HasPrefix(d.Name(), ".") && path != root):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, part := range strings.Split(string(text), "crash.At(crash.")[1:] {
			name, _, _ := strings.Cut(part, ")")
			placed[name] = append(placed[name], path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range all {
		if len(placed[name]) != 1 {
			t.Errorf("%s stands in %v; a point stands in one place", name, placed[name])
		}
	}
	for name, where := range placed {
		if _, ok := all[name]; !ok {
			t.Errorf("%v has %s, which points.go does not", where, name)
		}
	}
}
