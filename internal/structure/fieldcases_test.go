package structure

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const fieldCases = "docs/field-cases.md"

// fieldTests returns the tests that name a case in their comment, as "FC-01 file TestName".
func fieldTests(files []*source) (out []string) {
	id := regexp.MustCompile(`\bFC-\d\d\b`)
	for _, f := range files {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				for _, c := range id.FindAllString(fn.Doc.Text(), -1) {
					out = append(out, fmt.Sprintf("%s %s %s", c, f.path, fn.Name.Name))
				}
			}
		}
	}
	return out
}

// fieldTable reads the table: the tests of each case, in the form of fieldTests, and for cases without
// one what the table says instead.
func fieldTable(text string) (tests []string, without map[string]string, cases []string) {
	row := regexp.MustCompile(`(?m)^\| (FC-\d\d) \| .+ \| (.+) \| (.+) \|$`)
	link := regexp.MustCompile("\\[`(\\w+)`\\]\\(\\.\\./([^)]+)\\)")
	without = map[string]string{}
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		cases = append(cases, m[1])
		links := link.FindAllStringSubmatch(m[3], -1)
		for _, l := range links {
			tests = append(tests, fmt.Sprintf("%s %s %s", m[1], l[2], l[1]))
		}
		if len(links) == 0 {
			without[m[1]] = m[2]
		}
	}
	return tests, without, cases
}

// TestFieldCases: each test that the table of field cases names exists and names the case, each test
// that names a case is in the table, and a case without a test says what it waits for.
func TestFieldCases(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, fieldCases))
	if err != nil {
		t.Fatal(err)
	}
	said, without, cases := fieldTable(string(b))
	for i, c := range cases {
		if c != fmt.Sprintf("FC-%02d", i+1) {
			t.Errorf("row %d of %s is %s", i+1, fieldCases, c)
		}
	}
	if len(cases) != 59 {
		t.Errorf("%s has %d cases", fieldCases, len(cases))
	}
	for _, c := range slices.Sorted(maps.Keys(without)) {
		if !strings.HasPrefix(without[c], "Not yet: needs ") {
			t.Errorf("%s has no test, and no reason: %s", c, without[c])
		}
	}
	have := fieldTests(goFiles(t))
	for _, s := range said {
		if !slices.Contains(have, s) {
			t.Errorf("%s names %s, which does not exist, or does not name the case in its comment", fieldCases, s)
		}
	}
	for _, h := range have {
		if !slices.Contains(said, h) {
			t.Errorf("%s is not in %s", h, fieldCases)
		}
	}

	planted, err := parse("x_test.go", []byte("package p\n// TestX: FC-03.\nfunc TestX() {}\n// FC-04\nfunc helper() {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := fieldTests([]*source{planted}); !slices.Equal(got, []string{"FC-03 x_test.go TestX"}) {
		t.Errorf("in a planted file: %v", got)
	}
	tests, none, _ := fieldTable("| FC-03 | a | b | [`TestX`](../x_test.go)<br>[`TestY`](../y/y_test.go) |\n| FC-04 | a | why | - |\n")
	if !slices.Equal(tests, []string{"FC-03 x_test.go TestX", "FC-03 y/y_test.go TestY"}) || none["FC-04"] != "why" {
		t.Errorf("in a planted table: %v, %v", tests, none)
	}
}
