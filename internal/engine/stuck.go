package engine

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strconv"
	"time"
)

// labelKey is the profiler label that goroutines of user code carry: by it the stack of a stuck
// one is found, and profiles can be told apart.
const labelKey = "killick_runner"

func runnerLabels(id uint64) context.Context {
	return pprof.WithLabels(context.Background(), pprof.Labels(labelKey, strconv.FormatUint(id, 10)))
}

// label marks the calling goroutine as r's.
func (r *runner) label() { pprof.SetGoroutineLabels(r.labels) }

// stuck is an execution that has lasted for twice its time-out.
type stuck struct {
	r   *runner
	x   *exec
	age time.Duration
}

// tell shows it to a person, with the stack: Go cannot stop a goroutine.
func (s stuck) tell() {
	s.x.e.cfg.Observe(Event{Kind: TaskStuck, Component: s.x.c.spec.Name, Task: s.x.t.index, Reason: "timeout", Stack: s.r.stack(),
		Err: fmt.Errorf("user code has had one tuple for %v; its time-out is %v", s.age, s.x.c.spec.Timeout)})
}

// stack returns the stack of r's goroutine, in the form of a goroutine profile; nil if it is not
// in an execution any more. Goroutines that user code started have inherited the label, but are
// not below exec.
func (r *runner) stack() []byte {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return nil
	}
	mark := fmt.Appendf(nil, "%q:%q", labelKey, strconv.FormatUint(r.id, 10))
	for block := range bytes.SplitSeq(all.Bytes(), []byte("\n\n")) {
		if bytes.Contains(block, mark) && bytes.Contains(block, []byte("engine.(*exec).")) {
			return bytes.Clone(block)
		}
	}
	return nil
}
