package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// pauses says which spouts start nothing new, and by whose wish. A wish counts before the run has
// begun, too, and for partitions that come later.
type pauses struct {
	mu    sync.Mutex
	by    map[string]wish   // of the spouts that are paused; others are absent
	feeds map[string]intake // of a run; set once, by build
}

// intake is what a feed of either kind does.
type intake interface {
	Pause(on bool)
	Pending() int
}

// wish is who wants a spout to be paused; any of them is enough.
type wish uint8

const (
	byProgram wish = 1 << iota // Worker.Pause
	bySignal                   // SIGTSTP, and only SIGCONT or Worker.Resume takes it back
	// byGroup: this replica stands by, or has not joined yet, and the spout would emit here what it
	// emits in the one that works. Nobody but the group takes it back, and people are told of the
	// standby instead.
	byGroup
)

func (p *pauses) set(spout string, change func(wish) wish) (before, after wish) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by == nil {
		p.by = map[string]wish{}
	}
	before = p.by[spout]
	after = change(before)
	if p.by[spout] = after; after == 0 {
		delete(p.by, spout)
	}
	if f := p.feeds[spout]; f != nil { // under the lock: two changes must not overtake each other
		f.Pause(after != 0)
	}
	return before, after
}

// built gives it the feeds of the run.
func (p *pauses) built(feeds map[string]intake) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.feeds = feeds
	for name := range p.by {
		p.feeds[name].Pause(true)
	}
}

func (p *pauses) has(spout string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.by[spout]&^byGroup != 0
}

func (p *pauses) pending(spout string) int {
	p.mu.Lock()
	f := p.feeds[spout]
	p.mu.Unlock()
	if f == nil {
		return 0
	}
	return f.Pending()
}

// Pause stops a spout: no new root is started of it in this worker, until [Worker.Resume]. Roots that
// are under way end, with their retries, and are committed; Pause waits for that until ctx ends,
// whose error it returns then, and the spout is paused all the same; or until the run is over. The worker stays in the group
// and keeps its partitions; those that it is given meanwhile are paused, too, while a partition that
// moves to another worker is read there. Records are fetched ahead up to the spout's pending bytes
// and wait. Of a spout other than Kafka a call of Next that is in progress may still bring a message.
//
// A pause before Run makes a worker that begins paused. A pause does not outlive the process.
func (w *Worker) Pause(ctx context.Context, spout string) error {
	if err := w.setPause(spout, func(by wish) wish { return by | byProgram }); err != nil {
		return err
	}
	wait := func(d time.Duration, left string, cause error) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("worker: spout %q is paused, and %s: %w", spout, left, errors.Join(context.Cause(ctx), cause))
		}
	}
	over := func() bool { return state(w.state.Load()) == stateStopped } // what is open then does not end here
	for n := w.pauses.pending(spout); n > 0 && !over(); n = w.pauses.pending(spout) {
		if err := wait(5*time.Millisecond, fmt.Sprintf("%d of its records have not ended yet", n), nil); err != nil {
			return err
		}
	}
	if !w.built.Load() || w.reader == nil || !w.reader.Joined() {
		return nil
	}
	for !over() {
		n, err := w.reader.Commit(ctx)
		if n == 0 && err == nil {
			return nil
		}
		if err := wait(100*time.Millisecond, "all its records have ended, but the last position is not committed yet", err); err != nil {
			return err
		}
	}
	return nil // what could be committed was, or Run has returned why not
}

// Resume lets a paused spout go on, whoever has paused it. It does not wait. In a replica that stands by
// it goes on once the replica works.
func (w *Worker) Resume(spout string) error {
	return w.setPause(spout, func(by wish) wish { return by & byGroup })
}

// Paused lists the spouts that are paused, in the order of the topology.
func (w *Worker) Paused() (spouts []string) {
	for i := range w.spec.Spouts {
		if name := w.spec.Spouts[i].Name; w.pauses.has(name) {
			spouts = append(spouts, name)
		}
	}
	return spouts
}

func (w *Worker) setPause(spout string, change func(wish) wish) error {
	var names []string
	for i := range w.spec.Spouts {
		names = append(names, w.spec.Spouts[i].Name)
	}
	if !slices.Contains(names, spout) {
		return fmt.Errorf("worker: no spout %q; there is %s", spout, strings.Join(names, ", "))
	}
	before, after := w.pauses.set(spout, change)
	before, after = before&^byGroup, after&^byGroup
	switch {
	case before == 0 && after != 0:
		w.log.Info().Str("spout", spout).Msg("the spout is paused: nothing new is started, open trees may end")
	case before != 0 && after == 0:
		w.log.Info().Str("spout", spout).Msg("the spout goes on")
	}
	return nil
}

// setPauses changes the pauses of all spouts.
func (w *Worker) setPauses(change func(wish) wish) {
	for i := range w.spec.Spouts {
		_ = w.setPause(w.spec.Spouts[i].Name, change) // it exists
	}
}

// active lets spouts that are not Kafka's emit in the replica that works, and in no other. The group
// calls it; it does not block.
func (w *Worker) active(is bool) {
	for i := range w.spec.Spouts {
		if s := &w.spec.Spouts[i]; !s.Kafka() {
			w.pauses.set(s.Name, func(by wish) wish {
				if is {
					return by &^ byGroup
				}
				return by | byGroup
			})
		}
	}
}
