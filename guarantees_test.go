package killick_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
)

// The tests of this file are the promises of the README, one or more for each, on an embedded
// broker. make mutants proves that they notice: it breaks the rules behind them, one by one.

type execute = func(context.Context, *killick.Tuple, killick.Emitter) error

// quick is a retry policy without long waits.
var quick = killick.Retry{Attempts: 5, Min: time.Millisecond, Max: 20 * time.Millisecond}

// one is a topology of one bolt that reads topic "in".
func one(f execute, source ...spout.KafkaSource) *killick.Topology {
	src := spout.Kafka("in")
	for _, s := range source {
		src = s
		src.Topics = []string{"in"}
	}
	top := killick.New("t")
	top.Retry(quick)
	top.Spout("in", src)
	top.Bolt("b", bolt.Func(f)).Shuffle("in")
	return top
}

func origin(in *killick.Tuple) killick.Origin {
	o, ok := in.Origin()
	if !ok {
		panic("the tuple has no origin")
	}
	return o
}

// ---- G1: no early commit ----

// forest is what a test knows of the trees under way: more than killick needs to.
type forest struct {
	mu    sync.Mutex
	trees map[killick.Origin]*tree
}

type tree struct {
	running  int             // executions in user code, held tuples included
	leaves   map[string]bool // that ended well, by ID
	filtered bool            // the first bolt emitted nothing
	dead     bool            // a tuple was given up
}

func (f *forest) do(o killick.Origin, g func(t *tree)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.trees[o]
	if t == nil {
		t = &tree{leaves: map[string]bool{}}
		f.trees[o] = t
	}
	g(t)
}

// over reports whether a root's tree may have ended.
func (f *forest) over(o killick.Origin) (over bool) {
	f.do(o, func(t *tree) { over = t.running == 0 && (t.filtered || t.dead || len(t.leaves) == 3) })
	return over
}

// TestG1NoEarlyCommit: whatever order trees end in, through failures, panics, time-outs, held
// tuples and dead letters, no commit passes a root before all of its tree has ended, and no commit's
// completion map names such a root.
func TestG1NoEarlyCommit(t *testing.T) {
	const partitions, records = 4, 250
	inWorld(t, func(w *world) {
		f := &forest{trees: map[killick.Origin]*tree{}}
		// user runs an execution; last says how it ended, before killick hears of it.
		user := func(in *killick.Tuple, out killick.Emitter, body func(end func(last func(*tree))) error) error {
			o := origin(in)
			f.do(o, func(t *tree) { t.running++ })
			left := func(last func(*tree)) {
				f.do(o, func(t *tree) {
					t.running--
					if last != nil {
						last(t)
					}
				})
			}
			return body(left)
		}
		later := func(h *killick.Held, d time.Duration, verdict func(h *killick.Held)) {
			time.AfterFunc(d, func() { verdict(h) })
		}
		top := killick.New("t")
		top.Retry(quick).Timeout(2 * time.Second)
		top.Spout("in", spout.KafkaSource{Topics: []string{"in"}, Until: spout.Latest()})
		top.Bolt("split", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			return user(in, out, func(end func(func(*tree))) error {
				o, n := origin(in), in.Attempt()
				three := func() {
					for range 3 {
						out.Emit(in.Message())
					}
				}
				switch {
				case o.Offset%97 == 13:
					end(func(t *tree) { t.dead = true })
					return killick.Permanent(errors.New("never"))
				case o.Offset%50 == 7:
					end(func(t *tree) { t.filtered = true })
					return nil
				case n == 1 && dice(7, o, "error") == 0:
					three()
					end(nil)
					return errors.New("not yet")
				case n < 3 && dice(11, o, "panic") == 0:
					end(nil)
					panic("boom")
				case dice(5, o, "hold") == 0:
					h := out.Hold()
					three()
					later(h, time.Duration(dice(300, o, "wait"))*time.Millisecond, func(h *killick.Held) { end(nil); h.Ack() })
					return nil
				}
				three()
				end(nil)
				return nil
			})
		})).Tasks(2).Shuffle("in")
		top.Bolt("leaf", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			return user(in, out, func(end func(func(*tree))) error {
				id, n := in.ID(), in.Attempt()
				well := func(t *tree) { t.leaves[id] = true }
				switch {
				case dice(61, id, "dead") == 0:
					end(func(t *tree) { t.dead = true })
					return killick.Permanent(errors.New("never"))
				case n == 1 && dice(6, id, "error") == 0:
					end(nil)
					return errors.New("not yet")
				case n == 1 && dice(23, id, "lost") == 0:
					out.Hold() // and never heard of again: the time-out ends this try
					end(nil)
					return nil
				case dice(9, id, "hold") == 0:
					later(out.Hold(), time.Duration(dice(500, id, "wait"))*time.Millisecond, func(h *killick.Held) { end(well); h.Ack() })
					return nil
				}
				end(well)
				return nil
			})
		})).Tasks(3).Fields("split", func(in *killick.Tuple) []byte { return []byte(in.ID()) })

		for p := range int32(partitions) {
			w.produce("in", p, records)
		}
		var looks, between, above atomic.Int64
		early := func(what string, o killick.Origin) {
			if !f.over(o) {
				w.Errorf("%s of %d/%d, whose tree has not ended", what, o.Partition, o.Offset)
			}
		}
		w.commits(func(p int32, offset int64) {
			looks.Add(1)
			if offset > 0 && offset < records {
				between.Add(1)
			}
			for o := range offset {
				early("commit", killick.Origin{Topic: "in", Partition: p, Offset: o})
			}
		}, func(p int32, offset int64) {
			above.Add(1)
			early("completion map", killick.Origin{Topic: "in", Partition: p, Offset: offset})
		})
		if err := w.start(top).wait(); err != nil {
			w.Fatal(err)
		}
		w.finished("in")
		if between.Load() < 20 || above.Load() < 100 {
			w.Errorf("%d commits, %d of them in the middle, %d ends in completion maps: too few to prove anything", looks.Load(), between.Load(), above.Load())
		}
		dead := 0
		for _, t := range f.trees {
			if t.dead {
				dead++
			}
		}
		if got, err := w.b.ReadAll(w.ctx(), "in.t.dlq"); err != nil || len(got) != dead || dead == 0 {
			w.Errorf("%d dead letters for %d dead roots, %v", len(got), dead, err)
		}
	}, embedded.Topic("in", partitions))
}

// stays checks that nothing of a topic's partition is committed beyond offset, for a while.
func (w *world) stays(topic string, p int32, offset int64, why string) {
	w.Helper()
	w.pass(5 * time.Second)
	if got := w.committed(topic, p); got > offset {
		w.Errorf("%s/%d is committed up to %d; %s", topic, p, got, why)
	}
}

// TestG1JoinsHoldAllRoots: an output that joins tuples of two partitions holds the offsets of both,
// also after the joined input has acked.
func TestG1JoinsHoldAllRoots(t *testing.T) {
	inWorld(t, func(w *world) {
		held := make(chan *killick.Held, 2)
		var leaf atomic.Pointer[killick.Held]
		top := killick.New("t")
		top.Spout("in", spout.Kafka("in"))
		top.Bolt("join", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			held <- out.Hold()
			return nil
		})).Shuffle("in").Timeout(time.Hour)
		top.Bolt("leaf", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			leaf.Store(out.Hold())
			return nil
		})).Tasks(2).Shuffle("join").Timeout(time.Hour)
		w.produce("in", 0, 1)
		w.produce("in", 1, 1)
		r := w.start(top)
		a, b := <-held, <-held
		if err := a.Emit(killick.Message{Bytes: []byte("both")}, b); err != nil {
			w.Fatal(err)
		}
		if !b.Ack() {
			w.Fatal("the joined tuple cannot be acked")
		}
		for p := range int32(2) {
			w.stays("in", p, 0, "but the join has not left")
		}
		if !a.Ack() {
			w.Fatal("the joining tuple cannot be acked")
		}
		w.until("the join has arrived", func() bool { return leaf.Load() != nil })
		for p := range int32(2) {
			w.stays("in", p, 0, "but the join is under way")
		}
		leaf.Load().Ack()
		w.finished("in")
		r.end()
	}, embedded.Topic("in", 2))
}

// TestG1SinksWaitForDurable: the input of a sink holds its offset until what was written is durable.
func TestG1SinksWaitForDurable(t *testing.T) {
	inWorld(t, func(w *world) {
		top := killick.New("t")
		top.Spout("in", spout.Kafka("in"))
		top.Bolt("out", bolt.Kafka("out")).Shuffle("in")
		w.produce("in", 0, 100)
		down := w.b.Fail(kmsg.Produce, kerr.NotEnoughReplicas, -1)
		r := w.start(top)
		if err := down.Wait(w.ctx(), 1); err != nil {
			w.Fatal(err)
		}
		w.stays("in", 0, 0, "but its outputs are not durable")
		down.Remove()
		w.finished("in")
		r.end()
		if got, err := w.b.ReadAll(w.ctx(), "out"); err != nil || len(got) != 100 {
			w.Errorf("%d outputs, %v", len(got), err)
		}
	}, embedded.Topic("in", 1), embedded.Topic("out", 1))
}

// TestG1DeadLetterFirst: a root that is given up holds its offset until its dead letter is durable.
func TestG1DeadLetterFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		w.produce("in", 0, 10)
		down := w.b.Fail(kmsg.Produce, kerr.TopicAuthorizationFailed, -1)
		r := w.start(one(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if origin(in).Offset == 4 {
				return killick.Permanent(errors.New("never"))
			}
			return nil
		}))
		if err := down.Wait(w.ctx(), 1); err != nil {
			w.Fatal(err)
		}
		w.stays("in", 0, 4, "but its dead letter is not durable")
		down.Remove()
		w.finished("in")
		r.end()
		if got, err := w.b.ReadAll(w.ctx(), "in.t.dlq"); err != nil || len(got) != 1 || string(got[0].Value) != "4" {
			w.Errorf("dead letters %v, %v", got, err)
		}
	}, embedded.Topic("in", 1))
}

// TestG1LatestIsCommittedFirst: a start at the end of the log is durable before a record is
// processed; else a crash would move it behind records that came meanwhile.
func TestG1LatestIsCommittedFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		w.produce("in", 0, 5) // before the start: not to be read
		var c tally
		count := func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error { c.add(in.ID()); return nil }
		// Refused for good: what else waits for a first commit (the mark of a take-over) waits no more.
		down := w.b.Fail(kmsg.OffsetCommit, kerr.TopicAuthorizationFailed, -1)
		r := w.start(one(count, spout.KafkaSource{Start: spout.Latest()}))
		if err := down.Wait(w.ctx(), 1); err != nil { // it knows where it starts
			w.Fatal(err)
		}
		w.produce("in", 0, 3)
		w.pass(5 * time.Second)
		if n := c.total(); n > 0 {
			w.Errorf("%d records were processed before the start position was committed", n)
		}
		down.Remove()
		w.until("the start is committed", func() bool { return w.committed("in", 0) >= 5 })
		r.kill()
		// The records that came after the start are read by whoever comes next.
		r = w.start(one(count, spout.KafkaSource{Start: spout.Latest()}))
		w.finished("in")
		r.end()
		for o := range int64(8) {
			if n := c.of(fmt.Sprintf("in/0/%d", o)); (n > 0) != (o >= 5) {
				w.Errorf("record %d was processed %d times", o, n)
			}
		}
	}, embedded.Topic("in", 1))
}

// ---- G3: one outcome ----

// TestG3OneOutcome: of all the verdicts on a tuple the first counts; others say so, change nothing
// and are counted. A verdict after the time-out comes too late, and the tuple is tried again.
func TestG3OneOutcome(t *testing.T) {
	w := newWorld(t, embedded.Start(t, embedded.Topic("in", 2)))
	w.cfg.HTTP = "127.0.0.1:0"
	const records = 50 // in each partition
	var acked, late tally
	var mu sync.Mutex
	slow := map[string]*killick.Held{}
	var wg sync.WaitGroup
	top := killick.New("t")
	top.Retry(quick).Timeout(100 * time.Millisecond)
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("b", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
		h := out.Hold()
		if id := in.ID(); origin(in).Offset == 7 && in.Attempt() == 1 {
			mu.Lock()
			slow[id] = h // its verdict comes when the next try is there
			mu.Unlock()
			return nil
		} else if origin(in).Offset == 7 {
			mu.Lock()
			if slow[id].Ack() {
				late.add(id)
			}
			mu.Unlock()
		}
		for range 4 {
			wg.Go(func() {
				if h.Ack() {
					acked.add(h.Tuple().ID())
				}
				if h.Fail(errors.New("after an ack")) {
					late.add(h.Tuple().ID())
				}
			})
		}
		return nil
	})).Tasks(2).Shuffle("in")
	w.produce("in", 0, records)
	w.produce("in", 1, records)
	r := w.start(top)
	w.finished("in")
	wg.Wait()
	if acked.names() != 2*records || acked.total() != 2*records {
		t.Errorf("%d verdicts counted for %d tuples, want one for each of %d", acked.total(), acked.names(), 2*records)
	}
	if late.total() > 0 {
		t.Errorf("%d verdicts counted after another one or the time-out", late.total())
	}
	text := scrape(t, r.HTTPAddr())
	for _, want := range []string{
		fmt.Sprintf(`killick_ignored_acks_total{reason="double",topology="t"} %d`, 7*2*records),
		`killick_ignored_acks_total{reason="late",topology="t"} 2`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics do not say %s:\n%s", want, grep(text, "ignored"))
		}
	}
	r.end()
}

func scrape(t *testing.T, addr string) string {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return string(b)
}

func grep(text, word string) string {
	var out []string
	for _, l := range strings.Split(text, "\n") {
		if strings.Contains(l, word) && !strings.HasPrefix(l, "#") {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}

// TestG3HeldIsOwn: a held tuple stays what it was, whatever its task executes later.
func TestG3HeldIsOwn(t *testing.T) {
	const records = 600
	inWorld(t, func(w *world) {
		type kept struct {
			h         *killick.Held
			id, value string
		}
		var mu sync.Mutex
		var all []kept
		top := killick.New("t")
		top.Timeout(time.Hour)
		top.Spout("in", spout.Kafka("in")).Pending(records, 1<<20)
		top.Bolt("first", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			out.Emit(in.Message())
			return nil
		})).Tasks(2).Shuffle("in")
		top.Bolt("second", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			out.Emit(in.Message())
			return nil
		})).Tasks(2).Shuffle("first")
		top.Bolt("keep", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, kept{out.Hold(), in.ID(), string(in.Bytes())})
			return nil
		})).Shuffle("second")
		w.produce("in", 0, records)
		r := w.start(top)
		w.until("all are held", func() bool { mu.Lock(); defer mu.Unlock(); return len(all) == records })
		for _, k := range all {
			if id, value := k.h.Tuple().ID(), string(k.h.Tuple().Bytes()); id != k.id || value != k.value {
				w.Fatalf("the held tuple was %s %q and is %s %q", k.id, k.value, id, value)
			}
		}
		for _, k := range all {
			k.h.Ack()
		}
		w.finished("in")
		r.end()
	}, embedded.Topic("in", 1))
}

// TestG3LostPartition: when a partition moves to another worker, verdicts on its tuples change
// nothing any more, and nothing is committed for it by who has lost it.
// FC-02: redpanda-data/connect PR #4477.
func TestG3LostPartition(t *testing.T) {
	inWorld(t, func(w *world) {
		const records = 20
		var mu sync.Mutex
		var held []*killick.Held
		var runs tally
		keep := atomic.Bool{}
		keep.Store(true)
		f := func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			runs.add(in.ID())
			if keep.Load() {
				mu.Lock()
				defer mu.Unlock()
				held = append(held, out.Hold())
			}
			return nil
		}
		top := func() *killick.Topology { return one(f).Timeout(time.Hour) }
		w.produce("in", 0, records)
		w.produce("in", 1, records)
		a := w.start(top())
		w.until("all are held", func() bool { mu.Lock(); defer mu.Unlock(); return len(held) == 2*records })
		keep.Store(false)
		b := w.start(top())
		w.until("one of the partitions has moved and is finished", func() bool {
			return w.committed("in", 0) == records || w.committed("in", 1) == records
		})
		won := 0
		for _, h := range held {
			if h.Ack() {
				won++
			}
		}
		if won != records {
			w.Errorf("%d verdicts counted, want those on the %d tuples of the partition that stayed", won, records)
		}
		w.finished("in")
		a.end()
		b.end()
		if runs.names() != 2*records || runs.total() != 3*records {
			w.Errorf("%d executions of %d records, want %d of %d", runs.total(), runs.names(), 3*records, 2*records)
		}
		if bad := w.b.CommitsByNonOwners(); len(bad) > 0 {
			w.Errorf("commits by who did not own the partition: %+v", bad)
		}
	}, embedded.Topic("in", 2))
}
