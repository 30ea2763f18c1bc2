package kafka

import (
	"math/bits"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// slabs pools the record structs of fetched batches, one slab per batch (kgo.PoolRecords). A slab
// comes back when each of its records was recycled: a consumer's owner calls Record.Recycle when
// a record's tree has ended. Payload bytes are never pooled, since tuples share them with whoever
// keeps them. A slab of which a record is never recycled is the collector's, as without a pool.
type slabs struct {
	classes [slabClasses]sync.Pool // of *[]kgo.Record with 1 << index records
}

// slabClasses bounds what is pooled: slabs of up to 1 << (slabClasses - 1) records, 20 MiB.
const slabClasses = 18

// slabClass is the smallest c with n <= 1 << c.
func slabClass(n int) int { return bits.Len(uint(max(n, 1) - 1)) }

// GetRecords implements kgo.PoolRecords.
func (s *slabs) GetRecords(n int) []kgo.Record {
	c := slabClass(n)
	if c >= slabClasses {
		return make([]kgo.Record, n)
	}
	if r, ok := s.classes[c].Get().(*[]kgo.Record); ok {
		return *r
	}
	return make([]kgo.Record, 1<<c)
}

// PutRecords implements kgo.PoolRecords. kgo has cleared the records.
func (s *slabs) PutRecords(r []kgo.Record) {
	r = r[:cap(r)]
	if c := slabClass(len(r)); c < slabClasses && len(r) == 1<<c {
		s.classes[c].Put(&r)
	}
}
