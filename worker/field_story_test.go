package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
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

// What went wrong for users of other frameworks, each with what they had done; docs/field-cases.md has
// them all. Here are offsets, retries and outputs, in field_topic_story_test.go topics and their records, in
// field_member_story_test.go the group.

// sleep is the work of a bolt that takes some time.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waited is counting with many executions at a time, which may last.
func waited(c *tally, atOnce int, f bolt.ExecuteFunc) *killick.Topology {
	top := killick.New("t")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("count", bolt.Async(atOnce, func(ctx context.Context, in *killick.Tuple, out killick.Emitter) error {
		c.add(string(in.Bytes()))
		return f(ctx, in, out)
	})).Shuffle("in").Timeout(time.Hour)
	return top
}

// TestHolesOfBothKinds: a commit passes offsets that compaction has removed, and does not pass one that
// is being worked on, however many behind it have ended.
// FC-01: robinhood/faust #355 and #682, faust-streaming/faust #312 and #606.
func TestHolesOfBothKinds(t *testing.T) {
	for _, compacted := range []bool{false, true} {
		t.Run(fmt.Sprintf("compacted %v", compacted), func(t *testing.T) {
			tell(t, func(s *story) {
				const n = 100
				var want []string
				for i := range n {
					key := fmt.Sprint("k", i)
					if i >= 2 && i <= 8 || i == 20 {
						key = "again"
					}
					s.keyed(key, fmt.Sprint(i))
					if !compacted || i < 2 || i > 8 {
						want = append(want, fmt.Sprint(i))
					}
				}
				if compacted {
					s.compact()
					if got := s.read("in"); len(got) != len(want) {
						s.Fatalf("compaction has left %d records, want %d", len(got), len(want))
					}
				}
				free := make(chan struct{})
				var c tally
				r := s.start(waited(&c, n, func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
					switch string(in.Bytes()) {
					case "1":
						<-free
						return nil
					case "9", "49":
						return nil
					}
					return sleep(ctx, 20*time.Second)
				}))
				s.pass(30 * time.Second)
				for _, m := range s.b.Commits() {
					if m.Offset > 1 {
						s.Errorf("committed %d while record 1 is being worked on", m.Offset)
					}
				}
				if c.total() != len(want) || s.committed("in")[0] != 1 {
					s.Errorf("%d of %d records ran, committed %v", c.total(), len(want), s.committed("in"))
				}
				close(free)
				s.drained("in")
				r.end()
				c.once(s, want...)
			}, embedded.Topic("in", 1))
		})
	}
}

// TestKilledAgainAndAgain: a worker that is killed at any moment, many times, loses nothing: what has
// been fetched is not committed before it has ended. KILLICK_FULL=1 makes it 100 rounds.
// FC-05: twmb/franz-go #57.
func TestKilledAgainAndAgain(t *testing.T) {
	const partitions, each, atOnce = 2, 200, 50
	rounds := 4
	if full() {
		rounds = 100
	}
	random := seed(t)
	tell(t, func(s *story) {
		var mu sync.Mutex
		ended := map[killick.Origin]bool{}
		s.b.Fail(kmsg.OffsetCommit, kerr.UnknownServerError, -1, func(req kmsg.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			for _, t := range req.(*kmsg.OffsetCommitRequest).Topics {
				for _, p := range t.Partitions {
					for o := range p.Offset {
						if !ended[killick.Origin{Topic: "in", Partition: p.Partition, Offset: o}] {
							s.Errorf("partition %d: committed %d, and %d has not ended", p.Partition, p.Offset, o)
							break
						}
					}
				}
			}
			return false // it only looks
		})
		var c tally
		top := func() *killick.Topology {
			top := waited(&c, atOnce, func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
				if err := sleep(ctx, time.Second); err != nil {
					return err
				}
				o, _ := in.Origin()
				mu.Lock()
				defer mu.Unlock()
				ended[o] = true
				return nil
			})
			return top.Pending(atOnce, 1<<20)
		}
		n := 0
		for range rounds {
			for p := range int32(partitions) {
				s.produce("in", p, numbers(n, n+each)...)
				n += each
			}
			r := s.start(top())
			ran := c.total()
			s.until("it has begun", func() bool { return c.total() > ran }) // the group waits for the dead one
			s.pass(time.Duration(random.IntN(7000)) * time.Millisecond)
			r.kill()
		}
		r := s.start(top())
		s.drained("in")
		r.end()
		for _, v := range numbers(0, n) {
			if c.of(v) == 0 {
				s.Fatalf("record %s was lost", v)
			}
		}
		// What was open, and what had ended since the last commit, a second before.
		if again := c.total() - n; again == 0 || again > rounds*(partitions*atOnce+2*atOnce) {
			s.Errorf("%d executions of %d records", c.total(), n)
		}
	}, embedded.Topic("in", partitions))
}

// TestTailOfASink: what a sink has not written yet when its worker is killed is written by the next one,
// and a worker that is stopped writes it before its last commit.
// FC-06: hazelcast/hazelcast-jet #605, STORM-826, apache/incubator-heron PR #3324. FC-48: IBM/sarama #1987.
func TestTailOfASink(t *testing.T) {
	for _, kill := range []bool{true, false} {
		t.Run(fmt.Sprintf("kill %v", kill), func(t *testing.T) {
			tell(t, func(s *story) {
				const n = 200
				r := s.start(copying(bolt.Kafka("out")))
				s.drained("in")
				id := s.b.Cluster().TopicInfo("out").TopicID
				gate := make(chan struct{})
				held := s.b.Hold(kmsg.Produce, gate, func(req kmsg.Request) bool {
					return slices.ContainsFunc(req.(*kmsg.ProduceRequest).Topics, func(t kmsg.ProduceRequestTopic) bool {
						return t.TopicID == id || t.Topic == "out"
					})
				})
				s.produce("in", 0, numbers(0, n)...)
				s.pass(1500 * time.Millisecond)
				if got := s.committed("in")[0]; got != 0 || held.Hits() == 0 {
					s.Errorf("committed %d with %d requests under way", got, held.Hits())
				}
				if kill {
					r.kill()
					close(gate)
					held.Remove()
					r = s.start(copying(bolt.Kafka("out")))
					s.drained("in")
				} else {
					time.AfterFunc(1500*time.Millisecond, func() { close(gate); held.Remove() })
				}
				r.end()
				if got := s.committed("in")[0]; got != n {
					s.Errorf("committed %d", got)
				}
				out := map[string]int{}
				for _, o := range s.read("out") {
					out[string(o.Value)]++
				}
				for _, v := range numbers(0, n) {
					if out[v] == 0 || !kill && out[v] > 1 {
						s.Errorf("%s was written %d times", v, out[v])
					}
				}
			}, embedded.Topic("in", 1), embedded.Topic("out", 2))
		})
	}
}

// TestRecordsGoneBeforeTheirRetry: a record that leaves the log while it waits for its next try is tried
// from memory, and the offsets go on.
// FC-07: STORM-2546, STORM-2505 and apache/storm PR #2104.
func TestRecordsGoneBeforeTheirRetry(t *testing.T) {
	for _, compacted := range []bool{true, false} {
		for _, tree := range []bool{false, true} {
			t.Run(fmt.Sprintf("compacted %v, tree %v", compacted, tree), func(t *testing.T) {
				tell(t, func(s *story) {
					const n = 10
					failing := 5
					if compacted {
						failing = 1
					}
					for i := range n {
						s.keyed("k", fmt.Sprint(i))
					}
					var c tally
					r := s.start(counting(&c, spout.Kafka("in"), func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
						var id int
						fmt.Sscan(string(in.Bytes()), &id)
						if id >= failing || in.Attempt() > 1 {
							return nil
						}
						if tree {
							return killick.RetryAfter(5*time.Second, killick.FailTree(errTry))
						}
						return killick.RetryAfter(5*time.Second, errTry)
					}))
					s.until("all have run", func() bool { return c.total() == n })
					begin := time.Now()
					if compacted {
						s.compact()
					} else {
						s.deleteTo("in", 0, int64(failing))
					}
					if left := s.read("in"); len(left) == 0 || left[0].Offset < int64(failing) {
						s.Fatalf("%d records are left", len(left))
					}
					s.drained("in")
					if d := time.Since(begin); d > 10*time.Second {
						s.Errorf("it took %v", d)
					}
					r.end()
					for i, v := range numbers(0, n) {
						want := 1
						if i < failing {
							want = 2
						}
						if c.of(v) != want {
							s.Errorf("%s ran %d times, want %d", v, c.of(v), want)
						}
					}
				}, embedded.Topic("in", 1))
			})
		}
	}
}

// TestMapOverMarkersAndHoles: a log of transactions of one record each, a quarter of them aborted, and
// compacted: only committed records become tuples, the map of what has ended above an open record is
// right after a crash, and the committed offset reaches the end.
// FC-08: confluentinc/parallel-consumer #52, #329 and PR #425. FC-44: segmentio/kafka-go #659.
func TestMapOverMarkersAndHoles(t *testing.T) {
	tell(t, func(s *story) {
		cl, err := kgo.NewClient(s.b.ClientOpts(kgo.TransactionalID("x"), kgo.DefaultProduceTopic("in"))...)
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(cl.Close)
		for i := range 60 {
			if err := cl.BeginTransaction(); err != nil {
				s.Fatal(err)
			}
			key := fmt.Sprint("k", i)
			if i%10 == 5 || i%10 == 6 {
				key = "again"
			}
			if err := cl.ProduceSync(s.ctx(), kgo.KeyStringRecord(key, fmt.Sprint(i))).FirstErr(); err != nil {
				s.Fatal(err)
			}
			if err := cl.EndTransaction(s.ctx(), kgo.TransactionEndTry(i%4 != 3)); err != nil {
				s.Fatal(err)
			}
		}
		s.compact()
		var want []string
		for _, r := range s.read("in") { // of committed transactions only
			if r.Offset%2 != 0 {
				s.Fatalf("a record at offset %d: no marker before it", r.Offset)
			}
			want = append(want, string(r.Value))
		}
		if len(want) < 30 || len(want) > 44 {
			s.Fatalf("%d records are left of 45: nothing was compacted", len(want))
		}
		open := want[10:12]
		var c tally
		free := make(chan struct{})
		defer close(free)
		top := func(wait bool) *killick.Topology {
			return waited(&c, 64, func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
				if wait && slices.Contains(open, string(in.Bytes())) {
					<-free
				}
				return nil
			})
		}
		r := s.start(top(true), func(c *worker.Config) { c.Drain = time.Second })
		s.until("the rest is committed in the map", func() bool {
			got, err := s.b.Committed(s.ctx(), "g", "in")
			if err != nil {
				s.Fatal(err)
			}
			m, err := offsets.Decode(got[0].Metadata, got[0].Offset)
			return err == nil && m.Next == 120 && len(m.Open) == 2
		})
		c.once(s, want...)
		r.kill()
		c.clear()
		r = s.start(top(false))
		s.drained("in")
		r.end()
		c.once(s, open...)
	}, embedded.Topic("in", 1))
}

// TestVerdictsAfterTheTimeout: verdicts that come after the time-out of their try, below the committed
// offset even, change nothing: nothing that is committed runs again, and no counter is left behind.
// FC-10: STORM-2666.
func TestVerdictsAfterTheTimeout(t *testing.T) {
	tell(t, func(s *story) {
		const n, window = 300, 20
		var c tally
		var mu sync.Mutex
		var committed int64
		late, counted := 0, 0
		s.b.Fail(kmsg.OffsetCommit, kerr.UnknownServerError, -1, func(req kmsg.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			for _, t := range req.(*kmsg.OffsetCommitRequest).Topics {
				committed = max(committed, t.Partitions[0].Offset)
			}
			return false
		})
		top := killick.New("t")
		top.Retry(killick.Retry{Attempts: 5, Min: time.Millisecond, Max: 10 * time.Millisecond})
		top.Spout("in", spout.Kafka("in")).Pending(window, 1<<20)
		top.Bolt("hold", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			c.add(string(in.Bytes()))
			mu.Lock()
			defer mu.Unlock()
			o, _ := in.Origin()
			if o.Offset < committed {
				s.Errorf("offset %d runs, and %d is committed", o.Offset, committed)
			}
			h := out.Hold()
			if o.Offset%10 >= 3 || in.Attempt() > 1 {
				h.Ack()
				return nil
			}
			time.AfterFunc(3*time.Second, func() {
				taken := false
				if o.Offset%2 == 0 {
					taken = h.Ack()
				} else {
					taken = h.Fail(errTry)
				}
				mu.Lock()
				defer mu.Unlock()
				late++
				if taken {
					counted++
				}
			})
			return nil
		})).Shuffle("in").Timeout(2 * time.Second)
		r := s.start(top, func(c *worker.Config) { c.CommitInterval = 50 * time.Millisecond })
		s.produce("in", 0, numbers(0, n)...)
		s.drained("in")
		s.pass(5 * time.Second)
		mu.Lock()
		if late != n*3/10 || counted > 0 || c.total() != n+late {
			s.Errorf("%d late verdicts, %d counted; %d executions of %d records", late, counted, c.total(), n)
		}
		mu.Unlock()
		for _, gauge := range []string{"killick_trees_pending", "killick_ledger_pending", "killick_retries_waiting", "killick_held_tuples"} {
			if got := r.metric(gauge); got != 0 {
				s.Errorf("%s is %v with nothing to do", gauge, got)
			}
		}
		if got := r.metric("killick_ignored_acks_total", "reason=late"); got != n*3/10 {
			s.Errorf("%v verdicts are counted as late", got)
		}
		r.end()
	}, embedded.Topic("in", 1))
}

// TestTriesUsedUp: a record whose tries are used up is set aside unless the topology says otherwise, and
// is never dropped in silence.
// FC-22: the review of apache/storm PR #1131.
func TestTriesUsedUp(t *testing.T) {
	for name, after := range map[string]killick.After{"by default": {}, "skip": killick.Skip()} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				skip := name == "skip"
				s.produce("in", 0, numbers(0, 20)...)
				var c tally
				top := killick.New("t")
				top.Spout("in", spout.Kafka("in"))
				top.Bolt("count", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
					c.add(string(in.Bytes()))
					if string(in.Bytes()) == "9" {
						return errTry
					}
					return nil
				})).Shuffle("in").Retry(killick.Retry{Attempts: 3, After: after})
				r := s.start(top)
				s.drained("in")
				want, result := 1, "result=dead"
				if skip {
					want, result = 0, "result=skipped"
				}
				if n := len(s.read(dlq)); n != want || c.of("9") != 3 || c.total() != 22 {
					s.Errorf("%d dead letters, want %d; 9 ran %d times of %d", n, want, c.of("9"), c.total())
				}
				if got := r.metric("killick_trees_completed_total", result); got != 1 {
					s.Errorf("%v trees with %s", got, result)
				}
				if got := r.metric("killick_dead_letters_total"); got != float64(want) {
					s.Errorf("%v dead letters are counted", got)
				}
				lines := s.logs.lines("a tuple was given up")
				if len(lines) != 1 || lines[0]["level"] != "error" || lines[0]["tuple"] != "in/0/9" || lines[0]["attempt"] != 3.0 || lines[0]["error"] != errTry.Error() {
					s.Errorf("the log says: %v", lines)
				}
				r.end()
			}, embedded.Topic("in", 1))
		})
	}
}

// TestMapStaysWithinItsRoom: one record stays open, and those behind it end in the worst of orders. The
// commit's metadata never exceeds what a broker takes, and what it says is true; another partition does
// not notice.
// FC-27: confluentinc/parallel-consumer #47, #647, #831 and #832.
func TestMapStaysWithinItsRoom(t *testing.T) {
	const n, room = 26_000, 4096 // room: Kafka's offset.metadata.max.bytes
	tell(t, func(s *story) {
		var rs []*kgo.Record
		for i := range n {
			rs = append(rs, &kgo.Record{Topic: "in", Value: fmt.Append(nil, i)})
		}
		if err := s.b.Produce(s.ctx(), rs...); err != nil {
			s.Fatal(err)
		}
		// Open: 0, and about a half of the rest, at random: what no code makes small.
		open := make([]bool, n)
		for i, random := 0, rand.New(rand.NewPCG(1, 2)); i < n; i++ {
			open[i] = i == 0 || random.IntN(2) == 0
		}
		var ran atomic.Int64
		top := killick.New("t")
		top.Spout("in", spout.Kafka("in")).Pending(n, 64<<20)
		top.Bolt("hold", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			if o, _ := in.Origin(); o.Partition == 0 {
				ran.Add(1)
				if open[o.Offset] {
					out.Hold()
				}
			}
			return nil
		})).Shuffle("in").Timeout(time.Hour)
		s.start(top, func(c *worker.Config) { c.Drain = time.Second })
		s.until("all have run", func() bool { return ran.Load() == n })
		for i := range 2 {
			s.produce("in", 1, numbers(0, 100)...)
			s.until("the other partition goes on", func() bool { return s.committed("in")[1] == int64(100*(i+1)) })
		}
		longest := 0
		for _, m := range s.b.Commits() {
			if m.Metadata == nil {
				continue
			}
			longest = max(longest, len(*m.Metadata))
			if m.Partition == 0 && m.Offset > 0 {
				s.Errorf("committed %d; record 0 is open", m.Offset)
			}
		}
		if longest > room || longest < room*3/4 {
			s.Errorf("the longest metadata has %d bytes; the room is %d, and it is meant to be short of it", longest, room)
		}
		// What the map says is true, and it says as much as it has room for.
		got, err := s.b.Committed(s.ctx(), "g", "in")
		if err != nil {
			s.Fatal(err)
		}
		m, err := offsets.Decode(got[0].Metadata, 0)
		if err != nil {
			s.Fatal(err)
		}
		known := 0
		for o := m.Base; o < m.Next; o++ {
			if m.Done(o) {
				if known++; open[o] {
					s.Errorf("%d is open, and the map says that it has ended", o)
				}
			}
		}
		if known < n/3 {
			s.Errorf("the map remembers %d of about %d ends", known, n/2)
		}
	}, embedded.Topic("in", 2))
}
