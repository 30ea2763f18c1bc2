package engine

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/killick-io/killick/ack"
)

// Mistakes of bolts that a program cannot be stopped for: they are counted, change nothing, and the
// line of code is told.

// Misused implements core.Hook: the emitter of an execution that has returned.
func (x *exec) Misused(kind string, stale bool) {
	x.c.stats.misuse.Add(1)
	x.c.tell(x.t.index, kind, "the emitter was used to %s after Execute had returned, at %s", kind, userPlace(place()))
}

func (c *component) tell(task int, reason, format string, args ...any) {
	c.e.cfg.Observe(Event{Kind: Misuse, Component: c.spec.Name, Task: task, Reason: reason, Err: fmt.Errorf("killick: "+format, args...)})
}

// misuses is what a component has been told of lately: a bolt that makes a mistake makes it for every
// tuple.
type misuses struct {
	lateEmit, double seldom
	// trace: a held tuple's time was up, so from now on the place of Hold is noted.
	trace atomic.Bool
}

// seldom allows the first few times, and then one a second.
type seldom struct {
	n    atomic.Int64
	next atomic.Int64 // unix nanos
}

const seldomFirst = 8

func (s *seldom) now() bool {
	if s.n.Load() < seldomFirst && s.n.Add(1) <= seldomFirst {
		return true
	}
	now := time.Now().UnixNano()
	next := s.next.Load()
	return now >= next && s.next.CompareAndSwap(next, now+int64(time.Second))
}

// lateEmit is an Emit on a held tuple that has its verdict.
func (h *held) lateEmit() {
	h.c.stats.misuse.Add(1)
	if h.c.misuses.lateEmit.now() {
		h.c.tell(h.t.index, "late_emit", "a held tuple was emitted on after its verdict, at %s", userPlace(place()))
	}
}

// again is a verdict of user code for a tuple to which user code gave one before.
func (h *held) again(v, was ack.Verdict) {
	if (v != ack.Ack && v != ack.Failed) || (was != ack.Ack && was != ack.Failed) || !h.c.misuses.double.now() {
		return
	}
	names := map[ack.Verdict]string{ack.Ack: "Ack", ack.Failed: "Fail"}
	h.c.tell(h.t.index, "double_verdict", "%s on a held tuple after %s, at %s", names[v], names[was], userPlace(place()))
}

// neverEnded is what a held tuple failed of whose time was up. From the second one on it names the line
// that held it.
func (h *held) neverEnded() error {
	err := errTimeout(h.c)
	if h.place != nil {
		return fmt.Errorf("%w; it was held at %s and has had no verdict", err, userPlace(h.place))
	}
	h.c.misuses.trace.Store(true)
	return err
}

// held notes where it was held, if that is wanted.
func (h *held) trace() {
	if h.c.misuses.trace.Load() {
		h.place = place()
	}
}

// place is the stack of the caller's caller.
func place() []uintptr {
	var pcs [16]uintptr
	n := runtime.Callers(3, pcs[:])
	return append([]uintptr(nil), pcs[:n]...)
}

// userPlace is the first line of a stack that is not killick's own.
func userPlace(pcs []uintptr) string {
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		if !own(f.Function) {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		if !more {
			return "an unknown place"
		}
	}
}

const module = "github.com/killick-io/killick"

func own(function string) bool {
	for _, p := range []string{"/internal/core.", "/internal/engine.", ".Emitter.", ".(*Held).", "/bolt."} {
		if strings.HasPrefix(function, module+p) {
			return true
		}
	}
	return false
}
