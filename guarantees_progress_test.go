package killick_test

import (
	"context"
	"errors"
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
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
)

// counting is a bolt that counts executions by the tuple's ID.
func counting(c *tally) execute {
	return func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error { c.add(in.ID()); return nil }
}

// each checks that every record of a topic was executed exactly n times, as n tells.
func (w *world) each(c *tally, topic string, n func(o killick.Origin) int) {
	w.Helper()
	rs, err := w.b.ReadAll(w.ctx(), topic)
	if err != nil {
		w.Fatal(err)
	}
	if len(rs) == 0 {
		w.Fatalf("topic %s is empty", topic)
	}
	for _, r := range rs {
		o := killick.Origin{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}
		if got, want := c.of(fmt.Sprintf("%s/%d/%d", o.Topic, o.Partition, o.Offset)), n(o); got != want {
			w.Errorf("record %d of %s/%d was executed %d times, want %d", o.Offset, o.Topic, o.Partition, got, want)
		}
	}
}

func once(killick.Origin) int { return 1 }

// ---- G4: progress ----

// TestG4TransactionMarkers: a log that ends with markers and aborted records is finished at once.
func TestG4TransactionMarkers(t *testing.T) {
	inWorld(t, func(w *world) {
		cl, err := kgo.NewClient(w.b.ClientOpts(kgo.TransactionalID("x"), kgo.DefaultProduceTopic("in"))...)
		if err != nil {
			w.Fatal(err)
		}
		w.Cleanup(cl.Close)
		txn := func(end kgo.TransactionEndTry, n int) {
			w.Helper()
			if err := cl.BeginTransaction(); err != nil {
				w.Fatal(err)
			}
			for range n {
				if err := cl.ProduceSync(w.ctx(), kgo.StringRecord("v")).FirstErr(); err != nil {
					w.Fatal(err)
				}
			}
			if err := cl.EndTransaction(w.ctx(), end); err != nil {
				w.Fatal(err)
			}
		}
		txn(kgo.TryCommit, 3)
		txn(kgo.TryAbort, 4)
		txn(kgo.TryCommit, 2)
		txn(kgo.TryAbort, 5)
		var c tally
		begin := time.Now()
		r := w.start(one(counting(&c)))
		w.finished("in")
		if d := time.Since(begin); d > 5*time.Second {
			w.Errorf("the end of the log was committed after %v only", d)
		}
		r.end()
		w.each(&c, "in", once)
		if c.total() != 5 {
			w.Errorf("%d executions, want the 5 committed records", c.total())
		}
	}, embedded.Topic("in", 1))
}

// TestG4CompactedLog: offsets that compaction has removed are not waited for.
func TestG4CompactedLog(t *testing.T) {
	inWorld(t, func(w *world) {
		if err := w.b.Cluster().CreateTopic("in", 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
			w.Fatal(err)
		}
		for i := range 40 {
			r := &kgo.Record{Topic: "in", Key: []byte("again"), Value: []byte("v")}
			if i%8 == 5 {
				r.Key = fmt.Appendf(nil, "stays %d", i)
			}
			if err := w.b.Produce(w.ctx(), r); err != nil {
				w.Fatal(err)
			}
		}
		w.b.Cluster().Compact()
		if left, err := w.b.ReadAll(w.ctx(), "in"); err != nil || len(left) > 10 || left[0].Offset == 0 {
			w.Fatalf("compaction has left %d records, %v", len(left), err)
		}
		var c tally
		r := w.start(one(counting(&c)))
		w.finished("in")
		r.end()
		w.each(&c, "in", once)
	})
}

// TestG4CompactedTail: a log may end with offsets that compaction has removed, so that no poll ever
// passes them. The position moves there all the same.
func TestG4CompactedTail(t *testing.T) {
	const records, left = 10, 6
	inWorld(t, func(w *world) {
		w.produce("in", 0, left)
		w.produce("in", 0, records-left) // another batch
		// The embedded broker keeps the end of a log. So it is told to find nothing there.
		// The broker would keep such a fetch for a while.
		w.b.DelayAnswers(kmsg.Fetch, 50*time.Millisecond, func(r kmsg.Request) bool {
			ts := r.(*kmsg.FetchRequest).Topics
			return len(ts) == 1 && ts[0].Partitions[0].FetchOffset >= left
		})
		cl := w.b.Cluster()
		cl.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
			req := r.(*kmsg.FetchRequest)
			if len(req.Topics) != 1 || req.Topics[0].Partitions[0].FetchOffset < left {
				if len(req.Topics) == 1 {
					req.Topics[0].Partitions[0].PartitionMaxBytes = 1 // a batch at a time
				}
				return nil, nil, false
			}
			cl.KeepControl()
			resp := req.ResponseKind().(*kmsg.FetchResponse)
			t := kmsg.NewFetchResponseTopic()
			t.Topic, t.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
			p := kmsg.NewFetchResponseTopicPartition()
			p.HighWatermark, p.LastStableOffset, p.LogStartOffset = records, records, 0
			t.Partitions = append(t.Partitions, p)
			resp.Topics = append(resp.Topics, t)
			return resp, nil, true
		})
		w.cfg.Kafka = append(w.cfg.Kafka, kgo.DisableFetchSessions())
		var c tally
		r := w.start(one(counting(&c)))
		w.until("the tail is committed", func() bool { return w.committed("in", 0) == records })
		r.end()
		if c.total() != left {
			w.Errorf("%d executions, want %d: the rest is gone", c.total(), left)
		}
	}, embedded.Topic("in", 1))
}

// TestG4RetryInFullWindow: a retry does not wait for the window that its own root fills.
func TestG4RetryInFullWindow(t *testing.T) {
	inWorld(t, func(w *world) {
		var c tally
		top := killick.New("t")
		top.Retry(quick)
		top.Spout("in", spout.Kafka("in")).Pending(1, 1<<20)
		top.Bolt("b", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if c.add(in.ID()); in.Attempt() < 4 {
				return errors.New("not yet")
			}
			return nil
		})).Shuffle("in")
		w.produce("in", 0, 10)
		r := w.start(top)
		w.finished("in")
		r.end()
		w.each(&c, "in", func(killick.Origin) int { return 4 })
	}, embedded.Topic("in", 1))
}

// TestG4Poison: records that always fail, panic or hang are tried as often as the policy says and
// become dead letters; all others pass.
// FC-04: gofr-dev/gofr PR #3424: a panic that never ends is a dead letter.
func TestG4Poison(t *testing.T) {
	inWorld(t, func(w *world) {
		var c tally
		f := func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
			c.add(in.ID())
			switch origin(in).Offset {
			case 3:
				return errors.New("no")
			case 4:
				panic("no")
			case 5:
				<-ctx.Done() // until the time-out
				return nil
			case 6:
				return killick.Permanent(errors.New("no"))
			}
			return nil
		}
		w.produce("in", 0, 100)
		r := w.start(one(f).Timeout(time.Second))
		w.finished("in")
		r.end()
		w.each(&c, "in", func(o killick.Origin) int {
			if o.Offset >= 3 && o.Offset <= 5 {
				return quick.Attempts
			}
			return 1
		})
		rs, err := w.b.ReadAll(w.ctx(), "in.t.dlq")
		if err != nil {
			w.Fatal(err)
		}
		reasons := map[string]string{}
		for _, r := range rs {
			for _, h := range r.Headers {
				if h.Key == "killick-dlq-reason" {
					reasons[string(r.Value)] += string(h.Value)
				}
			}
		}
		for value, want := range map[string]string{"3": "error", "4": "panic", "5": "timeout", "6": "permanent"} {
			if reasons[value] != want {
				w.Errorf("record %s is a dead letter for %q, want %q", value, reasons[value], want)
			}
		}
		if len(rs) != 4 {
			w.Errorf("%d dead letters, want 4", len(rs))
		}
	}, embedded.Topic("in", 1))
}

// TestG4QueuesAreNotUserTime: a tuple whose outputs wait for room downstream does not time out.
// FC-19: STORM-2359, celery/celery #5935.
func TestG4QueuesAreNotUserTime(t *testing.T) {
	inWorld(t, func(w *world) {
		const records = 2
		const outputs = 12 * 256 // more than the queues downstream take
		var first, second tally
		top := killick.New("t")
		top.Retry(quick)
		top.Spout("in", spout.Kafka("in"))
		top.Bolt("fast", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			first.add(in.ID())
			for range outputs {
				out.Emit(killick.Message{Key: []byte("all to one task")})
			}
			return nil
		})).Shuffle("in").Timeout(500 * time.Millisecond)
		top.Bolt("slow", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			second.add(in.ID())
			w.pass(5 * time.Millisecond)
			return nil
		})).Fields("fast", nil).Tasks(2).Timeout(time.Minute)
		w.produce("in", 0, records)
		r := w.start(top)
		w.finished("in")
		r.end()
		w.each(&first, "in", once)
		if second.total() != records*outputs {
			w.Errorf("%d executions downstream, want %d", second.total(), records*outputs)
		}
	}, embedded.Topic("in", 1))
}

// TestG4CommitsGoOn: a position that the broker did not take is committed again, without a record
// that would push it.
func TestG4CommitsGoOn(t *testing.T) {
	inWorld(t, func(w *world) {
		var c tally
		r := w.start(one(counting(&c)))
		w.finished("in")                                              // at 0
		down := w.b.Fail(kmsg.OffsetCommit, kerr.RequestTimedOut, -1) // a code that the client does not repeat requests for
		w.produce("in", 0, 50)
		if err := down.Wait(w.ctx(), 3); err != nil {
			w.Fatal(err)
		}
		w.until("all are executed", func() bool { return c.total() == 50 })
		w.pass(time.Second)
		down.Remove()
		w.finished("in")
		r.end()
		w.each(&c, "in", once)
	}, embedded.Topic("in", 1))
}

// TestG4LeaseIsRenewed: a rebalance that moves nothing gives the group a new generation; what was
// kept is committed under it.
func TestG4LeaseIsRenewed(t *testing.T) {
	inWorld(t, func(w *world) {
		var c tally
		a := w.start(one(counting(&c)))
		w.produce("in", 0, 10)
		w.finished("in")
		b := w.start(one(counting(&c))) // there is no partition for it
		if _, err := w.b.Cluster().WaitGroupStable(w.ctx(), "g", 2); err != nil {
			w.Fatal(err)
		}
		w.produce("in", 0, 10)
		w.finished("in")
		b.end()
		w.produce("in", 0, 10)
		w.finished("in")
		a.end()
		w.each(&c, "in", once)
		if bad := w.b.CommitsByNonOwners(); len(bad) > 0 {
			w.Errorf("commits by who did not own the partition: %+v", bad)
		}
	}, embedded.Topic("in", 1))
}

// ---- G5: bounded duplicates ----

// stuck starts a worker on records of which each tenth stays open, and returns when all others have
// ended and the worker has committed what it knows.
func stuck(w *world, c *tally) *run {
	w.Helper()
	r := w.start(one(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
		c.add(in.ID())
		if tenth(origin(in)) > 0 {
			out.Hold()
		}
		return nil
	}).Timeout(time.Hour))
	w.until("all are executed", func() bool { return c.names() == 2*stuckRecords })
	w.pass(time.Second) // commits go on meanwhile
	for p := range int32(2) {
		if got := w.committed("in", p); got != 3 {
			w.Errorf("in/%d is committed up to %d; record 3 is open", p, got)
		}
	}
	return r
}

const stuckRecords = 400

func tenth(o killick.Origin) int {
	if o.Offset%10 == 3 {
		return 1
	}
	return 0
}

// TestG5HardStop: after a hard stop only what was pending runs again: what had ended above the
// committed offset is remembered in the commit.
func TestG5HardStop(t *testing.T) {
	inWorld(t, func(w *world) {
		w.produce("in", 0, stuckRecords)
		w.produce("in", 1, stuckRecords)
		var c tally
		stuck(w, &c).kill()
		r := w.start(one(counting(&c)))
		w.finished("in")
		r.end()
		w.each(&c, "in", func(o killick.Origin) int { return 1 + tenth(o) })
	}, embedded.Topic("in", 2))
}

// TestG5OffsetsSetBack: what a commit remembers is about its own offset. When somebody sets the
// offset back and leaves the rest of the commit as it was, all runs again from there.
// FC-34: darshanturakhia.com/blog/kafka-offset-reset-duplicate-payments.
func TestG5OffsetsSetBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.produce("in", 0, stuckRecords)
		w.produce("in", 1, stuckRecords)
		var c tally
		stuck(w, &c).kill()
		w.pass(time.Minute) // the group forgets its member
		got, err := w.b.Committed(w.ctx(), "g", "in")
		if err != nil {
			w.Fatal(err)
		}
		cl, err := kgo.NewClient(w.b.ClientOpts()...)
		if err != nil {
			w.Fatal(err)
		}
		w.Cleanup(cl.Close)
		var back kadm.Offsets
		back.Add(kadm.Offset{Topic: "in", Partition: 0, At: 1, LeaderEpoch: -1, Metadata: got[0].Metadata})
		if err := kadm.NewClient(cl).CommitAllOffsets(w.ctx(), "g", back); err != nil {
			w.Fatal(err)
		}
		r := w.start(one(counting(&c)))
		w.finished("in")
		r.end()
		w.each(&c, "in", func(o killick.Origin) int {
			switch {
			case o.Partition == 1:
				return 1 + tenth(o)
			case o.Offset < 1:
				return 1
			}
			return 2
		})
	}, embedded.Topic("in", 2))
}

// TestG5CleanStop: a worker that is stopped lets open trees end, and commits them: nothing runs
// twice.
// FC-48: IBM/sarama #1987, bsm/sarama-cluster #255.
func TestG5CleanStop(t *testing.T) {
	inWorld(t, func(w *world) {
		const records = 2000
		w.produce("in", 0, records)
		w.produce("in", 1, records)
		var begun, ended tally
		work := func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			begun.add(in.ID())
			h := out.Hold()
			time.AfterFunc(time.Duration(100+dice(2000, in.ID()))*time.Millisecond, func() {
				if h.Ack() {
					ended.add(h.Tuple().ID())
				}
			})
			return nil
		}
		for n := 1; begun.names() < 2*records; n++ {
			before := begun.names()
			r := w.start(one(work))
			w.until("some are under way", func() bool { return begun.names() > min(before+500, 2*records-1) })
			r.end()
			if begun.total() != ended.total() {
				w.Errorf("stop %d: %d executions were begun and %d have ended", n, begun.total(), ended.total())
			}
		}
		w.finished("in")
		w.each(&begun, "in", once)
	}, embedded.Topic("in", 2))
}

// TestG5FailedTriesLeaveNothing: what a failed try has emitted is dropped, so a retry duplicates
// nothing.
func TestG5FailedTriesLeaveNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		top := killick.New("t")
		top.Retry(quick)
		top.Spout("in", spout.Kafka("in"))
		top.Bolt("b", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			m := in.Message()
			m.Bytes = fmt.Appendf(nil, "%s try %d", in.ID(), in.Attempt())
			out.Emit(m)
			if in.Attempt() < 3 {
				if dice(2, in.ID()) == 0 {
					panic("not yet")
				}
				return errors.New("not yet")
			}
			return nil
		})).Shuffle("in")
		top.Bolt("out", bolt.Kafka("out")).Shuffle("b")
		w.produce("in", 0, 100)
		r := w.start(top)
		w.finished("in")
		r.end()
		rs, err := w.b.ReadAll(w.ctx(), "out")
		if err != nil || len(rs) != 100 {
			w.Errorf("%d outputs, want one for each of 100 records; %v", len(rs), err)
		}
		for _, r := range rs {
			if !strings.HasSuffix(string(r.Value), "try 3") {
				w.Errorf("output %q of a try that failed", r.Value)
			}
		}
	}, embedded.Topic("in", 1), embedded.Topic("out", 1))
}
