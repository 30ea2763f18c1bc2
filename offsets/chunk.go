package offsets

import (
	"fmt"
	"math/bits"
	"slices"
)

// none ends a chain of words.
const none = -1

// inlineWords is how many words a chunk holds without an allocation of their own: 512 records.
const inlineWords = 8

// Chunk is one delivered batch: a bit per record says whether it is open. Records are named by their index in
// the batch. A chunk leaves its ledger's list with its last open record.
//
// Chunks are never pooled: a late second end of a reused chunk would be an early commit. Like the ledger it is
// used under the partition's lock.
type Chunk struct {
	l          *Ledger
	prev, next *Chunk // in the ledger's list, nil outside of it

	base  int64   // offset of record 0
	offs  []int64 // offsets of all records; nil if they are dense: base, base+1, ...
	n     int     // records
	open  int     // records that have not ended
	head  int32   // first word with an open record, or none
	words []word
	small [inlineWords]word // backs words of small batches: one allocation per batch
}

// word holds 64 records. The words with an open record form a doubly linked chain within their chunk, so the
// first open record is found in O(1) and all open ones in O(open): a single stuck record among a million ends
// costs one step, not a scan.
type word struct {
	open       uint64 // bit i: record 64*w+i is open
	prev, next int32  // neighbours in the chain; meaningful only while open != 0
}

// newChunk makes a chunk with all records open. offs is ascending and not empty; it is not kept.
func newChunk(l *Ledger, offs []int64) *Chunk {
	n := len(offs)
	c := &Chunk{l: l, base: offs[0], n: n, open: n}
	if offs[n-1]-offs[0] != int64(n-1) {
		c.offs = slices.Clone(offs)
	}
	k := (n + 63) / 64
	if k <= inlineWords {
		c.words = c.small[:k:k]
	} else {
		c.words = make([]word, k)
	}
	for w := range c.words {
		c.words[w] = word{open: ^uint64(0), prev: int32(w - 1), next: int32(w + 1)}
	}
	last := &c.words[k-1]
	last.open >>= uint(64*k - n)
	last.next = none
	return c
}

// Len is the number of records in the batch.
func (c *Chunk) Len() int { return c.n }

// Offset is the offset of record i. It panics if i is not in [0, Len).
func (c *Chunk) Offset(i int) int64 {
	c.bounds(i)
	if c.offs != nil {
		return c.offs[i]
	}
	return c.base + int64(i)
}

// Ended says whether record i has ended, be it now or according to the map that the ledger was opened with.
// It panics if i is not in [0, Len).
func (c *Chunk) Ended(i int) bool {
	c.bounds(i)
	return c.words[i>>6].open&(1<<(uint(i)&63)) == 0
}

// Open is the number of records that have not ended. At 0 the records of the batch can be recycled.
func (c *Chunk) Open() int { return c.open }

// End ends record i and says whether it was this call that did: false means that it had ended before, or
// that the ledger is closed; nothing has changed then. It panics if i is not in [0, Len). O(1), no allocation.
func (c *Chunk) End(i int) bool {
	c.bounds(i)
	w := &c.words[i>>6]
	bit := uint64(1) << (uint(i) & 63)
	if w.open&bit == 0 || c.l.closed {
		return false
	}
	w.open &^= bit
	if w.open == 0 {
		c.unchain(w)
	}
	c.open--
	c.settle(1)
	return true
}

// EndRun ends all open records of [from, to) and returns how many it ended: 0 if the ledger is closed.
// It panics if the range is not within [0, Len]. O(records / 64), no allocation.
func (c *Chunk) EndRun(from, to int) int {
	if from < 0 || to < from || to > c.n {
		panic(fmt.Sprintf("offsets: EndRun(%d, %d) of a chunk of %d records", from, to, c.n))
	}
	if c.l.closed || c.open == 0 {
		return 0
	}
	ended := c.take(from, to)
	if ended > 0 {
		c.settle(ended)
	}
	return ended
}

// take clears the open bits of [from, to) and returns how many there were. The ledger's count and list are
// the caller's business.
func (c *Chunk) take(from, to int) int {
	if from >= to {
		return 0
	}
	ended := 0
	lo, hi := from>>6, (to-1)>>6
	for i := lo; i <= hi; i++ {
		mask := ^uint64(0)
		if i == lo {
			mask <<= uint(from) & 63
		}
		if i == hi {
			mask &= ^uint64(0) >> (63 - uint(to-1)&63)
		}
		w := &c.words[i]
		hit := w.open & mask
		if hit == 0 {
			continue
		}
		ended += bits.OnesCount64(hit)
		w.open &^= hit
		if w.open == 0 {
			c.unchain(w)
		}
	}
	c.open -= ended
	return ended
}

// settle tells the ledger of ended records.
func (c *Chunk) settle(ended int) {
	c.l.pending -= ended
	if c.open == 0 {
		c.l.unlink(c)
	}
}

// unchain takes a word without open records out of the chain.
func (c *Chunk) unchain(w *word) {
	if w.prev == none {
		c.head = w.next
	} else {
		c.words[w.prev].next = w.next
	}
	if w.next != none {
		c.words[w.next].prev = w.prev
	}
}

// first is the offset of the first open record. There must be one.
func (c *Chunk) first() int64 {
	return c.Offset(int(c.head)<<6 + bits.TrailingZeros64(c.words[c.head].open))
}

// appendOpen appends the offsets of the open records, ascending. O(open).
func (c *Chunk) appendOpen(dst []int64) []int64 {
	for i := c.head; i != none; i = c.words[i].next {
		for b := c.words[i].open; b != 0; b &= b - 1 {
			dst = append(dst, c.Offset(int(i)<<6+bits.TrailingZeros64(b)))
		}
	}
	return dst
}

// index is the index of the first record with an offset >= off, Len if there is none.
func (c *Chunk) index(off int64) int {
	if c.offs != nil {
		i, _ := slices.BinarySearch(c.offs, off)
		return i
	}
	if off <= c.base {
		return 0
	}
	return int(min(off-c.base, int64(c.n)))
}

// bounds panics as an index of a slice does; without it an index in the unused bits of the last word would
// pass for an ended record.
func (c *Chunk) bounds(i int) {
	if uint(i) >= uint(c.n) {
		c.outOfBounds(i)
	}
}

func (c *Chunk) outOfBounds(i int) {
	panic(fmt.Sprintf("offsets: record %d of a chunk of %d records", i, c.n))
}
