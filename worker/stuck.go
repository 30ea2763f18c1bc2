package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/internal/rules"
)

const (
	// stuckLimit is how many time-outs user code may have one tuple for, before the process is given
	// up on: Go cannot end a goroutine, and the task and its partition would stand still for ever.
	stuckLimit = 10
	// stuckCheck is how often that is looked at.
	stuckCheck = time.Second
)

// watch ends the run when a task is stuck for good. A run that ends anyway has the drain limit.
func (w *Worker) watch(ctx, run context.Context) {
	tick := time.NewTicker(stuckCheck)
	defer tick.Stop()
	var o overdue
	for {
		select {
		case <-ctx.Done():
			return
		case <-run.Done():
			return
		case <-tick.C:
		}
		if s, ok := o.check(w.engine.Stuck()); ok && rules.StuckEndsTheWorker {
			w.culprit.Store(&s)
			w.engine.Rush()
			w.fatal(fmt.Errorf("%w: %s; the log has its stack. Its record runs once more after the next start, alone, and becomes a dead letter if that ends so, too",
				ErrStuck, stuckText(s)))
			return
		}
	}
}

// patience is how long a root may be open without being worked on, before careful mode goes on beside it.
func patience(s *killick.Spec) time.Duration {
	d := time.Second
	for i := range s.Bolts {
		d = max(d, s.Bolts[i].Timeout)
	}
	return min(d, time.Minute)
}

// overdue finds tasks that are stuck for good. It does not go by the clock alone: a process that was
// frozen finds all that it was doing overdue when it thaws, and must have time to go on.
type overdue struct {
	seen map[stuckTask]stuckSince
}

type stuckTask struct {
	component string
	task      int
}

type stuckSince struct {
	checks  int // one after the other
	longest time.Duration
}

// check is called each stuckCheck with what is stuck then.
func (o *overdue) check(now []engine.Stuck) (engine.Stuck, bool) {
	next := map[stuckTask]stuckSince{}
	var found *engine.Stuck
	for i := range now {
		s := &now[i]
		k := stuckTask{s.Component, s.Task}
		was := o.seen[k]
		if s.For < was.longest {
			was.checks = 0 // another tuple
		}
		was = stuckSince{was.checks + 1, s.For}
		next[k] = was
		// It was told as stuck after two time-outs; the others must have been seen.
		if s.For > stuckLimit*s.Timeout && was.checks > max(2, int((stuckLimit-2)*s.Timeout/stuckCheck)) {
			found = s
		}
	}
	o.seen = next
	if found == nil {
		return engine.Stuck{}, false
	}
	return *found, true
}
