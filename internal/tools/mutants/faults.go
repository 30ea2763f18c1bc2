package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
)

// faultsDoc is the table of faults.
const faultsDoc = "docs/faults.md"

var (
	faultRow = regexp.MustCompile(`(?m)^\| (\d+) \| .+ \|$`)
	// switched is a rule and the test that turns red without it.
	switched = regexp.MustCompile("`(\\w+)`: \\[`(\\w+)`\\]\\(\\.\\./([^)]+)\\)")
)

// faults reads the switches of the table of faults: those of some rows, or of all.
func faults(text string, rows []string) ([]mutant, error) {
	var out []mutant
	var errs []error
	seen := map[string]bool{}
	for _, line := range faultRow.FindAllStringSubmatch(text, -1) {
		seen[line[1]] = true
		if len(rows) > 0 && !slices.Contains(rows, line[1]) {
			continue
		}
		for _, m := range switched.FindAllStringSubmatch(line[0], -1) {
			out = append(out, mutant{rule: m[1], guarantee: "row " + line[1], pkg: "./" + path.Dir(m[3]), test: m[2]})
		}
	}
	for _, r := range rows {
		if !seen[r] {
			errs = append(errs, fmt.Errorf("%s has no row %q", faultsDoc, r))
		}
	}
	return out, errors.Join(errs...)
}

// chooseFaults is choose for the table of faults.
func chooseFaults(rows []string) ([]mutant, error) {
	text, err := os.ReadFile(faultsDoc)
	if err != nil {
		return nil, fmt.Errorf("%w; run it in the module's root folder", err)
	}
	return faults(string(text), rows)
}
