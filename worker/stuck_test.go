package worker

import (
	"testing"
	"time"

	"github.com/killick-io/killick/internal/engine"
)

// A task is overdue when it was seen stuck for long enough, not when the clock has jumped.
func TestOverdue(t *testing.T) {
	at := func(d time.Duration) []engine.Stuck {
		return []engine.Stuck{{Component: "other", For: 3 * time.Second, Timeout: time.Second}, {Component: "x", Task: 1, For: d, Timeout: time.Second}}
	}
	var o overdue
	for i := 2; i <= 10; i++ {
		if s, ok := o.check(at(time.Duration(i) * time.Second)); ok {
			t.Errorf("after %d s: %+v", i, s)
		}
	}
	if s, ok := o.check(at(11 * time.Second)); !ok || s.Component != "x" || s.Task != 1 {
		t.Errorf("after 11 s: %+v, %v", s, ok)
	}
	// Frozen for an hour in the middle of a tuple, and back at work a moment later.
	o = overdue{}
	if s, ok := o.check(at(time.Hour)); ok {
		t.Errorf("right after a thaw: %+v", s)
	}
	o.check(nil)
	// Tuple after tuple takes too long, and comes back.
	for i := range 100 {
		if s, ok := o.check(at(time.Duration(3+i%8) * time.Second)); ok {
			t.Errorf("check %d: %+v", i, s)
		}
	}
	// Time-outs that are shorter than the time between checks.
	o = overdue{}
	short := []engine.Stuck{{Component: "x", For: time.Hour, Timeout: time.Millisecond}}
	for i, want := range []bool{false, false, true} {
		if _, ok := o.check(short); ok != want {
			t.Errorf("check %d: %v", i, ok)
		}
	}
}
