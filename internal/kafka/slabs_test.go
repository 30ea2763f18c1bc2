package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A slab has room for the batch, whatever its size, and a slab that came back is used again.
func TestSlabs(t *testing.T) {
	s := new(slabs)
	for _, n := range []int{0, 1, 2, 3, 500, 512, 513, 1 << (slabClasses - 1), 1<<(slabClasses-1) + 1} {
		r := s.GetRecords(n)
		if cap(r) < n {
			t.Errorf("a slab for %d records has room for %d", n, cap(r))
		}
		s.PutRecords(r[:n])
	}
	s.PutRecords(make([]kgo.Record, 3)) // not one of ours: no class has this size
	if r := s.GetRecords(3); cap(r) < 4 {
		t.Errorf("a slab of the class of 3 has room for %d records", cap(r))
	}
	allocs := testing.AllocsPerRun(100, func() { s.PutRecords(s.GetRecords(500)) })
	if allocs > 1 { // the slice header
		t.Errorf("%v allocations for a slab that is there", allocs)
	}
}
