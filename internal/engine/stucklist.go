package engine

import (
	"time"

	"github.com/killick-io/killick/internal/core"
)

// Stuck is user code that has had one tuple for more than twice its time-out.
type Stuck struct {
	Component string
	Task      int
	For       time.Duration // to the resolution of the watch, a tenth of the shortest time-out
	Timeout   time.Duration
	// Origin is the source record of the tuple; of a joined one, of the first. The zero Origin: it
	// has none.
	Origin core.Origin
	Line   string // where the user code stood when it was told, "main.charge pay.go:33"; "": not known
}

// Stuck lists the tasks of which TaskStuck was told, or is about to be, and whose user code has not
// returned since. Where it stands is known by then.
func (e *Engine) Stuck() []Stuck {
	w := e.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Stuck
	now := w.tick.Load()
	for r := range w.runners {
		x := r.cur.Load()
		if x == nil || !r.shown || r.word.Load() != r.seen {
			continue
		}
		s := Stuck{Component: x.c.spec.Name, Task: x.t.index, For: time.Duration(now-r.seen>>1-r.credit) * w.period, Timeout: x.c.spec.Timeout, Line: r.line}
		s.Origin, _ = x.origin()
		if r.word.Load() == r.seen { // else it has returned, and the origin may be another tuple's
			out = append(out, s)
		}
	}
	return out
}

// rushTime is what drain and grace are cut down to by Rush.
const rushTime = 2 * time.Second

// Rush says that a stop, which is about to be asked for, is not to wait long: a task is stuck, and all
// that is queued behind it would be waited for in vain.
func (e *Engine) Rush() { e.rush.Store(true) }

// hurried is d, less under Rush.
func (e *Engine) hurried(d time.Duration) time.Duration {
	if e.rush.Load() {
		return min(d, rushTime)
	}
	return d
}
