package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// The tests run where the command does.
func inRoot(t *testing.T) {
	t.Helper()
	t.Chdir("../../..")
}

func TestTableIsComplete(t *testing.T) {
	inRoot(t)
	if err := complete("internal/rules/rules.go"); err != nil {
		t.Error(err)
	}
	guarantees := map[string]bool{}
	short := map[string]bool{}
	for _, m := range table {
		guarantees[m.guarantee] = true
		if m.short {
			short[m.guarantee] = true
		}
	}
	for _, g := range []string{"G1", "G3", "G4", "G5"} {
		if !guarantees[g] || !short[g] {
			t.Errorf("%s has a rule: %v, and one on the short list: %v", g, guarantees[g], short[g])
		}
	}
	if err := complete("internal/rules/none.go"); err == nil {
		t.Error("a file that does not exist has all the rules")
	}
}

func TestNoticed(t *testing.T) {
	inRoot(t)
	var out, errs bytes.Buffer
	if code := run([]string{"ClosedEpochsEnd"}, &out, &errs); code != 0 {
		t.Errorf("exit code %d\n%s%s", code, &out, &errs)
	}
	if want := "1 rules broken one by one, 1 noticed, 0 not\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("no %q at the end:\n%s", want, &out)
	}
}

func TestNotNoticed(t *testing.T) {
	inRoot(t)
	chosen := []mutant{
		{"ClosedEpochsEnd", "G3", "./ack", "TestOutcomeNames", false},
		{"ClosedEpochsEnd", "G3", "./ack", "TestNone", false},
	}
	bins, err := build(t.TempDir(), chosen, false)
	if err != nil {
		t.Fatal(err)
	}
	results := prove(chosen, bins)
	for i, want := range []string{"TestOutcomeNames does not notice", "there is no test TestNone in ./ack"} {
		if got := results[i].err; got == nil || got.Error() != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}

func TestUsage(t *testing.T) {
	inRoot(t)
	for _, args := range [][]string{{"-long"}, {"NoSuchRule"}} {
		var out, errs bytes.Buffer
		if code := run(args, &out, &errs); code != 2 || errs.Len() == 0 {
			t.Errorf("%q: exit code %d, %q", args, code, &errs)
		}
	}
}

func TestSays(t *testing.T) {
	for _, tt := range []struct{ output, want string }{
		{"=== RUN   TestX\n    x_test.go:7: bad\n    x_test.go:8: worse\n", "bad"},
		{"panic: ack: more edges ended\n\ngoroutine 1", "ack: more edges ended"},
		{"    x_test.go:7: " + strings.Repeat("long ", 40), strings.Repeat("long ", 40)[:87] + "..."},
		{"PASS\n", ""},
	} {
		if got := says(tt.output); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestFaults(t *testing.T) {
	text := "| row | fault |\n|---|---|\n" +
		"| 3 | a | b | [`TestA`](../x/a_test.go) | - | `One`: [`TestA`](../x/a_test.go)<br>`Two`: [`TestB`](../b_test.go) | - |\n" +
		"| 4 | a | b | [`TestC`](../internal/proof/c_test.go) | - | `One`: [`TestC`](../internal/proof/c_test.go) | - |\n" +
		"| 5 | a | b | [`TestD`](../d_test.go) | - | the limit itself | - |\n"
	all, err := faults(text, nil)
	want := []mutant{{"One", "row 3", "./x", "TestA", false}, {"Two", "row 3", "./.", "TestB", false}, {"One", "row 4", "./internal/proof", "TestC", false}}
	if err != nil || !slices.Equal(all, want) {
		t.Errorf("%v, %v", all, err)
	}
	if some, err := faults(text, []string{"4"}); err != nil || !slices.Equal(some, want[2:]) {
		t.Errorf("%v, %v", some, err)
	}
	if _, err := faults(text, []string{"6"}); err == nil || !strings.Contains(err.Error(), `no row "6"`) {
		t.Errorf("%v", err)
	}
}
