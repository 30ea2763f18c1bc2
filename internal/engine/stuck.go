package engine

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
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
	stack := s.r.stack()
	ev := Event{Kind: TaskStuck, Component: s.x.c.spec.Name, Task: s.x.t.index, Reason: "timeout", Stack: stack,
		Err: fmt.Errorf("user code has had one tuple for %v; its time-out is %v", s.age, s.x.c.spec.Timeout)}
	if o, ok := s.x.origin(); ok {
		ev.ID = fmt.Sprintf("%s/%d/%d", o.Topic, o.Partition, o.Offset)
	}
	w := s.r.w
	w.mu.Lock()
	if s.r.told { // still: it has not begun another one meanwhile
		s.r.line, s.r.shown = userLine(stack), true
	}
	w.mu.Unlock()
	s.x.e.cfg.Observe(ev)
}

// userLine finds the user's own function in a stack of stack's: the last one, from the innermost on,
// before the first of killick's. What it has called is further in, and says less.
func userLine(stack []byte) (line string) {
	for l := range bytes.Lines(stack) {
		f := bytes.Split(bytes.TrimSpace(l), []byte("\t")) // "#", address, function+offset, file:line
		if len(f) < 4 || string(f[0]) != "#" {
			continue
		}
		name, _, _ := strings.Cut(string(f[2]), "+0x")
		if ours(name) {
			return line
		}
		file := string(f[len(f)-1])
		line = path.Base(name) + " " + path.Base(filepath.ToSlash(file))
	}
	return "" // no frame of ours: it is no such stack
}

// ours reports whether a function is one of the packages that stand between the engine and user code.
func ours(function string) bool {
	rest, ok := strings.CutPrefix(function, "github.com/killick-io/killick")
	return ok && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "/bolt.") || strings.HasPrefix(rest, "/internal/"))
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
