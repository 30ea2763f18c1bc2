package engine

import (
	"time"

	"github.com/killick-io/killick/ack"
)

// root is one attempt of a source record that needed a tree.
type root struct {
	ack.Tree
	d       *dispatcher
	chunk   Chunk
	i       int32
	attempt int32
	parked  bool // a stop left a failed tuple of it where it was; guarded by d.mu
}

func onRoot(r *root) ack.Anchors { return ack.On(&r.Tree) }

// newRoot makes a tree with one open edge: that of the synchronous call.
func (d *dispatcher) newRoot(c Chunk, i, attempt int) *root {
	r := &root{d: d, chunk: c, i: int32(i), attempt: int32(attempt)}
	r.Start(c.Epoch(), r, 1)
	return r
}

// TreeEnded implements ack.Owner: it tells the feed, or plans the next attempt.
func (r *root) TreeEnded(_ *ack.Tree, c *ack.Cause) {
	d := r.d
	if c == nil {
		d.stats.acked.Add(1)
		r.chunk.End(int(r.i), nil)
		return
	}
	if c.Outcome == ack.Replayed {
		if int(r.attempt) < c.Limit {
			wait := time.Duration(0)
			if c.Wait != nil {
				wait = c.Wait(int(r.attempt))
			}
			if d.e.draining.Load() {
				r.park() // the next start reads the record again
				return
			}
			d.stats.replayed.Add(1)
			d.e.cfg.Observe(Event{Kind: RootReplayed, Component: c.Component, Task: c.Task, Attempt: int(r.attempt), Reason: c.Reason, Err: c.Err, Wait: wait})
			d.e.delays.after(wait, func() { d.restart(r.chunk, int(r.i), int(r.attempt)+1) })
			return
		}
		dead := *c
		dead.Outcome, dead.Attempts = ack.Dead, int(r.attempt)
		c = &dead
		if c.Policy == ack.Stop {
			r.park()
			d.e.stop(c.Component, c.Err, false)
			return
		}
		d.e.cfg.Observe(Event{Kind: TupleDead, Component: c.Component, Task: c.Task, Attempt: int(r.attempt), Reason: c.Reason, Err: c.Err})
	}
	if c.Policy == ack.Skip {
		d.stats.skipped.Add(1)
	} else {
		d.stats.dead.Add(1)
	}
	r.chunk.End(int(r.i), c)
}

// park says that the root stays open until the worker stops.
func (r *root) park() {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if !r.parked {
		r.parked = true
		r.d.e.parked.Add(1)
	}
}
