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
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// A commit that is refused is no reason to stop: the worker lives, works on, and commits later.
// What is said of it names everything, and is not said too often.
// FC-13: STORM-2494, tulios/kafkajs #1466, IBM/sarama #2118. FC-51: confluentinc/parallel-consumer #629.
func TestCommitRefusedAndRetried(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.RebalanceInProgress, kerr.IllegalGeneration, kerr.UnknownMemberID,
		kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.RequestTimedOut, kerr.NotEnoughReplicas} {
		t.Run(code.Message, func(t *testing.T) {
			tell(t, func(s *story) {
				var c tally
				r := s.start(counting(&c, spout.Kafka("in"), nil))
				s.until("joined", func() bool { ok, _ := r.ready("group"); return ok })
				s.drained("in") // at 0: the first positions
				fault := s.b.Fail(kmsg.OffsetCommit, code, 3)
				s.produce("in", 0, numbers(0, 500)...)
				s.produce("in", 1, numbers(500, 1000)...)
				if err := fault.Wait(s.ctx(), 3); err != nil {
					t.Fatal(err)
				}
				s.produce("in", 0, numbers(1000, 1100)...)
				s.drained("in")
				c.once(t, numbers(0, 1100)...)
				r.end()
				if left := s.logs.lines("commit not stored"); len(left) > 5 {
					t.Errorf("%d lines about it", len(left))
				} else {
					for _, l := range left {
						if l["topic"] != "in" || l["partition"] == nil || l["offset"] == nil || l["generation"] != 1.0 || l["group"] != "g" ||
							l["code"] != code.Message || l["level"] != "warn" {
							t.Errorf("a line lacks something: %v", l)
						}
					}
				}
			}, embedded.Topic("in", 2))
		})
	}
}

// A stop while a topic is under suspicion waits until that is over: what has ended is committed.
func TestStopUnderSuspicion(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		r := s.start(counting(&c, spout.Kafka("in"), nil), func(c *worker.Config) { c.CommitInterval = time.Hour })
		s.drained("in")
		s.produce("in", 0, numbers(0, 10)...)
		s.until("all have run", func() bool { return c.total() == 10 })
		doubt := s.b.Fail(kmsg.Fetch, kerr.UnknownTopicID, -1)
		if err := doubt.Wait(s.ctx(), 10); err != nil { // the client hides the first five
			t.Fatal(err)
		}
		gate := make(chan struct{})
		held := s.b.HoldAnswers(kmsg.Metadata, gate)
		if err := held.Wait(s.ctx(), 1); err != nil {
			t.Fatal(err)
		}
		s.pass(2 * time.Second)
		r.stop()
		s.pass(2 * time.Second)
		doubt.Remove()
		close(gate)
		held.Remove()
		if err := r.wait(); err != nil {
			t.Errorf("it ended with: %v", err)
		}
		if got := s.committed("in")[0]; got != 10 {
			t.Errorf("committed %d after a clean end", got)
		}
	}, embedded.Topic("in", 1))
}

// The last commit is tried again for the partition that may be stored, beside one that never will.
func TestLastCommitBesideARefusedOne(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		r := s.start(counting(&c, spout.Kafka("in"), nil), func(c *worker.Config) { c.CommitInterval = time.Hour })
		s.drained("in")
		s.produce("in", 0, "a")
		s.produce("in", 1, "b")
		s.until("both have run", func() bool { return c.total() == 2 })
		s.b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Topic: "in", Partitions: []int32{0}, Err: kerr.TopicAuthorizationFailed, Count: -1},
			kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Topic: "in", Partitions: []int32{1}, Err: kerr.RequestTimedOut, Count: 1})
		r.stop()
		if err := r.wait(); worker.ExitCode(err) != 3 || !contains(err.Error(), "1 partitions", "TOPIC_AUTHORIZATION_FAILED") {
			t.Errorf("exit code %d: %v", worker.ExitCode(err), err)
		}
		if got := s.committed("in"); got[0] != 0 || got[1] != 1 {
			t.Errorf("committed %v, want 0 and 1", got)
		}
	}, embedded.Topic("in", 2))
}

// An answer that got lost leaves it open whether the commit is stored; nothing is lost and nothing
// goes back for good.
func TestCommitAnswerLost(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		r := s.start(counting(&c, spout.Kafka("in"), nil))
		s.drained("in")
		fault := s.b.LoseAnswers(kmsg.OffsetCommit, 3)
		s.produce("in", 0, numbers(0, 100)...)
		if err := fault.Wait(s.ctx(), 3); err != nil {
			t.Fatal(err)
		}
		s.produce("in", 0, numbers(100, 200)...)
		s.drained("in")
		// And one that is not applied at all.
		s.b.Drop(kmsg.OffsetCommit, 3)
		s.produce("in", 0, numbers(200, 300)...)
		s.drained("in")
		r.end()
		c.once(t, numbers(0, 300)...)
	}, embedded.Topic("in", 1))
}

// Codes that no retry mends hold up the partition alone: its offset stays behind, people are told,
// and when the reason is gone it is committed.
func TestCommitBlockedPartition(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		r := s.start(counting(&c, spout.Kafka("in", "other"), nil))
		s.drained("in")
		s.drained("other")
		fault := s.b.Fail(kmsg.OffsetCommit, kerr.GroupAuthorizationFailed, -1)
		s.produce("in", 0, numbers(0, 100)...)
		s.until("readiness is red", func() bool { ok, _ := r.ready("commits"); return !ok })
		if _, text := r.ready("commits"); !contains(text, "in/0", "its offset 100 cannot be committed", "GROUP_AUTHORIZATION_FAILED") {
			t.Errorf("readiness says: %s", text)
		}
		if c.total() != 100 {
			t.Errorf("%d of 100 records ran: records go on", c.total())
		}
		fault.Remove()
		s.drained("in")
		s.until("readiness is green", func() bool { ok, _ := r.Ready(); return ok })
		r.end()
	}, embedded.Topic("in", 1), embedded.Topic("other", 1))
}

// A commit never names a partition that is not the sender's: with members that come and go, and
// commits that are held up so long that they cross a rebalance, the broker's record shows no
// accepted commit by a non-owner. What a worker has lost it drops.
func TestCommitsOnlyByOwners(t *testing.T) {
	tell(t, func(s *story) {
		const n = 2000
		var c tally
		top := func() *killick.Topology {
			return counting(&c, spout.Kafka("in"), func(ctx context.Context, _ *killick.Tuple, out killick.Emitter) error {
				select {
				case <-time.After(5 * time.Millisecond):
				case <-ctx.Done():
				}
				return ctx.Err()
			})
		}
		one := s.start(top())
		feed := make(chan struct{})
		go func() {
			defer close(feed)
			for i := range n {
				r := &kgo.Record{Topic: "in", Partition: int32(i % 8), Value: fmt.Append(nil, i)}
				if err := s.b.Produce(context.Background(), r); err != nil {
					t.Error(err)
					return
				}
				<-time.After(20 * time.Millisecond)
			}
		}()
		for round := range 8 {
			gate := make(chan struct{})
			held := s.b.Hold(kmsg.OffsetCommit, gate)
			two := s.start(top())
			s.pass(time.Duration(500+300*round) * time.Millisecond)
			close(gate)
			held.Remove()
			s.pass(2 * time.Second)
			if round%2 == 0 {
				two.end()
			} else {
				gate := make(chan struct{})
				held := s.b.Hold(kmsg.OffsetCommit, gate)
				two.stop()
				s.pass(1500 * time.Millisecond)
				close(gate)
				held.Remove()
				<-two.done
			}
		}
		<-feed
		s.drained("in")
		one.end()
		for i := range n {
			if c.of(fmt.Sprint(i)) == 0 {
				t.Fatalf("record %d was lost", i)
			}
		}
		if len(s.b.Assignments()) < 16 {
			t.Errorf("only %d assignments: nobody has moved", len(s.b.Assignments()))
		}
		t.Logf("%d executions of %d records", c.total(), n)
	}, embedded.Topic("in", 8)) // the check itself is in newStory
}

// After a lost membership (the member was frozen past its session) the worker drops what it had,
// commits nothing of it, and joins again by itself.
func TestMembershipLost(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		block := make(chan struct{})
		r := s.start(counting(&c, spout.Kafka("in"), func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if string(in.Bytes()) == "5" && c.of("5") == 1 {
				<-block
			}
			return nil
		}))
		s.drained("in")
		s.produce("in", 0, numbers(0, 10)...)
		s.until("5 runs", func() bool { return c.of("5") == 1 })
		// No heartbeat is answered until the session has ended.
		gate := make(chan struct{})
		held := s.silence(gate)
		s.pass(12 * time.Second)
		close(gate)
		held()
		s.until("it has joined again", func() bool { return len(s.b.Assignments()) > 1 })
		close(block)
		s.drained("in")
		if c.of("5") != 2 {
			t.Errorf("5 ran %d times: it was open when the partition was lost", c.of("5"))
		}
		r.end()
		if l := s.logs.lines("lost"); len(l) == 0 {
			t.Error("nothing was said of the loss")
		}
	}, embedded.Topic("in", 1))
}
