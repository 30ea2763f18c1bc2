package killick_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/testenv/embedded"
)

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestReadmeHello compiles the README's program and runs it: it greets, and SIGTERM ends it with
// everything committed.
func TestReadmeHello(t *testing.T) {
	m := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindStringSubmatch(readme(t))
	if m == nil {
		t.Fatal("README.md has no program")
	}
	code := m[1]
	if n := strings.Count(code, "\n"); n >= 25 {
		t.Errorf("hello world has %d lines, want fewer than 25", n)
	}
	// The program is laid over the module, in a folder that does not exist.
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(root, "readmehello", "main.go"): filepath.Join(dir, "main.go")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"main.go": []byte(code), "overlay.json": overlay} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(dir, "hello")
	// Built as the tests are, so that the packages below it are built already.
	build := exec.Command("go", "build", fmt.Sprintf("-race=%v", core.Race), "-overlay", filepath.Join(dir, "overlay.json"), "-o", bin, "./readmehello")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	b := embedded.Start(t, embedded.Topic("names", 1))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, name := range []string{"Ada", "Grace"} {
		if err := b.Produce(ctx, &kgo.Record{Topic: "names", Value: []byte(name)}); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(ctx, bin, "--bootstrap", b.Addrs()[0])
	var out, log strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	werr := b.WaitCommitted(ctx, "killick.hello", "names", map[int32]int64{0: 2})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := errors.Join(werr, cmd.Wait()); err != nil || out.String() != "hello Ada\nhello Grace\n" {
		t.Errorf("%v, it says %q\n%s", err, &out, &log)
	}
}

// TestReadmeTable: the README's guarantees name all tests of guarantees, and no others, and
// the rules that stand behind each as the table of make mutants has them.
func TestReadmeTable(t *testing.T) {
	text := readme(t)
	var have []string
	files, err := filepath.Glob("guarantees*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (TestG\w+)\(`).FindAllStringSubmatch(string(b), -1) {
			have = append(have, m[1])
		}
	}
	named := regexp.MustCompile("TestG[1-9][A-Za-z]+").FindAllString(text, -1)
	slices.Sort(have)
	slices.Sort(named)
	if named = slices.Compact(named); !slices.Equal(have, named) {
		t.Errorf("the README names %v\nthere are %v", named, have)
	}
	everywhere := tests(t)
	for _, name := range regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllStringSubmatch(text, -1) {
		if !everywhere[name[1]] {
			t.Errorf("the README names %s, and there is no such test", name[1])
		}
	}
	b, err := os.ReadFile("internal/tools/mutants/table.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| ([GP]\d) \|.*\|(.*)\|$`).FindAllStringSubmatch(text, -1)
	rules := map[string]string{} // rule -> guarantee in the README
	for _, r := range rows {
		for _, rule := range strings.Split(r[2], ",") {
			rules[strings.TrimSpace(rule)] = r[1]
		}
	}
	table := regexp.MustCompile(`(?m)^\t\{"(\w+)", "([GP]\d)", "[^"]+", "(\w+)"`).FindAllStringSubmatch(string(b), -1)
	if len(table) < 10 || len(table) != len(rules) {
		t.Errorf("%d rules in the table, %d in the README", len(table), len(rules))
	}
	for _, m := range table {
		if rules[m[1]] != m[2] {
			t.Errorf("rule %s is behind %s; the README has it at %q", m[1], m[2], rules[m[1]])
		}
	}
}

// tests returns the names of all tests of this package and of those below it.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(b, -1) {
			names[string(m[1])] = true
		}
		return err
	})
	if err != nil || len(names) < 100 {
		t.Fatal(len(names), err)
	}
	return names
}

// TestDocsAreSound: what the documents link to and name as a file exists, and so does what they
// say to run.
func TestDocsAreSound(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", fromStorm, "docs/performance.md", "docs/faults.md"} {
		b, err := os.ReadFile(doc)
		if err != nil {
			t.Error(err)
			continue
		}
		text := string(b)
		for _, m := range regexp.MustCompile(`\]\(([^)#]+)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %v", doc, err)
			}
		}
		for _, m := range regexp.MustCompile("`((?:\\.?[\\w-]+/)+[\\w.-]*|[\\w-]+\\.(?:go|md|yaml))`").FindAllStringSubmatch(text, -1) {
			if !exists(m[1]) {
				t.Errorf("%s names %s, which does not exist", doc, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`\bmake ([a-z]+)\b`).FindAllStringSubmatch(text, -1) {
			if !strings.Contains(string(makefile), fmt.Sprintf("\n%s:", m[1])) {
				t.Errorf("%s names make %s, which the Makefile does not have", doc, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`go run \./(\S+)`).FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s says go run ./%s: %v", doc, m[1], err)
			}
		}
	}
}

// exists reports whether a path is there, from the root or below internal.
func exists(path string) bool {
	for _, p := range []string{path, filepath.Join("internal", path)} {
		if _, err := os.Stat(p); err == nil {
			return true
		}
	}
	return false
}

// TestDocsNameTheGuarantees: where the documents say where the promises are tested, no file is missing.
func TestDocsNameTheGuarantees(t *testing.T) {
	files, err := filepath.Glob("guarantees*_test.go")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, doc := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md"} {
		text := document(t, doc)
		for _, file := range files {
			if strings.Contains(document(t, file), "\nfunc TestG") && !strings.Contains(text, "`"+file+"`") {
				t.Errorf("%s does not name %s", doc, file)
			}
		}
	}
}
