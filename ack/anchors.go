package ack

import "slices"

// Anchors is the set of trees that a tuple stands on: none (untracked), one (the
// usual case, without allocation) or several (a join). A tuple is an open edge on
// each of them. The value is immutable and may be shared between tuples.
type Anchors struct {
	first *Tree
	more  *[]*Tree // the others, distinct from first and each other; nil: none
}

// On returns the set of one tree.
func On(t *Tree) Anchors { return Anchors{first: t} }

// None reports whether the tuple is anchored to nothing.
func (a Anchors) None() bool { return a.first == nil }

// First returns the first tree, nil when there is none.
func (a Anchors) First() *Tree { return a.first }

// Joined reports whether there are several trees.
func (a Anchors) Joined() bool { return a.more != nil }

// Len returns the number of trees.
func (a Anchors) Len() int {
	switch {
	case a.first == nil:
		return 0
	case a.more == nil:
		return 1
	}
	return 1 + len(*a.more)
}

// Has reports whether t is in the set.
func (a Anchors) Has(t *Tree) bool {
	return a.first == t || a.more != nil && slices.Contains(*a.more, t)
}

// Join returns the union: a tree that is in both counts once, so a tuple that is
// anchored twice to one input is still one edge.
func (a Anchors) Join(b Anchors) Anchors {
	switch {
	case a.first == nil:
		return b
	case b.first == nil:
		return a
	}
	return a.with(a.Beyond(b))
}

// with returns the union with a set that shares no tree with a.
func (a Anchors) with(b Anchors) Anchors {
	if b.first == nil {
		return a
	}
	more := make([]*Tree, 0, a.Len()+b.Len()-1)
	if a.more != nil {
		more = append(more, *a.more...)
	}
	b.Each(func(t *Tree) { more = append(more, t) })
	return Anchors{first: a.first, more: &more}
}

// fewTrees is up to how many trees a set is searched one by one.
const fewTrees = 16

// Beyond returns the union of sets, less what is in a. It takes time in proportion to the number
// of trees: a window may join very many.
func (a Anchors) Beyond(sets ...Anchors) Anchors {
	n := a.Len()
	for _, s := range sets {
		n += s.Len()
	}
	var found []*Tree
	has := func(t *Tree) bool { return a.Has(t) || slices.Contains(found, t) }
	if n > fewTrees {
		seen := make(map[*Tree]struct{}, n)
		a.Each(func(t *Tree) { seen[t] = struct{}{} })
		has = func(t *Tree) bool {
			before := len(seen)
			seen[t] = struct{}{}
			return len(seen) == before
		}
	}
	for _, s := range sets {
		s.Each(func(t *Tree) {
			if !has(t) {
				found = append(found, t)
			}
		})
	}
	switch len(found) {
	case 0:
		return Anchors{}
	case 1:
		return Anchors{first: found[0]}
	}
	more := found[1:]
	return Anchors{first: found[0], more: &more}
}

// Open opens n edges on each tree.
func (a Anchors) Open(n int) {
	if a.first == nil {
		return
	}
	a.first.Open(n)
	if a.more != nil {
		for _, t := range *a.more {
			t.Open(n)
		}
	}
}

// End ends one edge on each tree, well.
func (a Anchors) End() { a.EndN(1) }

// EndN ends n edges on each tree, well.
func (a Anchors) EndN(n int) {
	if a.first == nil {
		return
	}
	a.first.EndN(n)
	if a.more != nil {
		for _, t := range *a.more {
			t.EndN(n)
		}
	}
}

// Fail ends one edge on each tree with a failure: it passes to all roots that the
// tuple joins.
func (a Anchors) Fail(c *Cause) { a.Each(func(t *Tree) { t.Fail(c) }) }

// Live reports whether the tuple should still run: it is untracked, or at least
// one of its trees lives. A joined tuple that is dead for one root still counts
// for the other.
func (a Anchors) Live() bool {
	if a.first == nil || a.first.Live() {
		return true
	}
	if a.more != nil {
		for _, t := range *a.more {
			if t.Live() {
				return true
			}
		}
	}
	return false
}

// Gone reports whether every tree of a tracked tuple is gone.
func (a Anchors) Gone() bool {
	if a.first == nil || !a.first.Gone() {
		return false
	}
	if a.more != nil {
		for _, t := range *a.more {
			if !t.Gone() {
				return false
			}
		}
	}
	return true
}

// Each calls f for each tree.
func (a Anchors) Each(f func(*Tree)) {
	if a.first == nil {
		return
	}
	f(a.first)
	if a.more != nil {
		for _, t := range *a.more {
			f(t)
		}
	}
}
