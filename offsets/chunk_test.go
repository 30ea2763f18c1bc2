package offsets

import (
	"math/rand/v2"
	"testing"
)

// sizes around the edges of words and of the inline array.
var sizes = []int{1, 2, 63, 64, 65, 127, 128, 511, 512, 513, 1000, 4096}

func batches(n int) map[string][]int64 {
	dense := span(1000, 1000+int64(n))
	sparse := make([]int64, n)
	for i := range sparse {
		sparse[i] = 1000 + 3*int64(i)
	}
	return map[string][]int64{"dense": dense, "sparse": sparse}
}

func TestChunkKeepsOffsets(t *testing.T) {
	for _, n := range sizes {
		for name, offs := range batches(n) {
			l := Open(0, Map{})
			c := mustDeliver(t, l, offs...)
			mine := append([]int64(nil), offs...)
			clear(offs) // the caller's slice is the caller's
			if c.Len() != n || c.Open() != n {
				t.Fatalf("%s %d: Len %d, Open %d", name, n, c.Len(), c.Open())
			}
			if (c.offs != nil) != (name == "sparse" && n > 1) {
				t.Errorf("%s %d: stores %d offsets", name, n, len(c.offs))
			}
			for i, o := range mine {
				if c.Offset(i) != o || c.Ended(i) {
					t.Fatalf("%s %d: record %d has offset %d, ended %t", name, n, i, c.Offset(i), c.Ended(i))
				}
				if c.index(o) != i || c.index(o+1) != i+1 {
					t.Fatalf("%s %d: index of %d", name, n, o)
				}
			}
		}
	}
}

func TestEndInAnyOrder(t *testing.T) {
	for _, n := range sizes {
		for name, offs := range batches(n) {
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			l := Open(0, Map{})
			before := mustDeliver(t, l, 1)
			c := mustDeliver(t, l, offs...)
			after := mustDeliver(t, l, 1_000_000)
			for k, i := range rng.Perm(n) {
				if !c.End(i) || c.End(i) || !c.Ended(i) {
					t.Fatalf("%s %d: end of record %d is not exact", name, n, i)
				}
				if c.Open() != n-k-1 || l.Pending() != n-k+1 || l.Floor() != 1 {
					t.Fatalf("%s %d: open %d, pending %d", name, n, c.Open(), l.Pending())
				}
			}
			checkInvariants(t, l)
			if l.head != before || l.tail != after || before.next != after || c.prev != nil || c.next != nil {
				t.Fatalf("%s %d: an ended chunk is still linked", name, n)
			}
			before.End(0)
			if l.Floor() != 1_000_000 {
				t.Fatalf("floor is %d", l.Floor())
			}
		}
	}
}

// EndRun does what End does for each record of the range.
func TestEndRunEqualsEnds(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		n := sizes[rng.IntN(len(sizes))]
		a, b := Open(0, Map{}), Open(0, Map{})
		ca, cb := mustDeliver(t, a, span(0, int64(n))...), mustDeliver(t, b, span(0, int64(n))...)
		for range 10 {
			from := rng.IntN(n + 1)
			to := from + rng.IntN(n-from+1)
			want := 0
			for i := from; i < to; i++ {
				if cb.End(i) {
					want++
				}
			}
			if got := ca.EndRun(from, to); got != want {
				t.Fatalf("EndRun(%d, %d) of %d ended %d, want %d", from, to, n, got, want)
			}
			if a.Floor() != b.Floor() || a.Pending() != b.Pending() {
				t.Fatalf("floor %d and %d, pending %d and %d", a.Floor(), b.Floor(), a.Pending(), b.Pending())
			}
			checkInvariants(t, a)
		}
		ca.EndRun(0, n)
		if a.Floor() != int64(n) || a.Pending() != 0 || a.head != nil || a.tail != nil {
			t.Fatalf("after all: floor %d, pending %d", a.Floor(), a.Pending())
		}
	}
}

func TestBoundsPanic(t *testing.T) {
	c := mustDeliver(t, Open(0, Map{}), span(0, 10)...)
	calls := map[string]func(){
		"Offset(-1)":    func() { c.Offset(-1) },
		"Offset(10)":    func() { c.Offset(10) },
		"Ended(10)":     func() { c.Ended(10) },
		"End(10)":       func() { c.End(10) },
		"End(-1)":       func() { c.End(-1) },
		"EndRun(0, 11)": func() { c.EndRun(0, 11) },
		"EndRun(-1, 2)": func() { c.EndRun(-1, 2) },
		"EndRun(5, 4)":  func() { c.EndRun(5, 4) },
	}
	for name, call := range calls {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s does not panic", name)
				}
			}()
			call()
		}()
	}
	if c.Open() != 10 {
		t.Error("a refused call has ended records")
	}
	if n := c.EndRun(10, 10); n != 0 {
		t.Errorf("EndRun of nothing ended %d", n)
	}
}

func TestAllocations(t *testing.T) {
	const n = 1 << 16
	l := Open(0, Map{})
	c := mustDeliver(t, l, span(0, n)...)
	i := 0
	if a := testing.AllocsPerRun(1000, func() { c.End(i); c.End(n - 1 - i); i++ }); a != 0 {
		t.Errorf("End allocates %v times", a)
	}
	if a := testing.AllocsPerRun(100, func() { c.EndRun(i, i+200); i += 200 }); a != 0 {
		t.Errorf("EndRun allocates %v times", a)
	}
	if a := testing.AllocsPerRun(100, func() { l.Floor(); l.Oldest(); l.Next(); l.Pending() }); a != 0 {
		t.Errorf("Floor and its like allocate %v times", a)
	}
	if i > n/2 {
		t.Fatal("the test has run out of records")
	}

	dense, next := make([]int64, 512), int64(n)
	if a := testing.AllocsPerRun(100, func() {
		for k := range dense {
			dense[k] = next
			next++
		}
		d, err := l.Deliver(dense)
		if err != nil || d.EndRun(0, 512) != 512 {
			t.Fatal(err)
		}
	}); a > 1 {
		t.Errorf("Deliver of 512 records allocates %v times", a)
	}
}

// One record is stuck and a million behind it have ended: neither floor nor snapshot look at them.
func TestStuckRecordCostsOneStep(t *testing.T) {
	l := Open(0, Map{})
	c := mustDeliver(t, l, span(0, 1_000_000)...)
	c.EndRun(1, 500_000)
	c.EndRun(500_001, 1_000_000)
	steps := 0
	for ch := l.head; ch != nil; ch = ch.next {
		for w := ch.head; w != none; w = ch.words[w].next {
			steps++
		}
	}
	if steps != 2 {
		t.Errorf("a snapshot walks %d words", steps)
	}
	if m := l.Snapshot(); len(m.Open) != 2 || m.Open[1] != 500_000 || cap(m.Open) > 4 {
		t.Errorf("snapshot: %v", m)
	}
}
