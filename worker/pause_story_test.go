package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// A paused spout starts nothing new; what is under way ends and is committed, the worker stays in its
// group and is ready, and nothing is lost or repeated when it goes on. Its other spout does not notice.
// FC-34: darshanturakhia.com/blog/kafka-offset-reset-duplicate-payments.
func TestPause(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		block := make(chan struct{})
		top := killick.New("t")
		top.Spout("in", spout.Kafka("in"))
		top.Spout("other", spout.Kafka("other"))
		top.Bolt("x", bolt.Async(8, func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			v := string(in.Bytes())
			if n := c.add(v); v == "again" && n == 1 {
				return killick.RetryAfter(5*time.Second, errTry)
			}
			if v == "slow" {
				<-block
			}
			return nil
		})).Shuffle("in").Shuffle("other")
		r := s.start(top)
		s.drained("in")
		s.produce("in", 0, "slow", "a", "again")
		s.until("all run", func() bool { return c.total() == 3 })

		begin := time.Now()
		paused := make(chan error, 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := r.Pause(ctx, "in"); !errors.Is(err, context.DeadlineExceeded) || !contains(err.Error(), `spout "in" is paused`, "2 of its records") {
			s.Errorf("a pause that cannot wait: %v", err)
		}
		go func() { paused <- r.Pause(s.ctx(), "in") }()
		s.produce("in", 0, "b")
		s.produce("in", 1, "c")
		s.produce("other", 0, "d")
		s.until("the other spout goes on", func() bool { return c.of("d") == 1 })
		s.until("the retry runs", func() bool { return c.of("again") == 2 })
		select {
		case err := <-paused:
			s.Fatalf("Pause has returned with an open tree: %v", err)
		default:
		}
		close(block)
		if err := <-paused; err != nil {
			s.Fatal(err)
		}
		if d := time.Since(begin); d < 4*time.Second || d > 10*time.Second {
			s.Errorf("the pause took %v", d)
		}
		if got := s.committed("in"); got[0] != 3 {
			s.Errorf("when Pause has returned, committed is %v, want 3", got)
		}
		s.pass(5 * time.Minute)
		if ok, text := r.ready("spouts"); !ok || text != "paused: in" || r.redLines() != "" {
			s.Errorf("readiness: %v %q, red: %q", ok, text, r.redLines())
		}
		if got := fmt.Sprint(r.Paused()); got != "[in]" {
			s.Errorf("paused: %s", got)
		}
		if got := r.metric("killick_paused_spouts", "spout=in"); got != 1 {
			s.Errorf("killick_paused_spouts: %v", got)
		}
		if c.of("b")+c.of("c") > 0 {
			s.Error("a paused spout has started something")
		}
		if err := r.Resume("in"); err != nil {
			s.Fatal(err)
		}
		s.drained("in")
		if _, text := r.ready("spouts"); text != "" || len(r.Paused()) > 0 || r.metric("killick_paused_spouts") != 0 {
			s.Errorf("after Resume: %q", text)
		}
		r.end()
		for v, want := range map[string]int{"slow": 1, "a": 1, "again": 2, "b": 1, "c": 1, "d": 1} {
			if c.of(v) != want {
				s.Errorf("%q ran %d times, want %d", v, c.of(v), want)
			}
		}
		if lines := s.logs.lines("assigned"); len(lines) != 1 {
			s.Errorf("the group has moved: %v", lines)
		}
	}, embedded.Topic("in", 2), embedded.Topic("other", 1))
}

// A pause outlives rebalances: a partition that comes while the spout is paused is paused, and the one
// that goes is read elsewhere. A paused worker stops cleanly.
func TestPauseOverARebalance(t *testing.T) {
	tell(t, func(s *story) {
		var mine, others tally
		a := s.start(counting(&mine, spout.Kafka("in"), nil))
		s.share(map[*running]int{a: 2})
		if err := a.Pause(s.ctx(), "in"); err != nil {
			s.Fatal(err)
		}
		b := s.start(counting(&others, spout.Kafka("in"), nil))
		s.share(map[*running]int{a: 1, b: 1})
		for p := range int32(2) {
			s.produce("in", p, numbers(int(p)*10, int(p)*10+10)...)
		}
		s.until("the other worker reads its partition", func() bool { return others.total() == 10 })
		s.pass(time.Minute)
		b.end()
		s.share(map[*running]int{a: 2})
		s.pass(time.Minute)
		if mine.total() > 0 {
			s.Errorf("%d records ran at a paused worker", mine.total())
		}
		if err := a.Resume("in"); err != nil {
			s.Fatal(err)
		}
		s.drained("in")
		if mine.total() != 10 || others.total() != 10 {
			s.Errorf("%d and %d executions, want 10 and 10", mine.total(), others.total())
		}
		if err := a.Pause(s.ctx(), "in"); err != nil {
			s.Fatal(err)
		}
		s.produce("in", 0, "last")
		s.pass(time.Second)
		a.end()
		if mine.of("last") > 0 {
			s.Error("a stop has started what was paused")
		}
	}, embedded.Topic("in", 2))
}

// More records than the high water come while the spout is paused: fetching stops there, and goes on.
func TestPauseAboveTheHighWater(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		top := killick.New("t")
		top.Pending(10, 2000)
		top.Spout("in", spout.Kafka("in"))
		top.Bolt("x", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			c.add(string(in.Bytes()))
			return nil
		})).Shuffle("in")
		r := s.start(top)
		s.drained("in")
		if err := r.Pause(s.ctx(), "in"); err != nil {
			s.Fatal(err)
		}
		for i := range 10 {
			s.produce("in", 0, numbers(i*20, i*20+20)...)
			s.pass(time.Second)
		}
		if got := r.metric("killick_paused_partitions"); got != 1 {
			s.Errorf("%v partitions are above the high water", got)
		}
		if err := r.Resume("in"); err != nil {
			s.Fatal(err)
		}
		s.drained("in")
		r.end()
		c.once(s, numbers(0, 200)...)
	}, embedded.Topic("in", 1))
}

// Before Run, and of a bounded run; an unknown name is named.
func TestPauseBeforeTheStart(t *testing.T) {
	tell(t, func(s *story) {
		s.produce("in", 0, "a", "b")
		var c tally
		w, err := worker.New(counting(&c, spout.KafkaSource{Topics: []string{"in"}, Until: spout.Latest()}, nil), s.cfg)
		if err != nil {
			s.Fatal(err)
		}
		if err := w.Pause(s.ctx(), "in"); err != nil {
			s.Fatal(err)
		}
		if err := w.Pause(s.ctx(), "out"); err == nil || !contains(err.Error(), `no spout "out"; there is in`) {
			s.Errorf("an unknown spout: %v", err)
		}
		if err := w.Resume("out"); err == nil {
			s.Error("an unknown spout goes on")
		}
		done := make(chan error, 1)
		go func() { done <- w.Run(s.ctx()) }()
		s.until("it runs", func() bool { ok, _ := w.Ready(); return ok })
		s.pass(time.Minute)
		select {
		case err := <-done:
			s.Fatalf("the run has ended while its spout is paused: %v", err)
		default:
		}
		if c.total() > 0 {
			s.Error("a spout that was paused before the start has started something")
		}
		if err := w.Resume("in"); err != nil {
			s.Fatal(err)
		}
		if err := <-done; err != nil {
			s.Error(err)
		}
		c.once(s, "a", "b")
		if err := w.Pause(s.ctx(), "in"); err != nil {
			s.Errorf("a pause after the end: %v", err)
		}
	}, embedded.Topic("in", 1))
}

// A pause waits for the ends of trees, and those that a stop has left open will not come: it returns
// when the run is over, whichever of the two was first.
func TestPauseAcrossTheEnd(t *testing.T) {
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprintf("own spout %v", own), func(t *testing.T) {
			tell(t, func(s *story) {
				s.produce("in", 0, "1")
				var c tally
				var src killick.Source = spout.Kafka("in")
				if own {
					src = spout.New(func() killick.Spout { return new(ticks) })
				}
				top := killick.New("t")
				top.Spout("in", src)
				top.Bolt("x", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
					c.add(string(in.Bytes()))
					out.Hold()
					return nil
				})).Shuffle("in").Timeout(time.Hour)
				r := s.start(top, func(c *worker.Config) { c.Drain = time.Second })
				s.until("it is held", func() bool { return c.of("1") == 1 })
				before := make(chan error, 1)
				go func() { before <- r.Pause(s.ctx(), "in") }()
				s.pass(time.Second)
				r.stop()
				if err := r.wait(); !errors.Is(err, worker.ErrDrain) {
					s.Errorf("it ended with: %v", err)
				}
				begin := time.Now()
				for _, err := range []error{<-before, r.Pause(s.ctx(), "in")} {
					if d := time.Since(begin); err != nil || d > time.Second {
						s.Errorf("after the end Pause took %v and says: %v", d, err)
					}
				}
			}, embedded.Topic("in", 1))
		})
	}
}

// ticks is a spout of one's own: it counts, a message each second.
type ticks struct{ n int }

func (k *ticks) Next(ctx context.Context) (killick.Message, func(error), error) {
	select {
	case <-time.After(time.Second):
		k.n++
		return killick.Message{Bytes: fmt.Append(nil, k.n)}, nil, nil
	case <-ctx.Done():
		return killick.Message{}, nil, ctx.Err()
	}
}

func TestPauseOfAnotherSpout(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		top := killick.New("t")
		top.Spout("clock", spout.New(func() killick.Spout { return new(ticks) }))
		top.Bolt("x", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			c.add(string(in.Bytes()))
			return nil
		})).Shuffle("clock")
		r := s.start(top)
		s.until("it runs", func() bool { return c.total() == 3 })
		if err := r.Pause(s.ctx(), "clock"); err != nil {
			s.Fatal(err)
		}
		s.pass(time.Minute)
		if n := c.total(); n > 4 { // one call of Next was in progress
			s.Errorf("%d messages, with a pause after 3", n)
		}
		if err := r.Resume("clock"); err != nil {
			s.Fatal(err)
		}
		s.until("it goes on", func() bool { return c.total() > 10 })
		if err := r.Pause(s.ctx(), "clock"); err != nil {
			s.Fatal(err)
		}
		r.end()
		c.once(s, numbers(1, c.total()+1)...)
	})
}
