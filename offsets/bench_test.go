package offsets

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// feed delivers records one after the other out of batches, as a poll loop does.
type feed struct {
	l    *Ledger
	offs []int64
	next int64
	step int64 // 1: dense
	c    *Chunk
	i    int
}

func newFeed(batch int, step int64) *feed {
	return &feed{l: Open(0, Map{}), offs: make([]int64, batch), step: step}
}

func (f *feed) batch(b *testing.B) *Chunk {
	for i := range f.offs {
		f.offs[i] = f.next
		f.next += f.step
	}
	c, err := f.l.Deliver(f.offs)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func (f *feed) record(b *testing.B) (*Chunk, int) {
	if f.c == nil || f.i == f.c.Len() {
		f.c, f.i = f.batch(b), 0
	}
	f.i++
	return f.c, f.i - 1
}

var windows = []int{64, 1024, 65_536, 1 << 20}

// One op is one record: its share of Deliver in batches of 512 (64 for the smallest window), and its End. Random:
// a window of records is delivered and ends in random order, then comes the next window. Names of records are read in
// sequence, so what is measured at large windows is the ledger's memory and not the benchmark's.
func BenchmarkEnd(b *testing.B) {
	b.Run("in order", func(b *testing.B) {
		f := newFeed(512, 1)
		b.ReportAllocs()
		for b.Loop() {
			c, i := f.record(b)
			if !c.End(i) {
				b.Fatal("not ended")
			}
		}
	})
	for _, w := range windows {
		b.Run(fmt.Sprintf("random/window=%d", w), func(b *testing.B) {
			batch := min(w, 512)
			f := newFeed(batch, 1)
			rng := rand.New(rand.NewPCG(1, 1))
			order := make([]int32, w)
			for k, r := range rng.Perm(w) {
				order[k] = int32(r)
			}
			chunks := make([]*Chunk, w/batch)
			k := w
			b.ReportAllocs()
			for b.Loop() {
				if k == w {
					for c := range chunks {
						chunks[c] = f.batch(b)
					}
					k = 0
				}
				r := int(order[k])
				k++
				if !chunks[r/batch].End(r % batch) {
					b.Fatal("not ended")
				}
			}
		})
	}
}

// One op is one EndRun of 32 records somewhere in a batch of 512, its share of Deliver included.
func BenchmarkEndRun(b *testing.B) {
	f := newFeed(512, 1)
	var c *Chunk
	k := 0
	b.ReportAllocs()
	for b.Loop() {
		if k%16 == 0 {
			c = f.batch(b)
		}
		from := k % 16 * 5 % 16 * 32 // 5 and 16 have no common factor: every run once
		if c.EndRun(from, from+32) != 32 {
			b.Fatal("not ended")
		}
		k++
	}
}

// One op is one batch, delivered and ended as a whole.
func BenchmarkDeliver(b *testing.B) {
	for _, batch := range []int{256, 512, 4096} {
		for _, step := range []int64{1, 3} {
			name := map[int64]string{1: "dense", 3: "sparse"}[step]
			b.Run(fmt.Sprintf("%s/batch=%d", name, batch), func(b *testing.B) {
				f := newFeed(batch, step)
				b.ReportAllocs()
				for b.Loop() {
					if n := f.batch(b).EndRun(0, batch); n != batch {
						b.Fatal(n)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/record")
			})
		}
	}
}

// The first record of the log is stuck; all behind it end. Floor and snapshot must not notice the window.
func BenchmarkSnapshotBehindStuckRecord(b *testing.B) {
	for _, w := range windows {
		b.Run(fmt.Sprintf("window=%d", w), func(b *testing.B) {
			f := newFeed(min(w, 512), 1)
			f.batch(b).EndRun(1, min(w, 512))
			for f.next < int64(w) {
				f.batch(b).EndRun(0, 512)
			}
			b.ReportAllocs()
			for b.Loop() {
				if m := f.l.Snapshot(); len(m.Open) != 1 || f.l.Floor() != 0 {
					b.Fatal(m)
				}
			}
		})
	}
}

func BenchmarkCodec(b *testing.B) {
	for _, tt := range []struct {
		name string
		m    Map
	}{
		{"1 stuck of 1,000,000", Map{Base: 7, Next: 1_000_007, Open: []int64{7}, Held: clean}},
		{"1,000 of 10,000", Map{Base: 7, Next: 10_007, Open: randomOpen(3, 1000, 7, 10_000), Held: clean}},
		{"1,400 of 2,000,000", Map{Base: 7, Next: 2_000_007, Open: randomOpen(4, 1400, 7, 2_000_000), Held: clean}},
		{"100,000 of 1,000,000", Map{Base: 7, Next: 1_000_007, Open: randomOpen(4, 100_000, 7, 1_000_000), Held: clean}},
	} {
		b.Run("encode/"+tt.name, func(b *testing.B) {
			var e Encoder
			b.ReportAllocs()
			for b.Loop() {
				e.Encode(tt.m)
			}
		})
		text := Encode(tt.m)
		b.Run("decode/"+tt.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(text, 7); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
