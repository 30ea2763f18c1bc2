package core

import "hash/maphash"

// Order is what a feed keeps in order; killick.Order has the values.
type Order uint8

// The orders.
const (
	NoOrder Order = iota
	PerKey
	PerPartition
)

// Lanes keeps what has the same key in order: of each lane one is under way at a time, and the others
// wait behind it in the order in which they entered. It is pure, and not safe for concurrent use. Nothing
// is allocated once it has been as full as it gets; a lane that is empty costs nothing.
//
// A lane is the hash of a key. Two keys of one hash wait for each other, which keeps the order of both.
type Lanes[T any] struct {
	seed maphash.Seed
	busy map[uint64]span
	// nodes are linked lists, by index + 1: one per lane that has some waiting, one of those whose
	// turn has come, one of unused nodes.
	nodes   []laneNode[T]
	unused  int32
	ready   span
	waiting int
}

// span is a linked list: the indices + 1 of its first and last node; 0: it is empty.
type span struct{ first, last int32 }

type laneNode[T any] struct {
	x    T
	next int32
}

// NewLanes makes empty lanes.
func NewLanes[T any]() *Lanes[T] {
	return &Lanes[T]{seed: maphash.MakeSeed(), busy: map[uint64]span{}}
}

// Of returns the lane of a key. No key is a key of its own, another one than the empty key.
func (l *Lanes[T]) Of(key []byte) uint64 {
	if key == nil {
		return 0
	}
	return maphash.Bytes(l.seed, key) | 1
}

// Enter puts x into a lane. True: nothing was there, and x is under way now, until Leave. False: it waits
// for its turn, see Next.
func (l *Lanes[T]) Enter(lane uint64, x T) bool {
	s, busy := l.busy[lane]
	if !busy {
		l.busy[lane] = span{}
		return true
	}
	at := l.unused
	if at == 0 {
		l.nodes = append(l.nodes, laneNode[T]{})
		at = int32(len(l.nodes))
	} else {
		l.unused = l.nodes[at-1].next
	}
	l.nodes[at-1] = laneNode[T]{x: x}
	l.append(&s, at)
	l.busy[lane] = s
	l.waiting++
	return false
}

// append puts a node at the end of a list.
func (l *Lanes[T]) append(s *span, at int32) {
	if s.last == 0 {
		s.first = at
	} else {
		l.nodes[s.last-1].next = at
	}
	s.last = at
}

// pop takes the first node off a list that is not empty.
func (l *Lanes[T]) pop(s *span) int32 {
	at := s.first
	if s.first = l.nodes[at-1].next; s.first == 0 {
		s.last = 0
	}
	l.nodes[at-1].next = 0
	return at
}

// Leave says that what was under way in a lane has ended: the turn of the next one there has come. It
// reports whether there is one.
func (l *Lanes[T]) Leave(lane uint64) bool {
	s, busy := l.busy[lane]
	if !busy {
		return false
	}
	if s.first == 0 {
		delete(l.busy, lane)
		return false
	}
	l.append(&l.ready, l.pop(&s))
	l.busy[lane] = s
	return true
}

// Next returns one whose turn has come: it is under way now, until Leave.
func (l *Lanes[T]) Next() (x T, ok bool) {
	if l.ready.first == 0 {
		return x, false
	}
	at := l.pop(&l.ready)
	x = l.nodes[at-1].x
	l.nodes[at-1] = laneNode[T]{next: l.unused}
	l.unused = at
	l.waiting--
	return x, true
}

// Ready reports whether Next has one.
func (l *Lanes[T]) Ready() bool { return l.ready.first != 0 }

// Waiting is how many have entered and are not under way: their turn has not come, or Next has not
// returned them.
func (l *Lanes[T]) Waiting() int { return l.waiting }

// Free forgets what is under way: every lane is empty, but for those that wait, which are all given
// their turn. It is the mistake that rules.OrderOverRetries stands against.
func (l *Lanes[T]) Free() {
	for lane, s := range l.busy {
		for s.first != 0 {
			l.append(&l.ready, l.pop(&s))
		}
		delete(l.busy, lane)
	}
}
