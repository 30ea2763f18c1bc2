package engine

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/core"
)

// source owns the trees of one chunk's roots: those that needed one.
type source struct {
	ack.Home
	d     *dispatcher
	chunk Chunk

	mu sync.Mutex
	// began has when roots were started that needed a tree: of one in sampleTrees, by index/sampleTrees,
	// in nanoseconds since the engine's start; 0: it needed none yet.
	began []int64
}

// sampleTrees is of how many roots one is measured: those that outlive the synchronous call would
// cost two clock calls each. It goes by the index in the chunk, so that a chunk has one at least.
const sampleTrees = 64

// sampled returns how many of the roots [from, to) are measured.
func sampled(from, to int) int {
	return (to+sampleTrees-1)/sampleTrees - (from+sampleTrees-1)/sampleTrees
}

// start notes when an attempt of the i-th root began: a replay begins anew.
func (s *source) start(i int) {
	now := max(1, int64(time.Since(s.d.e.watch.began)))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i /= sampleTrees; len(s.began) <= i; {
		s.began = append(s.began, 0)
	}
	s.began[i] = now
}

// ended measures the i-th root.
func (s *source) ended(i int) {
	s.mu.Lock()
	began := int64(0)
	if k := i / sampleTrees; k < len(s.began) {
		began = s.began[k]
	}
	s.mu.Unlock()
	if began > 0 {
		s.d.stats.trees.observe(time.Since(s.d.e.watch.began)-time.Duration(began), 1)
	}
}

// slabSize is how many trees are allocated at a time. A slab lives as long as any of its trees;
// so do their chunks.
const slabSize = 128

// newTree makes a tree with one open edge: that of the synchronous call, or of the item that
// it is handed over with. Trees are never reused: a late verdict would hit another root.
func (d *dispatcher) newTree(c Chunk, i, attempt int) *ack.Tree {
	if d.source == nil || d.source.chunk != c {
		d.source = &source{d: d, chunk: c}
		d.source.Home = ack.Home{Epoch: c.Epoch(), Owner: d.source}
	}
	if i%sampleTrees == 0 {
		d.source.start(i)
	}
	if len(d.slab) == 0 {
		d.slab = make([]ack.Tree, slabSize)
	}
	t := &d.slab[0]
	d.slab = d.slab[1:]
	t.Start(&d.source.Home, i, attempt, 1)
	return t
}

// TreeEnded implements ack.Owner: it tells the feed, or plans the next attempt.
func (s *source) TreeEnded(t *ack.Tree, c *ack.Cause) {
	d, i, attempt := s.d, t.Index(), t.Attempt()
	if i%sampleTrees == 0 && (c == nil || c.Outcome != ack.Replayed || attempt >= c.Limit) {
		s.ended(i)
	}
	if c == nil {
		d.e.parked.drop(t)
		d.stats.acked.Add(1)
		d.tellEnd(s.chunk, i, nil)
		s.chunk.End(i, nil)
		return
	}
	if c.Outcome == ack.Replayed {
		if attempt < c.Limit {
			wait := time.Duration(0)
			if c.Wait != nil {
				wait = c.Wait(attempt)
			}
			if d.e.draining.Load() || t.Releasing() {
				d.e.parked.add(t) // the next start, or the next owner, reads the record again
				return
			}
			d.stats.replayed.Add(1)
			d.e.cfg.Observe(Event{Kind: RootReplayed, Component: c.Component, Task: c.Task, Attempt: attempt, Reason: c.Reason, Err: c.Err, Wait: wait})
			d.e.delays.after(wait, ack.On(t), func() { d.restart(s.chunk, i, attempt+1) })
			return
		}
		dead := *c
		dead.Outcome, dead.Attempts = ack.Dead, attempt
		c = &dead
		if c.Policy == ack.Stop {
			d.e.parked.add(t)
			d.e.stop(c.Component, c.Err, false)
			return
		}
		d.e.cfg.Observe(Event{Kind: TupleDead, Component: c.Component, Task: c.Task, Attempt: attempt, Reason: c.Reason, Err: c.Err})
	}
	d.e.parked.drop(t)
	if c.Policy == ack.Skip {
		d.stats.skipped.Add(1)
	} else {
		d.stats.dead.Add(1)
	}
	d.tellEnd(s.chunk, i, c)
	s.chunk.End(i, c)
}

var errGivenUp = errors.New("given up")

// TellEnd tells the user of a spout that a root has ended because of c before a tree of it was begun.
func (e *Engine) TellEnd(spout string, o core.Origin, c *ack.Cause) {
	for _, d := range e.spouts {
		if d.spec.Name == spout {
			d.tell(o, c)
		}
	}
}

// tellEnd tells the spout's user that a root has ended, if they asked.
func (d *dispatcher) tellEnd(chunk Chunk, i int, c *ack.Cause) {
	if d.spec.OnEnd != nil {
		d.tell(chunk.Origin(i), c)
	}
}

func (d *dispatcher) tell(o core.Origin, c *ack.Cause) {
	f := d.spec.OnEnd
	if f == nil {
		return
	}
	var err error
	if c != nil {
		err = fmt.Errorf("%s: %s: %w", c.Component, c.Reason, cmp.Or(c.Err, errGivenUp))
	}
	if err := guard(func() error { f(killick.Origin(o), err); return nil }); err != nil {
		d.e.cfg.Observe(Event{Kind: HookFailed, Component: d.spec.Name, Reason: "OnEnd", Err: err})
	}
}
