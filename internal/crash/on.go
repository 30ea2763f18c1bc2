//go:build killick_crash

package crash

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// Enabled reports whether this build has crash points.
const Enabled = true

// armed is what KILLICK_TEST_CRASH asks for.
var armed = mustArm(os.Getenv(Var))

// arming is what one point is to do, and how often it was passed.
type arming struct {
	steps  []Step
	passed atomic.Int64
}

func mustArm(s string) map[Point]*arming {
	steps, err := Parse(s)
	for _, st := range steps {
		if st.Do == Stop && !canStop {
			err = errors.Join(err, errors.New("crash: this system has no SIGSTOP"))
		}
	}
	if err != nil {
		// Before anything runs: a test that arms nothing would test nothing.
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	m := map[Point]*arming{}
	for _, st := range steps {
		if m[st.At] == nil {
			m[st.At] = &arming{}
		}
		m[st.At].steps = append(m[st.At].steps, st)
	}
	return m
}

// At is where the process may be made to end.
func At(p Point) {
	a := armed[p]
	if a == nil {
		return
	}
	n := int(a.passed.Add(1))
	for _, st := range a.steps {
		if n == st.N || st.On && n > st.N {
			fmt.Fprintf(os.Stderr, "%s %s passage %d: %s\n", Said, p, n, st.action())
			act(st)
		}
	}
}

func act(st Step) {
	switch st.Do {
	case Exit:
		os.Exit(ExitCode)
	case Kill:
		killSelf()
		select {} // it comes
	case Stop:
		stopSelf()
	case Sleep:
		time.Sleep(st.For)
	}
}
