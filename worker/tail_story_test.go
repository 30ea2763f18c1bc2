package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// transaction writes values and ends the transaction after some time.
func (s *story) transaction(how kgo.TransactionEndTry, after time.Duration, values ...string) {
	s.Helper()
	cl, err := kgo.NewClient(s.b.ClientOpts(kgo.TransactionalID("x"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionTimeout(5*time.Minute))...)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(cl.Close)
	if err := cl.BeginTransaction(); err != nil {
		s.Fatal(err)
	}
	for _, v := range values {
		if err := cl.ProduceSync(s.ctx(), &kgo.Record{Topic: "in", Value: []byte(v)}).FirstErr(); err != nil {
			s.Fatal(err)
		}
	}
	end := func() {
		if err := cl.EndTransaction(context.Background(), how); err != nil {
			s.Error(err)
		}
	}
	if after == 0 {
		end()
		return
	}
	done := make(chan struct{})
	time.AfterFunc(after, func() { defer close(done); end() })
	s.Cleanup(func() { <-done })
}

// compact compacts the log of in now.
func (s *story) compact() {
	s.Helper()
	_, err := s.admin().AlterTopicConfigs(s.ctx(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: kadm.StringPtr("compact")},
		{Op: kadm.SetConfig, Name: "delete.retention.ms", Value: kadm.StringPtr("0")}}, "in")
	if err != nil {
		s.Fatal(err)
	}
	s.pass(time.Second)
	s.b.Cluster().Compact()
}

// keyed writes a record with a key.
func (s *story) keyed(k, v string) {
	s.Helper()
	if err := s.b.Produce(s.ctx(), &kgo.Record{Topic: "in", Key: []byte(k), Value: []byte(v)}); err != nil {
		s.Fatal(err)
	}
}

// tails are logs that end in something else than a record. Each says which values are there to run.
var tails = map[string]func(s *story) (values []string){
	"an aborted transaction": func(s *story) []string {
		s.produce("in", 0, "a")
		s.transaction(kgo.TryAbort, 0, "no", "no either")
		return []string{"a"}
	},
	"a commit marker": func(s *story) []string {
		s.transaction(kgo.TryCommit, 0, "a", "b")
		return []string{"a", "b"}
	},
	"records before the last compacted away": func(s *story) []string {
		s.keyed("k", "old")
		s.keyed("l", "a")
		s.keyed("m", "old")
		s.keyed("k", "b")
		s.keyed("m", "c") // the segment that is written to is never compacted
		s.keyed("n", "d")
		s.compact()
		return []string{"a", "b", "c", "d"}
	},
	"everything deleted": func(s *story) []string {
		s.produce("in", 0, numbers(0, 20)...)
		s.deleteTo("in", 0, 20)
		return nil
	},
	"an open transaction that aborts later": func(s *story) []string {
		s.produce("in", 0, "a")
		s.transaction(kgo.TryAbort, 8*time.Second, "no")
		return []string{"a"}
	},
	"an open transaction that commits later": func(s *story) []string {
		s.produce("in", 0, "a")
		s.transaction(kgo.TryCommit, 8*time.Second, "b")
		return []string{"a", "b"}
	},
	"markers of many transactions": func(s *story) []string {
		s.transaction(kgo.TryCommit, 0, "a")
		s.transaction(kgo.TryAbort, 0, "no")
		s.transaction(kgo.TryCommit, 0, "b")
		s.transaction(kgo.TryAbort, 0, "no")
		return []string{"a", "b"}
	},
	"a transaction without records left": func(s *story) []string {
		s.produce("in", 0, "a")
		s.transaction(kgo.TryAbort, 0, "no")
		s.deleteTo("in", 0, 2)
		return nil
	},
	"nothing": func(*story) []string { return nil },
}

// Whatever a log ends with, its committed offset reaches the end within 15 s without new input, the
// lag becomes 0, and a restart runs nothing again.
// FC-08: confluentinc/parallel-consumer #52, #329 and PR #425.
func TestEveryTail(t *testing.T) {
	for name, tail := range tails {
		for _, filtered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, filtered %v", name, filtered), func(t *testing.T) {
				tell(t, func(s *story) {
					want := tail(s)
					var c tally
					top := func() *killick.Topology {
						top := killick.New("t")
						top.Spout("in", spout.Kafka("in"))
						top.Bolt("filter", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
							if !filtered {
								out.Emit(in.Message())
							}
							return nil
						})).Shuffle("in")
						top.Bolt("count", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
							c.add(string(in.Bytes()))
							return nil
						})).Shuffle("filter")
						return top
					}
					r := s.start(top())
					start := time.Now()
					s.until("lag 0", func() bool {
						return s.atEnd("in") && r.lag("in", 0) == 0
					})
					if d := time.Since(start); d > 15*time.Second {
						t.Errorf("it took %v", d)
					}
					if filtered {
						want = nil
					}
					c.once(t, want...)
					r.end()
					c.clear()
					r = s.start(top())
					s.pass(15 * time.Second)
					r.end()
					if c.total() > 0 {
						t.Errorf("a restart ran %d records", c.total())
					}
				}, embedded.Topic("in", 1))
			})
		}
	}
}

// The end of a log can be compacted away altogether (a tombstone that was the last record, once its
// segment is closed). No poll ever shows that; the worker asks, once the partition is idle. A bounded
// run does not wait that long.
func TestCompactedTail(t *testing.T) {
	for name, src := range map[string]spout.KafkaSource{"endless": {}, "bounded": {Until: spout.Latest()}} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				for _, v := range []string{"a", "b", "gone", "gone too"} {
					s.keyed(v, v+string(noise(70_000))) // a fetch of its own each
				}
				s.vanishFrom(2, 4)
				src.Topics = []string{"in"}
				var c tally
				top := counting(&c, src, nil)
				r := s.start(top, func(c *worker.Config) { c.FetchMaxPartitionBytes = 64 << 10 })
				start := time.Now()
				if src.Until.IsSet() {
					if err := r.wait(); err != nil {
						t.Errorf("it ended with: %v", err)
					}
					if d := time.Since(start); d > 8*time.Second {
						t.Errorf("it took %v", d)
					}
				} else {
					s.until("lag 0", func() bool { return s.atEnd("in") && r.lag("in", 0) == 0 })
					if d := time.Since(start); d > 15*time.Second {
						t.Errorf("it took %v", d)
					}
					r.end()
				}
				if c.total() != 2 {
					t.Errorf("%d executions", c.total())
				}
				if !s.atEnd("in") {
					t.Errorf("committed %v", s.committed("in"))
				}
			}, embedded.Topic("in", 1))
		})
	}
}

// vanishFrom makes fetches of in from an offset on come back empty, as from a log whose end, at end,
// was compacted away. The embedded broker itself never compacts the last batch.
func (s *story) vanishFrom(from, end int64) {
	beyond := func(req kmsg.Request) bool {
		ts := req.(*kmsg.FetchRequest).Topics
		return len(ts) == 1 && len(ts[0].Partitions) == 1 && ts[0].Partitions[0].FetchOffset >= from
	}
	s.b.DelayAnswers(kmsg.Fetch, 250*time.Millisecond, beyond) // as a broker keeps such a fetch for a while
	s.b.Cluster().ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		s.b.Cluster().KeepControl()
		if !beyond(req) {
			return nil, nil, false
		}
		fr := req.(*kmsg.FetchRequest)
		resp := fr.ResponseKind().(*kmsg.FetchResponse)
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = fr.Topics[0].Topic, fr.Topics[0].TopicID
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.HighWatermark, rp.LastStableOffset = end, end
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
}

// A bounded run ends well at the end of the log as it was at the start, whatever it ends with, and
// commits it.
func TestUntilLatestEndsOnEveryTail(t *testing.T) {
	for name, tail := range tails {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				want := tail(s)
				if name == "an open transaction that commits later" {
					want = want[:1] // the end is what could be read at the start
				}
				var c tally
				r := s.start(counting(&c, spout.KafkaSource{Topics: []string{"in"}, Until: spout.Latest()}, nil))
				if err := r.wait(); err != nil {
					t.Errorf("it ended with: %v", err)
				}
				c.once(t, want...)
				s.pass(10 * time.Second)
			}, embedded.Topic("in", 1))
		})
	}
}

// The other ends: a time, and offsets of some partitions; partitions that are empty, or have nothing
// before their end, are at their end at once.
func TestUntilTimeAndOffsets(t *testing.T) {
	base := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	fill := func(s *story) {
		for i := range 30 {
			r := &kgo.Record{Topic: "in", Partition: int32(i % 3), Value: fmt.Append(nil, i), Timestamp: base.Add(time.Duration(i) * time.Minute)}
			if err := s.b.Produce(s.ctx(), r); err != nil {
				s.Fatal(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		src  spout.KafkaSource
		want []string
		at   map[int32]int64
	}{
		"a time":            {spout.KafkaSource{Until: spout.At(base.Add(15 * time.Minute))}, numbers(0, 15), map[int32]int64{0: 5, 1: 5, 2: 5, 3: 0}},
		"a late time":       {spout.KafkaSource{Until: spout.At(base.Add(24 * time.Hour))}, numbers(0, 30), map[int32]int64{0: 10, 1: 10, 2: 10, 3: 0}},
		"an early time":     {spout.KafkaSource{Until: spout.At(base.Add(-time.Hour))}, nil, map[int32]int64{0: 0, 1: 0, 2: 0, 3: 0}},
		"between two times": {spout.KafkaSource{Start: spout.At(base.Add(5 * time.Minute)), Until: spout.At(base.Add(10 * time.Minute))}, numbers(5, 10), nil},
		"offsets": {spout.KafkaSource{Until: spout.Offsets(killick.Origin{Topic: "in", Partition: 0, Offset: 2}, killick.Origin{Topic: "in", Partition: 1, Offset: 0})},
			nil, map[int32]int64{0: 2, 1: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				fill(s)
				tt.src.Topics = []string{"in"}
				var c tally
				r := s.start(counting(&c, tt.src, nil))
				if err := r.wait(); err != nil {
					t.Errorf("it ended with: %v", err)
				}
				got := s.committed("in")
				for p, want := range tt.at {
					if got[p] != want {
						t.Errorf("partition %d is committed at %d, want %d", p, got[p], want)
					}
				}
				if name == "offsets" { // partition 2 has no end of its own
					if c.of("0") != 1 || c.of("3") != 1 || c.of("6") != 0 || c.of("1") != 0 {
						t.Errorf("ran %v", c.order)
					}
				} else {
					c.once(t, tt.want...)
				}
				// Once more: nothing is left to do.
				c.clear()
				if err := s.start(counting(&c, tt.src, nil)).wait(); err != nil {
					t.Errorf("the second run ended with: %v", err)
				}
				if name != "offsets" && c.total() > 0 {
					t.Errorf("the second run ran %d records", c.total())
				}
			}, embedded.Topic("in", 4))
		})
	}
}

// A bounded run of several workers ends in all of them when the partitions of all have come to
// their end.
func TestUntilWithTwoWorkers(t *testing.T) {
	tell(t, func(s *story) {
		for p := range int32(6) {
			s.produce("in", p, numbers(int(p)*100, int(p)*100+100)...)
		}
		var c tally
		src := spout.KafkaSource{Topics: []string{"in"}, Until: spout.Latest()}
		slow := func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
			d := 20 * time.Millisecond
			if o, _ := in.Origin(); o.Partition%2 == 1 {
				d = 50 * time.Millisecond
			}
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
			return ctx.Err()
		}
		top := func() *killick.Topology {
			top := killick.New("t")
			top.Spout("in", src).Pending(5, 1<<20) // or the first would start everything at once
			top.Bolt("count", bolt.Func(func(ctx context.Context, in *killick.Tuple, out killick.Emitter) error {
				c.add(string(in.Bytes()))
				return slow(ctx, in, out)
			})).Shuffle("in")
			return top
		}
		one, two := s.start(top()), s.start(top())
		for _, r := range []*running{one, two} {
			if err := r.wait(); err != nil {
				t.Errorf("a worker ended with: %v", err)
			}
		}
		for _, v := range numbers(0, 600) {
			if c.of(v) == 0 {
				t.Fatalf("%s was not run", v)
			}
		}
		if !s.atEnd("in") {
			t.Errorf("committed %v", s.committed("in"))
		}
	}, embedded.Topic("in", 6))
}

// A bounded run that loses a partition whose last records have started, and gets it back, does not
// pretend to have come to its end.
func TestUntilWithALostMembership(t *testing.T) {
	tell(t, func(s *story) {
		s.produce("in", 0, numbers(0, 10)...)
		var c tally
		block := make(chan struct{})
		src := spout.KafkaSource{Topics: []string{"in"}, Until: spout.Latest()}
		top := killick.New("t")
		top.Spout("in", src)
		top.Bolt("count", bolt.Async(16, func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			c.add(string(in.Bytes()))
			<-block
			return nil
		})).Shuffle("in").Timeout(time.Hour)
		r := s.start(top)
		s.until("all run", func() bool { return c.total() == 10 })
		gate := make(chan struct{})
		held := s.silence(gate)
		s.pass(12 * time.Second)
		close(gate)
		held()
		s.until("it has joined again", func() bool { return len(s.b.Assignments()) > 1 })
		s.pass(5 * time.Second)
		close(block)
		if err := r.wait(); err == nil || !contains(err.Error(), "in/0", "run again") || worker.ExitCode(err) != 1 {
			t.Errorf("it ended with: %v", err)
		}
		if got := s.committed("in")[0]; got != 0 {
			t.Errorf("committed %d", got)
		}
		c.clear()
		if err := s.start(counting(&c, src, nil)).wait(); err != nil {
			t.Error(err)
		}
		c.once(t, numbers(0, 10)...)
	}, embedded.Topic("in", 1))
}

// The position of a quiet partition is committed again before the broker forgets it, and not much
// more often than that.
// FC-29: bsm/sarama-cluster #124, confluentinc/librdkafka #1442, dpkp/kafka-python #1076, zendesk/racecar PR #419.
func TestIdlePositionsAreRefreshed(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		r := s.start(counting(&c, spout.Kafka("in"), nil), func(c *worker.Config) { c.FetchMaxWait, c.Heartbeat = 5*time.Second, 3*time.Second })
		s.produce("in", 0, numbers(0, 5)...)
		s.drained("in")
		before := len(s.b.Commits())
		s.pass(61 * time.Minute)
		n := len(s.b.Commits()) - before
		if n != 2 { // two partitions, once an hour
			t.Errorf("%d commits in an idle hour, want 2", n)
		}
		r.end()
		r = s.start(counting(&c, spout.Kafka("in"), nil))
		s.pass(15 * time.Second)
		r.end()
		if c.total() != 5 {
			t.Errorf("a restart ran %d records", c.total()-5)
		}
	}, embedded.Topic("in", 2))
}

// Lag is what a reader could still see behind the committed offset: never negative, and not 0 when
// it is not known.
// FC-50: redpanda-data/redpanda #30624, apache/druid PR #14292, confluentinc/confluent-kafka-dotnet #2009.
func TestLagInEveryState(t *testing.T) {
	tell(t, func(s *story) {
		s.produce("behind", 0, numbers(0, 10)...)
		s.deleteTo("behind", 0, 4)
		s.produce("in", 0, numbers(0, 3)...)
		block := make(chan struct{})
		top := killick.New("t")
		top.Spout("in", spout.Kafka("in", "empty", "behind"))
		top.Bolt("count", bolt.Async(16, func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if o, _ := in.Origin(); o.Topic == "in" {
				return nil
			}
			select {
			case <-block:
			case <-ctx.Done():
			}
			return ctx.Err()
		})).Shuffle("in").Timeout(time.Hour)
		gate := make(chan struct{})
		held := s.b.Hold(kmsg.ListOffsets, gate)
		r := s.start(top)
		want := func(state string, lags map[string]float64) {
			s.Helper()
			for topic, lag := range lags {
				s.until(fmt.Sprintf("%s: lag of %s is %v", state, topic, lag), func() bool { return r.lag(topic, 0) == lag })
			}
		}
		s.until("the worker asks where the logs end", func() bool { return held.Hits() > 0 })
		if got := r.lag("in", 0); got != -1 {
			t.Errorf("lag %v before anything is known", got)
		}
		close(gate)
		want("an empty log; the log begins above 0", map[string]float64{"in": 0, "empty": 0, "behind": 6})
		s.transaction(kgo.TryCommit, time.Minute, "x", "y") // offsets 3 and 4, and the marker 5
		want("an open transaction: nobody can read it yet", map[string]float64{"in": 0})
		s.pass(30 * time.Second)
		if got := r.lag("in", 0); got != 0 {
			t.Errorf("lag %v with an open transaction", got)
		}
		s.drained("in")
		want("committed", map[string]float64{"in": 0})
		s.deleteTo("behind", 0, 8)
		want("retention is past the committed offset", map[string]float64{"behind": 2})
		close(block)
		s.drained("behind")
		want("all done", map[string]float64{"behind": 0})
		r.end()
	}, embedded.Topic("in", 1), embedded.Topic("empty", 1), embedded.Topic("behind", 1))
}
