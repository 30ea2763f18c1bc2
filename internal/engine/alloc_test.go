package engine

import (
	"context"
	"runtime"
	"testing"
	"unsafe"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/internal/core"
)

// allocs returns the allocations per record in the steady state: those of a long run less those of
// a short one.
func allocs(t *testing.T, build func(t *killick.Topology)) (objects, bytes float64) {
	const short, long = 20_000, 220_000
	measure := func(n int) (objects, bytes uint64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		benchTopology(t, n, build)
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc
	}
	measure(short)
	o1, b1 := measure(short)
	o2, b2 := measure(long)
	return (float64(o2) - float64(o1)) / (long - short), (float64(b2) - float64(b1)) / (long - short)
}

// TestAllocs: no allocation per tuple in the steady state, in line; a hand-over to another
// goroutine allocates roots by the slab. The slack is for what ticks and a
// busy machine cost: a task that loses its processor counts as slow for a while.
func TestAllocs(t *testing.T) {
	if core.Race {
		t.Skip("the race detector's fresh tuples allocate")
	}
	two := func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
		out.Emit(killick.Message{Key: in.Key(), Bytes: in.Bytes()})
		out.Emit(killick.Message{Key: in.Key(), Bytes: in.Bytes()})
		return nil
	}
	for _, c := range []struct {
		name  string
		most  float64
		build func(t *killick.Topology)
	}{
		{"fused", 0.01, func(t *killick.Topology) { t.Bolt("read", bolt.Func(read)).Shuffle("in") }},
		{"chain of three", 0.01, func(t *killick.Topology) {
			t.Bolt("a", bolt.Func(pass)).Shuffle("in")
			t.Bolt("b", bolt.Func(pass)).Shuffle("a")
			t.Bolt("read", bolt.Func(read)).Shuffle("b")
		}},
		{"chain of six", 0.01, func(t *killick.Topology) {
			t.Bolt("a", bolt.Func(pass)).Shuffle("in")
			t.Bolt("b", bolt.Func(pass)).Shuffle("a")
			t.Bolt("c", bolt.Func(pass)).Shuffle("b")
			t.Bolt("d", bolt.Func(pass)).Shuffle("c")
			t.Bolt("e", bolt.Func(pass)).Shuffle("d")
			t.Bolt("read", bolt.Func(read)).Shuffle("e")
		}},
		{"diamond", 0.01, func(t *killick.Topology) {
			t.Bolt("a", bolt.Func(two)).Shuffle("in")
			t.Bolt("b", bolt.Func(pass)).Shuffle("a")
			t.Bolt("c", bolt.Func(pass)).Fields("a", nil)
			t.Bolt("read", bolt.Func(read)).Shuffle("b").Shuffle("c")
		}},
		{"custom and all", 0.01, func(t *killick.Topology) {
			t.Bolt("a", bolt.Func(pass)).Shuffle("in")
			t.Bolt("b", bolt.Func(read)).Custom("a", func(dst []int, _ *killick.Tuple, _ int) []int { return append(dst, 0) })
			t.Bolt("c", bolt.Func(read)).All("a")
		}},
		{"hand-over", 1.0 / 64, func(t *killick.Topology) { t.Bolt("read", bolt.Func(read)).Tasks(2).Shuffle("in") }},
		{"hand-over by key", 1.0 / 64, func(t *killick.Topology) { t.Bolt("read", bolt.Func(read)).Tasks(2).Fields("in", nil) }},
		{"hand-over further down", 3.0 / 64, func(t *killick.Topology) { // of three tuples
			t.Bolt("a", bolt.Func(pass)).Shuffle("in")
			t.Bolt("b", bolt.Func(pass)).Shuffle("a")
			t.Bolt("c", bolt.Func(two)).Tasks(2).Shuffle("b")
			t.Bolt("read", bolt.Func(read)).Tasks(2).Shuffle("c")
		}},
		// What is under way with its input and output, and its method that the outbox calls; roots by the slab.
		{"sink", 2 + 1.0/64, func(t *killick.Topology) { t.Bolt("out", bolt.Kafka("out")).Shuffle("in") }},
		{"held", 1 + 1.0/64, func(t *killick.Topology) {
			t.Bolt("hold", bolt.Func(func(_ context.Context, _ *killick.Tuple, out killick.Emitter) error {
				out.Hold().Ack()
				return nil
			})).Shuffle("in")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Other goroutines of the test binary may allocate, too: the best of three counts.
			best, bytes := allocs(t, c.build)
			for try := 0; try < 3 && best > c.most; try++ {
				o, b := allocs(t, c.build)
				best, bytes = min(best, o), min(bytes, b)
			}
			t.Logf("%.5f objects, %.1f bytes per record", best, bytes)
			if best > c.most {
				t.Errorf("%.5f objects per record, want at most %.5f", best, c.most)
			}
		})
	}
}

// TestRootSize: a pending root costs at most 64 bytes beside its record and held tuples.
func TestRootSize(t *testing.T) {
	if n := unsafe.Sizeof(ack.Tree{}) + unsafe.Sizeof((*ack.Tree)(nil)); n > 64 {
		t.Errorf("a root takes %d bytes", n)
	}
	if n := unsafe.Sizeof(item{}); n > 192 {
		t.Errorf("an item takes %d bytes: more than three cache lines", n)
	}
}
