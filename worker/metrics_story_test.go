package worker_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
)

// Trees are measured in virtual time: those that end in the synchronous call, those that do not, and
// those with a retry in between. What executes is counted.
func TestTreeDurations(t *testing.T) {
	tell(t, func(s *story) {
		top := killick.New("t")
		top.Spout("sync", spout.Kafka("a"))
		top.Spout("async", spout.Kafka("b"))
		top.Bolt("x", bolt.Func(func(context.Context, *killick.Tuple, killick.Emitter) error {
			s.pass(2 * time.Second)
			return nil
		})).Shuffle("sync")
		top.Bolt("y", bolt.Async(4, func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			s.pass(3 * time.Second)
			if string(in.Bytes()) == "again" && in.Attempt() == 1 {
				return killick.RetryAfter(20*time.Second, errTry)
			}
			return nil
		})).Shuffle("async")
		r := s.start(top)
		s.drained("a")
		s.produce("a", 0, "1")
		s.produce("b", 0, "again")
		s.produce("b", 1, "1")
		s.produce("b", 2, "1")
		s.pass(time.Second)
		if got := r.metric("killick_execute_inflight", "component=y"); got != 3 {
			s.Errorf("%v executions of y", got)
		}
		if got := r.metric("killick_execute_inflight", "component=x"); got != 1 {
			s.Errorf("%v executions of x", got)
		}
		s.drained("a")
		s.drained("b")
		if got := r.metric("killick_execute_inflight"); got != 0 {
			s.Errorf("%v executions at the end", got)
		}
		for spout, want := range map[string]struct {
			n   uint64
			sum float64
		}{"sync": {1, 2}, "async": {3, 3 + 3 + 26}} {
			h := r.series("killick_tree_duration_seconds", "spout="+spout)[0].GetHistogram()
			if h.GetSampleCount() != want.n || math.Abs(h.GetSampleSum()-want.sum) > 0.2 {
				s.Errorf("%s: %d trees took %v s, want %d and %v", spout, h.GetSampleCount(), h.GetSampleSum(), want.n, want.sum)
			}
			if b := h.GetBucket(); b[7].GetUpperBound() != 1 || b[7].GetCumulativeCount() != 0 || b[8].GetCumulativeCount() == 0 {
				s.Errorf("%s: buckets %v", spout, b)
			}
		}
		r.end()
	}, embedded.Topic("a", 1), embedded.Topic("b", 3))
}

// One root in 64 is measured.
func TestTreeDurationsAreSampled(t *testing.T) {
	tell(t, func(s *story) {
		s.produce("in", 0, numbers(0, 640)...)
		var c tally
		r := s.start(counting(&c, spout.Kafka("in"), nil))
		s.drained("in")
		// Chunks begin where polls do.
		if n := r.series("killick_tree_duration_seconds")[0].GetHistogram().GetSampleCount(); n < 10 || n > 30 {
			s.Errorf("%d of 640 were measured", n)
		}
		r.end()
	}, embedded.Topic("in", 1))
}

// A slow component makes the one before it wait, and that shows.
func TestBackpressureSeconds(t *testing.T) {
	tell(t, func(s *story) {
		top := killick.New("t")
		top.Pending(20000, 64<<20)
		top.Spout("in", spout.Kafka("in"))
		top.Bolt("pass", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			for range 100 {
				out.Emit(in.Message())
			}
			return nil
		})).Shuffle("in")
		top.Bolt("slow", bolt.Func(func(context.Context, *killick.Tuple, killick.Emitter) error {
			s.pass(time.Millisecond)
			return nil
		})).Shuffle("pass").Tasks(2)
		r := s.start(top)
		s.produce("in", 0, numbers(0, 300)...)
		s.drained("in")
		got := r.metric("killick_backpressure_seconds_total", "component=pass")
		if got < 5 || got > 16 { // 30,000 ms of work for two tasks, less what their queues hold
			s.Errorf("pass has waited for %v s", got)
		}
		if got := r.metric("killick_backpressure_seconds_total", "component=slow"); got != 0 {
			s.Errorf("slow has waited for %v s", got)
		}
		r.end()
	}, embedded.Topic("in", 1))
}

// What the group does with a worker: its number, standing by, releases, and the drain of its stop.
func TestGroupMetrics(t *testing.T) {
	tell(t, func(s *story) {
		var h hands
		top := h.topology(time.Hour)
		a := s.start(top)
		s.share(map[*running]int{a: 2})
		if n := a.count("killick_worker_info", "number=0", "place=", "standby=false"); n != 1 {
			s.Errorf("%v", a.series("killick_worker_info"))
		}
		var other hands
		b := s.start(other.topology(time.Hour))
		s.share(map[*running]int{a: 1, b: 1})
		if n := b.count("killick_worker_info", "number=1", "standby=false"); n != 1 {
			s.Errorf("%v", b.series("killick_worker_info"))
		}
		if clean, cut := a.metric("killick_released_partitions_total", "how=clean"), a.metric("killick_released_partitions_total", "how=cut"); clean != 1 || cut != 0 {
			s.Errorf("%v clean, %v cut", clean, cut)
		}
		if got := a.series("killick_release_duration_seconds")[0].GetSummary(); got.GetSampleCount() != 1 || got.GetSampleSum() > 5 {
			s.Errorf("releases: %v", got)
		}
		if got := a.metric("killick_drain_duration_seconds"); got != 0 {
			s.Errorf("no stop takes %v s", got)
		}
		p := int32(a.parts("in")[0])
		s.produce("in", p, "hold 0")
		s.until("it is held", func() bool { return h.c.total() == 1 })
		a.stop()
		s.pass(5 * time.Second)
		if got := a.metric("killick_drain_duration_seconds"); got < 4.9 || got > 5.1 {
			s.Errorf("the stop takes %v s, want 5", got)
		}
		h.of("hold 0").Ack()
		if err := a.wait(); err != nil {
			s.Error(err)
		}
		b.end()
	}, embedded.Topic("in", 2))
}
