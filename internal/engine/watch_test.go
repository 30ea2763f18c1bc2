package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/testenv/bubble"
)

// watched makes a running watch of one component without tasks, and a runner.
func watched(t *testing.T, period, timeout time.Duration) (w *watch, c *component, r *runner) {
	t.Helper()
	e := &Engine{cfg: Config{Observe: func(Event) {}}}
	e.hard, e.hardStop = context.WithCancelCause(context.Background())
	c = &component{e: e, spec: &killick.BoltSpec{Timeout: timeout}}
	e.comps = []*component{c}
	w = newWatch(e, period)
	e.watch = w
	w.start()
	t.Cleanup(w.stop)
	return w, c, w.runner()
}

// execution is an execution of c, as watch sees it.
func execution(c *component) *exec {
	x := &exec{e: c.e, c: c, t: new(task)}
	x.newContext()
	return x
}

// TestWatchRests: nothing is counted while nothing runs; user code that starts then has its whole
// time-out, and not more; and then it rests again.
func TestWatchRests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const period, timeout = 10 * time.Millisecond, time.Second
		w, c, r := watched(t, period, timeout)
		for _, idle := range []time.Duration{0, 3 * period, time.Minute, 100 * time.Hour} {
			time.Sleep(idle)
			synctest.Wait()
			if rests := w.until.Load() == never; rests != (idle > 0) {
				t.Fatalf("after %v: it rests: %v", idle, rests)
			}
			began := time.Now()
			x := execution(c)
			r.enter(x)
			if r.beat(w.tick.Load()) {
				t.Errorf("after %v: timed out before it began", idle)
			}
			<-x.ctx.Done()
			if d := time.Since(began); d < timeout || d > timeout+timeout/10 || !errors.Is(context.Cause(x.ctx), ErrTimeout) {
				t.Errorf("after %v: ended after %v with %v", idle, d, context.Cause(x.ctx))
			}
			r.leave(nil)
		}
		time.Sleep(2 * period)
		synctest.Wait()
		before := w.tick.Load()
		time.Sleep(time.Minute)
		if n := w.tick.Load() - before; n != 0 {
			t.Errorf("%d ticks in a minute without work", n)
		}
	})
}

// TestWatchWakes: no wake-up is lost, however rest and start fall together.
func TestWatchWakes(t *testing.T) {
	const period = 200 * time.Microsecond
	w, c, r := watched(t, period, 2*period)
	late := time.After(time.Minute)
	for i := range 300 {
		// It rests about a period after the execution before: meet it there.
		<-time.After(period/2 + time.Duration(i)*period/200)
		x := execution(c)
		r.enter(x)
		select {
		case <-x.ctx.Done():
		case <-late:
			t.Fatalf("execution %d began during a rest that goes on", i)
		}
		r.leave(nil)
	}
	if w.clock()+1 < w.tick.Load() {
		t.Errorf("tick %d at %d", w.tick.Load(), w.clock())
	}
}
