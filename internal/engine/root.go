package engine

import (
	"sync"
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
	parked  bool // a stop left a failed tuple of it where it was; guarded by the engine's parked.mu
}

func onRoot(r *root) ack.Anchors { return ack.On(&r.Tree) }

// slabSize is how many roots are allocated at a time. A slab lives as long as any of its roots;
// so does their chunk.
const slabSize = 128

// newRoot makes a tree with one open edge: that of the synchronous call, or of the item that
// it is handed over with. Roots are never reused: a late verdict would hit another one.
func (d *dispatcher) newRoot(c Chunk, i, attempt int) *root {
	if len(d.slab) == 0 {
		d.slab = make([]root, slabSize)
	}
	r := &d.slab[0]
	d.slab = d.slab[1:]
	r.d, r.chunk, r.i, r.attempt = d, c, int32(i), int32(attempt)
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
func (r *root) park() { r.d.e.parked.add(r) }

// parked are the roots that a stop left open: waiting for them would be in vain.
type parked struct {
	mu    sync.Mutex
	roots []*root
}

func (p *parked) add(r *root) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !r.parked {
		r.parked = true
		p.roots = append(p.roots, r)
	}
}

// open returns how many of them their feeds still count: those of a lost partition are gone.
func (p *parked) open() (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.roots {
		if !r.Gone() {
			n++
		}
	}
	return n
}
