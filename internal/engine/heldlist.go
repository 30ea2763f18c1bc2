package engine

import (
	"sync"

	"github.com/killick-io/killick/ack"
)

// heldList keeps a component's held tuples in the order of their deadlines. Nearly all are
// added at the end, and any is removed in constant time.
type heldList struct {
	mu          sync.Mutex
	first, last *held
	n           int
}

func (l *heldList) add(h *held, at uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.insertLocked(h, at)
}

func (l *heldList) insertLocked(h *held, at uint64) {
	h.deadline, h.listed = at, true
	after := l.last
	for after != nil && after.deadline > at {
		after = after.prev
	}
	h.prev = after
	if after == nil {
		h.next, l.first = l.first, h
	} else {
		h.next, after.next = after.next, h
	}
	if h.next == nil {
		l.last = h
	} else {
		h.next.prev = h
	}
	l.n++
}

func (l *heldList) remove(h *held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlinkLocked(h)
}

func (l *heldList) unlinkLocked(h *held) bool {
	if !h.listed {
		return false
	}
	if h.prev == nil {
		l.first = h.next
	} else {
		h.prev.next = h.next
	}
	if h.next == nil {
		l.last = h.prev
	} else {
		h.next.prev = h.prev
	}
	h.prev, h.next, h.listed = nil, nil, false
	l.n--
	return true
}

// move gives h another deadline; false: it is not on the list any more.
func (l *heldList) move(h *held, at uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.unlinkLocked(h) {
		return false
	}
	l.insertLocked(h, at)
	return true
}

// pop removes and returns the first, if its deadline is not after now.
func (l *heldList) pop(now uint64) *held {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.first
	if h == nil || h.deadline > now {
		return nil
	}
	l.unlinkLocked(h)
	return h
}

// next returns the first deadline, never if there is none.
func (l *heldList) next() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		return never
	}
	return l.first.deadline
}

// expire times out what is due.
func (l *heldList) expire(now uint64) {
	for h := l.pop(now); h != nil; h = l.pop(now) {
		h.finish(ack.TimedOut, "timeout", h.neverEnded(), nil)
	}
}

// leave gives up all.
func (l *heldList) leave() {
	for h := l.pop(^uint64(0)); h != nil; h = l.pop(^uint64(0)) {
		h.leave()
	}
}

// Len returns the number of held tuples without a verdict.
func (l *heldList) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}
