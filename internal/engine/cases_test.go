package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/internal/engine"
)

// The rows of Storm's case table: what its acker does is in the comments.

var errNo = errors.New("no")

// keep is a bolt that holds its inputs and hands them out.
type keep struct {
	once sync.Once
	ch   chan *killick.Held // made in the bubble that it is used in
}

func newKeep() *keep { return new(keep) }

func (k *keep) held() chan *killick.Held {
	k.once.Do(func() { k.ch = make(chan *killick.Held, 1000) })
	return k.ch
}

func (k *keep) execute(_ context.Context, _ *killick.Tuple, out killick.Emitter) error {
	k.held() <- out.Hold()
	return nil
}

// TestAckTwice: the ids cancel, and the tree is never complete, or is so too early.
func TestAckTwice(t *testing.T) {
	for _, c := range []struct {
		name string
		acks int
		open bool // another tuple of the tree is open meanwhile
	}{{"twice, open", 2, true}, {"three times, open", 3, true}, {"twice, closed", 2, false}} {
		t.Run(c.name, func(t *testing.T) {
			top, k, other := topology(), newKeep(), newKeep()
			top.Bolt("split", fn(pass)).Shuffle("in")
			top.Bolt("a", bolt.Func(k.execute)).Shuffle("split")
			if c.open {
				top.Bolt("b", bolt.Func(other.execute)).Shuffle("split")
			}
			e := during(t, top, func(e *env) {
				h := <-k.held()
				for i := range c.acks {
					if h.Ack() != (i == 0) {
						t.Errorf("ack %d", i)
					}
				}
				synctest.Wait()
				if c.open {
					if e.acked("in") != 0 {
						t.Error("acked with a tuple open")
					}
					(<-other.held()).Ack()
				}
			}, records("in", messages(1)...))
			e.wantEnds(1, 0)
			if g := e.ignored(); g != [3]int64{int64(c.acks - 1)} {
				t.Errorf("ignored %v", g)
			}
		})
	}
}

// TestAckInExecute: before the engine has heard of the hold.
func TestAckInExecute(t *testing.T) {
	top := topology()
	top.Bolt("a", fn(func(_ *killick.Tuple, out killick.Emitter) error {
		out.Hold().Ack()
		return nil
	})).Shuffle("in")
	run(t, top, records("in", messages(100)...)).wantEnds(100, 0)
}

// TestEmitAfterVerdict: the child is never registered, or untracked.
func TestEmitAfterVerdict(t *testing.T) {
	for _, open := range []bool{true, false} {
		top, k, other := topology(), newKeep(), newKeep()
		top.Bolt("a", bolt.Func(k.execute)).Shuffle("in")
		top.Bolt("child", fn(null)).Shuffle("a")
		if open {
			top.Bolt("b", bolt.Func(other.execute)).Shuffle("in")
		}
		e := during(t, top, func(e *env) {
			h := <-k.held()
			h.Ack()
			if err := h.Emit(killick.Message{}); !errors.Is(err, killick.ErrFinished) {
				t.Errorf("emit after ack: %v", err)
			}
			if open {
				(<-other.held()).Ack()
			}
		}, records("in", messages(1)...))
		e.wantEnds(1, 0)
		if n := e.total("child"); n != 0 || e.stats("a").Misuse != 1 {
			t.Errorf("open %v: the child ran %d times, misuse %d", open, n, e.stats("a").Misuse)
		}
	}
}

// TestAckThenFail: fails the whole tree, or leaves an orphan.
func TestAckThenFail(t *testing.T) {
	top, k := topology(), newKeep()
	top.Bolt("a", bolt.Func(k.execute)).Shuffle("in")
	e := during(t, top, func(e *env) {
		h := <-k.held()
		h.Ack()
		if h.Fail(errNo) {
			t.Error("the second verdict counted")
		}
	}, records("in", messages(1)...))
	e.wantEnds(1, 0)
	if e.total("a") != 1 || e.ignored() != [3]int64{1} {
		t.Errorf("%d executions, ignored %v", e.total("a"), e.ignored())
	}
}

// TestFailThenAcks: one FAIL, then orphans. Here the tree ends once, when its last tuple has.
func TestFailThenAcks(t *testing.T) {
	top, k := topology(), newKeep()
	top.Bolt("split", fn(func(in *killick.Tuple, out killick.Emitter) error {
		for range 3 {
			out.Emit(in.Message())
		}
		return nil
	})).Shuffle("in")
	top.Bolt("leaf", bolt.Func(k.execute)).Shuffle("split")
	e := during(t, top, func(e *env) {
		a, b, c := <-k.held(), <-k.held(), <-k.held()
		a.Fail(killick.Permanent(errNo))
		synctest.Wait()
		if len(e.dead("in")) != 0 {
			t.Error("ended with edges open")
		}
		b.Ack()
		b.Ack()
		c.Fail(killick.Permanent(errNo))
	}, records("in", messages(1)...))
	e.wantEnds(0, 1)
	if e.ignored() != [3]int64{1} {
		t.Errorf("ignored %v", e.ignored())
	}
}

// TestNoVerdict: times out between T and 2T there, between T and T + T/10 here; a late verdict
// does not hit the next try.
func TestNoVerdict(t *testing.T) {
	const T = 10 * time.Second
	top := topology()
	var first *killick.Held
	var began, again time.Time
	top.Bolt("a", fn(func(in *killick.Tuple, out killick.Emitter) error {
		h := out.Hold()
		if in.Attempt() == 1 {
			first, began = h, time.Now()
			return nil
		}
		again = time.Now()
		if first.Ack() {
			t.Error("the late ack counted")
		}
		if first.Fail(errNo) {
			t.Error("the late fail counted")
		}
		if err := first.Emit(killick.Message{}); !errors.Is(err, killick.ErrFinished) {
			t.Errorf("the late emit: %v", err)
		}
		select {
		case <-first.Context().Done():
		default:
			t.Error("the context of the timed-out try is open")
		}
		h.Ack()
		return nil
	})).Timeout(T).Retry(killick.Retry{Min: 1, Max: 1}).Shuffle("in")
	e := run(t, top, records("in", messages(1)...))
	e.wantEnds(1, 0)
	if d := again.Sub(began); d < T || d > T+T/10 {
		t.Errorf("timed out after %v", d)
	}
	if e.ignored() != [3]int64{0, 2, 0} || e.stats("a").Timeouts != 1 {
		t.Errorf("ignored %v, timeouts %d", e.ignored(), e.stats("a").Timeouts)
	}
	if ev := e.of(engine.TryFailed); len(ev) != 1 || ev[0].Reason != "timeout" || !errors.Is(ev[0].Err, engine.ErrTimeout) {
		t.Errorf("events %+v", ev)
	}
}

// TestExtend: a fresh T, as often as asked; a neighbour that is not extended fails (Storm's
// testResetTimeout).
func TestExtend(t *testing.T) {
	const T = 10 * time.Second
	top, k := topology(), newKeep()
	top.Bolt("a", bolt.Func(k.execute)).Timeout(T).Retry(killick.Retry{Attempts: 1}).Shuffle("in")
	e := during(t, top, func(e *env) {
		a, b := <-k.held(), <-k.held()
		for range 5 {
			time.Sleep(T * 9 / 10)
			if !a.Extend(T) {
				t.Error("not extended")
			}
		}
		if len(e.dead("in")) != 1 {
			t.Error("the neighbour should have timed out")
		}
		if b.Extend(T) {
			t.Error("extended after the time-out")
		}
		if !a.Ack() || a.Extend(T) {
			t.Error("the extended tuple")
		}
	}, records("in", messages(2)...))
	e.wantEnds(1, 1)
}

// TestExtendShorter: an extension may come before those that were held earlier.
func TestExtendShorter(t *testing.T) {
	const T = 10 * time.Second
	top, k := topology(), newKeep()
	top.Bolt("a", bolt.Func(k.execute)).Timeout(T).Retry(killick.Retry{Attempts: 1}).Shuffle("in")
	during(t, top, func(e *env) {
		a, b := <-k.held(), <-k.held()
		b.Extend(T / 5)
		time.Sleep(T / 2)
		if len(e.dead("in")) != 1 || !a.Ack() {
			t.Error("only the second should have timed out")
		}
	}, records("in", messages(2)...)).wantEnds(1, 1)
}

// TestFailOfJoin: every root's record is replayed, also one whose other branches succeeded.
func TestFailOfJoin(t *testing.T) {
	top := topology()
	var hs []*killick.Held
	top.Bolt("join", fn(func(_ *killick.Tuple, out killick.Emitter) error {
		if hs = append(hs, out.Hold()); len(hs) < 3 {
			return nil
		}
		if err := hs[0].Emit(killick.Message{}, hs[1], hs[2], hs[1], hs[0]); err != nil { // the same one twice
			return err
		}
		for _, h := range hs {
			h.Ack()
		}
		hs = nil
		return nil
	})).Shuffle("in")
	tries := 0
	top.Bolt("end", fn(func(in *killick.Tuple, _ killick.Emitter) error {
		if _, ok := in.Origin(); ok {
			t.Error("a tuple of three roots has an origin")
		}
		if in.ID() != "in/0/0:join.0" {
			t.Errorf("ID %q: the smallest origin's", in.ID())
		}
		if tries++; tries == 1 {
			return killick.FailTree(errNo)
		}
		return nil
	})).Shuffle("join")
	e := run(t, top, records("in", messages(3)...))
	e.wantEnds(3, 0)
	for id, as := range e.execs["join"] {
		if len(as) != 2 || as[1] != 2 {
			t.Errorf("%s: attempts %v", id, as)
		}
	}
	if n := len(e.of(engine.RootReplayed)); n != 3 {
		t.Errorf("%d roots replayed", n)
	}
}

// TestFailedAndComplete: zero open edges is tested first there, so it is acked. Here an attempt
// ends once, at the first fail.
func TestFailedAndComplete(t *testing.T) {
	top, k := topology(), newKeep()
	top.Bolt("a", bolt.Func(k.execute)).Shuffle("in")
	e := during(t, top, func(e *env) {
		h := <-k.held()
		h.Fail(killick.Permanent(errNo))
		h.Ack()
	}, records("in", messages(1)...))
	e.wantEnds(0, 1)
}

// TestEmitOnOtherGoroutines: a Held may be used by several.
func TestEmitOnOtherGoroutines(t *testing.T) {
	const n, each = 8, 100
	top, k := topology(), newKeep()
	top.Bolt("a", bolt.Func(k.execute)).Shuffle("in")
	top.Bolt("leaf", fn(null)).Tasks(4).Shuffle("a")
	e := during(t, top, func(e *env) {
		a, b := <-k.held(), <-k.held()
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				for range each {
					x, y := a, b
					if i%2 == 0 {
						x, y = b, a
					}
					if err := x.Emit(killick.Message{}, y); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		wg.Go(func() { a.Ack() })
		wg.Go(func() { b.Ack() })
		wg.Wait()
	}, records("in", messages(2)...))
	e.wantEnds(2, 0)
	if e.total("leaf") != n*each {
		t.Errorf("%d leaves", e.total("leaf"))
	}
}

// TestPanic: the worker process dies there. Here the try has failed.
// FC-04: gofr-dev/gofr PR #3424, lovoo/goka #129, Trendyol/kafka-konsumer PR #2.
func TestPanic(t *testing.T) {
	for _, held := range []bool{false, true} {
		top := topology()
		top.Bolt("a", fn(func(in *killick.Tuple, out killick.Emitter) error {
			out.Emit(in.Message())
			if held {
				defer out.Hold().Ack()
			}
			if offset(in)%50 == 0 && in.Attempt() < 3 {
				if held {
					out.Hold().Fail(errNo)
				}
				panic("boom")
			}
			return nil
		})).Shuffle("in")
		top.Bolt("leaf", fn(null)).Shuffle("a")
		e := run(t, top, records("in", messages(200)...))
		e.wantEnds(200, 0)
		if e.total("a") != 208 || e.total("leaf") != 200 {
			t.Errorf("held %v: %d executions, %d leaves", held, e.total("a"), e.total("leaf"))
		}
		kind, word := engine.TryFailed, "panic"
		if held {
			kind, word = engine.HookFailed, "Execute" // the verdict came first
		}
		evs := e.of(kind)
		if len(evs) != 8 || evs[0].Reason != word || len(evs[0].Stack) == 0 {
			t.Errorf("held %v: %d events", held, len(evs))
		}
	}
}

// TestEmitsThenFails: outputs were sent at emit there, and run twice.
func TestEmitsThenFails(t *testing.T) {
	top := topology()
	top.Bolt("a", fn(func(in *killick.Tuple, out killick.Emitter) error {
		out.Emit(in.Message())
		out.EmitUntracked("", in.Message())
		if in.Attempt() < 3 {
			return errNo
		}
		return nil
	})).Shuffle("in")
	top.Bolt("leaf", fn(null)).Shuffle("a")
	e := run(t, top, records("in", messages(10)...))
	e.wantEnds(10, 0)
	if e.total("a") != 30 || e.total("leaf") != 20 {
		t.Errorf("%d executions, %d leaves", e.total("a"), e.total("leaf"))
	}
}

// TestQueuedOfFailedTree: tuples of a failed tree run all the same there.
func TestQueuedOfFailedTree(t *testing.T) {
	for _, tasks := range []int{1, 2} { // in line, and through queues
		t.Run(fmt.Sprint(tasks), func(t *testing.T) {
			top := topology()
			top.Bolt("split", fn(func(in *killick.Tuple, out killick.Emitter) error {
				for range 100 {
					out.Emit(in.Message())
				}
				return nil
			})).Shuffle("in")
			var ran atomic.Int64
			top.Bolt("leaf", fn(func(*killick.Tuple, killick.Emitter) error {
				ran.Add(1)
				return killick.Permanent(errNo)
			})).Tasks(tasks).Shuffle("split")
			e := run(t, top, records("in", messages(1)...))
			e.wantEnds(0, 1)
			if n := ran.Load(); n > int64(tasks) || e.stats("leaf").Skipped != 100-n {
				t.Errorf("%d ran, %d were skipped", n, e.stats("leaf").Skipped)
			}
		})
	}
}

// TestRecordStays: Storm's spout removes a record before it emits it again, and loses it on the
// second fail.
func TestRecordStays(t *testing.T) {
	top := topology()
	top.Bolt("a", fn(func(in *killick.Tuple, _ killick.Emitter) error {
		if in.Attempt() < 5 {
			return killick.FailTree(errNo)
		}
		return nil
	})).Shuffle("in")
	e := run(t, top, records("in", messages(20)...))
	e.wantEnds(20, 0)
	for id, as := range e.execs["a"] {
		if len(as) != 5 || as[4] != 5 {
			t.Errorf("%s: attempts %v", id, as)
		}
	}
}

// TestLostPartition: verdicts for a partition that was lost change nothing and are counted, and
// what was joined with its tuples runs again.
// FC-12: STORM-2104, wvanbergen/kafka #77.
func TestLostPartition(t *testing.T) {
	top, k := topology(), newKeep()
	top.Bolt("join", bolt.Func(k.execute)).Shuffle("in")
	top.Bolt("leaf", fn(null)).Shuffle("join")
	e := during(t, top, func(e *env) {
		a, b := <-k.held(), <-k.held() // of partitions 0 and 1
		if err := a.Emit(killick.Message{}, b); err != nil {
			t.Error(err)
		}
		b.Ack()
		e.feeds["in"].chunks[0].lose()
		if err := a.Emit(killick.Message{}); !errors.Is(err, killick.ErrFinished) {
			t.Errorf("emit for a lost partition: %v", err)
		}
		if a.Ack() || a.Fail(errNo) {
			t.Error("a verdict for a lost partition counted")
		}
		again := <-k.held()
		if o, _ := again.Tuple().Origin(); o.Partition != 1 {
			t.Errorf("%v runs again", o)
		}
		again.Ack()
	}, partitions("in", 2, messages(2)...))
	e.wantEnds(1, 0)
	if e.total("leaf") != 0 || e.ignored() != [3]int64{0, 0, 3} {
		t.Errorf("%d leaves, ignored %v", e.total("leaf"), e.ignored())
	}
}

// TestVerdictAfterStop: the worker has given up what is held.
func TestVerdictAfterStop(t *testing.T) {
	top, k := topology(), newKeep()
	top.Bolt("a", bolt.Func(k.execute)).Timeout(time.Hour).Shuffle("in")
	var h *killick.Held
	e := during(t, top, func(e *env) {
		h = <-k.held()
		e.stop()
	}, records("in", messages(1)...))
	if !errors.Is(e.err, engine.ErrDrain) {
		t.Errorf("run: %v", e.err)
	}
	if h.Ack() || h.Fail(errNo) || h.Extend(time.Hour) {
		t.Error("a verdict counted after the stop")
	}
	if e.ignored() != [3]int64{0, 0, 2} || e.acked("in") != 0 {
		t.Errorf("ignored %v, acked %d", e.ignored(), e.acked("in"))
	}
}
