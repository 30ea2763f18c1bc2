package structure

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/killick-io/killick"

// root is the module's folder, seen from this package's.
const root = "../.."

// pkg is what go list says of a package.
type pkg struct {
	ImportPath   string
	Dir          string
	Name         string
	Imports      []string // without those of tests
	Deps         []string // over all levels
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
}

// short is the path below the module; "." is the root package.
func (p *pkg) short() string { return short(p.ImportPath) }

func short(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

// own reports whether an import path is of this module.
func own(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

// std reports whether an import path is of the standard library: its first element has no dot.
func std(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".") || first == "vendor"
}

var list = sync.OnceValues(func() ([]*pkg, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Name,Imports,Deps,GoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = root
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.New("go list: " + err.Error() + ": " + errs.String())
	}
	var ps []*pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(pkg)
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return ps, nil
		} else if err != nil {
			return nil, err
		}
		ps = append(ps, p)
	}
})

// packages returns all packages of the module.
func packages(t *testing.T) []*pkg {
	t.Helper()
	ps, err := list()
	if err != nil {
		t.Fatal(err)
	}
	if len(ps) < 15 {
		t.Fatalf("go list names %d packages: it looks at the wrong place", len(ps))
	}
	return ps
}

// files calls f for each file of the repository, by its path from the root.
func files(t *testing.T, f func(path string, text []byte)) {
	t.Helper()
	if err := walk(func(path string, text []byte) error { f(path, text); return nil }); err != nil {
		t.Fatal(err)
	}
}

// walk calls f for each file of the repository until it returns an error. Hidden folders other
// than .ci are left out, and those that git does not track by rule.
func walk(f func(path string, text []byte) error) error {
	n := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") && name != ".ci" || name == "bin" || name == "dist") {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // somebody's temporary file
		}
		if err != nil {
			return err
		}
		n++
		return f(filepath.ToSlash(rel), text)
	})
	if err == nil && n < 50 {
		return fmt.Errorf("%d files: this looks at the wrong place", n)
	}
	return err
}

// inTestdata reports whether a path is of test data: samples of what the rules forbid are there.
func inTestdata(path string) bool {
	return strings.HasPrefix(path, "testdata/") || strings.Contains(path, "/testdata/")
}
