package engine

import (
	"context"
	"io"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/spout"
)

// benchRecord is a record of 100 bytes.
type benchRecord struct{ key, value []byte }

func (r *benchRecord) Key() []byte            { return r.key }
func (r *benchRecord) Bytes() []byte          { return r.value }
func (r *benchRecord) Headers() []core.Header { return nil }
func (r *benchRecord) Time() time.Time        { return time.UnixMilli(1) }

// benchFeed hands out n roots in runs of 256, without a ledger below it.
type benchFeed struct {
	recs   []benchRecord
	left   atomic.Int64
	open   atomic.Int64
	limit  int64
	epoch  ack.Epoch
	signal chan struct{}
}

func newBenchFeed(n int) *benchFeed {
	f := &benchFeed{limit: 1024, signal: make(chan struct{}, 1)}
	for range 256 {
		f.recs = append(f.recs, benchRecord{[]byte("k"), make([]byte, 100)})
	}
	f.left.Store(int64(n))
	return f
}

func (f *benchFeed) Next(ctx context.Context, r *Run) error {
	for {
		left := f.left.Load()
		if left <= 0 {
			return io.EOF
		}
		if n := min(256, left, f.limit-f.open.Load()); n > 0 {
			f.left.Add(-n)
			f.open.Add(n)
			*r = Run{f, 0, int(n)}
			return nil
		}
		select {
		case <-f.signal:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
func (f *benchFeed) Wake() { f.poke() }
func (f *benchFeed) poke() {
	select {
	case f.signal <- struct{}{}:
	default:
	}
}
func (f *benchFeed) Stop()                    { f.left.Store(0); f.poke() }
func (f *benchFeed) Pending() int             { return int(f.open.Load()) }
func (f *benchFeed) Record(i int) core.Record { return &f.recs[i] }
func (f *benchFeed) Origin(i int) core.Origin { return core.Origin{Topic: "t", Offset: int64(i)} }
func (f *benchFeed) Partition() int32         { return 0 }
func (f *benchFeed) Epoch() *ack.Epoch        { return &f.epoch }
func (f *benchFeed) EndRun(from, to int)      { f.open.Add(int64(from - to)); f.poke() }
func (f *benchFeed) End(i int, _ *ack.Cause)  { f.EndRun(i, i+1) }

func pass(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
	out.Emit(killick.Message{Key: in.Key(), Bytes: in.Bytes()})
	return nil
}

var sum atomic.Int64

func read(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
	if len(in.Bytes()) == 0 {
		sum.Add(1)
	}
	return nil
}

// cpuTime returns the user and system time of the process: on a shared machine it says more than
// the clock.
func cpuTime(b testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bench runs a topology over b.N records.
func bench(b *testing.B, build func(t *killick.Topology)) {
	b.ReportAllocs()
	began := cpuTime(b)
	benchTopology(b, b.N, build)
	b.ReportMetric(float64(cpuTime(b)-began)/float64(b.N), "cpu-ns/op")
}

func benchTopology(b testing.TB, n int, build func(t *killick.Topology)) {
	t := killick.New("bench")
	t.Spout("in", spout.Kafka("in"))
	build(t)
	spec, err := t.Spec()
	if err != nil {
		b.Fatal(err)
	}
	e, err := New(Config{Spec: spec, Feeds: map[string]Feed{"in": newBenchFeed(n)}, Outbox: benchOutbox{}})
	if err != nil {
		b.Fatal(err)
	}
	if err := e.Run(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// benchOutbox has every output durable at once.
type benchOutbox struct{}

func (benchOutbox) Put(_ context.Context, o *Output) error { o.Done(nil); return nil }

// BenchmarkFused is what the engine adds per record when one bolt runs on the dispatcher.
func BenchmarkFused(b *testing.B) {
	bench(b, func(t *killick.Topology) { t.Bolt("read", bolt.Func(read)).Shuffle("in") })
}

// BenchmarkFused3 is three bolts in a row on the dispatcher.
func BenchmarkFused3(b *testing.B) {
	bench(b, func(t *killick.Topology) {
		t.Bolt("a", bolt.Func(pass)).Shuffle("in")
		t.Bolt("b", bolt.Func(pass)).Shuffle("a")
		t.Bolt("read", bolt.Func(read)).Shuffle("b")
	})
}

// BenchmarkHop is one hand-over to two tasks.
func BenchmarkHop(b *testing.B) {
	bench(b, func(t *killick.Topology) { t.Bolt("read", bolt.Func(read)).Tasks(2).Shuffle("in") })
}

// BenchmarkHold holds each tuple and acks it at once.
func BenchmarkHold(b *testing.B) {
	bench(b, func(t *killick.Topology) {
		t.Bolt("hold", bolt.Func(func(_ context.Context, _ *killick.Tuple, out killick.Emitter) error {
			out.Hold().Ack()
			return nil
		})).Shuffle("in")
	})
}

// BenchmarkSink is what a sink costs beside writing.
func BenchmarkSink(b *testing.B) {
	bench(b, func(t *killick.Topology) { t.Bolt("out", bolt.Kafka("out")).Shuffle("in") })
}

// BenchmarkTreeSize is P8: the cost of an edge in trees of 1 to 10,000 edges, one hand-over each.
func BenchmarkTreeSize(b *testing.B) {
	for _, leaves := range []int{1, 10, 100, 1000, 10_000} {
		b.Run(strconv.Itoa(leaves), func(b *testing.B) {
			b.ReportAllocs()
			began := cpuTime(b)
			benchTopology(b, max(1, b.N/leaves), func(t *killick.Topology) {
				t.Bolt("split", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
					for range leaves {
						out.Emit(killick.Message{Bytes: in.Bytes()})
					}
					return nil
				})).Shuffle("in")
				t.Bolt("leaf", bolt.Func(read)).Tasks(2).Shuffle("split")
			})
			b.ReportMetric(float64(cpuTime(b)-began)/float64(max(1, b.N/leaves)*leaves), "cpu-ns/edge")
		})
	}
}

// BenchmarkPending is P9: the cost of a tree that is one of 1,000 to 1,000,000 pending ones. Each
// is held till as many others are, and acked in order.
func BenchmarkPending(b *testing.B) {
	for _, pending := range []int{1000, 10_000, 100_000, 1_000_000} {
		b.Run(strconv.Itoa(pending), func(b *testing.B) {
			n := max(b.N, 2*pending)
			ring := make([]*killick.Held, pending)
			i := 0
			t := killick.New("bench")
			t.Spout("in", spout.Kafka("in")).Pending(2*pending, 1<<40)
			t.Bolt("hold", bolt.Func(func(_ context.Context, _ *killick.Tuple, out killick.Emitter) error {
				if h := ring[i%pending]; h != nil {
					h.Ack()
				}
				ring[i%pending] = out.Hold()
				if i++; i == n {
					for _, h := range ring {
						h.Settle(nil)
					}
				}
				return nil
			})).Timeout(time.Hour).Shuffle("in")
			spec, err := t.Spec()
			if err != nil {
				b.Fatal(err)
			}
			f := newBenchFeed(n)
			f.limit = int64(2 * pending)
			e, err := New(Config{Spec: spec, Feeds: map[string]Feed{"in": f}})
			if err != nil {
				b.Fatal(err)
			}
			began := cpuTime(b)
			b.ResetTimer()
			if err := e.Run(context.Background()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(cpuTime(b)-began)/float64(n), "cpu-ns/tree")
			b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(n), "ns/tree")
		})
	}
}
