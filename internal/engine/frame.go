package engine

import (
	"time"

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
	trees []*ack.Tree
	over  ack.Tree
	// sole says that each record is one item, so that a tree can be handed over with it, if it
	// has not been executed: no other item of the root will ask the frame for it, and there is
	// no sync edge.
	sole    bool
	hasTree bool

	vals    []any         // values, when there are any; noValue: of this record there is none
	vals0   []any         // the room for vals
	took    time.Duration // from the run's start to the settle in progress; 0: not measured
	dead    []bool
	hasDead bool // dead counts: records by index - run.From that are not to be executed
}

// noValue stands for a record that has bytes only.
type noValue struct{}

func (f *frame) reset(run Run, attempt int) {
	n := run.To - run.From
	f.run, f.attempt, f.hasDead, f.hasTree, f.sole = run, attempt, false, false, false
	f.took = 0
	f.vals = nil
	if cap(f.trees) < n {
		f.trees = make([]*ack.Tree, n)
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

// tree returns the tree of the i-th root, making it with the sync edge open.
func (f *frame) tree(i int) *ack.Tree {
	k := i - f.run.From
	if f.trees[k] == nil {
		f.trees[k] = f.d.newTree(f.run.Chunk, i, f.attempt)
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
			it.anchors = ack.On(f.d.newTree(f.run.Chunk, int(it.i), f.attempt))
			f.trees[k] = &f.over
			f.hasTree = true
			return
		}
		it.anchors = ack.On(f.tree(int(it.i)))
	}
	it.anchors.Open(1)
}

// live reports whether it, an item of this synchronous call, should still run: a sibling may
// have failed the tree meanwhile.
func (f *frame) live(it *item) bool {
	if !f.hasTree || it.loose || !it.anchors.None() {
		return true
	}
	t := f.trees[int(it.i)-f.run.From]
	return t == nil || t.Live()
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
	t := f.tree(i)
	t.Open(1)
	if c.Policy == ack.Stop {
		f.d.e.parked.add(t)
		f.d.e.stop(c.Component, c.Err, false)
		return
	}
	t.Fail(c)
}

// settle ends the synchronous calls of the roots [from, to): those without a tree have ended.
func (f *frame) settle(from, to int) {
	at := from // what lies before has been told to the chunk
	end := func(i int) {
		if at < i {
			if f.d.spec.OnEnd != nil && !f.run.Chunk.Epoch().Closed() {
				for k := at; k < i; k++ { // while the chunk knows them
					f.d.tellEnd(f.run.Chunk, k, nil)
				}
			}
			f.run.Chunk.EndRun(at, i)
			if f.run.Chunk.Epoch().Closed() {
				f.d.e.Ignored.Lost.Add(int64(i - at))
			} else {
				f.d.stats.acked.Add(int64(i - at))
				if f.took > 0 {
					f.d.stats.trees.observe(f.took, sampled(at, i))
				}
			}
		}
		at = i + 1
	}
	if f.hasTree {
		for i := from; i < to; i++ {
			k := i - f.run.From
			t := f.trees[k]
			if t == nil {
				continue
			}
			end(i)
			if t != &f.over {
				t.End()
			}
			f.trees[k] = &f.over
		}
	}
	end(to)
}
