// Command mutants proves that the tests behind killick's guarantees notice when a rule is broken.
// It builds the tests under the build tag mutants, runs each test of the table as it is, which must
// pass, and again with its rule switched off (see internal/rules), which must fail.
//
//	mutants [-short] [-race] [rule ...]
//	mutants -faults [-race] [row ...]
//
// -short takes the rules of the short list, names take those; -faults takes the switches of docs/faults.md,
// of all its rows or of some; -race builds with the race detector. It prints a line for each rule and exits 1
// if one survived. Run it in the module's root folder.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// limit is the time that one test may take; those that start Kafka have longer. A test that a broken rule
// makes hang has noticed it.
func limit(pkg string) time.Duration {
	if pkg == proofs {
		return 6 * time.Minute
	}
	return 60 * time.Second
}

// proofs are the tests on Apache Kafka. They have a build tag of their own.
const proofs = "./internal/proof"

func run(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("mutants", flag.ContinueOnError)
	fs.SetOutput(stderr)
	short := fs.Bool("short", false, "only the short list")
	rows := fs.Bool("faults", false, "the switches of "+faultsDoc+"; arguments are rows")
	race := fs.Bool("race", false, "build with the race detector")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	chosen, err := choose(*short, nil)
	if *rows {
		chosen, err = chooseFaults(fs.Args())
	} else if fs.NArg() > 0 {
		chosen, err = choose(false, fs.Args())
	}
	if err == nil {
		err = complete("internal/rules/rules.go")
	}
	if err != nil {
		fmt.Fprintln(stderr, "mutants:", err)
		return 2
	}
	dir, err := os.MkdirTemp("", "killick-mutants-")
	if err != nil {
		fmt.Fprintln(stderr, "mutants:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	bins, err := build(dir, chosen, *race)
	if err != nil {
		fmt.Fprintln(stderr, "mutants:", err)
		return 1
	}
	results := prove(chosen, bins)
	print(stdout, results)
	survived := 0
	for _, r := range results {
		if r.err != nil {
			survived++
			fmt.Fprintf(stdout, "\n%s: %v\n%s\n", r.rule, r.err, r.output)
		}
	}
	fmt.Fprintf(stdout, "%d rules broken one by one, %d noticed, %d not\n", len(results), len(results)-survived, survived)
	if survived > 0 {
		return 1
	}
	return 0
}

func choose(short bool, names []string) ([]mutant, error) {
	var errs []error
	for _, n := range names {
		if !slices.ContainsFunc(table, func(m mutant) bool { return m.rule == n }) {
			errs = append(errs, fmt.Errorf("no rule %q; internal/tools/mutants/table.go has them", n))
		}
	}
	var out []mutant
	for _, m := range table {
		if len(names) > 0 && slices.Contains(names, m.rule) || len(names) == 0 && (m.short || !short) {
			out = append(out, m)
		}
	}
	return out, errors.Join(errs...)
}

// complete compares the table with the rules that there are.
func complete(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("%w; run it in the module's root folder", err)
	}
	var errs []error
	var rules []string
	for _, m := range regexp.MustCompile(`(?m)^\t(\w+) = true$`).FindAllStringSubmatch(string(text), -1) {
		rules = append(rules, m[1])
	}
	for _, r := range rules {
		if !slices.ContainsFunc(table, func(m mutant) bool { return m.rule == r }) {
			errs = append(errs, fmt.Errorf("no test stands behind the rule %s: add it to internal/tools/mutants/table.go", r))
		}
	}
	seen := map[string]bool{}
	for _, m := range table {
		if !slices.Contains(rules, m.rule) {
			errs = append(errs, fmt.Errorf("the table names %s, which is no rule of %s", m.rule, file))
		}
		if seen[m.rule] {
			errs = append(errs, fmt.Errorf("the table names %s twice", m.rule))
		}
		seen[m.rule] = true
	}
	return errors.Join(errs...)
}

// binary is a test binary, and what came out without any mutant, by test.
type binary struct {
	path  string
	plain map[string]outcome
}

// build makes the test binaries of the packages, and checks that the named tests exist.
func build(dir string, chosen []mutant, race bool) (map[string]*binary, error) {
	bins := map[string]*binary{}
	for _, m := range chosen {
		if bins[m.pkg] != nil {
			continue
		}
		path := filepath.Join(dir, fmt.Sprintf("%d.test", len(bins)))
		tags := "mutants"
		if m.pkg == proofs {
			tags += ",killick_crash"
		}
		cmd := exec.Command("go", "test", "-tags", tags, "-vet=off", "-ldflags=-w", fmt.Sprintf("-race=%v", race), "-c", "-o", path, m.pkg)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building the tests of %s: %w\n%s", m.pkg, err, out)
		}
		bins[m.pkg] = &binary{path: path, plain: map[string]outcome{}}
	}
	return bins, nil
}

// outcome is what a test came to.
type outcome struct {
	passed, failed bool // neither: it did not run
	took           time.Duration
	output         string
}

type result struct {
	mutant
	plain, broken outcome
	err           error
	output        string
}

// prove runs the tests, as many at a time as there are processors.
func prove(chosen []mutant, bins map[string]*binary) []result {
	results := make([]result, len(chosen))
	type test struct{ pkg, name string }
	plain := map[test]*outcome{}
	for _, m := range chosen {
		plain[test{m.pkg, m.test}] = new(outcome)
	}
	gate := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	start := func(f func()) {
		gate <- struct{}{}
		wg.Go(func() { defer func() { <-gate }(); f() })
	}
	for t, o := range plain {
		start(func() { *o = one(bins[t.pkg].path, t.pkg, t.name, "") })
	}
	for i, m := range chosen {
		start(func() {
			results[i] = result{mutant: m, broken: one(bins[m.pkg].path, m.pkg, m.test, m.rule)}
		})
	}
	wg.Wait()
	for i := range results {
		r := &results[i]
		r.plain = *plain[test{r.pkg, r.test}]
		switch {
		case !r.plain.passed && !r.plain.failed:
			r.err, r.output = fmt.Errorf("there is no test %s in %s", r.test, r.pkg), r.plain.output
		case !r.plain.passed:
			r.err, r.output = fmt.Errorf("%s fails without any rule broken", r.test), r.plain.output
		case !r.broken.failed:
			r.err, r.output = fmt.Errorf("%s does not notice", r.test), r.broken.output
		}
	}
	return results
}

// one runs a test with a rule switched off; "" is none.
func one(bin, pkg, test, rule string) (o outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), limit(pkg))
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "-test.run", "^"+test+"$", "-test.v", "-test.timeout", (limit(pkg) - 5*time.Second).String())
	cmd.Dir = pkg
	cmd.Env = append(os.Environ(), "KILLICK_MUTANT="+rule)
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	o.took, o.output = time.Since(begin), string(out)
	ran := strings.Contains(o.output, "=== RUN   "+test+"\n")
	o.passed = ran && err == nil && strings.Contains(o.output, "\nPASS")
	o.failed = ran && err != nil
	return o
}

func print(w io.Writer, results []result) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "rule\tguarantee\ttest\tas it is\trule broken\twhat it says")
	for _, r := range results {
		fmt.Fprintf(tw, "%s\t%s\t%s %s\t%s\t%s\t%s\n", r.rule, r.guarantee, r.pkg, r.test, verdict(r.plain), verdict(r.broken), says(r.broken.output))
	}
	tw.Flush()
}

func verdict(o outcome) string {
	took := o.took.Round(10 * time.Millisecond)
	switch {
	case o.passed:
		return fmt.Sprintf("passes (%v)", took)
	case o.failed:
		return fmt.Sprintf("fails (%v)", took)
	}
	return "did not run"
}

var complaint = regexp.MustCompile(`(?m)^(?:\s+\w+_test\.go:\d+: |panic: |fatal error: )(.*)$`)

// says returns the first complaint in a test's output.
func says(output string) string {
	m := complaint.FindStringSubmatch(output)
	if m == nil {
		return ""
	}
	if s := strings.TrimSpace(m[1]); len(s) > 90 {
		return s[:87] + "..."
	} else {
		return s
	}
}
