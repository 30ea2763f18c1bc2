package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/offsets"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
)

// admin is an administrator's client.
func (s *story) admin() *kadm.Client {
	s.Helper()
	cl, err := kgo.NewClient(s.b.ClientOpts()...)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(cl.Close)
	return kadm.NewClient(cl)
}

// commit sets what the group has committed, as a tool does while nobody is in the group.
func (s *story) commit(topic string, p int32, offset int64, metadata string) {
	s.Helper()
	var os kadm.Offsets
	os.Add(kadm.Offset{Topic: topic, Partition: p, At: offset, LeaderEpoch: -1, Metadata: metadata})
	if err := s.admin().CommitAllOffsets(s.ctx(), "g", os); err != nil {
		s.Fatal(err)
	}
}

// deleteTo moves the beginning of a partition's log.
func (s *story) deleteTo(topic string, p int32, offset int64) {
	s.Helper()
	var os kadm.Offsets
	os.Add(kadm.Offset{Topic: topic, Partition: p, At: offset})
	if _, err := s.admin().DeleteRecords(s.ctx(), os); err != nil {
		s.Fatal(err)
	}
}

// A group that starts at the end has its position committed before the first record is taken in: a
// record that is written while the worker is away, before it has seen any, is processed.
// FC-30: segmentio/kafka-go #904 and #1319, fyndiq/confluent_kafka_helpers PR #48.
func TestLatestStartAndACrashBeforeTheFirstRecord(t *testing.T) {
	tell(t, func(s *story) {
		s.produce("in", 0, "old")
		src := spout.KafkaSource{Topics: []string{"in"}, Start: spout.Latest()}
		var c tally
		r := s.start(counting(&c, src, nil))
		s.until("the positions are committed", func() bool { return len(s.committed("in")) == 3 })
		r.kill()
		s.produce("in", 2, "new")
		s.produce("in", 0, "new too")
		r = s.start(counting(&c, src, nil))
		s.drained("in")
		r.end()
		c.once(t, "new", "new too")
	}, embedded.Topic("in", 3))
}

// While the first position cannot be committed no record is processed, and what is written
// meanwhile is not skipped.
func TestLatestStartHoldsRecordsBack(t *testing.T) {
	tell(t, func(s *story) {
		s.produce("in", 0, "old")
		fault := s.b.Fail(kmsg.OffsetCommit, kerr.CoordinatorNotAvailable, -1)
		src := spout.KafkaSource{Topics: []string{"in"}, Start: spout.Latest()}
		var c tally
		r := s.start(counting(&c, src, nil))
		if err := fault.Wait(s.ctx(), 2); err != nil {
			t.Fatal(err)
		}
		s.produce("in", 0, "new")
		s.pass(20 * time.Second)
		if c.total() > 0 {
			t.Errorf("%d records ran before the position was committed", c.total())
		}
		fault.Remove()
		s.drained("in")
		r.end()
		c.once(t, "new")
	}, embedded.Topic("in", 1))
}

// Partitions that are added to a topic later start at their beginning, also where the group started
// at the end: with the worker running, and while it is away.
func TestPartitionsBornLater(t *testing.T) {
	tell(t, func(s *story) {
		s.produce("in", 0, "old")
		src := spout.KafkaSource{Topics: []string{"in"}, Start: spout.Latest()}
		var c tally
		r := s.start(counting(&c, src, nil))
		s.until("the position is committed", func() bool { return len(s.committed("in")) == 1 })
		grow := func(n int) {
			if _, err := s.admin().UpdatePartitions(s.ctx(), n, "in"); err != nil {
				t.Fatal(err)
			}
		}
		grow(2)
		s.produceAnew("in", 1, "a", "b")
		s.drained("in")
		r.end()
		grow(3)
		s.produceAnew("in", 2, "c", "d")
		r = s.start(counting(&c, src, nil))
		s.drained("in")
		r.end()
		c.once(t, "a", "b", "c", "d")
	}, embedded.Topic("in", 1))
}

// A topic that comes to match a pattern later is read from its beginning within the metadata's age;
// the topology's own dead letters never match.
// FC-25: apache/pulsar #9327, #20427 and #20667. FC-33: confluentinc/confluent-kafka-dotnet #1223 and #1337, KAFKA-3854.
func TestPatternFindsTopicsButNotItsDeadLetters(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		src := spout.KafkaSource{Pattern: `ev\..*`, Start: spout.Latest()}
		r := s.start(counting(&c, src, func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if strings.HasPrefix(string(in.Bytes()), "poison") {
				return killick.Permanent(errTry)
			}
			return nil
		}))
		s.drained("ev.a")
		s.produce("ev.a", 0, "1", "poison a")
		if err := s.b.Cluster().CreateTopic("ev.b", 2, nil); err != nil {
			t.Fatal(err)
		}
		s.produce("ev.b", 1, "2", "poison b")
		start := time.Now()
		s.drained("ev.b")
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("it took %v to find the new topic", d)
		}
		s.drained("ev.a")
		s.pass(time.Minute)
		for _, topic := range []string{"ev.a.t.dlq", "ev.b.t.dlq"} {
			if got := s.read(topic); len(got) != 1 {
				t.Errorf("%d dead letters in %s", len(got), topic)
			}
		}
		topics, err := s.admin().ListTopics(s.ctx())
		if err != nil || len(topics.Names()) != 4 {
			t.Errorf("topics %v, %v", topics.Names(), err)
		}
		r.end()
		c.once(t, "1", "2", "poison a", "poison b")
	}, embedded.Topic("ev.a", 1))
}

// A committed offset that is not in the log any more stops its partition, which readiness names
// with the range and what to do; the others go on.
// FC-31: confluentinc/confluent-kafka-dotnet #2009, apache/druid PR #3678, getsentry/arroyo #389.
func TestCommittedOffsetOutOfRangeStopsThePartition(t *testing.T) {
	for name, tt := range map[string]struct {
		at   int64
		want string
	}{"below the log": {5, "offset 5 is committed, but the log has 100 to 200"}, "above the log": {500, "offset 500 is committed, but the log has 100 to 200"}} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				s.produce("in", 0, numbers(0, 200)...)
				s.deleteTo("in", 0, 100)
				s.commit("in", 0, tt.at, "")
				s.produce("in", 1, numbers(1000, 1100)...)
				var c tally
				r := s.start(counting(&c, spout.Kafka("in"), nil))
				s.until("the other partition is done", func() bool { return s.committed("in")[1] == 100 })
				s.pass(30 * time.Second)
				ok, text := r.ready("partitions")
				if ok || !contains(text, "in/0 has stopped", tt.want, "KafkaSource.Lost", "reset") {
					t.Errorf("readiness: %v %s", ok, text)
				}
				if got := s.committed("in")[0]; got != tt.at {
					t.Errorf("the stopped partition is committed at %d", got)
				}
				if n := len(s.logs.lines("the partition has stopped")); n != 1 {
					t.Errorf("%d lines about it", n)
				}
				if r.metric("killick_stopped_partitions") != 1 {
					t.Error("the metric does not show it")
				}
				r.end()
				c.once(t, numbers(1000, 1100)...)
			}, embedded.Topic("in", 2))
		})
	}
}

// With a policy for lost offsets the partition goes on where it says, and the loss is counted.
// FC-31: confluentinc/confluent-kafka-dotnet #2009, apache/druid PR #3678, getsentry/arroyo #389.
func TestCommittedOffsetOutOfRangeGoesOnByPolicy(t *testing.T) {
	base := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		lost  spout.Position
		first int
	}{"earliest": {spout.Earliest(), 100}, "latest": {spout.Latest(), 200}, "a time": {spout.At(base.Add(150 * time.Minute)), 150}} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				for i := range 200 {
					r := &kgo.Record{Topic: "in", Value: fmt.Append(nil, i), Timestamp: base.Add(time.Duration(i) * time.Minute)}
					if err := s.b.Produce(s.ctx(), r); err != nil {
						t.Fatal(err)
					}
				}
				s.deleteTo("in", 0, 100)
				s.commit("in", 0, 5, "")
				var c tally
				r := s.start(counting(&c, spout.KafkaSource{Topics: []string{"in"}, Lost: tt.lost}, nil))
				s.drained("in")
				s.produce("in", 0, "200")
				s.drained("in")
				if n := r.metric("killick_lost_offsets_total"); n != 95 {
					t.Errorf("%v offsets are counted as lost", n)
				}
				if l := s.logs.lines("the committed offset is out of range"); len(l) != 1 || l[0]["lost"] != 95.0 || l[0]["goes_on_at"] != float64(tt.first) {
					t.Errorf("the log says: %v", l)
				}
				r.end()
				c.once(t, numbers(tt.first, 201)...)
			}, embedded.Topic("in", 1))
		})
	}
}

// A slow reader that retention overtakes while it runs: the same two ways.
func TestFallingOutOfTheLogWhileRunning(t *testing.T) {
	for name, lost := range map[string]spout.Position{"stop": {}, "earliest": spout.Earliest()} {
		t.Run(name, func(t *testing.T) {
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
				top.Spout("in", spout.KafkaSource{Topics: []string{"in"}, Lost: lost}).Pending(5, 1<<20)
				top.Bolt("count", bolt.Func(func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
					select {
					case <-block:
					case <-ctx.Done():
						return ctx.Err()
					}
					c.add(string(in.Bytes()[:4]))
					return nil
				})).Shuffle("in").Timeout(time.Hour)
				r := s.start(top)
				s.until("fetching is paused", func() bool { return r.metric("killick_paused_partitions") == 1 })
				s.deleteTo("in", 0, 90)
				close(block)
				if !lost.IsSet() {
					s.until("it has stopped", func() bool { ok, _ := r.ready("partitions"); return !ok })
					if _, text := r.ready("partitions"); !contains(text, "in/0 has stopped", "but the log has 90 to 100") {
						t.Errorf("readiness: %s", text)
					}
					r.end()
					return
				}
				s.drained("in")
				if n := r.metric("killick_lost_offsets_total"); int(n)+c.total() != 100 || n == 0 {
					t.Errorf("%v lost, %d ran, of 100", n, c.total())
				}
				r.end()
			}, embedded.Topic("in", 1))
		})
	}
}

// Metadata beside a committed offset that is not ours, or is broken, is worth nothing and harms
// nothing: the offset counts.
func TestForeignAndCorruptCommitMetadata(t *testing.T) {
	var enc offsets.Encoder
	good, _ := enc.Encode(offsets.Map{Base: 3, Next: 10, Open: []int64{3, 4}, Held: offsets.State{Suspect: offsets.None}})
	for name, text := range map[string]string{
		"none": "", "a member id": "kgo-1-abcd", "cut": good[:len(good)-1], "turned": good[:len(good)-2] + "zz",
		"a map of another base": mustEncode(offsets.Map{Base: 2, Next: 10, Open: []int64{2}, Held: offsets.State{Suspect: offsets.None}}),
		"long":                  strings.Repeat("x", 4096),
	} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				s.produce("in", 0, numbers(0, 10)...)
				s.commit("in", 0, 3, text)
				var c tally
				r := s.start(counting(&c, spout.Kafka("in"), nil))
				s.drained("in")
				r.end()
				c.once(t, numbers(3, 10)...)
				want := 1
				if text == "" {
					want = 0
				}
				if l := s.logs.lines("metadata is not used"); len(l) != want {
					t.Errorf("%d lines about it", len(l))
				}
			}, embedded.Topic("in", 1))
		})
	}
}

func mustEncode(m offsets.Map) string {
	var enc offsets.Encoder
	text, _ := enc.Encode(m)
	return text
}

// After a crash the roots that had ended above the committed offset do not run again: the commit
// remembers them. With the map of another offset everything above runs again.
func TestCompletionMapAfterACrash(t *testing.T) {
	tell(t, func(s *story) {
		s.produce("in", 0, numbers(0, 100)...)
		stuck := map[string]bool{"7": true, "40": true, "41": true}
		var c tally
		top := func(block bool) *killick.Topology {
			top := killick.New("t")
			top.Spout("in", spout.Kafka("in"))
			top.Bolt("count", bolt.Async(64, func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
				c.add(string(in.Bytes()))
				if block && stuck[string(in.Bytes())] {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			})).Shuffle("in").Timeout(time.Hour)
			return top
		}
		r := s.start(top(true))
		s.until("all but three have ended, and this is committed", func() bool {
			got, err := s.b.Committed(s.ctx(), "g", "in")
			if err != nil {
				t.Fatal(err)
			}
			m, err := offsets.Decode(got[0].Metadata, got[0].Offset)
			return err == nil && got[0].Offset == 7 && m.Next == 100 && len(m.Open) == 3
		})
		r.kill()
		if got := s.committed("in")[0]; got != 7 {
			t.Fatalf("committed %d by a worker that could reach nobody", got)
		}
		c.clear()
		s.produce("in", 0, "100")
		r = s.start(top(false))
		s.drained("in")
		r.end()
		c.once(t, "7", "40", "41", "100")
		// The same offset once more, set by hand with a map of another base.
		s.commit("in", 0, 90, mustEncode(offsets.Map{Base: 89, Next: 101, Held: offsets.State{Suspect: offsets.None}}))
		c.clear()
		r = s.start(top(false))
		s.drained("in")
		r.end()
		c.once(t, numbers(90, 101)...)
	}, embedded.Topic("in", 1))
}

// A topic that is deleted and made again under its name while it is read is another topic: the
// worker ends with an error that says so, and commits nothing of the old one to it.
// FC-32: twmb/franz-go #908 and PR #1426, confluentinc/librdkafka #1582, streamnative/kop #530.
func TestTopicDeletedAndMadeAnew(t *testing.T) {
	tell(t, func(s *story) {
		s.produce("in", 0, numbers(0, 500)...)
		var c tally
		r := s.start(counting(&c, spout.Kafka("in"), nil))
		s.drained("in")
		old := s.b.Cluster().TopicInfo("in").TopicID
		if err := s.b.Cluster().DeleteTopic("in"); err != nil {
			t.Fatal(err)
		}
		if err := s.b.Cluster().CreateTopic("in", 1, nil); err != nil {
			t.Fatal(err)
		}
		s.produceAnew("in", 0, numbers(0, 20)...)
		start := time.Now()
		err := r.wait()
		if err == nil || !contains(err.Error(), `topic "in" was deleted and created again`, `group "g"`) {
			t.Errorf("the worker ended with: %v", err)
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("it took %v", d)
		}
		for _, m := range s.b.Commits() {
			if m.Accepted() && m.TopicID != ([16]byte{}) && m.TopicID != old {
				t.Errorf("a commit to the new topic: %+v", m)
			}
		}
		if got, ok := s.committed("in")[0]; ok && got > 20 {
			t.Errorf("committed %d on the new topic", got)
		}
	}, embedded.Topic("in", 1))
}

// A topic that is only deleted stops its partitions and is named; others go on.
func TestTopicDeleted(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		r := s.start(counting(&c, spout.Kafka("in", "other"), nil))
		s.drained("in")
		s.drained("other")
		if err := s.b.Cluster().DeleteTopic("in"); err != nil {
			t.Fatal(err)
		}
		s.until("readiness is red", func() bool { ok, _ := r.ready("partitions"); return !ok })
		if _, text := r.ready("partitions"); !contains(text, "in/0 has stopped: the topic does not exist any more") {
			t.Errorf("readiness: %s", text)
		}
		s.produce("other", 0, numbers(0, 10)...)
		s.drained("other")
		r.end()
		c.once(t, numbers(0, 10)...)
	}, embedded.Topic("in", 1), embedded.Topic("other", 1))
}
