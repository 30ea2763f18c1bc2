package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one line of go test -json; see go doc test2json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// summary counts what go test -json reports, and prints what a person wants to see of it.
type summary struct {
	w                       io.Writer
	passed, failed, skipped int

	pkgs map[string]*pkg // running
}

// pkg is a package whose end has not been seen. A test's output is kept until it ends, and then
// dropped or shown.
type pkg struct {
	order  []string // of the keys of output
	output map[string][]string
	failed bool // a test has
}

func newSummary(w io.Writer) *summary { return &summary{w: w, pkgs: map[string]*pkg{}} }

// String is the last line.
func (s *summary) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", s.passed, s.failed, s.skipped)
}

// read takes events until the end. A line that is none is shown as it is.
func (s *summary) read(r io.Reader) error {
	in := bufio.NewReader(r) // a Scanner would give up on a very long line
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
				s.take(e)
			} else {
				fmt.Fprint(s.w, line)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the output of go test: %w", err)
		}
	}
}

func (s *summary) take(e event) {
	if e.Action == "build-output" {
		fmt.Fprint(s.w, e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	p := s.pkgs[e.Package]
	if p == nil {
		p = &pkg{output: map[string][]string{}}
		s.pkgs[e.Package] = p
	}
	switch {
	case e.Action == "output" && e.Test == "" && headline(e.Output):
		fmt.Fprint(s.w, e.Output)
	case e.Action == "output":
		p.note(e.Test, e.Output)
	case e.Test != "":
		s.ended(p, e)
	case e.Action == "fail":
		if !p.failed {
			s.failed++
		}
		for _, t := range p.order { // of tests that never ended, and of the package itself
			s.show(p.output[t])
		}
		delete(s.pkgs, e.Package)
	case e.Action == "pass" || e.Action == "skip":
		delete(s.pkgs, e.Package)
	}
}

func (s *summary) ended(p *pkg, e event) {
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		s.skipped++
	case "fail":
		s.failed++
		p.failed = true
		s.show(p.output[e.Test])
	default:
		return
	}
	delete(p.output, e.Test)
	p.order = slices.DeleteFunc(p.order, func(t string) bool { return t == e.Test })
}

func (p *pkg) note(test, text string) {
	if _, ok := p.output[test]; !ok {
		p.order = append(p.order, test)
	}
	p.output[test] = append(p.output[test], text)
}

func (s *summary) show(lines []string) {
	for _, l := range lines {
		if !strings.HasPrefix(l, "=== ") {
			fmt.Fprint(s.w, l)
		}
	}
}

// headline reports whether an output line of a package is its verdict.
func headline(line string) bool {
	for _, p := range []string{"ok  \t", "FAIL\t", "?   \t"} {
		if strings.HasPrefix(line, p) {
			return true
		}
	}
	return false
}
