package structure

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const faultsDoc = "docs/faults.md"

// faultRows are the rows that the table must have: those of one process's faults, by their numbers.
func faultRows() (all []string) {
	for _, r := range [][2]int{{1, 15}, {17, 25}, {28, 30}, {55, 58}, {62, 74}} {
		for n := r[0]; n <= r[1]; n++ {
			all = append(all, fmt.Sprint(n))
		}
	}
	return all
}

// fault is a row of the table.
type fault struct {
	number   string
	tests    []string // "file TestName"
	switches []string // "Rule file TestName"
	where    string
	last     string
}

// faultTable reads the table.
func faultTable(text string) (all []fault) {
	row := regexp.MustCompile(`(?m)^\| (\d+) \| .+ \| .+ \| (.+) \| (.+) \| (.+) \| (.+) \|$`)
	link := regexp.MustCompile("\\[`(\\w+)`\\]\\(\\.\\./([^)]+)\\)")
	red := regexp.MustCompile("`(\\w+)`: \\[`(\\w+)`\\]\\(\\.\\./([^)]+)\\)")
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		f := fault{number: m[1], where: m[3], last: m[5]}
		for _, l := range link.FindAllStringSubmatch(m[2], -1) {
			f.tests = append(f.tests, l[2]+" "+l[1])
		}
		for _, l := range red.FindAllStringSubmatch(m[4], -1) {
			f.switches = append(f.switches, l[1]+" "+l[3]+" "+l[2])
		}
		all = append(all, f)
	}
	return all
}

// faultMistakes compares the table with the tests and rules that there are.
func faultMistakes(table []fault, rows, tests, rules []string) (wrong []string) {
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	var have []string
	for _, f := range table {
		have = append(have, f.number)
		if len(f.tests) == 0 || len(f.switches) == 0 || strings.Trim(f.last, "- ") == "" || f.where == "" {
			add("row %s has %d tests and %d switches, runs %q, and last came to %q", f.number, len(f.tests), len(f.switches), f.where, f.last)
		}
		for _, t := range f.tests {
			if !slices.Contains(tests, t) {
				add("row %s: there is no test %s", f.number, t)
			}
		}
		for _, s := range f.switches {
			rule, test, _ := strings.Cut(s, " ")
			if !slices.Contains(rules, rule) {
				add("row %s: there is no rule %s", f.number, rule)
			}
			if !slices.Contains(f.tests, test) {
				add("row %s: %s is switched off for %s, which is none of its tests", f.number, rule, test)
			}
		}
	}
	if !slices.Equal(have, rows) {
		add("the rows are %v, want %v", have, rows)
	}
	return wrong
}

// TestFaults: the table of faults has all its rows, each with a test that exists and a rule that makes it
// red when it is switched off.
func TestFaults(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, faultsDoc))
	if err != nil {
		t.Fatal(err)
	}
	var tests []string
	for _, f := range goFiles(t) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				tests = append(tests, f.path+" "+fn.Name.Name)
			}
		}
	}
	source, err := os.ReadFile(filepath.Join(root, "internal/rules/rules.go"))
	if err != nil {
		t.Fatal(err)
	}
	var rules []string
	for _, m := range regexp.MustCompile(`(?m)^\t(\w+) = true$`).FindAllStringSubmatch(string(source), -1) {
		rules = append(rules, m[1])
	}
	for _, w := range faultMistakes(faultTable(string(text)), faultRows(), tests, rules) {
		t.Errorf("%s: %s", faultsDoc, w)
	}

	row := func(n, test, red, last string) string {
		return fmt.Sprintf("| %s | a | b | %s | embedded | %s | %s |\n", n, test, red, last)
	}
	a, b := "[`TestA`](../x/a_test.go)", "[`TestB`](../b_test.go)"
	for _, planted := range []struct{ text, wrong string }{
		{row("1", a+"<br>"+b, "`R`: "+a, "1 s") + row("2", b, "`R`: "+b+"<br>`R`: "+b, "1 s"), ""},
		{row("1", a, "`R`: "+a, "1 s"), "the rows are [1], want [1 2]"},
		{row("1", a, "`R`: "+a, "1 s") + row("2", "[`TestC`](../x/a_test.go)", "`R`: [`TestC`](../x/a_test.go)", "1 s"), "row 2: there is no test x/a_test.go TestC"},
		{row("1", a, "`S`: "+a, "1 s") + row("2", b, "`R`: "+b, "1 s"), "row 1: there is no rule S"},
		{row("1", a, "`R`: "+b, "1 s") + row("2", b, "`R`: "+b, "1 s"), "row 1: R is switched off for b_test.go TestB, which is none of its tests"},
		{row("1", a, "by hand", "1 s") + row("2", b, "`R`: "+b, "1 s"), "row 1 has 1 tests and 0 switches"},
		{row("1", a, "`R`: "+a, "-") + row("2", b, "`R`: "+b, "1 s"), "row 1 has 1 tests and 1 switches"},
	} {
		got := strings.Join(faultMistakes(faultTable(planted.text), []string{"1", "2"}, []string{"x/a_test.go TestA", "b_test.go TestB"}, []string{"R"}), "; ")
		if (got == "") != (planted.wrong == "") || !strings.Contains(got, planted.wrong) {
			t.Errorf("in a planted table: %q, want %q", got, planted.wrong)
		}
	}
}
