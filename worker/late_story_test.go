package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
)

// leaderless takes the leader of a partition of in away.
func (s *story) leaderless(p int32) *kfake.FaultHandle {
	return s.b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "in", Partitions: []int32{p}, Err: kerr.LeaderNotAvailable, Count: -1})
}

// A partition that has no leader when it is assigned is named, and opens when it has one; the
// others do not wait for it.
func TestPartitionWithoutLeaderWaitsAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		start     spout.Position
		committed bool
		first     int // of in/1 that runs, of 0 to 9
	}{
		"earliest": {spout.Earliest(), false, 0}, "latest": {spout.Latest(), false, 10}, "committed": {spout.Earliest(), true, 4},
	} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				s.produce("in", 1, numbers(0, 10)...)
				if tt.committed {
					s.commit("in", 1, 4, "")
				}
				gone := s.leaderless(1)
				var c tally
				r := s.start(counting(&c, spout.KafkaSource{Topics: []string{"in"}, Start: tt.start}, nil))
				s.until("the others are open", func() bool { got := s.committed("in"); return got[0] == 0 && got[2] == 0 && len(got) >= 2 })
				s.produce("in", 0, "a")
				s.produce("in", 2, "b")
				s.until("the others go on", func() bool { got := s.committed("in"); return got[0] == 1 && got[2] == 1 })
				if ok, text := r.ready("partitions"); ok || !contains(text, "in/1 has stopped", "asked again", "LEADER_NOT_AVAILABLE") || contains(text, "in/0") {
					t.Errorf("readiness: %s", text)
				}
				s.pass(30 * time.Second)
				gone.Remove()
				s.until("it is open", func() bool { ok, _ := r.ready("partitions"); return ok })
				s.produce("in", 1, "c")
				s.drained("in")
				r.end()
				c.once(t, append(numbers(tt.first, 10), "a", "b", "c")...)
			}, embedded.Topic("in", 3))
		})
	}
}

// A partition without a leader that moves away before it has opened is forgotten here.
func TestPartitionWithoutLeaderMovesAway(t *testing.T) {
	tell(t, func(s *story) {
		gone := s.leaderless(1)
		var c tally
		top := func() *killick.Topology { return counting(&c, spout.Kafka("in"), nil) }
		a := s.start(top())
		s.until("it waits", func() bool { ok, _ := a.ready("partitions"); return !ok })
		b := s.start(top())
		s.until("both have one", func() bool {
			return a.metric("killick_stopped_partitions")+b.metric("killick_stopped_partitions") == 1 &&
				a.count("killick_ledger_pending")+b.count("killick_ledger_pending") == 1
		})
		gone.Remove()
		s.until("it is open", func() bool {
			return a.count("killick_ledger_pending") == 1 && b.count("killick_ledger_pending") == 1 &&
				a.metric("killick_stopped_partitions")+b.metric("killick_stopped_partitions") == 0
		})
		s.produce("in", 0, "a")
		s.produce("in", 1, "b")
		s.drained("in")
		a.end()
		s.drained("in")
		b.end()
		c.once(t, "a", "b")
	}, embedded.Topic("in", 2))
}

// While the cluster does not say where to go on with a partition whose position has left the log,
// the others go on, also through a rebalance; and that it does not say is no reason to stop.
func TestFallingOutOfTheLogHoldsNobodyUp(t *testing.T) {
	tell(t, func(s *story) {
		big := make([]byte, 400_000)
		for i := range 100 {
			copy(big, fmt.Sprintf("%04d", i))
			if err := s.b.Produce(s.ctx(), &kgo.Record{Topic: "in", Value: big}); err != nil {
				t.Fatal(err)
			}
		}
		block := make(chan struct{})
		var c tally
		top := killick.New("t")
		top.Spout("in", spout.KafkaSource{Topics: []string{"in"}, Lost: spout.Earliest()}).Pending(5, 1<<20)
		top.Bolt("count", bolt.Func(func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if len(in.Bytes()) > 100 {
				select {
				case <-block:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			c.add(string(in.Bytes()[:4]))
			return nil
		})).Shuffle("in").Tasks(10).Timeout(time.Hour)
		r := s.start(top)
		s.until("fetching is paused", func() bool { return r.metric("killick_paused_partitions") == 1 })
		s.deleteTo("in", 0, 90)
		gate := make(chan struct{})
		held := s.b.HoldAnswers(kmsg.ListOffsets, gate)
		close(block)
		if err := held.Wait(s.ctx(), 1); err != nil {
			t.Fatal(err)
		}
		for i := range 15 { // longer than any question to the cluster waits
			start := time.Now()
			s.produce("in", 1, fmt.Sprintf("new%d", i%10))
			s.until("the other partition goes on", func() bool { return s.committed("in")[1] == int64(i+1) })
			if d := time.Since(start); d > 3*time.Second {
				t.Errorf("record %d of the other partition took %v", i, d)
			}
		}
		close(gate)
		held.Remove()
		s.drained("in")
		if ok, text := r.ready("partitions"); !ok {
			t.Errorf("readiness: %s", text)
		}
		if n := r.metric("killick_lost_offsets_total"); int(n)+c.total() != 100+15 || n == 0 {
			t.Errorf("%v lost, %d ran, of 115", n, c.total())
		}
		r.end()
	}, embedded.Topic("in", 2))
}

// A partition whose committed offset the broker does not tell waits alone, and is asked for again: the
// client drops it without a word. It goes on where it was, not where a new one would start.
func TestOffsetThatIsNotTold(t *testing.T) {
	for name, code := range map[string]*kerr.Error{"a topic id that has not spread": kerr.UnknownTopicID, "anything else": kerr.UnknownServerError} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				s.produce("in", 1, numbers(0, 10)...)
				s.commit("in", 1, 4, "")
				untold := s.b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Topic: "in", Partitions: []int32{1}, Err: code, Count: -1})
				asked := 0 // for all of the group: first at the start, which is answered
				silent := s.b.Fail(kmsg.OffsetFetch, kerr.UnknownServerError, -1, func(r kmsg.Request) bool {
					if f := r.(*kmsg.OffsetFetchRequest); len(f.Groups) != 1 || f.Groups[0].Topics != nil {
						return false
					}
					asked++
					return asked > 1
				})
				var c tally
				src := spout.KafkaSource{Topics: []string{"in"}, Start: spout.Latest()}
				r := s.start(counting(&c, src, nil))
				s.produce("in", 0, "a")
				s.until("the other one is open", func() bool { return len(r.parts("in")) > 0 })
				s.produce("in", 0, "b")
				s.until("the other one goes on", func() bool { return c.of("b") == 1 })
				s.until("the partition is named", func() bool { ok, text := r.ready("partitions"); return !ok && contains(text, "in/1 has stopped") })
				s.pass(20 * time.Second)
				if n := c.total(); n > 2 {
					s.Errorf("%d records ran", n)
				}
				untold.Remove()
				silent.Remove()
				s.drained("in")
				for _, v := range numbers(4, 10) {
					if c.of(v) != 1 {
						s.Errorf("%s ran %d times", v, c.of(v))
					}
				}
				if ok, text := r.ready("partitions"); !ok {
					s.Errorf("readiness: %s", text)
				}
				if c.of("3") > 0 {
					s.Error("a record below the committed offset ran")
				}
				r.end()
			}, embedded.Topic("in", 2))
		})
	}
}
