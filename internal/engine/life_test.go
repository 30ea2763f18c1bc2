package engine_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/testenv/bubble"
)

// life is a bolt with all optional methods, as functions.
type life struct {
	execute func(in *killick.Tuple, out killick.Emitter) error
	prepare func(killick.Task) error
	flush   func() error
	cleanup func() error
	tick    func(killick.Untracked) error
}

func (l *life) Execute(_ ctx, in *killick.Tuple, out killick.Emitter) error {
	if l.execute == nil {
		return nil
	}
	return l.execute(in, out)
}
func (l *life) Prepare(_ ctx, t killick.Task) error {
	if l.prepare == nil {
		return nil
	}
	return l.prepare(t)
}
func (l *life) Flush(ctx) error {
	if l.flush == nil {
		return nil
	}
	return l.flush()
}
func (l *life) Cleanup(ctx) error {
	if l.cleanup == nil {
		return nil
	}
	return l.cleanup()
}
func (l *life) Tick(_ ctx, out killick.Untracked) error {
	if l.tick == nil {
		return nil
	}
	return l.tick(out)
}

// TestPrepare: tuples wait for it; three failures are tried again, one of them a panic.
// FC-04: gofr-dev/gofr PR #3424: Prepare, too.
func TestPrepare(t *testing.T) {
	top := topology()
	var tries atomic.Int64
	ready := false
	top.Bolt("a", func() killick.Bolt {
		return &life{prepare: func(k killick.Task) error {
			if k != (killick.Task{Topology: "test", Component: "a", Index: 0, Count: 1}) {
				t.Errorf("task %+v", k)
			}
			switch tries.Add(1) {
			case 1:
				return errNo
			case 2:
				panic("boom")
			case 3:
				return killick.RetryAfter(time.Minute, errNo)
			}
			ready = true
			return nil
		}, execute: func(*killick.Tuple, killick.Emitter) error {
			if !ready {
				t.Error("executed before it was prepared")
			}
			return nil
		}}
	}).Tick(time.Hour).Shuffle("in")
	e := during(t, top, func(e *env) {
		synctest.Wait()
		if e.Ready() {
			t.Error("ready before Prepare")
		}
		time.Sleep(2 * time.Minute)
		if !e.Ready() {
			t.Error("not ready after Prepare")
		}
	}, records("in", messages(5000)...))
	e.wantEnds(5000, 0)
	if evs := e.of(engine.PrepareFailed); len(evs) != 3 || evs[2].Wait != time.Minute {
		t.Errorf("events %+v", evs)
	}
}

// TestPrepareForGood: the worker stops without a drain, since the task cannot work.
func TestPrepareForGood(t *testing.T) {
	for _, permanent := range []bool{false, true} {
		top := topology()
		var tries atomic.Int64
		top.Bolt("a", func() killick.Bolt {
			return &life{prepare: func(killick.Task) error {
				tries.Add(1)
				if permanent {
					return killick.Permanent(errNo)
				}
				return errNo
			}}
		}).Tick(time.Hour).Shuffle("in").Retry(killick.Retry{Attempts: 3})
		e := run(t, top, records("in", messages(5000)...))
		var stop *engine.StopError
		if !errors.As(e.err, &stop) || stop.Component != "a" || !errors.Is(e.err, errNo) || e.acked("in") != 0 {
			t.Errorf("run: %v", e.err)
		}
		if want := map[bool]int64{false: 3, true: 1}[permanent]; tries.Load() != want {
			t.Errorf("%d tries", tries.Load())
		}
	}
}

// TestFactory: a factory that fails when the tasks are made stops the worker, too.
func TestFactory(t *testing.T) {
	for _, panics := range []bool{false, true} {
		top := topology()
		calls := 0
		top.Bolt("a", func() killick.Bolt {
			if calls++; calls == 1 {
				return bolt.ExecuteFunc(func(ctx, *killick.Tuple, killick.Emitter) error { return nil }) // for Validate
			}
			if panics {
				panic("boom")
			}
			return nil
		}).Shuffle("in")
		e := run(t, top, records("in", messages(10)...))
		var stop *engine.StopError
		if !errors.As(e.err, &stop) || stop.Component != "a" {
			t.Errorf("run: %v", e.err)
		}
	}
}

// TestFlush: at the end of a bounded run and at a stop, after the last tuple, once more when
// something came meanwhile; what it emits is processed; and Cleanup comes last.
func TestFlush(t *testing.T) {
	for _, stop := range []bool{false, true} {
		for _, front := range []int{1, 2} { // in line, and through a queue
			t.Run(fmt.Sprint(stop, front), func(t *testing.T) {
				top := topology()
				var mu sync.Mutex
				var hs []*killick.Held
				var log []string
				note := func(s string) {
					if len(log) == 0 || log[len(log)-1] != s {
						log = append(log, s)
					}
				}
				top.Bolt("front", fn(func(in *killick.Tuple, out killick.Emitter) error {
					if in.Attempt() == 1 && offset(in) == 7 {
						return errNo // comes after the first Flush
					}
					return pass(in, out)
				})).Tasks(front).Shuffle("in")
				top.Bolt("a", func() killick.Bolt {
					return &life{execute: func(_ *killick.Tuple, out killick.Emitter) error {
						mu.Lock()
						defer mu.Unlock()
						hs = append(hs, out.Hold())
						note("execute")
						return nil
					}, flush: func() error {
						mu.Lock()
						defer mu.Unlock()
						note("flush")
						for _, h := range hs {
							_ = h.Emit(killick.Message{})
							h.Ack()
						}
						hs = nil
						return nil
					}, cleanup: func() error {
						mu.Lock()
						defer mu.Unlock()
						note("cleanup")
						return nil
					}}
				}).Tick(time.Hour).Timeout(time.Hour).Shuffle("front")
				top.Bolt("leaf", fn(null)).Shuffle("a")
				e := during(t, top, func(e *env) {
					if stop {
						time.Sleep(time.Minute)
						mu.Lock()
						if len(log) != 1 {
							t.Errorf("flushed before the stop: %v", log)
						}
						mu.Unlock()
						e.stop()
					}
				}, records("in", messages(20)...), func(e *env, _ *config) {
					e.feeds["in"].endless = stop
				})
				e.wantEnds(20, 0)
				if e.total("leaf") != 20 || log[0] != "execute" || log[1] != "flush" || log[len(log)-1] != "cleanup" || log[len(log)-2] != "flush" {
					t.Errorf("%d leaves; %v", e.total("leaf"), log)
				}
			})
		}
	}
}

// TestFlushWithoutTrees: Flush comes before a clean end also when nothing is pending, and what it
// sets off without a tree is done.
func TestFlushWithoutTrees(t *testing.T) {
	top := topology()
	var flushed, ran atomic.Int64
	top.Bolt("a", func() killick.Bolt {
		return &life{execute: func(in *killick.Tuple, out killick.Emitter) error {
			out.EmitUntracked("", in.Message())
			return nil
		}, flush: func() error { flushed.Add(1); return nil }}
	}).Tick(time.Hour).Shuffle("in")
	top.Bolt("late", fn(func(*killick.Tuple, killick.Emitter) error {
		time.Sleep(time.Second)
		ran.Add(1)
		return nil
	})).Shuffle("a")
	run(t, top, records("in", messages(10)...)).wantEnds(10, 0)
	if flushed.Load() == 0 || ran.Load() != 10 {
		t.Errorf("flushed %d times, %d untracked tuples ran", flushed.Load(), ran.Load())
	}
}

// TestFlushHangs: what no tree waits for gets as long as a drain.
func TestFlushHangs(t *testing.T) {
	top := topology()
	top.Bolt("a", fn(func(in *killick.Tuple, out killick.Emitter) error {
		out.EmitUntracked("", in.Message())
		return nil
	})).Shuffle("in")
	top.Bolt("stuck", bolt.Func(func(ctx ctx, _ *killick.Tuple, _ killick.Emitter) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Hour):
			return nil
		}
	})).Tasks(2).Timeout(2 * time.Hour).Shuffle("a")
	bubble.Test(t, func(t *testing.T) {
		began := time.Now()
		e := build(t, top, records("in", messages(1)...)).run()
		e.wantEnds(1, 0)
		if d := time.Since(began); d < 30*time.Second || d > 40*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

// TestTick: at its interval, on the task's goroutine; what it emits is untracked; errors and
// panics are told.
func TestTick(t *testing.T) {
	top := topology()
	var running, ticks atomic.Int64
	once := func() func() {
		if running.Add(1) != 1 {
			t.Error("Tick and Execute overlap")
		}
		return func() { running.Add(-1) }
	}
	top.Bolt("a", func() killick.Bolt {
		return &life{execute: func(*killick.Tuple, killick.Emitter) error {
			defer once()()
			time.Sleep(time.Second / 4)
			return nil
		}, tick: func(out killick.Untracked) error {
			defer once()()
			out.EmitUntracked("", killick.Message{Bytes: []byte("tick")})
			switch ticks.Add(1) {
			case 2:
				return errNo
			case 3:
				panic("boom")
			}
			return nil
		}}
	}).Tick(time.Second).Shuffle("in")
	var seen atomic.Int64
	top.Bolt("b", fn(func(in *killick.Tuple, _ killick.Emitter) error {
		if string(in.Bytes()) == "tick" && in.ID() == "" {
			seen.Add(1)
		}
		return nil
	})).Shuffle("a")
	e := run(t, top, records("in", messages(40)...)) // 10 seconds
	e.wantEnds(40, 0)
	if n := ticks.Load(); n < 8 || n > 11 || seen.Load() != n-2 {
		t.Errorf("%d ticks, %d tuples of them", n, seen.Load())
	}
	if evs := e.of(engine.HookFailed); len(evs) != 2 || evs[0].Reason != "Tick" || !strings.Contains(evs[1].Err.Error(), "boom") {
		t.Errorf("events %+v", evs)
	}
}

// TestCleanupWaits: for executions in flight.
func TestCleanupWaits(t *testing.T) {
	top := topology()
	var in atomic.Int64
	cleaned := false
	top.Bolt("a", func() killick.Bolt {
		return &life{execute: func(*killick.Tuple, killick.Emitter) error {
			in.Add(1)
			defer in.Add(-1)
			time.Sleep(3 * time.Second)
			return nil
		}, cleanup: func() error {
			if in.Load() != 0 {
				t.Errorf("%d executions during Cleanup", in.Load())
			}
			cleaned = true
			return nil
		}}
	}).Tick(time.Hour).InFlight(4).Shuffle("in")
	during(t, top, func(e *env) {
		time.Sleep(time.Second)
		e.stop()
	}, records("in", messages(100)...), with(func(c *config) { c.Drain = time.Second }))
	if !cleaned {
		t.Error("no Cleanup")
	}
}

// TestHardStop: executions get their contexts cancelled, what comes of it is neither success nor
// failure, the rest of the batch does not run, and roots stay open.
func TestHardStop(t *testing.T) {
	for _, tasks := range []int{1, 2} {
		for _, obeys := range []bool{true, false} {
			top := topology()
			var ran atomic.Int64
			top.Bolt("pass", fn(pass)).Shuffle("in")
			top.Bolt("a", bolt.Func(func(ctx ctx, _ *killick.Tuple, _ killick.Emitter) error {
				ran.Add(1)
				if !obeys {
					time.Sleep(3 * time.Second)
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			})).Tasks(tasks).Timeout(time.Hour).Shuffle("pass")
			var took time.Duration
			e := during(t, top, func(e *env) {
				time.Sleep(time.Second / 2)
				began := time.Now()
				e.stop()
				<-e.done
				took = time.Since(began)
			}, records("in", messages(500)...), with(func(c *config) { c.Drain = time.Second }))
			if !errors.Is(e.err, engine.ErrDrain) {
				t.Errorf("run: %v", e.err)
			}
			if len(e.dead("in")) != 0 || len(e.of(engine.TryFailed)) != 0 || ran.Load() > int64(2*tasks) || took > 5*time.Second {
				t.Errorf("tasks %d, obeys %v: %d dead, %d ran, took %v", tasks, obeys, len(e.dead("in")), ran.Load(), took)
			}
			if e.acked("in") > int(ran.Load()) || obeys && e.acked("in") > 0 {
				t.Errorf("%d acked, %d ran", e.acked("in"), ran.Load())
			}
		}
	}
}

// TestGoexit: user code that ends the goroutine it was called on stops the engine with a clear
// error, instead of waiting for a tuple that will never return.
func TestGoexit(t *testing.T) {
	for name, build := range map[string]func(top *killick.Topology){
		"fused": func(top *killick.Topology) { top.Bolt("a", fn(goexit)).Shuffle("in") },
		"in line": func(top *killick.Topology) {
			top.Bolt("p", fn(pass)).Shuffle("in")
			top.Bolt("a", fn(goexit)).Shuffle("p")
		},
		"task":   func(top *killick.Topology) { top.Bolt("a", fn(goexit)).Tasks(2).Shuffle("in") },
		"flight": func(top *killick.Topology) { top.Bolt("a", fn(goexit)).InFlight(2).Shuffle("in") },
		"prepare": func(top *killick.Topology) {
			top.Bolt("a", func() killick.Bolt {
				return &life{prepare: func(killick.Task) error { runtime.Goexit(); return nil }}
			}).Tick(time.Hour).Shuffle("in")
		},
	} {
		t.Run(name, func(t *testing.T) {
			top := topology()
			build(top)
			e := run(t, top, records("in", messages(10)...))
			var stop *engine.StopError
			if !errors.As(e.err, &stop) || stop.Component != "a" || !strings.Contains(e.err.Error(), "Goexit") || e.acked("in") != 0 {
				t.Errorf("run: %v; %d acked", e.err, e.acked("in"))
			}
		})
	}
}

func goexit(*killick.Tuple, killick.Emitter) error { runtime.Goexit(); return nil }
