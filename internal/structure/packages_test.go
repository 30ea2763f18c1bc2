package structure

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDocs: a package's contract is in its doc.go, a command's at its main function.
func TestDocs(t *testing.T) {
	docs := map[string]string{} // folder -> file with the package comment
	for _, f := range goFiles(t) {
		if f.ast.Doc != nil && !strings.HasSuffix(f.path, "_test.go") {
			dir := filepath.Dir(f.path)
			if other, ok := docs[dir]; ok {
				t.Errorf("%s and %s both have the package comment", other, f.path)
			}
			docs[dir] = f.path
			if n := f.ast.Name.Name; n != "main" && !strings.HasPrefix(f.ast.Doc.Text(), "Package "+n+" ") {
				t.Errorf("%s: the comment does not begin with Package %s", f.path, n)
			}
		}
	}
	for _, p := range packages(t) {
		file, ok := docs[p.short()]
		switch {
		case !ok:
			t.Errorf("package %s has no package comment", p.short())
		case p.Name != "main" && len(p.GoFiles) > 1 && filepath.Base(file) != "doc.go":
			t.Errorf("%s: the package comment belongs into doc.go", file)
		}
	}
}

// untested are packages that need no test of their own, and why.
var untested = map[string]string{
	"examples/orders": "its main function starts what examples/orders/topology tests",
	"internal/group":  "the stories of package worker are its tests: it needs a broker and an engine",
	"internal/proof":  "it is tests, of the build that crash points are in (killick_crash)",
}

func TestPackagesAreTested(t *testing.T) {
	for _, p := range packages(t) {
		if _, excused := untested[p.short()]; !excused && len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 {
			t.Errorf("package %s has no tests", p.short())
		}
	}
}

// TestDirect: the modules that go.mod requires directly are those that the code and its tests
// import, and the tools. This is the part of TestTidy that needs no network.
func TestDirect(t *testing.T) {
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Tool []struct{ Path string }
	}
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = root
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &mod)
	}
	if err != nil {
		t.Fatal(err)
	}
	imported := map[string]string{} // import path -> a file that has it
	for _, f := range goFiles(t) {
		for _, imp := range f.ast.Imports {
			if p := strings.Trim(imp.Path.Value, `"`); !std(p) && !own(p) {
				imported[p] = f.path
			}
		}
	}
	for _, tool := range mod.Tool {
		imported[tool.Path] = "a tool directive"
	}
	used := map[string]string{} // module -> a file that imports of it
	for p, file := range imported {
		best := ""
		for _, r := range mod.Require {
			if (p == r.Path || strings.HasPrefix(p, r.Path+"/")) && len(r.Path) > len(best) {
				best = r.Path
			}
		}
		if best == "" {
			t.Errorf("%s imports %s, of which go.mod has no module", file, p)
		}
		if file != "a tool directive" { // its module may be marked indirect
			used[best] = file
		}
	}
	for _, r := range mod.Require {
		switch file, ok := used[r.Path]; {
		case ok && r.Indirect:
			t.Errorf("go.mod marks %s as indirect, but %s imports it: run go mod tidy", r.Path, file)
		case !ok && !r.Indirect:
			t.Errorf("go.mod requires %s, which nothing imports: run go mod tidy", r.Path)
		}
	}
}

// TestTidy: go.mod lists what the code imports, neither more nor less.
func TestTidy(t *testing.T) {
	cmd := exec.Command("go", "mod", "tidy", "-diff")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=mod")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	switch {
	case err == nil:
	case out.Len() > 0:
		t.Errorf("go.mod or go.sum is not tidy: run go mod tidy\n%s", &out)
	case strings.Contains(errs.String(), "GOPROXY=off"):
		// It looks at the tests of dependencies, too, whose modules a build does not need.
		t.Skipf("not all modules are in the cache, and the tests do not download: %s", lastLine(&errs))
	default:
		t.Errorf("go mod tidy -diff: %v\n%s", err, &errs)
	}
}

func lastLine(b *bytes.Buffer) string {
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	return lines[len(lines)-1]
}

// TestTools: what the Makefile runs is there, and .ci/run runs what the README says.
func TestTools(t *testing.T) {
	text := map[string]string{}
	files(t, func(path string, b []byte) { text[path] = string(b) })
	if !strings.Contains(text[".ci/run"], "make test") || !strings.Contains(text["README.md"], "make test") {
		t.Error(".ci/run and README.md must both name make test")
	}
	info, err := os.Stat(filepath.Join(root, ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode()&0o111 == 0 {
		t.Error(".ci/run is not executable")
	}
	var have []string
	for _, p := range packages(t) {
		have = append(have, "./"+p.short())
	}
	for _, field := range strings.Fields(text["Makefile"]) {
		if strings.HasPrefix(field, "./") && !strings.Contains(field, "...") && !slices.Contains(have, field) {
			t.Errorf("the Makefile names %s, which is no package", field)
		}
	}
}
