package offsets

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// span is the dense batch [from, to).
func span(from, to int64) []int64 {
	offs := make([]int64, 0, to-from)
	for o := from; o < to; o++ {
		offs = append(offs, o)
	}
	return offs
}

func mustDeliver(t testing.TB, l *Ledger, offs ...int64) *Chunk {
	t.Helper()
	c, err := l.Deliver(offs)
	if err != nil {
		t.Fatalf("Deliver: %v", err)
	}
	return c
}

// failer is what testing.TB and rapid.T share.
type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// checkInvariants tests what the comments in Ledger and Chunk promise.
func checkInvariants(t failer, l *Ledger) {
	t.Helper()
	pending, last := 0, int64(-1)
	var prev *Chunk
	for c := l.head; c != nil; c = c.next {
		if c.prev != prev {
			t.Fatal("the list of chunks is broken")
		}
		if c.open <= 0 {
			t.Fatal("a chunk without open records is in the list")
		}
		open := c.appendOpen(nil)
		if len(open) != c.open {
			t.Fatalf("a chunk counts %d open records and has %d in its chain", c.open, len(open))
		}
		byBit := 0
		for i := range c.n {
			if !c.Ended(i) {
				byBit++
			}
		}
		if byBit != c.open {
			t.Fatalf("a chunk counts %d open records and has %d open bits", c.open, byBit)
		}
		for _, o := range open {
			if o <= last || o >= l.next {
				t.Fatalf("open offset %d after %d, below next %d", o, last, l.next)
			}
			last = o
		}
		pending += c.open
		prev = c
	}
	if l.tail != prev {
		t.Fatal("the tail of the list is not its last chunk")
	}
	if pending != l.pending {
		t.Fatalf("pending is %d, the list has %d", l.pending, pending)
	}
	for i, o := range l.oldOpen {
		if o < l.next || o >= l.oldNext || i > 0 && o <= l.oldOpen[i-1] {
			t.Fatalf("remembered open offset %d is not within [%d, %d) or not in order", o, l.next, l.oldNext)
		}
	}
}

func TestFloorFollowsDeliveredOffsets(t *testing.T) {
	type step struct {
		deliver []int64
		skip    int64
		end     []int64 // offsets
		floor   int64
		next    int64
		pending int
	}
	tests := []struct {
		name  string
		base  int64
		steps []step
	}{
		{"in order", 10, []step{
			{deliver: span(10, 13), floor: 10, next: 13, pending: 3},
			{end: []int64{10}, floor: 11, next: 13, pending: 2},
			{end: []int64{11, 12}, floor: 13, next: 13},
		}},
		{"out of order", 0, []step{
			{deliver: span(0, 4), floor: 0, next: 4, pending: 4},
			{end: []int64{3, 1}, floor: 0, next: 4, pending: 2},
			{end: []int64{0}, floor: 2, next: 4, pending: 1},
			{end: []int64{2}, floor: 4, next: 4},
		}},
		// KAFKA-6607, STORM-2607: the odd offsets are transaction markers and the log ends with one.
		{"markers", 0, []step{
			{deliver: []int64{0, 2, 4, 6, 8}, floor: 0, next: 9, pending: 5},
			{end: []int64{2, 4, 8, 6}, floor: 0, next: 9, pending: 1},
			{end: []int64{0}, floor: 9, next: 9},
			{skip: 10, floor: 10, next: 10},
		}},
		{"aborted tail", 7, []step{
			{deliver: span(7, 9), floor: 7, next: 9, pending: 2},
			{skip: 20, floor: 7, next: 20, pending: 2},
			{end: []int64{7, 8}, floor: 20, next: 20},
		}},
		{"a hole before the first record", 5, []step{
			{deliver: []int64{100}, floor: 100, next: 101, pending: 1},
			{end: []int64{100}, floor: 101, next: 101},
		}},
		{"nothing but a hole", 5, []step{{skip: 1000, floor: 1000, next: 1000}}},
		{"an empty batch", 5, []step{{deliver: []int64{}, floor: 5, next: 5}}},
		{"a later batch ends first", 0, []step{
			{deliver: span(0, 2), floor: 0, next: 2, pending: 2},
			{deliver: span(2, 4), floor: 0, next: 4, pending: 4},
			{deliver: span(4, 6), floor: 0, next: 6, pending: 6},
			{end: []int64{2, 3}, floor: 0, next: 6, pending: 4},
			{end: []int64{0, 1}, floor: 4, next: 6, pending: 2},
			{end: []int64{5, 4}, floor: 6, next: 6},
		}},
		{"the highest offset there can be", math.MaxInt64 - 2, []step{
			{deliver: span(math.MaxInt64-2, math.MaxInt64), floor: math.MaxInt64 - 2, next: math.MaxInt64, pending: 2},
			{end: span(math.MaxInt64-2, math.MaxInt64), floor: math.MaxInt64, next: math.MaxInt64},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := Open(tt.base, Map{})
			type at struct {
				c *Chunk
				i int
			}
			where := map[int64]at{}
			for n, s := range tt.steps {
				if s.deliver != nil {
					c := mustDeliver(t, l, s.deliver...)
					for i := range c.Len() {
						where[c.Offset(i)] = at{c, i}
					}
				}
				if s.skip != 0 {
					if err := l.Skip(s.skip); err != nil {
						t.Fatalf("step %d: Skip: %v", n, err)
					}
				}
				for _, o := range s.end {
					w := where[o]
					if !w.c.End(w.i) {
						t.Fatalf("step %d: the first end of %d says false", n, o)
					}
					if w.c.End(w.i) {
						t.Fatalf("step %d: the second end of %d says true", n, o)
					}
				}
				if l.Floor() != s.floor || l.Next() != s.next || l.Pending() != s.pending {
					t.Fatalf("step %d: floor, next, pending are %d, %d, %d; want %d, %d, %d",
						n, l.Floor(), l.Next(), l.Pending(), s.floor, s.next, s.pending)
				}
				if o, ok := l.Oldest(); ok != (s.pending > 0) || ok && o != s.floor {
					t.Fatalf("step %d: Oldest is %d, %t", n, o, ok)
				}
				checkInvariants(t, l)
			}
		})
	}
}

func TestRefusedDeliveriesChangeNothing(t *testing.T) {
	tests := []struct {
		name string
		call func(*Ledger) error
		want error
		says []string
	}{
		{"below next", func(l *Ledger) error { _, err := l.Deliver([]int64{41}); return err }, ErrRewind, []string{"offset 41", "is 60"}},
		{"begins right, goes back", func(l *Ledger) error { _, err := l.Deliver([]int64{60, 61, 59}); return err }, ErrRewind, []string{"record 3 of 3", "offset 59"}},
		{"twice the same", func(l *Ledger) error { _, err := l.Deliver([]int64{60, 60}); return err }, ErrRewind, []string{"offset 60 after 60"}},
		{"falls above next", func(l *Ledger) error { _, err := l.Deliver([]int64{70, 65}); return err }, ErrRewind, []string{"offset 65 after 70"}},
		{"negative", func(l *Ledger) error { _, err := l.Deliver([]int64{-1}); return err }, ErrRewind, []string{"offset -1"}},
		{"no next offset", func(l *Ledger) error { _, err := l.Deliver([]int64{60, math.MaxInt64}); return err }, ErrRange, []string{"9223372036854775807"}},
		{"after the last offset", func(l *Ledger) error { _, err := l.Deliver([]int64{math.MaxInt64, 60}); return err }, ErrRewind, []string{"offset 60 after"}},
		{"skip back", func(l *Ledger) error { return l.Skip(59) }, ErrRewind, []string{"skip to 59", "is 60"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := Open(40, Map{})
			c := mustDeliver(t, l, span(40, 60)...)
			c.EndRun(3, 9)
			before := l.Snapshot()
			err := tt.call(l)
			if !errors.Is(err, tt.want) {
				t.Fatalf("error is %v, want %v", err, tt.want)
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("error %q does not say %q", err, s)
				}
			}
			if d := cmp.Diff(before, l.Snapshot()); d != "" {
				t.Errorf("the ledger has changed:\n%s", d)
			}
			checkInvariants(t, l)
			mustDeliver(t, l, 60)
		})
	}
}

func TestSkipToNextIsNoRewind(t *testing.T) {
	l := Open(40, Map{})
	if err := l.Skip(40); err != nil {
		t.Fatal(err)
	}
}

func TestCloseFreezes(t *testing.T) {
	l := Open(0, Map{})
	c := mustDeliver(t, l, span(0, 10)...)
	c.End(0)
	c.End(5)
	before := l.Snapshot()
	l.Close()
	l.Close()
	if c.End(1) {
		t.Error("End after Close says true")
	}
	if n := c.EndRun(0, 10); n != 0 {
		t.Errorf("EndRun after Close ended %d", n)
	}
	if _, err := l.Deliver([]int64{10}); !errors.Is(err, ErrClosed) {
		t.Errorf("Deliver after Close: %v", err)
	}
	if _, err := l.Deliver(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Deliver of nothing after Close: %v", err)
	}
	if err := l.Skip(20); !errors.Is(err, ErrClosed) {
		t.Errorf("Skip after Close: %v", err)
	}
	if d := cmp.Diff(before, l.Snapshot()); d != "" {
		t.Errorf("a closed ledger has changed:\n%s", d)
	}
	if l.Floor() != 1 || l.Next() != 10 || l.Pending() != 8 || c.Open() != 8 || c.Ended(1) || !c.Ended(5) {
		t.Error("a closed ledger has changed its counts")
	}
	checkInvariants(t, l)
}

func TestOpenWithMap(t *testing.T) {
	m := Map{Base: 100, Next: 110, Open: []int64{100, 104, 107}}
	t.Run("what had ended comes back ended", func(t *testing.T) {
		l := Open(100, m)
		if l.Ignored() != nil {
			t.Fatal(l.Ignored())
		}
		if d := cmp.Diff(Map{Base: 100, Next: 110, Open: m.Open, Held: State{Suspect: None}}, l.Snapshot()); d != "" {
			t.Fatalf("a commit before the first delivery forgets:\n%s", d)
		}
		c := mustDeliver(t, l, 100, 101, 102, 104)
		if c.Ended(0) || !c.Ended(1) || !c.Ended(2) || c.Ended(3) || l.Pending() != 2 {
			t.Fatalf("pending %d", l.Pending())
		}
		if c.End(1) {
			t.Error("a remembered end can be ended again")
		}
		c.End(0)
		if d := cmp.Diff(Map{Base: 104, Next: 110, Open: []int64{104, 107}, Held: State{Suspect: None}}, l.Snapshot()); d != "" {
			t.Errorf("snapshot in the middle of the map:\n%s", d)
		}
		// 107 has been compacted away since: it must not hold anything.
		c2 := mustDeliver(t, l, 106, 109, 110)
		if !c2.Ended(0) || !c2.Ended(1) || c2.Ended(2) {
			t.Error("second batch")
		}
		c.End(3)
		if l.Floor() != 110 {
			t.Errorf("floor is %d", l.Floor())
		}
		checkInvariants(t, l)
	})
	t.Run("a batch that had ended whole is not in the list", func(t *testing.T) {
		l := Open(100, m)
		if err := l.Skip(101); err != nil {
			t.Fatal(err)
		}
		c := mustDeliver(t, l, 101, 102, 103)
		if c.Open() != 0 || l.Floor() != 104 || l.head != nil {
			t.Errorf("open %d, floor %d", c.Open(), l.Floor())
		}
		checkInvariants(t, l)
	})
	t.Run("skip over the map", func(t *testing.T) {
		l := Open(100, m)
		if err := l.Skip(200); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(Map{Base: 200, Next: 200, Held: State{Suspect: None}}, l.Snapshot()); d != "" {
			t.Error(d)
		}
		checkInvariants(t, l)
	})
	t.Run("the map is not kept", func(t *testing.T) {
		mine := Map{Base: 100, Next: 110, Open: []int64{100, 104, 107}}
		l := Open(100, mine)
		mine.Open[0], mine.Open[1] = 101, 102
		if c := mustDeliver(t, l, span(100, 110)...); c.Ended(0) || c.Ended(4) || c.Ended(7) || c.Open() != 3 {
			t.Error("the ledger reads the caller's slice")
		}
	})

	ignored := []struct {
		name string
		m    Map
		want error
	}{
		{"nothing known", Map{}, nil},
		{"nothing known, but a state", Map{Held: State{TakenOver: true, Deaths: 2}}, nil},
		{"another base", Map{Base: 99, Next: 110}, ErrBase},
		{"base 0 and ends", Map{Base: 0, Next: 110}, ErrBase},
		{"out of order", Map{Base: 100, Next: 110, Open: []int64{104, 102}}, ErrCorrupt},
		{"twice", Map{Base: 100, Next: 110, Open: []int64{104, 104}}, ErrCorrupt},
		{"open below the base", Map{Base: 100, Next: 110, Open: []int64{99}}, ErrCorrupt},
		{"open behind the window", Map{Base: 100, Next: 110, Open: []int64{110}}, ErrCorrupt},
		{"next below the base", Map{Base: 100, Next: 99}, ErrCorrupt},
	}
	for _, tt := range ignored {
		t.Run(tt.name, func(t *testing.T) {
			l := Open(100, tt.m)
			if err := l.Ignored(); !errors.Is(err, tt.want) {
				t.Fatalf("Ignored is %v, want %v", err, tt.want)
			}
			if c := mustDeliver(t, l, span(100, 120)...); c.Open() != 20 {
				t.Errorf("%d of 20 records are open", c.Open())
			}
		})
	}
}

func TestOpenAtNegativeOffsetPanics(t *testing.T) {
	defer func() {
		if r, _ := recover().(string); !strings.Contains(r, "offset -1") {
			t.Errorf("panic: %v", r)
		}
	}()
	Open(-1, Map{})
}

// A hole costs nothing, whatever its size: retention may delete 10^8 offsets at once.
func TestHoleOfAnySize(t *testing.T) {
	for _, hole := range []int64{1e6, 1e8, 1e15} {
		l := Open(0, Map{})
		next := int64(0)
		allocs := testing.AllocsPerRun(100, func() {
			c, err := l.Deliver([]int64{next, next + hole, next + 2*hole})
			if err != nil {
				t.Fatal(err)
			}
			if l.Floor() != next || c.EndRun(0, 3) != 3 {
				t.Fatal("floor or ends")
			}
			next += 2*hole + 1
			if l.Floor() != next {
				t.Fatalf("floor is %d, want %d", l.Floor(), next)
			}
		})
		if allocs > 3 {
			t.Errorf("hole of %d: %v allocations", hole, allocs)
		}
		mustDeliver(t, l, next, next+hole)
		m := l.Snapshot()
		if text := Encode(m); len(text) > 60 {
			t.Errorf("hole of %d: map of %d characters", hole, len(text))
		}
		if !slices.Equal(m.Open, []int64{next, next + hole}) {
			t.Errorf("open: %v", m.Open)
		}
	}
}
