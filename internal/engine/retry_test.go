package engine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/internal/engine"
)

// TestBackoff: the ceiling never falls, is never 0, and cannot overflow; waits lie below it.
func TestBackoff(t *testing.T) {
	for _, r := range []killick.Retry{
		{Min: 100 * time.Millisecond, Max: 30 * time.Second},
		{Min: 1, Max: 1<<63 - 1},
		{Min: time.Hour, Max: time.Hour},
	} {
		last := time.Duration(0)
		for n := 1; n <= 200; n++ {
			c := r.Ceiling(n)
			if c < last || c <= 0 || c > r.Max {
				t.Fatalf("%v: after %d tries %v, before %v", r, n, c, last)
			}
			last = c
			if d := r.Delay(n); d < 0 || d > c {
				t.Fatalf("%v: waits %v of %v", r, d, c)
			}
		}
		if last != r.Max {
			t.Errorf("%v does not reach its maximum: %v", r, last)
		}
	}
}

// TestRetryInFullWindow: retries are exempt from the pending limit, whichever of the window
// fail, and whatever divides what.
// FC-09: STORM-2343, STORM-3531.
func TestRetryInFullWindow(t *testing.T) {
	const n = 100
	for name, fails := range map[string]func(offset, attempt int) bool{
		"first, three times": func(o, a int) bool { return o == 0 && a <= 3 },
		"all":                func(o, a int) bool { return a == 1 },
		"only the last":      func(o, a int) bool { return o == n-1 && a == 1 },
		"a window":           func(o, a int) bool { return o < 10 && a < 5 },
	} {
		for _, held := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", held), func(t *testing.T) {
				top := killick.New("window")
				top.Spout("in", kafka("in")).Pending(10, 1<<20)
				top.Bolt("a", fn(func(in *killick.Tuple, out killick.Emitter) error {
					if held {
						out.Hold()
					}
					if fails(offset(in), in.Attempt()) {
						return errNo
					}
					if held {
						out.Hold().Ack()
					}
					return nil
				})).Shuffle("in")
				e := run(t, top, records("in", messages(n)...))
				e.wantEnds(n, 0)
				if e.feeds["in"].most > 10 {
					t.Errorf("%d roots at a time", e.feeds["in"].most)
				}
				want := n
				for o := range n {
					for a := 1; fails(o, a); a++ {
						want++
					}
				}
				if e.total("a") != want {
					t.Errorf("%d executions, want %d", e.total("a"), want)
				}
			})
		}
	}
}

// TestRandomEnds: many random orders of failures, time-outs and acks drain.
// FC-09: STORM-2343, STORM-3531. FC-11: STORM-2077.
func TestRandomEnds(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		top := killick.New("random")
		top.Spout("in", kafka("in")).Pending(7, 1<<20)
		var mu sync.Mutex
		top.Bolt("split", fn(func(in *killick.Tuple, out killick.Emitter) error {
			mu.Lock()
			defer mu.Unlock()
			for range rnd.IntN(4) {
				out.Emit(in.Message())
			}
			if rnd.IntN(5) == 0 {
				return errNo
			}
			return nil
		})).Tasks(1 + int(seed%2)).Shuffle("in").Retry(killick.Retry{Attempts: 50, Max: time.Second})
		top.Bolt("leaf", fn(func(_ *killick.Tuple, out killick.Emitter) error {
			mu.Lock()
			defer mu.Unlock()
			switch rnd.IntN(8) {
			case 0:
				return errNo
			case 1:
				return killick.FailTree(errNo)
			case 2:
				out.Hold() // times out
			case 3:
				h, d := out.Hold(), time.Duration(rnd.IntN(1000))*time.Millisecond
				time.AfterFunc(d, func() { h.Ack(); h.Fail(errNo) })
			case 4:
				panic("boom")
			}
			return nil
		})).Tasks(1 + int(seed%3)).InFlight(1 + int(seed%5)).Timeout(time.Second).Shuffle("split").Retry(killick.Retry{Attempts: 1000, Max: time.Second})
		run(t, top, records("in", messages(50)...)).wantEnds(50, 0)
	}
}

// TestStorm: very many failures at the same moment drain, and fresh records still flow.
// FC-28: STORM-3073.
func TestStorm(t *testing.T) {
	n := 20_000
	if full() {
		n = 100_000
	}
	top := killick.New("storm")
	top.Spout("in", kafka("in")).Pending(n, 1<<30)
	top.Spout("fresh", kafka("fresh")).Pending(16, 1<<20)
	var retried, late atomic.Int64
	top.Bolt("a", fn(func(in *killick.Tuple, out killick.Emitter) error {
		if c, _ := in.Source(); c == "fresh" {
			if retried.Load() < int64(n) {
				late.Add(1) // fresh ones run while retries are due
			}
			return nil
		}
		if in.Attempt() == 1 {
			return killick.RetryAfter(time.Minute, errNo)
		}
		retried.Add(1)
		return nil
	})).Shuffle("in").Shuffle("fresh")
	e := during(t, top, func(e *env) {
		time.Sleep(time.Minute) // now they all are due
		e.feeds["fresh"].more(1000)
	}, records("in", messages(n)...), records("fresh", messages(1000)...), quiet,
		func(e *env, _ *config) { e.feeds["fresh"].hold = 0 })
	e.wantEnds(n, 0)
	if got := e.acked("fresh"); got != 1000 || retried.Load() != int64(n) {
		t.Errorf("%d fresh records, %d retries", got, retried.Load())
	}
	if late.Load() == 0 {
		t.Error("no fresh record ran before all retries had")
	}
}

// TestRetryPolicies: what an error means.
func TestRetryPolicies(t *testing.T) {
	for _, c := range []struct {
		name     string
		retry    killick.Retry
		err      func(attempt int) error
		tries    int    // of a, in all
		split    int    // executions of its parent
		end      string // acked, dead-letter, skip, stop
		attempts int    // of the cause
		reason   string
		least    time.Duration // that it takes at least
	}{
		{"used up", killick.Retry{}, func(int) error { return errNo }, 5, 1, "dead-letter", 5, "error", 0},
		{"limit", killick.Retry{Attempts: 2}, func(int) error { return errNo }, 2, 1, "dead-letter", 2, "error", 0},
		{"then good", killick.Retry{Attempts: 3}, failTill(3), 3, 1, "acked", 0, "", 0},
		{"permanent", killick.Retry{}, func(int) error { return killick.Permanent(errNo) }, 1, 1, "dead-letter", 1, "permanent", 0},
		{"wrapped permanent", killick.Retry{}, func(int) error { return fmt.Errorf("x: %w", killick.Permanent(errNo)) }, 1, 1, "dead-letter", 1, "permanent", 0},
		{"retry after", killick.Retry{}, func(a int) error {
			if a == 1 {
				return killick.RetryAfter(time.Minute, errNo)
			}
			return nil
		}, 2, 1, "acked", 0, "", time.Minute},
		{"fail tree", killick.Retry{Attempts: 3}, func(int) error { return killick.FailTree(errNo) }, 3, 3, "dead-letter", 3, "fail_tree", 0},
		{"fail tree, then good", killick.Retry{}, func(a int) error {
			if a < 3 {
				return killick.FailTree(errNo)
			}
			return nil
		}, 3, 3, "acked", 0, "", 0},
		{"fail tree after", killick.Retry{}, func(a int) error {
			if a == 1 {
				return killick.RetryAfter(time.Minute, killick.FailTree(errNo))
			}
			return nil
		}, 2, 2, "acked", 0, "", time.Minute},
		{"tree", killick.Retry{Tree: true}, failTill(4), 4, 4, "acked", 0, "", 0},
		{"tree, used up", killick.Retry{Tree: true, Attempts: 2}, failTill(9), 2, 2, "dead-letter", 2, "error", 0},
		{"tree, stop", killick.Retry{Tree: true, Attempts: 2, After: killick.Stop()}, failTill(9), 2, 2, "stop", 0, "", 0},
		{"tree, skip", killick.Retry{Tree: true, Attempts: 2, After: killick.Skip()}, failTill(9), 2, 2, "skip", 2, "error", 0},
		{"skip", killick.Retry{Attempts: 2, After: killick.Skip()}, failTill(9), 2, 1, "skip", 2, "error", 0},
		{"stop", killick.Retry{Attempts: 2, After: killick.Stop()}, failTill(9), 2, 1, "stop", 0, "", 0},
		{"tuple tries and tree tries", killick.Retry{Attempts: 3}, func(a int) error {
			switch {
			case a == 2 || a == 4:
				return killick.FailTree(errNo)
			case a < 6:
				return errNo
			}
			return nil
		}, 6, 3, "acked", 0, "", 0},
	} {
		for _, held := range []bool{false, true} {
			for _, tasks := range []int{1, 2} {
				t.Run(fmt.Sprint(c.name, " ", held, " ", tasks), func(t *testing.T) {
					top := topology()
					top.Bolt("split", fn(pass)).Tasks(tasks).Shuffle("in")
					tries := 0
					var began, last time.Time
					top.Bolt("a", fn(func(in *killick.Tuple, out killick.Emitter) error {
						if tries++; tries == 1 {
							began = time.Now()
						}
						last = time.Now()
						// Attempt counts all executions, whatever started them; a test of
						// deterministic bolts sees its own count.
						if in.Attempt() > tries {
							t.Errorf("attempt %d of execution %d", in.Attempt(), tries)
						}
						err := c.err(tries)
						if held {
							if h := out.Hold(); err == nil {
								h.Ack()
							} else {
								h.Fail(err)
							}
							return nil
						}
						return err
					})).Tasks(tasks).Shuffle("split").Retry(c.retry)
					e := run(t, top, records("in", messages(1)...))
					if tries != c.tries || e.total("split") != c.split {
						t.Errorf("%d tries, %d of the parent; want %d, %d", tries, e.total("split"), c.tries, c.split)
					}
					if last.Sub(began) < c.least {
						t.Errorf("took %v", last.Sub(began))
					}
					var stop *engine.StopError
					switch {
					case c.end == "stop":
						if !errors.As(e.err, &stop) || stop.Component != "a" || !errors.Is(e.err, errNo) || e.feeds["in"].Pending() != 1 {
							t.Errorf("run: %v; %d open", e.err, e.feeds["in"].Pending())
						}
					case c.end == "acked":
						e.wantEnds(1, 0)
					default:
						e.wantEnds(0, 1)
						d := e.dead("in")[0]
						if d.Policy.String() != c.end || d.Attempts != c.attempts || d.Reason != c.reason || d.Component != "a" || !errors.Is(d.Err, errNo) {
							t.Errorf("cause %+v", d)
						}
						if string(d.Key) != "k0" || string(d.Value) != "0" {
							t.Errorf("cause of %q %q", d.Key, d.Value)
						}
					}
				})
			}
		}
	}
}

func failTill(n int) func(int) error {
	return func(a int) error {
		if a < n {
			return errNo
		}
		return nil
	}
}

// TestFailTreeWaits: the tree ends only at its last edge, so that two attempts never overlap, and
// waiting siblings are skipped.
func TestFailTreeWaits(t *testing.T) {
	top := topology()
	top.Bolt("split", fn(func(in *killick.Tuple, out killick.Emitter) error {
		for range 3 {
			out.Emit(in.Message())
		}
		return nil
	})).Shuffle("in")
	k := newKeep()
	top.Bolt("a", bolt.Func(k.execute)).Shuffle("split")
	e := during(t, top, func(e *env) {
		a, b, c := <-k.held(), <-k.held(), <-k.held()
		b.Fail(killick.FailTree(errNo))
		time.Sleep(time.Minute / 4)
		if e.total("split") != 1 {
			t.Error("two attempts overlap")
		}
		a.Ack()
		c.Fail(errNo) // a plain retry of a tuple of a replayed tree is skipped
		for range 3 {
			(<-k.held()).Ack()
		}
	}, records("in", messages(1)...))
	e.wantEnds(1, 0)
	if e.total("split") != 2 || e.total("a") != 6 || e.stats("a").Skipped != 1 {
		t.Errorf("%d and %d executions, %d skipped", e.total("split"), e.total("a"), e.stats("a").Skipped)
	}
}

// TestStopRunsRetriesOnce: waiting retries run at once when a stop is wanted; those that fail
// again stay open for the next start, and the stop does not wait for them.
func TestStopRunsRetriesOnce(t *testing.T) {
	for _, tree := range []bool{false, true} {
		top := topology()
		top.Bolt("a", fn(func(in *killick.Tuple, _ killick.Emitter) error {
			if in.Attempt() == 1 || offset(in) >= 5 {
				return killick.RetryAfter(time.Hour, errNo)
			}
			return nil
		})).Shuffle("in").Retry(killick.Retry{Tree: tree})
		var took time.Duration
		e := during(t, top, func(e *env) {
			time.Sleep(time.Minute)
			began := time.Now()
			e.stop()
			<-e.done
			took = time.Since(began)
		}, records("in", messages(10)...))
		if !errors.Is(e.err, engine.ErrDrain) || !strings.Contains(e.err.Error(), ": 5,") {
			t.Errorf("tree %v: run: %v", tree, e.err)
		}
		if e.acked("in") != 5 || e.feeds["in"].Pending() != 5 || e.total("a") != 20 || took > time.Second {
			t.Errorf("tree %v: %d acked, %d open, %d executions, took %v", tree, e.acked("in"), e.feeds["in"].Pending(), e.total("a"), took)
		}
	}
}

// TestStopWithFirstFailure: a tuple that fails first during the stop has one more try, too.
func TestStopWithFirstFailure(t *testing.T) {
	top, k := topology(), newKeep()
	top.Bolt("a", bolt.Func(k.execute)).Shuffle("in")
	e := during(t, top, func(e *env) {
		a, b := <-k.held(), <-k.held()
		e.stop()
		synctest.Wait()
		a.Fail(errNo)
		(<-k.held()).Ack()
		b.Fail(errNo)
		(<-k.held()).Fail(errNo)
	}, records("in", messages(2)...))
	if !errors.Is(e.err, engine.ErrDrain) || e.acked("in") != 1 || e.feeds["in"].Pending() != 1 {
		t.Errorf("run: %v; %d acked", e.err, e.acked("in"))
	}
}
