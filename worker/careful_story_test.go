package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/offsets"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// died commits a partition as owners leave it that have died so many times.
func (s *story) died(p int32, deaths int, until int64) {
	s.Helper()
	s.commit("in", p, 0, mustEncode(offsets.Map{Held: offsets.State{TakenOver: true, Deaths: deaths - 1, Suspect: offsets.None, Until: until}}))
}

// S3 in virtual time: a record that a task is stuck in at each start is named when the worker ends for it,
// and becomes a dead letter at the third. What was queued behind it runs then, what was not does at once.
func TestStuckRecordIsSetAside(t *testing.T) {
	tell(t, func(s *story) {
		block := make(chan struct{})
		defer close(block)
		s.produce("in", 3, append([]string{"stuck"}, numbers(1000, 1500)...)...)
		for p := range int32(3) {
			s.produce("in", p, numbers(100*int(p), 100*int(p)+100)...)
		}
		var c tally
		top := func() *killick.Topology {
			top := killick.New("t")
			top.Spout("in", spout.Kafka("in"))
			top.Bolt("x", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
				if c.add(string(in.Bytes())); string(in.Bytes()) == "stuck" {
					<-block
				}
				return nil
			})).ByPartition("in").Tasks(4).Timeout(time.Second).Retry(killick.Retry{Attempts: 3})
			return top
		}
		for life := range 2 {
			start := time.Now()
			r := s.start(top())
			s.until("readiness is red", func() bool { ok, text := r.ready("tasks"); return !ok && contains(text, "in/3, offset 0") })
			if err := r.wait(); !errors.Is(err, worker.ErrStuck) || worker.ExitCode(err) != 6 {
				s.Errorf("life %d ended with %v", life, err)
			}
			if d := time.Since(start); d < 10*time.Second || d > 18*time.Second {
				s.Errorf("life %d took %v", life, d)
			}
			if held := s.held("in", 3); held.Suspect != 0 || held.Strikes != life || !held.TakenOver {
				s.Errorf("life %d: committed %+v", life, held)
			}
			for p := range int32(3) {
				if held := s.held("in", p); s.committed("in")[p] != 100 || held.TakenOver {
					s.Errorf("life %d: in/%d, which was not concerned, is at %d, %+v", life, p, s.committed("in")[p], held)
				}
			}
		}
		r := s.start(top())
		s.drained("in")
		r.end()
		if got := s.letters(); len(got) != 1 || got["stuck"] != "worker-death" || c.of("stuck") != 2 {
			s.Errorf("dead letters %v after %d executions", got, c.of("stuck"))
		}
		for _, v := range append(numbers(0, 300), numbers(1000, 1500)...) {
			if c.of(v) == 0 {
				s.Errorf("%s has not run", v)
			}
		}
	}, embedded.Topic("in", 4))
}

// In careful mode one root is open at a time, whatever the tasks and partitions; and it ends, visibly,
// when what was open at the deaths has passed.
func TestCarefulMode(t *testing.T) {
	tell(t, func(s *story) {
		const until, each = 20, 60
		s.died(0, 3, until)
		for p := range int32(2) {
			s.produce("in", p, numbers(1000*int(p), 1000*int(p)+each)...)
		}
		var mu sync.Mutex
		open, most, careful := 0, 0, 0
		var r *running
		var c tally
		top := counting(&c, spout.Kafka("in"), func(context.Context, *killick.Tuple, killick.Emitter) error {
			mu.Lock()
			open++
			if r.metric("killick_careful") == 1 {
				most = max(most, open)
				careful++
			}
			mu.Unlock()
			<-time.After(time.Millisecond)
			mu.Lock()
			open--
			mu.Unlock()
			return nil
		})
		mu.Lock()
		r = s.start(top)
		mu.Unlock()
		s.drained("in")
		if most != 1 || careful < until {
			s.Errorf("%d at the same time, %d in careful mode", most, careful)
		}
		s.until("careful mode ends", func() bool { return r.metric("killick_careful") == 0 })
		if n := r.metric("killick_partition_deaths"); n != 0 {
			s.Errorf("%v deaths", n)
		}
		if len(s.logs.lines("careful mode: workers have died")) != 1 || len(s.logs.lines("careful mode has ended")) != 1 {
			s.Error("the log does not tell of it")
		}
		r.end()
		c.once(s, append(numbers(0, each), numbers(1000, 1000+each)...)...)
		if got := s.letters(); len(got) != 0 {
			s.Errorf("dead letters: %v", got)
		}
	}, embedded.Topic("in", 2), embedded.Topic("in.t.dlq", 2))
}

// A bolt that collects tuples is asked for the one that it has: it will not get more.
func TestCarefulModeFlushes(t *testing.T) {
	tell(t, func(s *story) {
		s.died(0, 3, 20)
		s.produce("in", 0, numbers(0, 20)...)
		var c tally
		top := killick.New("t")
		top.Spout("in", spout.Kafka("in"))
		top.Bolt("all", bolt.Batch(1000, 20*time.Second, func(_ context.Context, in []*killick.Held) error {
			if len(in) != 1 {
				s.Errorf("a batch of %d", len(in))
			}
			c.add(string(in[0].Tuple().Bytes()))
			return nil
		})).Shuffle("in")
		start := time.Now()
		r := s.start(top)
		s.drained("in")
		if d := time.Since(start); d > 10*time.Second {
			s.Errorf("it took %v", d)
		}
		r.end()
		c.once(s, numbers(0, 20)...)
	}, embedded.Topic("in", 1))
}

// What has not died is not counted: a clean stop, a membership that was lost and came back, and a
// death while nothing was open.
func TestWhatIsNoDeath(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		r := s.start(counting(&c, spout.Kafka("in"), nil))
		s.produce("in", 0, "a")
		s.drained("in")
		if held := s.held("in", 0); !held.TakenOver {
			s.Errorf("at work: %+v", held)
		}
		r.end()
		if held := s.held("in", 0); held.TakenOver {
			s.Errorf("after a clean stop: %+v", held)
		}
		for range 4 { // the group's member dies, idle
			r = s.start(counting(&c, spout.Kafka("in"), nil))
			s.until("it is taken over", func() bool { return len(r.parts("in")) == 1 && s.held("in", 0).TakenOver })
			r.kill()
		}
		block := make(chan struct{})
		r = s.start(counting(&c, spout.Kafka("in"), func(context.Context, *killick.Tuple, killick.Emitter) error {
			<-block
			return nil
		}))
		s.until("the partition is open", func() bool { return len(r.parts("in")) == 1 })
		s.produce("in", 0, "b")
		s.until("b runs", func() bool { return c.of("b") == 1 })
		if n := r.metric("killick_partition_deaths"); n != 0 {
			s.Errorf("%v deaths of an idle partition", n)
		}
		for range 4 {
			n := r.metric("killick_rebalances_total", "kind=lost")
			s.b.Fail(kmsg.Heartbeat, kerr.UnknownMemberID, 1)
			s.until("the membership is lost", func() bool { return r.metric("killick_rebalances_total", "kind=lost") > n })
			s.until("and back", func() bool { return len(r.parts("in")) == 1 })
		}
		if n := r.metric("killick_partition_deaths"); n != 0 {
			s.Errorf("%v deaths by losing the membership", n)
		}
		close(block)
		s.drained("in")
		r.end()
	}, embedded.Topic("in", 1))
}

// A root that waits for its next try is not waited for without end: others run beside it, and it is not
// taken for the one that kills.
func TestCarefulModeAndARetry(t *testing.T) {
	tell(t, func(s *story) {
		s.died(0, 3, 10)
		s.produce("in", 0, numbers(0, 10)...)
		s.produce("in", 1, numbers(10, 20)...)
		var c tally
		r := s.start(counting(&c, spout.Kafka("in"), func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if v := string(in.Bytes()); v == "0" && c.of(v) == 1 {
				return killick.RetryAfter(5*time.Minute, errTry)
			}
			return nil
		}))
		start := time.Now()
		s.until("the others have run", func() bool { return c.total() == 20 })
		if d := time.Since(start); d < 20*time.Second || d > 2*time.Minute {
			s.Errorf("after %v", d)
		}
		s.pass(2 * time.Second)
		if held := s.held("in", 0); held.Suspect != offsets.None || held.Strikes != 0 {
			s.Errorf("committed %+v", held)
		}
		s.drained("in")
		r.end()
		if c.of("0") != 2 {
			s.Errorf("0 ran %d times", c.of("0"))
		}
	}, embedded.Topic("in", 2))
}

// A hunt outlives a clean stop, and the accused stays so; order per key holds in it.
func TestHuntOverACleanStop(t *testing.T) {
	tell(t, func(s *story) {
		s.commit("in", 0, 0, mustEncode(offsets.Map{Held: offsets.State{TakenOver: true, Deaths: 4, Suspect: 7, Strikes: 1, Until: 10}}))
		var rs []*kgo.Record
		for i := range 20 {
			rs = append(rs, &kgo.Record{Topic: "in", Key: fmt.Appendf(nil, "k%d", i%3), Value: fmt.Appendf(nil, "%d", i)})
		}
		if err := s.b.Produce(s.ctx(), rs...); err != nil {
			s.Fatal(err)
		}
		var c tally
		top := counting(&c, spout.Kafka("in"), nil)
		r := s.start(top.Order(killick.PerKey))
		s.drained("in")
		r.end()
		if got := s.letters(); len(got) != 1 || got["7"] != "worker-death" {
			s.Errorf("dead letters: %v", got)
		}
		c.once(s, append(numbers(0, 7), numbers(8, 20)...)...)
		at := map[int]int{}
		for _, v := range c.order {
			var n int
			if _, err := fmt.Sscan(v, &n); err != nil {
				s.Fatal(err)
			}
			if n < at[n%3] {
				s.Errorf("%d ran after %d", n, at[n%3])
			}
			at[n%3] = n
		}
	}, embedded.Topic("in", 1))
}

// An accused record whose spout is paused stays accused, however long that takes: the other spouts go on
// meanwhile. A worker that dies then has not died of it, so it is executed when its turn comes.
func TestAccusedWhilePaused(t *testing.T) {
	tell(t, func(s *story) {
		s.commit("in", 0, 0, mustEncode(offsets.Map{Held: offsets.State{Deaths: 4, Suspect: 7, Strikes: 1, Until: 10}}))
		s.produce("in", 0, numbers(0, 20)...)
		s.produce("other", 0, numbers(100, 120)...)
		var c tally
		top := func() *killick.Topology {
			top := killick.New("t")
			top.Spout("in", spout.Kafka("in"))
			top.Spout("other", spout.Kafka("other"))
			top.Bolt("count", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
				c.add(string(in.Bytes()))
				return nil
			})).Shuffle("in").Shuffle("other")
			return top
		}
		start := func() *running {
			w, err := worker.New(top(), s.cfg)
			if err == nil {
				err = w.Pause(s.ctx(), "in") // it begins paused
			}
			if err != nil {
				s.Fatal(err)
			}
			r := s.run(w)
			s.until("both are open", func() bool { return len(r.parts("in")) == 1 && len(r.parts("other")) == 1 })
			return r
		}
		r := start()
		begin := time.Now()
		s.until("the other spout has gone on", func() bool { return c.total() == 20 })
		if d := time.Since(begin); d > 30*time.Second {
			s.Errorf("the other spout took %v", d)
		}
		s.pass(time.Minute)
		if held := s.held("in", 0); held.Suspect != 7 || held.Strikes != 1 {
			s.Errorf("after a minute of pause: %+v", held)
		}
		r.kill()
		r = start()
		s.pass(time.Minute)
		if held := s.held("in", 0); held.Suspect != 7 || held.Strikes != 1 || held.Deaths != 5 {
			s.Errorf("after a death while it was paused: %+v", held)
		}
		if err := r.Resume("in"); err != nil {
			s.Fatal(err)
		}
		s.drained("in")
		r.end()
		if got := s.letters(); len(got) != 0 {
			s.Errorf("dead letters: %v", got)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, v := range c.order[:min(21, len(c.order))] {
			if n := c.n[v]; len(v) < 3 && (v != "7" || n != 1) {
				s.Errorf("%s ran %d times, and before the accused", v, n)
			}
		}
		if c.n["7"] != 1 {
			s.Errorf("7 ran %d times", c.n["7"])
		}
	}, embedded.Topic("in", 1), embedded.Topic("other", 1), embedded.Topic("in.t.dlq", 1))
}
