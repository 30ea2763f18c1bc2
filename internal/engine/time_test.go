package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/testenv/bubble"
)

// TestTimeout is Storm's testTimeout for a plain tuple: it fails after T, by T + T/10, when its
// bolt obeys its context; others are acked; and the context of the next execution is a fresh one.
func TestTimeout(t *testing.T) {
	const T = 10 * time.Second
	for _, tasks := range []int{1, 2} { // fused, and on their own goroutines
		top := topology()
		var took atomic.Int64
		top.Bolt("a", bolt.Func(func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if ctx.Err() != nil {
				t.Error("the context had ended before")
			}
			if offset(in) == 1 {
				began := time.Now()
				<-ctx.Done()
				took.Store(int64(time.Since(began)))
				if !errors.Is(context.Cause(ctx), engine.ErrTimeout) {
					t.Errorf("cause %v", context.Cause(ctx))
				}
				return nil // late: it counts for nothing
			}
			return nil
		})).Tasks(tasks).Timeout(T).Shuffle("in").Retry(killick.Retry{Attempts: 3})
		e := run(t, top, records("in", messages(3)...))
		e.wantEnds(2, 1)
		if d := time.Duration(took.Load()); d < T || d > T+T/10 {
			t.Errorf("timed out after %v", d)
		}
		if c := e.dead("in")[0]; c.Reason != "timeout" || c.Attempts != 3 || !errors.Is(c.Err, engine.ErrTimeout) {
			t.Errorf("cause %+v", c)
		}
		if e.ignored() != [3]int64{0, 3, 0} || e.stats("a").Timeouts != 3 || e.total("a") != 5 {
			t.Errorf("ignored %v, %d timeouts, %d executions", e.ignored(), e.stats("a").Timeouts, e.total("a"))
		}
	}
}

// TestLateReturn: an execution that ignores its context and returns late is not an ack, its emits
// do not leave, and the stuck task is told of at twice the time-out.
func TestLateReturn(t *testing.T) {
	const T = time.Second
	top := topology()
	top.Bolt("a", fn(func(in *killick.Tuple, out killick.Emitter) error {
		out.Emit(in.Message())
		if in.Attempt() == 1 {
			time.Sleep(5 * T)
		}
		return nil
	})).Timeout(T).Shuffle("in")
	top.Bolt("leaf", fn(null)).Shuffle("a")
	e := run(t, top, records("in", messages(2)...))
	e.wantEnds(2, 0)
	if e.total("a") != 4 || e.total("leaf") != 2 {
		t.Errorf("%d executions, %d leaves", e.total("a"), e.total("leaf"))
	}
	if evs := e.of(engine.TaskStuck); len(evs) != 2 || evs[0].Component != "a" || !strings.Contains(string(evs[0].Stack), "engine_test.TestLateReturn.") {
		t.Errorf("stuck: %+v", evs)
	}
}

// TestQueueRunsNoClock: tuples wait far longer than the time-out, in queues and for room
// downstream, and none times out.
// FC-19: STORM-2359, apache/storm PR #8787, celery/celery #5935, learningequality/studio #3395.
func TestQueueRunsNoClock(t *testing.T) {
	const T, n, fan = time.Second, 12, 200
	for _, held := range []bool{false, true} {
		top := topology()
		top.Bolt("fan", fn(func(in *killick.Tuple, out killick.Emitter) error {
			if held { // an Ack in user code may wait for room downstream, too
				h := out.Hold()
				for range fan {
					_ = h.Emit(in.Message())
				}
				h.Ack()
				return nil
			}
			for range fan {
				out.Emit(in.Message())
			}
			return nil
		})).Timeout(T).Shuffle("in")
		top.Bolt("slow", fn(func(*killick.Tuple, killick.Emitter) error { time.Sleep(T / 10); return nil })).Timeout(T).Shuffle("fan")
		e := run(t, top, records("in", messages(n)...))
		e.wantEnds(n, 0)
		for _, c := range []string{"fan", "slow"} {
			if s := e.stats(c); s.Timeouts != 0 || s.Failed != 0 {
				t.Errorf("held %v: %s: %d timeouts, %d failures", held, c, s.Timeouts, s.Failed)
			}
		}
		if e.total("fan") != n || e.total("slow") != n*fan {
			t.Errorf("%d and %d executions", e.total("fan"), e.total("slow"))
		}
	}
}

// TestExtendedWhileExecuting: the clock of a held tuple is its handle's.
func TestExtendedWhileExecuting(t *testing.T) {
	const T = time.Second
	top := topology()
	top.Bolt("a", fn(func(_ *killick.Tuple, out killick.Emitter) error {
		h := out.Hold()
		h.Extend(10 * T)
		time.Sleep(3 * T)
		h.Ack()
		return nil
	})).Timeout(T).Shuffle("in")
	e := run(t, top, records("in", messages(2)...))
	e.wantEnds(2, 0)
	if e.total("a") != 2 || e.ignored() != [3]int64{} {
		t.Errorf("%d executions, ignored %v", e.total("a"), e.ignored())
	}
}

// TestHeldContext: it ends at the verdict, the time-out, or a hard stop, and not before.
func TestHeldContext(t *testing.T) {
	top, k := topology(), newKeep()
	top.Bolt("a", bolt.Func(k.execute)).Timeout(time.Second).Shuffle("in").Retry(killick.Retry{Attempts: 1})
	e := during(t, top, func(e *env) {
		a, b, c := <-k.held(), <-k.held(), <-k.held()
		c.Extend(time.Hour)
		ctxs := []context.Context{a.Context(), b.Context(), c.Context()}
		for i, ctx := range ctxs {
			if ctx.Err() != nil {
				t.Errorf("context %d has ended", i)
			}
		}
		a.Ack()
		<-ctxs[0].Done()
		if !errors.Is(context.Cause(ctxs[0]), killick.ErrFinished) || ctxs[1].Err() != nil {
			t.Error("only a has its verdict")
		}
		<-ctxs[1].Done()
		if !errors.Is(context.Cause(ctxs[1]), engine.ErrTimeout) {
			t.Errorf("cause %v", context.Cause(ctxs[1]))
		}
		if late := a.Context(); late.Err() == nil {
			t.Error("the context of a finished tuple is open")
		}
		e.stop()
		<-e.done
		<-ctxs[2].Done()
	}, records("in", messages(3)...), with(func(c *config) { c.Drain = time.Second }))
	if !errors.Is(e.err, engine.ErrDrain) {
		t.Errorf("run: %v", e.err)
	}
}

// TestDeadlinesOfTheIdle: nothing runs, and what is held times out at its deadline all the same, also
// when that is brought forward or put off.
func TestDeadlinesOfTheIdle(t *testing.T) {
	top, k := topology(), newKeep()
	top.Bolt("a", bolt.Func(k.execute)).Timeout(time.Hour).Shuffle("in").Retry(killick.Retry{Attempts: 1})
	e := during(t, top, func(e *env) {
		began := time.Now()
		a, b, c, d := <-k.held(), <-k.held(), <-k.held(), <-k.held()
		ended := func(what string, h *killick.Held, want time.Duration) {
			ctx := h.Context()
			<-ctx.Done()
			if d := time.Since(began); d < want || d > want+20*time.Millisecond || !errors.Is(context.Cause(ctx), engine.ErrTimeout) {
				t.Errorf("%s: ended after %v with %v, want %v", what, d, context.Cause(ctx), want)
			}
		}
		b.Extend(20 * time.Minute)
		time.Sleep(10 * time.Minute)
		a.Extend(10 * time.Second)
		d.Extend(9 * time.Hour)
		ended("brought forward during a rest", a, 10*time.Minute+10*time.Second)
		ended("brought forward at once", b, 20*time.Minute)
		ended("as it was", c, time.Hour)
		ended("put off", d, 9*time.Hour+10*time.Minute)
		e.stop()
	}, records("in", messages(4)...), func(e *env, _ *config) { e.feeds["in"].endless = true })
	e.wantEnds(0, 4)
}

// TestSlowBesideFast: a bolt that turns out to be slow gets a goroutine of its own, and does not
// hold up the records of others.
func TestSlowBesideFast(t *testing.T) {
	const n = 2000
	top := topology()
	var fast atomic.Int64
	var fastDone time.Duration
	var began time.Time
	top.Bolt("slow", fn(func(*killick.Tuple, killick.Emitter) error { time.Sleep(10 * time.Millisecond); return nil })).Shuffle("in")
	top.Spout("other", kafka("other"))
	top.Bolt("fast", fn(func(*killick.Tuple, killick.Emitter) error {
		if fast.Add(1) == 2*n {
			fastDone = time.Since(began)
		}
		return nil
	})).Shuffle("in").Shuffle("other")
	began = time.Time{}
	var e *env
	bubble.Test(t, func(t *testing.T) {
		began = time.Now()
		e = build(t, top, records("in", messages(n)...), records("other", messages(n)...)).run()
	})
	e.wantEnds(n, 0)
	// 2,000 slow executions take 20s; the window of 1,024 lets the fast ones get that far ahead.
	if limit := 12 * time.Second; fastDone == 0 || fastDone > limit || e.acked("other") != n {
		t.Errorf("the fast bolt took %v (0: it never was done); %d other records acked", fastDone, e.acked("other"))
	}
}

// TestSlowKeepsOrder: batches do not overtake each other when a task moves between goroutines.
func TestSlowKeepsOrder(t *testing.T) {
	const n = 5000
	top := topology()
	top.Bolt("pass", fn(pass)).Shuffle("in")
	last, bad := -1, 0
	top.Bolt("leaf", fn(func(in *killick.Tuple, _ killick.Emitter) error {
		o := offset(in)
		if o != last+1 {
			bad++
		}
		last = o
		if o%997 < 30 {
			time.Sleep(time.Millisecond)
		}
		return nil
	})).Shuffle("pass")
	e := run(t, top, records("in", messages(n)...))
	e.wantEnds(n, 0)
	if bad != 0 {
		t.Errorf("%d tuples out of order", bad)
	}
}

// TestInFlight: so many at a time, and none is called before there is room.
func TestInFlight(t *testing.T) {
	top := topology()
	var now, most atomic.Int64
	top.Bolt("a", bolt.Async(16, func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		time.Sleep(time.Second)
		if in.Attempt() == 1 && offset(in)%10 == 0 {
			return errNo
		}
		out.Emit(in.Message())
		return nil
	})).Timeout(2 * time.Second).Shuffle("in")
	top.Bolt("leaf", fn(null)).Shuffle("a")
	e := run(t, top, records("in", messages(160)...))
	e.wantEnds(160, 0)
	if most.Load() != 16 || e.stats("a").Timeouts != 0 || e.total("leaf") != 160 {
		t.Errorf("%d at a time, %d timeouts, %d leaves", most.Load(), e.stats("a").Timeouts, e.total("leaf"))
	}
}

// TestFanOut: a bolt that emits 10,000 tuples into small queues does not deadlock, also when its
// own input is full (STORM-3073).
// FC-28: STORM-3073.
func TestFanOut(t *testing.T) {
	for _, tasks := range []int{1, 3} {
		top := topology()
		top.Bolt("split", fn(func(in *killick.Tuple, out killick.Emitter) error {
			for range 10_000 {
				out.Emit(killick.Message{})
			}
			return nil
		})).Tasks(tasks).Shuffle("in")
		var n atomic.Int64
		top.Bolt("mid", fn(pass)).Tasks(tasks).Shuffle("split")
		top.Bolt("leaf", fn(func(*killick.Tuple, killick.Emitter) error { n.Add(1); return nil })).Tasks(tasks).Shuffle("mid")
		e := run(t, top, records("in", messages(6)...), quiet)
		e.wantEnds(6, 0)
		if n.Load() != 60_000 {
			t.Errorf("%d leaves", n.Load())
		}
	}
}

// TestCounters: time-outs, failures and retries are seen apart (STORM-1708).
// FC-21: STORM-1708.
func TestCounters(t *testing.T) {
	top := topology()
	top.Bolt("a", bolt.Func(func(ctx context.Context, in *killick.Tuple, out killick.Emitter) error {
		switch o := offset(in); {
		case in.Attempt() > 1 || o >= 15:
		case o < 5:
			out.Hold() // times out
		case o < 10:
			<-ctx.Done()
		default:
			return errNo
		}
		return nil
	})).Timeout(time.Second).Shuffle("in")
	e := run(t, top, records("in", messages(30)...))
	e.wantEnds(30, 0)
	if s := e.stats("a"); s.Timeouts != 10 || s.Failed-s.Timeouts != 5 || s.Retries != 15 || s.Replays != 0 || s.Dead != 0 || s.Executed != 45 {
		t.Errorf("stats %+v", s)
	}
}

// TestTimeIsTheBoltsOwn: what a bolt's outputs take downstream, in line or for want of room, is not
// its time, and does not make it a slow one.
func TestTimeIsTheBoltsOwn(t *testing.T) {
	for name, emits := range map[string]int{"full batches": 1, "fan-out": 600} {
		for _, tasks := range []int{1, 2} {
			top := topology()
			top.Bolt("first", fn(func(in *killick.Tuple, out killick.Emitter) error {
				for range emits {
					out.Emit(in.Message())
				}
				return nil
			})).Shuffle("in")
			top.Bolt("mid", fn(pass)).Shuffle("first")
			top.Bolt("slow", fn(func(*killick.Tuple, killick.Emitter) error { time.Sleep(time.Millisecond); return nil })).Tasks(tasks).Shuffle("mid")
			n := 3000 / emits
			e := run(t, top, records("in", messages(n)...))
			e.wantEnds(n, 0)
			for _, c := range []string{"first", "mid"} {
				if d := time.Duration(e.stats(c).Nanos); d != 0 {
					t.Errorf("%s, %d tasks: %s took %v", name, tasks, c, d)
				}
			}
			if d, want := time.Duration(e.stats("slow").Nanos), time.Duration(n*emits)*time.Millisecond; d != want {
				t.Errorf("%s, %d tasks: slow took %v, want %v", name, tasks, d, want)
			}
		}
	}
}
