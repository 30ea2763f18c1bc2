package worker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// parts are the partitions of a topic that the worker has open, or shows as its own.
func (r *running) parts(topic string) (out []int) {
	r.s.Helper()
	for _, m := range r.series("killick_consumer_lag", "topic="+topic) {
		for _, l := range m.GetLabel() {
			if l.GetName() == "partition" {
				n, err := strconv.Atoi(l.GetValue())
				if err != nil {
					r.s.Fatal(err)
				}
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return out
}

// share waits until the workers have the given numbers of partitions of in.
func (s *story) share(want map[*running]int) {
	s.Helper()
	s.until(fmt.Sprintf("the partitions are shared out: %v", slices.Collect(maps.Values(want))), func() bool {
		for r, n := range want {
			if len(r.parts("in")) != n {
				return false
			}
		}
		return true
	})
}

// A second and a third replica, and their end, cost nothing: no record runs twice, no position goes
// back, and what stays is read on meanwhile.
// FC-14: PostHog/posthog PR #80897.
func TestMovesAreFree(t *testing.T) {
	const partitions = 6
	tell(t, func(s *story) {
		var c tally
		var mu sync.Mutex
		type seen struct {
			at time.Time
			by *tally // its worker's own
		}
		last, gap, moved := map[int32]seen{}, time.Duration(0), time.Duration(0)
		top := func() *killick.Topology {
			me := new(tally)
			top := killick.New("t")
			top.Spout("in", spout.Kafka("in"))
			top.Bolt("work", bolt.Async(64, func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
				c.add(string(in.Bytes()))
				o, _ := in.Origin()
				s.pass(time.Duration(o.Offset%50) * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				now := time.Now()
				if l, ok := last[o.Partition]; ok && l.by == me {
					gap = max(gap, now.Sub(l.at))
				} else if ok {
					moved = max(moved, now.Sub(l.at))
				}
				last[o.Partition] = seen{now, me}
				return nil
			})).Shuffle("in")
			return top
		}
		begin := func(s *story) *running { return s.start(top()) }
		a := begin(s)
		s.share(map[*running]int{a: partitions})
		stop, fed := make(chan struct{}), make(chan int)
		go func() {
			n := 0
			defer func() { fed <- n }()
			for {
				for p := range int32(partitions) {
					if err := s.send("in", p, numbers(n, n+2)...); err != nil {
						s.Error(err)
						return
					}
					n += 2
				}
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		}()
		for round := range 3 {
			b := begin(s)
			s.share(map[*running]int{a: 3, b: 3})
			d := begin(s)
			s.share(map[*running]int{a: 2, b: 2, d: 2})
			s.pass(time.Second)
			b.end()
			s.share(map[*running]int{a: 3, d: 3})
			if round%2 == 0 {
				d.end()
			} else {
				a.end()
				a = d
			}
			s.share(map[*running]int{a: partitions})
		}
		close(stop)
		n := <-fed
		s.drained("in")
		a.end()
		c.once(s, numbers(0, n)...)
		if gap > 500*time.Millisecond {
			s.Errorf("a partition that stayed stood still for %v", gap)
		}
		if moved > 5*time.Second {
			s.Errorf("a partition that moved stood still for %v", moved)
		}
		s.Logf("longest times without a record: %v where a partition stayed, %v where it moved", gap, moved)
		if lines := s.logs.lines("released with open records"); len(lines) > 0 {
			s.Errorf("a release has left records open: %v", lines)
		}
		if lines := s.logs.lines("the partition is released"); len(lines) < 9 {
			s.Errorf("%d releases", len(lines))
		}
		high := map[int32]int64{}
		for _, c := range s.b.Commits() {
			if c.Accepted() && c.Offset < high[c.Partition] {
				s.Errorf("the position of partition %d went back from %d to %d", c.Partition, high[c.Partition], c.Offset)
			}
			high[c.Partition] = max(high[c.Partition], c.Offset)
		}
	}, embedded.Topic("in", partitions))
}

// A whole deployment stops at once: each worker drains, and nothing runs again after the next start.
func TestAllStopAtOnce(t *testing.T) {
	tell(t, func(s *story) {
		const records = 300
		var c tally
		top := func() *killick.Topology {
			return counting(&c, spout.Kafka("in"), func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
				h := out.Hold()
				o, _ := in.Origin()
				time.AfterFunc(time.Duration(50+o.Offset%7*100)*time.Millisecond, func() { h.Ack() })
				return nil
			})
		}
		var all []*running
		for range 3 {
			all = append(all, s.start(top()))
		}
		s.share(map[*running]int{all[0]: 2, all[1]: 2, all[2]: 2})
		for p := range int32(6) {
			s.produce("in", p, numbers(int(p)*records, int(p+1)*records)...)
		}
		s.until("some are under way", func() bool { return c.total() > records })
		begin := time.Now()
		for _, r := range all {
			r.stop()
		}
		for _, r := range all {
			if err := r.wait(); err != nil {
				s.Errorf("a worker ended with: %v", err)
			}
		}
		if took := time.Since(begin); took > 10*time.Second {
			s.Errorf("the stop took %v", took)
		}
		r := s.start(top())
		s.drained("in")
		r.end()
		c.once(s, numbers(0, 6*records)...)
	}, embedded.Topic("in", 6))
}

// A worker that the group has thrown out closes everything, joins again, and goes on. Nothing is
// committed that was not its own.
func TestLostMembership(t *testing.T) {
	tell(t, func(s *story) {
		var h hands
		a := s.start(h.topology(time.Hour))
		s.share(map[*running]int{a: 2})
		s.produce("in", 0, "hold 0", "x")
		s.produce("in", 1, "y")
		s.until("all are executed", func() bool { return h.c.total() == 3 })
		s.until("y is committed", func() bool { return s.committed("in")[1] == 1 })
		fault := s.b.Fail(kmsg.Heartbeat, kerr.UnknownMemberID, 1)
		if err := fault.Wait(s.ctx(), 1); err != nil {
			s.Fatal(err)
		}
		s.until("hold 0 runs again", func() bool { return h.c.of("hold 0") == 2 })
		s.share(map[*running]int{a: 2})
		h.of("hold 0").Ack()
		s.produce("in", 1, "z")
		s.drained("in")
		a.end()
		for v, n := range map[string]int{"hold 0": 2, "x": 1, "y": 1, "z": 1} {
			if got := h.c.of(v); got != n {
				s.Errorf("%q ran %d times, want %d", v, got, n)
			}
		}
	}, embedded.Topic("in", 2))
}

// A group that other consumers use is refused, with words.
func TestForeignGroup(t *testing.T) {
	tell(t, func(s *story) {
		cl, err := kgo.NewClient(s.b.ClientOpts(kgo.ConsumeTopics("in"), kgo.ConsumerGroup("g"), kgo.Balancers(kgo.RangeBalancer()))...)
		if err != nil {
			s.Fatal(err)
		}
		defer cl.Close()
		if _, err := s.b.Cluster().WaitGroupStable(s.ctx(), "g", 1); err != nil {
			s.Fatal(err)
		}
		var c tally
		r := s.start(counting(&c, spout.Kafka("in"), nil))
		err = r.wait()
		if !errors.Is(err, kerr.InconsistentGroupProtocol) || !contains(err.Error(), `"g"`, `"killick"`, "group of its own") {
			s.Errorf("it ended with: %v", err)
		}
		if code := worker.ExitCode(err); code != 2 {
			s.Errorf("exit code %d: the configuration names a group that it cannot have", code)
		}
	}, embedded.Topic("in", 1))
}

// Replicas of a topology that spreads its tuples by key stand by behind the one that works.
func TestStandby(t *testing.T) {
	tell(t, func(s *story) {
		var first, second tally
		top := func(c *tally) *killick.Topology {
			top := killick.New("t")
			top.Spout("in", spout.Kafka("in"))
			top.Bolt("count", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
				c.add(string(in.Bytes()))
				return nil
			})).Fields("in", nil).Tasks(3)
			return top
		}
		a := s.start(top(&first))
		s.share(map[*running]int{a: 4})
		b := s.start(top(&second))
		s.until("the second one stands by", func() bool { _, text := b.ready("group"); return strings.Contains(text, "stands by") })
		if ok, text := b.ready("group"); !ok || !strings.Contains(text, "one member at a time") {
			s.Errorf("a standby's readiness is %v, %q", ok, text)
		}
		for p := range int32(4) {
			s.produce("in", p, numbers(int(p)*10, int(p)*10+10)...)
		}
		s.drained("in")
		a.end()
		s.share(map[*running]int{b: 4})
		s.produce("in", 0, "last")
		s.drained("in")
		b.end()
		first.once(s, numbers(0, 40)...)
		second.once(s, "last")
	}, embedded.Topic("in", 4))
}

// A worker with a place that stops and comes back within its session has what it had, and nothing moves
// anywhere. One that comes back as another (its tasks have changed) opens nothing of that before the
// group has seen what it is now (which the embedded broker does by itself: see internal/group for what
// Kafka does).
func TestPlaceComesBack(t *testing.T) {
	placed := func(name string) func(*worker.Config) {
		return func(c *worker.Config) { c.Place, c.Session = name, 30*time.Second }
	}
	t.Run("as it was", func(t *testing.T) {
		tell(t, func(s *story) {
			var c tally
			top := func() *killick.Topology { return counting(&c, spout.Kafka("in"), nil) }
			a := s.start(top(), placed("a"))
			s.share(map[*running]int{a: 4})
			b := s.start(top(), placed("b"))
			s.share(map[*running]int{a: 2, b: 2})
			s.pass(5 * time.Second)
			had := b.parts("in")
			moves := len(s.b.Assignments())
			for range 3 {
				b.end()
				s.produce("in", int32(had[0]), "while it is away")
				s.pass(3 * time.Second)
				b = s.start(top(), placed("b"))
				s.share(map[*running]int{a: 2, b: 2})
				if got := b.parts("in"); !slices.Equal(got, had) {
					s.Errorf("it had %v, and has %v now", had, got)
				}
			}
			s.drained("in")
			if got := c.of("while it is away"); got != 3 {
				s.Errorf("%d executions of 3 records", got)
			}
			// The embedded broker rebalances all the same (Kafka does not): nobody is given anything else.
			for _, as := range s.b.Assignments()[moves:] {
				if as.Instance == nil || (*as.Instance == "b") != (fmt.Sprint(as.Partitions["in"]) == fmt.Sprint(had32(had))) {
					s.Errorf("something has moved: %+v", as)
				}
			}
			a.end()
			b.end()
		}, embedded.Topic("in", 4))
	})
	t.Run("as another", func(t *testing.T) {
		tell(t, func(s *story) {
			var c tally
			top := func(tasks int) *killick.Topology {
				top := killick.New("t")
				top.Spout("in", spout.Kafka("in"))
				top.Bolt("count", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
					c.add(string(in.Bytes()))
					return nil
				})).Fields("in", nil).Tasks(tasks)
				return top
			}
			a := s.start(top(3), placed("a"))
			s.share(map[*running]int{a: 4})
			s.produce("in", 0, "before")
			s.drained("in")
			a.end()
			s.pass(3 * time.Second)
			a = s.start(top(5), placed("a"))
			s.share(map[*running]int{a: 4})
			s.produce("in", 0, "after")
			s.drained("in")
			a.end()
			c.once(s, "before", "after")
		}, embedded.Topic("in", 4))
	})
}

func had32(ps []int) (out []int32) {
	for _, p := range ps {
		out = append(out, int32(p))
	}
	return out
}

// A replica that stops while the group waits for one that has died, to join or to assign, commits what it has
// done, whatever the group waits for: the wait lasts as long as the dead one's session.
func TestStopWhileTheGroupWaits(t *testing.T) {
	for _, waits := range []kmsg.Key{kmsg.JoinGroup, kmsg.SyncGroup} {
		t.Run("for its "+waits.Name(), func(t *testing.T) {
			tell(t, func(s *story) {
				var c tally
				top := func() *killick.Topology { return counting(&c, spout.Kafka("in"), nil) }
				dead := s.start(top(), func(c *worker.Config) { c.ClientID = "dead" }) // the leader
				s.share(map[*running]int{dead: 2})
				a := s.start(top())
				s.share(map[*running]int{a: 1, dead: 1})
				s.drained("in")
				s.pass(2 * time.Second)
				id := s.memberOf("dead")
				gate := make(chan struct{})
				defer close(gate)
				if waits == kmsg.JoinGroup {
					s.b.Hold(kmsg.Heartbeat, gate, func(r kmsg.Request) bool { return r.(*kmsg.HeartbeatRequest).MemberID == id })
				}
				s.b.Hold(waits, gate, func(r kmsg.Request) bool {
					switch r := r.(type) {
					case *kmsg.JoinGroupRequest:
						return r.MemberID == id
					case *kmsg.SyncGroupRequest:
						return r.MemberID == id
					}
					return false
				})
				s.pass(time.Second)
				s.start(top()) // the group begins to wait
				s.pass(time.Second)
				p := int32(a.parts("in")[0])
				s.produce("in", p, "last words")
				s.until("it is executed", func() bool { return c.of("last words") == 1 })
				a.end()
				if got := s.committed("in")[p]; got != 1 {
					s.Errorf("committed up to %d", got)
				}
			}, embedded.Topic("in", 2))
		})
	}
}

// A spout that is not Kafka's emits in the replica that works, and in no other: not in one that stands
// by, and not in one that has lost its membership.
func TestStandbySpouts(t *testing.T) {
	tell(t, func(s *story) {
		top := func(c *tally) *killick.Topology {
			top := killick.New("t")
			top.Spout("in", spout.Kafka("in"))
			top.Spout("clock", spout.Seq(func(yield func(killick.Message) bool) {
				for yield(killick.Message{Bytes: []byte("tick")}) {
					<-time.After(100 * time.Millisecond)
				}
			}))
			top.Bolt("count", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
				c.add(string(in.Bytes()))
				return nil
			})).Shuffle("in").Shuffle("clock")
			return top
		}
		var first, second tally
		a := s.start(top(&first))
		s.share(map[*running]int{a: 2})
		b := s.start(top(&second))
		s.until("the second one stands by", func() bool { _, text := b.ready("group"); return strings.Contains(text, "stands by") })
		begin := first.of("tick")
		s.pass(5 * time.Second)
		if n := first.of("tick") - begin; n < 40 {
			s.Errorf("%d ticks in 5 s in the replica that works", n)
		}
		if n := second.of("tick"); n > 0 {
			s.Errorf("%d ticks in the one that stands by", n)
		}
		if got := b.Paused(); len(got) > 0 {
			s.Errorf("paused by somebody: %v", got)
		}
		if err := b.Resume("clock"); err != nil || second.of("tick") > 0 {
			s.Errorf("Resume in a standby: %v, %d ticks", err, second.of("tick"))
		}
		a.end()
		s.share(map[*running]int{b: 2})
		s.until("it works", func() bool { return second.of("tick") > 10 })
		// Without a membership it does not.
		gate := make(chan struct{})
		s.b.Hold(kmsg.JoinGroup, gate)
		fault := s.b.Fail(kmsg.Heartbeat, kerr.UnknownMemberID, 1)
		if err := fault.Wait(s.ctx(), 1); err != nil {
			s.Fatal(err)
		}
		s.pass(time.Second)
		begin = second.of("tick")
		s.pass(5 * time.Second)
		if n := second.of("tick") - begin; n > 0 {
			s.Errorf("%d ticks without a membership", n)
		}
		close(gate)
		s.until("it works again", func() bool { return second.of("tick") > begin+10 })
		b.end()
	}, embedded.Topic("in", 2))
}
