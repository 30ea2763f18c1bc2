package engine

import (
	"github.com/killick-io/killick/ack"
)

// frame is the source run that is being executed in a synchronous call, and the trees that
// its roots needed so far. A root without a tree ends with the run.
//
// Items of a frame's stages have no edges: the sync edge of their tree (or the absence of
// one) covers them, because a run ends only after all its stages have returned.
type frame struct {
	d       *dispatcher
	run     Run
	attempt int

	// trees are by index - run.From. nil: none needed yet; &over: handed over whole.
	trees []*root
	over  root
	// sole says that each record is one item, so that a tree can be handed over with it, if it
	// has not been executed: no other item of the root will ask the frame for it, and there is
	// no sync edge.
	sole    bool
	hasTree bool

	vals    []any // values, when there are any; noValue: of this record there is none
	vals0   []any // the room for vals
	dead    []bool
	hasDead bool // dead counts: records by index - run.From that are not to be executed
}

// noValue stands for a record that has bytes only.
type noValue struct{}

func (f *frame) reset(run Run, attempt int) {
	n := run.To - run.From
	f.run, f.attempt, f.hasDead, f.hasTree, f.sole = run, attempt, false, false, false
	f.vals = nil
	if cap(f.trees) < n {
		f.trees = make([]*root, n)
	}
	f.trees = f.trees[:n]
	clear(f.trees)
}

// done drops what the run referred to.
func (f *frame) done() {
	clear(f.vals)
	clear(f.trees)
	f.run, f.vals = Run{}, nil
}

// root returns the tree of the i-th root, making it with the sync edge open.
func (f *frame) root(i int) *root {
	k := i - f.run.From
	if f.trees[k] == nil {
		f.trees[k] = f.d.newRoot(f.run.Chunk, i, f.attempt)
		f.hasTree = true
	}
	return f.trees[k]
}

// attach makes sure that it has an open edge of its own on its trees.
func (f *frame) attach(it *item) {
	if it.edge || it.loose {
		return
	}
	it.edge = true
	if it.anchors.None() {
		if k := int(it.i) - f.run.From; f.sole && it.rec != nil && f.trees[k] == nil {
			it.anchors = onRoot(f.d.newRoot(f.run.Chunk, int(it.i), f.attempt))
			f.trees[k] = &f.over
			f.hasTree = true
			return
		}
		it.anchors = onRoot(f.root(int(it.i)))
	}
	it.anchors.Open(1)
}

// live reports whether it, an item of this synchronous call, should still run: a sibling may
// have failed the tree meanwhile.
func (f *frame) live(it *item) bool {
	if !f.hasTree || it.loose || !it.anchors.None() {
		return true
	}
	r := f.trees[int(it.i)-f.run.From]
	return r == nil || r.Live()
}

// skip says that the i-th record is not to be executed (any more).
func (f *frame) skip(i int) {
	n := f.run.To - f.run.From
	if !f.hasDead {
		if cap(f.dead) < n {
			f.dead = make([]bool, n)
		}
		f.dead = f.dead[:n]
		clear(f.dead)
		f.hasDead = true
	}
	f.dead[i-f.run.From] = true
}

// kill ends the i-th root dead with the run, or leaves it open if the policy is to stop.
func (f *frame) kill(i int, c *ack.Cause) {
	f.skip(i)
	r := f.root(i)
	r.Open(1)
	if c.Policy == ack.Stop {
		r.park()
		f.d.e.stop(c.Component, c.Err, false)
		return
	}
	r.Fail(c)
}

// settle ends the synchronous calls of the roots [from, to): those without a tree have ended.
func (f *frame) settle(from, to int) {
	at := from // what lies before has been told to the chunk
	end := func(i int) {
		if at < i {
			f.run.Chunk.EndRun(at, i)
			f.d.stats.acked.Add(int64(i - at))
		}
		at = i + 1
	}
	if f.hasTree {
		for i := from; i < to; i++ {
			k := i - f.run.From
			r := f.trees[k]
			if r == nil {
				continue
			}
			end(i)
			if r != &f.over {
				r.End()
			}
			f.trees[k] = &f.over
		}
	}
	end(to)
}
