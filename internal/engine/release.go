package engine

import (
	"sync"
	"sync/atomic"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
)

// Release says that the partition of ep is about to be given to another owner: what its trees wait
// for is hurried. Retries run at once, once; batches are flushed. Trees whose retry fails again are
// left open for the next owner, see Left. The caller has stopped the partition's intake, and calls
// Flush again and again until its trees have ended.
func (e *Engine) Release(ep *ack.Epoch) {
	ep.Release()
	e.delays.hurry()
	e.Flush()
}

// Flush asks every bolt that collects tuples for what it has. It does not wait for them.
func (e *Engine) Flush() {
	for _, t := range e.tasks {
		t.flushNow.Store(true)
		t.poke()
	}
}

// Busy reports whether user code has a tuple now.
func (e *Engine) Busy() bool {
	w := e.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range w.runners {
		if r.cur.Load() != nil {
			return true
		}
	}
	return false
}

// Left returns how many trees of ep are open and not waited for: their retry has failed again. Started
// roots are to be counted before, see parked.
func (e *Engine) Left(ep *ack.Epoch) int { return e.parked.in(ep) }

// urgent reports whether a partition's release waits for one of the trees.
func (e *Engine) urgent(a ack.Anchors) (is bool) {
	a.Each(func(t *ack.Tree) { is = is || t.Releasing() && !t.Gone() && !e.parked.has(t) })
	return is
}

// flushes reports whether the bolt wants to be flushed.
func (t *task) flushes() bool {
	_, ok := t.bolt.(killick.Flusher)
	return ok
}

// parked are the trees that a stop, or a release, has left open: waiting for them would be in vain.
// It is bounded by the roots that are started: those of closed partitions are dropped, and those that
// have ended all the same. So whoever counts open roots first and parked ones then knows by equal
// numbers that only parked ones are left.
type parked struct {
	mu    sync.Mutex
	trees map[*ack.Tree]struct{}
	n     atomic.Int64 // of trees; 0: who ends a tree need not look
}

// add says that t stays open until the worker stops, or the partition is closed.
func (p *parked) add(t *ack.Tree) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trees == nil {
		p.trees = map[*ack.Tree]struct{}{}
	}
	p.trees[t] = struct{}{}
	p.n.Store(int64(len(p.trees)))
}

// drop says that t has ended, or is about to: a joined tuple goes on for its other trees. Nobody adds t
// meanwhile, since only who holds an open edge of it does.
func (p *parked) drop(t *ack.Tree) {
	if p.n.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.trees, t)
	p.n.Store(int64(len(p.trees)))
}

func (p *parked) has(t *ack.Tree) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.trees[t]
	return ok
}

// open returns how many of them their feeds still count: those of a lost partition are gone.
func (p *parked) open() (n int64) { return int64(p.count(func(*ack.Tree) bool { return true })) }

// in returns how many of them belong to ep.
func (p *parked) in(ep *ack.Epoch) int { return p.count(func(t *ack.Tree) bool { return t.In(ep) }) }

func (p *parked) count(f func(*ack.Tree) bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for t := range p.trees {
		switch {
		case t.Gone():
			delete(p.trees, t)
		case f(t):
			n++
		}
	}
	p.n.Store(int64(len(p.trees)))
	return n
}
