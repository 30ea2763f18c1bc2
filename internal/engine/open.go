package engine

import (
	"sync"
	"time"

	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/core"
)

// spot is what an exec executes now: the records of a frame, or the items of a batch. Set once for
// each run of many, so that others can find out what a stuck one is at.
type spot struct {
	mu    sync.Mutex
	chunk Chunk
	batch *batch
}

// beginAt says that x is at the records of f, or the items of b, of which the first is i; both nil: at
// none.
func (x *exec) beginAt(f *frame, b *batch, i int) {
	s := &x.at
	s.mu.Lock()
	s.batch = b
	if s.chunk = nil; b == nil && f != nil {
		s.chunk = f.run.Chunk
	}
	x.pos.set(i) // with the lock: where it was before may not be here, and chunks panic then
	s.mu.Unlock()
}

// origin returns the source record of the input that x is at; false: it is at none, or at one without
// an origin. Of an execution that goes on meanwhile it may be another one of the same run.
func (x *exec) origin() (o core.Origin, ok bool) {
	x.at.mu.Lock()
	defer x.at.mu.Unlock()
	i := x.pos.get() // of what at says, since beginAt
	switch {
	case x.at.chunk != nil:
		return x.at.chunk.Origin(i), true
	case x.at.batch != nil && i < len(x.at.batch.items):
		if it := &x.at.batch.items[i]; it.chunk != nil {
			return it.chunk.Origin(int(it.i)), true
		}
	}
	return core.Origin{}, false
}

// OpenTuple is a tuple without a verdict, and where it is.
type OpenTuple struct {
	Component string // "": not known
	Task      int
	Origin    core.Origin
	State     string        // executing, held, or waiting (for its next try)
	For       time.Duration // executing: to the resolution of the watch
	Due       time.Duration // waiting: until its next try
}

// Open lists open tuples that have an origin: those executed for at least a second, held ones, and
// those that wait for a retry; at most so many of each kind. Others wait in queues, or for an output to
// become durable. It takes a lock per tuple listed, and is for people.
func (e *Engine) Open(most int) (out []OpenTuple) {
	w := e.watch
	w.mu.Lock()
	now := w.tick.Load()
	n := 0
	for r := range w.runners {
		x, word := r.cur.Load(), r.word.Load()
		if x == nil || n == most {
			continue
		}
		age := time.Duration(now-min(now, word>>1)) * w.period
		if o, ok := x.origin(); ok && age >= time.Second && r.word.Load() == word && r.cur.Load() == x {
			out = append(out, OpenTuple{Component: x.c.spec.Name, Task: x.t.index, Origin: o, State: "executing", For: age})
			n++
		}
	}
	w.mu.Unlock()
	for _, c := range e.comps {
		for _, h := range c.held.some(most) {
			if h.item.chunk != nil {
				out = append(out, OpenTuple{Component: c.spec.Name, Task: h.t.index, Origin: h.item.chunk.Origin(int(h.item.i)), State: "held"})
			}
		}
	}
	return append(out, e.delays.some(most)...)
}

// some returns the first held tuples, by deadline.
func (l *heldList) some(most int) (out []*held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for h := l.first; h != nil && len(out) < most; h = h.next {
		out = append(out, h)
	}
	return out
}

// some returns roots that wait for a retry.
func (d *delays) some(most int) (out []OpenTuple) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.heap {
		w := &d.heap[i]
		w.trees.Each(func(t *ack.Tree) {
			if s, ok := t.Owner().(*source); ok && len(out) < most {
				out = append(out, OpenTuple{Origin: s.chunk.Origin(t.Index()), State: "waiting", Due: max(0, time.Until(w.at))})
			}
		})
	}
	return out
}
