package offsets

import (
	"fmt"
	"math"
	"slices"

	"github.com/killick-io/killick/internal/rules"
)

// Ledger tracks the delivered offsets of one partition during one assignment.
//
// It is not safe for concurrent use: the caller holds the partition's lock for every call, those on its
// chunks included.
type Ledger struct {
	// next is the highest delivered or skipped offset + 1. Invariant: next >= base, and it never falls.
	next int64

	// pending counts delivered records that have not ended. Invariant: the sum of open over the list.
	pending int

	// head and tail are the ends of the list of chunks that have an open record, in order of delivery and so
	// of offset. Invariant: every chunk in the list has open > 0. So head's first open record is the floor.
	head, tail *Chunk

	// oldNext and oldOpen are what the opening map says about offsets that have not come back yet: in
	// [next, oldNext) all are done but oldOpen. Invariant: oldOpen is ascending and within [next, oldNext);
	// it is empty once next >= oldNext.
	oldNext int64
	oldOpen []int64

	ignored error // why the opening map was not used, nil if it was or if there was none
	closed  bool
}

// Open starts a ledger at the committed offset base, the next offset to read, with the ends above it that m
// remembers. The zero Map remembers nothing. A map for another base, or one that contradicts itself, is ignored
// and reported by Ignored. m is not kept.
//
// A negative base panics: it is Kafka's "no offset committed", and the start has to be resolved first.
func Open(base int64, m Map) *Ledger {
	if base < 0 {
		panic(fmt.Sprintf("offsets: Open at offset %d: resolve and commit the start offset first", base))
	}
	l := &Ledger{next: base, oldNext: base}
	switch {
	case m.isZero():
	case m.Base != base && rules.MapBaseIsCompared:
		l.ignored = fmt.Errorf("%w: made for %d, committed is %d; its ends are ignored and run again", ErrBase, m.Base, base)
	default:
		if err := m.check(); err != nil {
			l.ignored = err
			break
		}
		l.oldNext = m.Next
		l.oldOpen = slices.Clone(m.Open)
	}
	return l
}

// Ignored says why the map given to Open was not used: an error that wraps ErrBase or ErrCorrupt. It is nil
// if the map was used or there was none.
func (l *Ledger) Ignored() error { return l.ignored }

// Deliver records a polled batch: strictly ascending offsets, none below Next. The caller may reuse offs.
// Records that the opening map knows as done come back already ended. An empty batch gives an empty chunk.
//
// On ErrRewind, ErrRange and ErrClosed nothing has changed.
func (l *Ledger) Deliver(offs []int64) (*Chunk, error) {
	if l.closed {
		return nil, fmt.Errorf("%w: batch of %d records dropped", ErrClosed, len(offs))
	}
	if len(offs) == 0 {
		return &Chunk{l: l, head: none}, nil
	}
	prev := l.next - 1 // next is never negative
	for i, o := range offs {
		if o <= prev || o != prev+1 && !rules.GapsAreNoRecords {
			return nil, l.rewind(offs, i, prev+1)
		}
		prev = o
	}
	if prev == math.MaxInt64 {
		return nil, fmt.Errorf("%w: record %d of %d has offset %d, which has no next offset", ErrRange, len(offs), len(offs), prev)
	}

	c := newChunk(l, offs)
	if l.next < l.oldNext {
		l.recall(c)
	}
	l.next = prev + 1
	l.prune()
	if c.open > 0 {
		l.pending += c.open
		l.link(c)
	}
	return c, nil
}

func (l *Ledger) rewind(offs []int64, i int, want int64) error {
	if offs[i] < l.next {
		return fmt.Errorf("%w: record %d of %d has offset %d, the next offset is %d; close this ledger and open one where the log is read now",
			ErrRewind, i+1, len(offs), offs[i], l.next)
	}
	return fmt.Errorf("%w: record %d of %d has offset %d after %d; a batch has to be strictly ascending",
		ErrRewind, i+1, len(offs), offs[i], want-1)
}

// Skip moves Next to next without a tuple: the offsets up to there were seen and hold nothing to process
// (a transaction marker, aborted data, the compacted tail of a log). On ErrRewind (next is below Next) and
// ErrClosed nothing has changed.
func (l *Ledger) Skip(next int64) error {
	if l.closed {
		return fmt.Errorf("%w: skip to %d dropped", ErrClosed, next)
	}
	if next < l.next {
		return fmt.Errorf("%w: skip to %d, the next offset is %d; close this ledger and open one where the log is read now",
			ErrRewind, next, l.next)
	}
	l.next = next
	l.prune()
	return nil
}

// recall ends the records of a new chunk that the opening map knows as done. O(records / 64 + incompletes met).
func (l *Ledger) recall(c *Chunk) {
	end := c.index(l.oldNext) // records from here on are above the map
	i := 0
	for _, o := range l.oldOpen {
		j := min(c.index(o), end)
		c.take(i, j)
		if j == end {
			return
		}
		if c.Offset(j) == o {
			j++ // delivered and still open
		}
		i = j
	}
	c.take(i, end)
}

// prune forgets what the opening map says about offsets below next: they came back, or they hold no record
// any more (compacted since) and so cannot hold the floor.
func (l *Ledger) prune() {
	if l.next >= l.oldNext {
		l.oldNext, l.oldOpen = l.next, nil
		return
	}
	i, _ := slices.BinarySearch(l.oldOpen, l.next)
	l.oldOpen = l.oldOpen[i:]
}

// Floor is the next position to commit: the first open offset, or Next if nothing is open. It never falls,
// and every delivered record below it has ended. O(1).
func (l *Ledger) Floor() int64 {
	if l.head == nil || !rules.CommitsTheFloor {
		return l.next
	}
	return l.head.first()
}

// Next is the highest delivered or skipped offset + 1, or the opening offset before the first of them.
func (l *Ledger) Next() int64 { return l.next }

// Pending counts the records that were delivered and have not ended.
func (l *Ledger) Pending() int { return l.pending }

// Oldest is the first open offset, the one that holds the floor. ok is false if nothing is open. O(1).
func (l *Ledger) Oldest() (offset int64, ok bool) {
	if l.head == nil {
		return 0, false
	}
	return l.head.first(), true
}

// Snapshot is what a commit at Floor has to remember: the open offsets below the highest one known. Ends from
// the opening map that have not come back yet are still in it, so an early commit of a new owner forgets nothing.
// Held is empty (Suspect is None); the caller fills it. O(pending + incompletes of the opening map); the result
// shares nothing with the ledger.
func (l *Ledger) Snapshot() Map {
	m := Map{Base: l.Floor(), Next: max(l.next, l.oldNext), Held: State{Suspect: None}}
	if n := l.pending + len(l.oldOpen); n > 0 {
		m.Open = make([]int64, 0, n)
	}
	for c := l.head; c != nil; c = c.next {
		m.Open = c.appendOpen(m.Open)
	}
	m.Open = append(m.Open, l.oldOpen...)
	return m
}

// Close ends the assignment: from now on Deliver and Skip return ErrClosed and End returns false, so that a
// late end cannot move what another owner may commit already. Floor, Next, Pending, Oldest and Snapshot stay as they
// are at this moment. Closing twice is harmless.
func (l *Ledger) Close() { l.closed = true }

// link appends a chunk with open records. Batches come in ascending order, so the list is ordered by offset.
func (l *Ledger) link(c *Chunk) {
	c.prev = l.tail
	if l.tail == nil {
		l.head = c
	} else {
		l.tail.next = c
	}
	l.tail = c
}

// unlink takes a chunk out that has ended, wherever it sits. Its links are cleared: a chunk that a caller still
// holds must not keep its old neighbours in memory.
func (l *Ledger) unlink(c *Chunk) {
	if c.prev == nil {
		l.head = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.tail = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
}
