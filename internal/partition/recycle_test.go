package partition

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/offsets"
)

// slab is a pool that notes what comes back.
type slab struct{ back int }

func (s *slab) GetRecords(n int) []kgo.Record { return make([]kgo.Record, n) }
func (s *slab) PutRecords([]kgo.Record)       { s.back++ }

// pooled returns n records from the given offset on, decoded into a slab of s.
func pooled(t *testing.T, s *slab, from int64, n int) []*kgo.Record {
	t.Helper()
	var recs []byte
	for i := range n {
		r := kmsg.Record{OffsetDelta: int32(i), Value: []byte{byte(i)}}
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		recs = r.AppendTo(recs)
	}
	rb := kmsg.RecordBatch{FirstOffset: from, PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(n - 1), ProducerID: -1, ProducerEpoch: -1,
		FirstSequence: -1, NumRecords: int32(n), Records: recs}
	b := rb.AppendTo(nil)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: from, Topic: "t", Pools: []kgo.Pool{s}},
		&kmsg.FetchResponseTopicPartition{RecordBatches: b}, kgo.DefaultDecompressor(), nil)
	if fp.Err != nil || len(fp.Records) != n {
		t.Fatalf("%d records: %v", len(fp.Records), fp.Err)
	}
	return fp.Records
}

// next takes a run off the feed.
func next(t *testing.T, f *Feed) engine.Run {
	t.Helper()
	var r engine.Run
	if err := f.Next(t.Context(), &r); err != nil || r.Chunk == nil {
		t.Fatalf("%+v: %v", r, err)
	}
	return r
}

// A record is recycled when its tree has ended, and not before: the slab of a batch comes back
// with the last one. What its value was stays as it was.
func TestRecycleWithTheLastEnd(t *testing.T) {
	s := new(slab)
	f := NewFeed("s", 100, 1<<20, Hooks{Dead: func(Dead) {}})
	p := f.Open("t", 0, 0, offsets.Map{}, false)
	if _, err := p.Deliver(pooled(t, s, 0, 10)); err != nil {
		t.Fatal(err)
	}
	r := next(t, f)
	value := r.Chunk.Record(3).Bytes()
	r.Chunk.EndRun(0, 5)
	for i := 5; i < 9; i++ {
		r.Chunk.End(i, nil)
	}
	if f.Pending() != 1 || s.back != 0 {
		t.Fatalf("%d roots open, %d slabs back; one record has not ended", f.Pending(), s.back)
	}
	if got := r.Chunk.Record(9).Bytes(); len(got) != 1 || got[0] != 9 {
		t.Errorf("the open record has the value %v", got)
	}
	r.Chunk.End(9, nil)
	if f.Pending() != 0 || s.back != 1 {
		t.Errorf("%d roots open, %d slabs back; all have ended", f.Pending(), s.back)
	}
	if len(value) != 1 || value[0] != 3 {
		t.Errorf("a value that was kept is now %v", value)
	}
}

// A dead letter needs its record until it is durable.
func TestRecycleAfterTheDeadLetter(t *testing.T) {
	s := new(slab)
	var dead []Dead
	f := NewFeed("s", 100, 1<<20, Hooks{Dead: func(d Dead) { dead = append(dead, d) }})
	p := f.Open("t", 0, 0, offsets.Map{}, false)
	if _, err := p.Deliver(pooled(t, s, 0, 2)); err != nil {
		t.Fatal(err)
	}
	r := next(t, f)
	r.Chunk.End(0, &ack.Cause{Outcome: ack.Dead, Policy: ack.DeadLetter})
	r.Chunk.EndRun(1, 2)
	if f.Pending() != 1 || s.back != 0 || len(dead) != 1 {
		t.Fatalf("%d roots open, %d slabs back, %d dead letters", f.Pending(), s.back, len(dead))
	}
	if v := dead[0].Record().Value; len(v) != 1 || v[0] != 0 {
		t.Errorf("the dead record has the value %v", v)
	}
	dead[0].Done()
	if f.Pending() != 0 || s.back != 1 {
		t.Errorf("%d roots open, %d slabs back; the dead letter is durable", f.Pending(), s.back)
	}
}

// Tries of a lost partition may still run: their records are not recycled, nor is anything twice.
func TestNoRecycleAfterClose(t *testing.T) {
	s := new(slab)
	f := NewFeed("s", 100, 1<<20, Hooks{})
	p := f.Open("t", 0, 0, offsets.Map{}, false)
	if _, err := p.Deliver(pooled(t, s, 0, 4)); err != nil {
		t.Fatal(err)
	}
	r := next(t, f)
	r.Chunk.EndRun(0, 2)
	r.Chunk.EndRun(0, 2) // a second end is none: kgo would panic or count wrongly
	p.Close()
	r.Chunk.EndRun(2, 4)
	r.Chunk.End(3, nil)
	p.Status() // drains the ends
	if s.back != 0 {
		t.Errorf("%d slabs back; two records were open when the partition was lost", s.back)
	}
	if v := r.Chunk.Record(3).Bytes(); len(v) != 1 || v[0] != 3 {
		t.Errorf("a record that a try may still look at has the value %v", v)
	}
}

// Records that the completion map knows as done are not started, whichever chunk they are in.
func TestFreshChunksAndRecalledOnes(t *testing.T) {
	s := new(slab)
	f := NewFeed("s", 3, 1<<20, Hooks{})
	m := offsets.Map{Base: 0, Next: 6, Open: []int64{0, 3}, Held: offsets.State{Suspect: offsets.None}}
	p := f.Open("t", 0, 0, m, false)
	for _, at := range []int64{0, 6} {
		if _, err := p.Deliver(pooled(t, s, at, 6)); err != nil {
			t.Fatal(err)
		}
	}
	var started []int64
	for len(started) < 8 {
		r := next(t, f)
		for i := r.From; i < r.To; i++ {
			started = append(started, r.Chunk.Origin(i).Offset)
		}
		r.Chunk.EndRun(r.From, r.To)
	}
	want := []int64{0, 3, 6, 7, 8, 9, 10, 11}
	for i, o := range want {
		if started[i] != o {
			t.Fatalf("started %v, not %v", started, want)
		}
	}
	if f.Pending() != 0 || s.back != 1 {
		t.Errorf("%d roots open, %d slabs back; that of the fresh batch is", f.Pending(), s.back)
	}
}
