package crash

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Var is the environment variable that arms points.
const Var = "KILLICK_TEST_CRASH"

// ExitCode is that of a process that a point has ended by exit.
const ExitCode = 97

// Said begins the line that a point writes to stderr before it acts.
const Said = "crash point"

// Do is what a point does when it is armed.
type Do string

// What a point can do.
const (
	Exit  Do = "exit"
	Kill  Do = "kill"
	Stop  Do = "stop"
	Sleep Do = "sleep"
)

// Step is one part of what KILLICK_TEST_CRASH says.
type Step struct {
	At  Point
	N   int  // from 1: the n-th time that the point is passed
	On  bool // and each time after it
	Do  Do
	For time.Duration // of Sleep
}

// String returns the step as Parse reads it.
func (s Step) String() string {
	on := ""
	if s.On {
		on = "+"
	}
	return fmt.Sprintf("%s:%d%s:%s", s.At, s.N, on, s.action())
}

func (s Step) action() string {
	if s.Do == Sleep {
		return fmt.Sprintf("sleep(%s)", s.For)
	}
	return string(s.Do)
}

// validate says what is wrong with a step.
func (s Step) validate() error {
	var errs []error
	if len(Rows(s.At)) == 0 {
		errs = append(errs, fmt.Errorf("crash: %q is no point; see internal/crash/points.go", s.At))
	}
	if s.N < 1 {
		errs = append(errs, fmt.Errorf("crash: %q: passage %d; they are counted from 1", s.At, s.N))
	}
	switch {
	case s.Do != Exit && s.Do != Kill && s.Do != Stop && s.Do != Sleep:
		errs = append(errs, fmt.Errorf("crash: %q: %q is no action; use exit, kill, stop or sleep(300ms)", s.At, s.Do))
	case (s.Do == Sleep) != (s.For > 0):
		errs = append(errs, fmt.Errorf("crash: %q: %s for %v; sleep, and nothing else, takes a time above 0", s.At, s.Do, s.For))
	}
	return errors.Join(errs...)
}

// Parse reads the value of KILLICK_TEST_CRASH. The error joins all that is wrong with it. "" arms nothing.
func Parse(text string) (steps []Step, err error) {
	if text == "" {
		return nil, nil
	}
	var errs []error
	for part := range strings.SplitSeq(text, ",") {
		s, err := parse(part)
		if err == nil {
			err = s.validate()
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		steps = append(steps, s)
	}
	return steps, errors.Join(errs...)
}

func parse(part string) (s Step, err error) {
	f := strings.Split(part, ":")
	if len(f) != 3 {
		return s, fmt.Errorf("crash: %q is not of the form point:n:action, as in before-commit:3:kill", part)
	}
	s.At, s.Do = Point(f[0]), Do(f[2])
	n, on := strings.CutSuffix(f[1], "+")
	if s.N, err = strconv.Atoi(n); err != nil {
		return s, fmt.Errorf("crash: %q: %q is no number of a passage, such as 3 or 3+", part, f[1])
	}
	s.On = on
	if t, ok := strings.CutPrefix(f[2], "sleep("); ok && strings.HasSuffix(t, ")") {
		s.Do = Sleep
		if s.For, err = time.ParseDuration(strings.TrimSuffix(t, ")")); err != nil {
			return s, fmt.Errorf("crash: %q: %w", part, err)
		}
	}
	return s, nil
}

// Format is the value of KILLICK_TEST_CRASH for steps. The error joins all that is wrong with them.
func Format(steps ...Step) (string, error) {
	var errs []error
	var out []string
	for _, s := range steps {
		errs = append(errs, s.validate())
		out = append(out, s.String())
	}
	return strings.Join(out, ","), errors.Join(errs...)
}
