package kafka

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// commits matches every way of kgo, kadm and kmsg to make the broker store
// offsets outside of a transaction.
var commits = regexp.MustCompile(`^(New(Ptr)?OffsetCommitRequest|OffsetCommitRequest|` +
	`CommitOffsets\w*|CommitAllOffsets\w*|CommitRecords|CommitMarkedOffsets|CommitUncommittedOffsets|` +
	`MarkCommitRecords|MarkCommitOffsets|AutoCommitMarks|GreedyAutoCommit)$`)

// commitSites returns where non-test Go files below root name one of them, in
// a call or a literal. Options that are only compared (as arguments) are no
// sites; a type in a type switch or assertion is none.
func commitSites(t *testing.T, root string) (sites []string, files int) {
	t.Helper()
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "vendor"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files++
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		name := func(e ast.Expr) string {
			switch e := e.(type) {
			case *ast.SelectorExpr:
				return e.Sel.Name
			case *ast.Ident:
				return e.Name
			}
			return ""
		}
		ast.Inspect(f, func(n ast.Node) bool {
			var e ast.Expr
			switch n := n.(type) {
			case *ast.CallExpr:
				if e = n.Fun; name(e) == "new" && len(n.Args) == 1 {
					e = n.Args[0]
				}
			case *ast.CompositeLit:
				e = n.Type
			}
			if s := name(e); s != "" && commits.MatchString(s) {
				rel, _ := filepath.Rel(root, fset.Position(n.Pos()).Filename)
				sites = append(sites, filepath.ToSlash(rel)+": "+s)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(sites)
	return sites, files
}

// One place in the repository builds an OffsetCommit. A second one would be a
// second idea of what may be committed, and when.
func TestOneCommitSite(t *testing.T) {
	t.Parallel()
	sites, files := commitSites(t, filepath.Join("..", ".."))
	if files < 10 {
		t.Fatalf("only %d Go files found", files)
	}
	// The benchmark's other side is a loop without killick, as users write it; killick dev consume is a
	// hand that prints records, in a group of its own, and runs no topology.
	sites = slices.DeleteFunc(sites, func(s string) bool {
		return strings.HasPrefix(s, "internal/bench/alo/bare.go: ") || strings.HasPrefix(s, "cmd/killick/internal/dev/consume.go: ")
	})
	if want := []string{"internal/kafka/commit.go: NewPtrOffsetCommitRequest"}; !slices.Equal(sites, want) {
		t.Errorf("commit sites:\n  %s\nwant:\n  %s", strings.Join(sites, "\n  "), strings.Join(want, "\n  "))
	}
}

// And one place calls the function that does: the lease and the order of commits are kept there.
func TestOneCommitCaller(t *testing.T) {
	t.Parallel()
	var callers []string
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for range strings.Count(string(text), "kafka.Commit(") {
			callers = append(callers, filepath.ToSlash(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"../../internal/group/commit.go"}; !slices.Equal(callers, want) {
		t.Errorf("kafka.Commit is called in %v, want %v", callers, want)
	}
}

// The count must find what it is for.
func TestCommitSitesAreFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, body string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("package p\n"+body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.go", `func f() {
	kmsg.NewOffsetCommitRequest(); kmsg.NewPtrOffsetCommitRequest()
	_ = kmsg.OffsetCommitRequest{}; _ = &kmsg.OffsetCommitRequest{}; _ = new(kmsg.OffsetCommitRequest)
	cl.CommitOffsets(); cl.CommitOffsetsSync(); cl.CommitRecords(); cl.CommitUncommittedOffsets(); cl.CommitMarkedOffsets()
	adm.CommitOffsets(); adm.CommitAllOffsets(); adm.CommitOffsetsByID(); cl.MarkCommitRecords(); kgo.AutoCommitMarks()
}`)
	write("b_test.go", `func g() { cl.CommitOffsets() }`)
	write("c.go", `func h(r any) { kmsg.NewPtrTxnOffsetCommitRequest(); _, _ = r.(*kmsg.OffsetCommitRequest); check(kgo.AutoCommitMarks) }`)
	sites, files := commitSites(t, dir)
	if len(sites) != 15 || files != 2 {
		t.Errorf("%d sites in %d files, want 15 in 2:\n  %s", len(sites), files, strings.Join(sites, "\n  "))
	}
}
