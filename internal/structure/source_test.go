package structure

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// source is a parsed Go file.
type source struct {
	path string
	text []byte
	test bool // of tests, or of a package for tests
	fset *token.FileSet
	ast  *ast.File
}

func (f *source) place(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.path, f.fset.Position(n.Pos()).Line)
}

func parse(path string, text []byte) (*source, error) {
	f := &source{path: path, text: text, fset: token.NewFileSet()}
	f.test = strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "testenv/")
	var err error
	f.ast, err = parser.ParseFile(f.fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	return f, err
}

// goFiles returns all Go files but those of test data. They are parsed once.
func goFiles(t *testing.T) []*source {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var parsed = sync.OnceValues(func() (all []*source, err error) {
	err = walk(func(path string, text []byte) error {
		if !strings.HasSuffix(path, ".go") || inTestdata(path) {
			return nil
		}
		f, err := parse(path, text)
		all = append(all, f)
		return err
	})
	return all, err
})

// check reports what a rule finds in all files, and that it finds what is planted.
func check(t *testing.T, rule func(*source) []string, planted ...string) {
	t.Helper()
	for _, f := range goFiles(t) {
		for _, what := range rule(f) {
			t.Error(what)
		}
	}
	for _, code := range planted {
		f, err := parse("planted_test.go", []byte("package p\n"+code))
		if err != nil {
			t.Fatal(err)
		}
		if len(rule(f)) == 0 {
			t.Errorf("the rule does not find %q", code)
		}
	}
}

// called returns the package and function of a call such as time.Sleep(d).
func called(n ast.Node) (pkg, name string, call *ast.CallExpr) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", "", nil
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", "", nil
	}
	if id, ok := sel.X.(*ast.Ident); ok {
		pkg = id.Name
	}
	return pkg, sel.Sel.Name, call
}

// TestNoSleep: a test that sleeps is slow, and wrong on a busy machine. Wait for what must happen,
// or run in a bubble (testenv/bubble), where sleeping takes no time and is allowed.
func TestNoSleep(t *testing.T) {
	check(t, func(f *source) (found []string) {
		if !f.test || bytes.Contains(f.text, []byte(`"testing/synctest"`)) || bytes.Contains(f.text, []byte(`/testenv/bubble"`)) ||
			strings.HasPrefix(f.path, "testenv/bubble/") {
			return nil
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if p, name, call := called(n); p == "time" && name == "Sleep" {
				found = append(found, f.place(call)+": time.Sleep in a test; wait for what must happen, or use testenv/bubble")
			}
			return true
		})
		return found
	}, "func f() { time.Sleep(1) }")
}

// TestBubbles: plain bubbles end the test process under the race detector, once in a while; see
// testenv/bubble.
func TestBubbles(t *testing.T) {
	check(t, func(f *source) (found []string) {
		if strings.HasPrefix(f.path, "testenv/bubble/") {
			return nil
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if p, name, call := called(n); p == "synctest" && name != "Wait" {
				found = append(found, f.place(call)+": synctest."+name+" does not survive the race detector; use Test of testenv/bubble")
			}
			return true
		})
		return found
	}, "func f() { synctest.Test(t, g) }", "func f() { synctest.Run(g) }")
}

// TestNoSleepControl: a control of the embedded broker that sleeps races with the broker's own
// bookkeeping (kfake's bsleep.waitQueue, the version that go.mod names). Faults of testenv/embedded
// hold or delay on the wire instead.
func TestNoSleepControl(t *testing.T) {
	check(t, func(f *source) (found []string) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if _, name, call := called(n); name == "SleepControl" {
				found = append(found, f.place(call)+": SleepControl has a data race; use Hold, HoldAnswers or DelayAnswers")
			}
			return true
		})
		return found
	}, "func f() { b.Cluster().SleepControl(g) }", "func f() { cl.SleepControl(g) }")
}

// TestNoFixedPorts: tests of several checkouts run on one machine, and none of them is for others
// to talk to.
func TestNoFixedPorts(t *testing.T) {
	check(t, func(f *source) (found []string) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			p, name, call := called(n)
			if call == nil || !strings.HasPrefix(name, "Listen") && name != "Ports" {
				return true
			}
			for _, a := range call.Args {
				lit, ok := a.(*ast.BasicLit)
				if !ok {
					continue
				}
				if name == "Ports" {
					if p == "embedded" && lit.Value != "0" {
						found = append(found, f.place(lit)+": a fixed port; use 0")
					}
					continue
				}
				s, err := strconv.Unquote(lit.Value)
				if err != nil {
					continue
				}
				host, port, err := net.SplitHostPort(s)
				if err != nil {
					continue
				}
				if ip := net.ParseIP(host); port != "0" || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
					found = append(found, fmt.Sprintf("%s: listens at %q; use port 0 of a loopback address", f.place(lit), s))
				}
			}
			return true
		})
		return found
	}, `var _, _ = net.Listen("tcp", "127.0.0.1:9092")`, `var _, _ = net.Listen("tcp", ":0")`, `var _ = embedded.Ports(9092)`)
}

// TestNoState: a package-level variable without a value waits for somebody to set it. State comes
// in by configuration, so that two workers in one process can differ.
func TestNoState(t *testing.T) {
	check(t, func(f *source) (found []string) {
		if strings.HasSuffix(f.path, "_test.go") && f.path != "planted_test.go" ||
			f.path == "testenv/bubble/bubble.go" { // GOMAXPROCS is the process's: so is who holds it
			return nil
		}
		for _, d := range f.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				if len(v.Values) == 0 && !embedded(g, v) {
					found = append(found, fmt.Sprintf("%s: package variable %s has no value: mutable state", f.place(v), v.Names[0]))
				}
			}
		}
		return found
	}, "var n int", "var mu sync.Mutex")
}

// embedded reports whether the variable's value is a file (go:embed).
func embedded(g *ast.GenDecl, v *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{g.Doc, v.Doc} {
		if doc == nil {
			continue
		}
		for _, c := range doc.List {
			if strings.HasPrefix(c.Text, "//go:embed") {
				return true
			}
		}
	}
	return false
}

// TestFormatted: the code is as gofmt leaves it. gofmt itself is asked: this program may be built with
// the race detector, and take ten times as long.
func TestFormatted(t *testing.T) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	gofmt := filepath.Join(strings.TrimSpace(string(goroot)), "bin", "gofmt")
	planted := filepath.Join(t.TempDir(), "planted.go")
	if err := os.WriteFile(planted, []byte("package p\nfunc f()  { }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-l", planted}
	if err := walk(func(path string, _ []byte) error {
		if strings.HasSuffix(path, ".go") && !inTestdata(path) {
			args = append(args, filepath.Join(root, path))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(gofmt, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, path := range strings.Fields(string(out)) {
		if path == planted {
			planted = ""
			continue
		}
		t.Errorf("%s: not as gofmt leaves it", path)
	}
	if planted != "" {
		t.Error("gofmt has not found what was planted")
	}
}

// TestASCII: what looks like a quote or a space must be one. Tests may have other text as data.
func TestASCII(t *testing.T) {
	for _, f := range goFiles(t) {
		if strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		for i, line := range bytes.Split(f.text, []byte("\n")) {
			if j := bytes.IndexFunc(line, func(r rune) bool { return r >= utf8.RuneSelf }); j >= 0 {
				t.Errorf("%s:%d:%d: not ASCII", f.path, i+1, j+1)
			}
		}
	}
}

// maxLines is where a file surely has a second noun.
const maxLines = 650

func TestFilesAreShort(t *testing.T) {
	for _, f := range goFiles(t) {
		if n := bytes.Count(f.text, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines; more than %d hide a second subject", f.path, n, maxLines)
		}
	}
}

// TestNothingUnfinished looks for the words that mark what is left to do: it is done, or it is a
// limit that the documentation names.
func TestNothingUnfinished(t *testing.T) {
	words := []string{"TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"}
	marks := regexp.MustCompile(`\b(` + strings.Join(words, "|") + `)\b`)
	if !marks.MatchString("// TO" + "DO(me): later") {
		t.Fatal("the pattern finds nothing")
	}
	files(t, func(path string, text []byte) {
		if inTestdata(path) || path == "LICENSE" || !slices.ContainsFunc(words, func(w string) bool { return bytes.Contains(text, []byte(w)) }) {
			return
		}
		for i, line := range strings.Split(string(text), "\n") {
			if m := marks.FindString(line); m != "" {
				t.Errorf("%s:%d: %s", path, i+1, m)
			}
		}
	})
}
