package offsets

import (
	"fmt"
	"math"
	"slices"
)

// Map is what a commit remembers beside the offset: which offsets from Base on had not ended. All others in
// [Base, Next) had ended or hold no record.
type Map struct {
	// Base is the offset that the map is committed with. With any other offset the map is worth nothing.
	Base int64

	// Next is the highest known offset + 1. Invariant: Next >= Base. Nothing is known from here on.
	Next int64

	// Open lists the offsets that had not ended. Invariant: strictly ascending, absolute, within [Base, Next).
	Open []int64

	// Held is what the partition's owner remembers about itself.
	Held State
}

// Done says whether the map knows that offset had ended (or holds no record). The map speaks of [Base, Next)
// only; of all else it says false, and the answer to a wrong false is a replay, never a loss. O(log len(Open)).
func (m Map) Done(offset int64) bool {
	if offset < m.Base || offset >= m.Next {
		return false
	}
	_, open := slices.BinarySearch(m.Open, offset)
	return !open
}

// isZero tells the zero map, whatever Held says: it knows nothing of any offset.
func (m Map) isZero() bool { return m.Base == 0 && m.Next == 0 && len(m.Open) == 0 }

// check tests the invariants. A map that breaks them may call an open record done, so none of it is believed.
func (m Map) check() error {
	if m.Base < 0 || m.Next < m.Base {
		return fmt.Errorf("%w: it covers [%d, %d)", ErrCorrupt, m.Base, m.Next)
	}
	prev := m.Base - 1
	for i, o := range m.Open {
		if o <= prev || o >= m.Next {
			return fmt.Errorf("%w: open offset %d (number %d) is not within (%d, %d)", ErrCorrupt, o, i, prev, m.Next)
		}
		prev = o
	}
	return nil
}

// sane returns m with its invariants in force. It never calls an offset done that m does not: open offsets
// are put in order, and those outside of [Base, Next) need no entry to be not done.
func (m Map) sane() Map {
	if m.Next < m.Base {
		m.Next = m.Base
	}
	for i := 1; i < len(m.Open); i++ {
		if m.Open[i] <= m.Open[i-1] {
			m.Open = slices.Clone(m.Open)
			slices.Sort(m.Open)
			m.Open = slices.Compact(m.Open)
			break
		}
	}
	lo, _ := slices.BinarySearch(m.Open, m.Base)
	hi, _ := slices.BinarySearch(m.Open, m.Next)
	m.Open = m.Open[lo:hi]

	m.Held.Deaths = min(max(m.Held.Deaths, 0), math.MaxInt32)
	m.Held.Strikes = min(max(m.Held.Strikes, 0), math.MaxInt32)
	if m.Held.Suspect < m.Base {
		m.Held.Suspect = None
	}
	if m.Held.Suspect == None {
		m.Held.Strikes = 0
	}
	m.Held.Waits = m.Held.Waits && m.Held.Strikes > 0
	if m.Held.Until <= m.Base {
		m.Held.Until = 0
	}
	return m
}
