package engine_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/bolt"
)

// release releases partition p of "in".
func (e *env) release(p int) *chunk {
	c := e.feeds["in"].chunks[p]
	c.halt()
	e.Release(&c.epoch)
	return c
}

// errLater asks for a wait that no test lasts for.
var errLater = killick.RetryAfter(100*time.Hour, errNo)

// endless keeps the engine running until it is stopped.
func endless(e *env, _ *config) { e.feeds["in"].endless = true }

// TestRelease: what a partition that is given away waits for is hurried: retries and replays come at
// once, once; a second failure leaves the root to the next owner, and is waited for no more. Batches are
// flushed. Other partitions' retries wait as they did.
func TestRelease(t *testing.T) {
	for _, how := range []string{"retry", "retry of a held one", "replay"} {
		for _, well := range []bool{true, false} { // the hurried try
			t.Run(fmt.Sprintf("%s, ends well %v", how, well), func(t *testing.T) {
				top := topology()
				top.Bolt("a", fn(func(in *killick.Tuple, out killick.Emitter) error {
					o, _ := in.Origin()
					fails := in.Attempt() == 1 || o.Partition == 0 && !well && in.Attempt() < 4
					switch {
					case !fails:
						return nil
					case how == "replay":
						return killick.FailTree(errLater)
					case how == "retry":
						return errLater
					}
					h := out.Hold()
					time.AfterFunc(time.Second, func() { h.Fail(errLater) })
					return nil
				})).Shuffle("in")
				e := during(t, top, func(e *env) {
					time.Sleep(time.Minute)
					if n := e.total("a"); n != 2 {
						t.Errorf("%d executions before the release", n)
					}
					c := e.release(0)
					time.Sleep(time.Minute)
					left := 0
					if !well {
						left = 1
					}
					if e.total("a") != 3 || e.Left(&c.epoch) != left || e.acked("in") != 1-left {
						t.Errorf("after the release: %d executions, %d left, %d acked", e.total("a"), e.Left(&c.epoch), e.acked("in"))
					}
					c.lose()
					if n := e.Left(&c.epoch); n != 0 {
						t.Errorf("%d are left of a closed partition", n)
					}
					e.stop() // the other one's retry comes then
				}, partitions("in", 2, messages(2)...), endless)
				e.wantEnds(2-map[bool]int{false: 1}[well], 0)
			})
		}
	}
}

// pair joins what it is given, two by two, and emits one tuple for both.
type pair struct {
	mu    sync.Mutex
	first *killick.Held
}

func (p *pair) execute(in *killick.Tuple, out killick.Emitter) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := out.Hold()
	if p.first == nil {
		p.first = h
		return nil
	}
	err := h.Emit(killick.Message{}, p.first)
	p.first.Ack()
	h.Ack()
	p.first = nil
	return err
}

// TestReleaseOfAJoin: a joined tuple whose hurried retry fails goes on for the partition that stays, and
// the one that is given away is not waited for. Where it ends well after that, nothing is left.
func TestReleaseOfAJoin(t *testing.T) {
	for _, tries := range []int{3, 100} { // how many the leaf fails: fewer than allowed, and more
		top, join := topology(), &pair{}
		top.Bolt("join", fn(join.execute)).Timeout(1000 * time.Hour).Shuffle("in")
		top.Bolt("leaf", fn(func(in *killick.Tuple, _ killick.Emitter) error {
			if in.Attempt() <= tries {
				return errLater
			}
			return nil
		})).Shuffle("join")
		e := during(t, top, func(e *env) {
			time.Sleep(time.Minute)
			c := e.release(0)
			time.Sleep(time.Minute)
			if e.total("leaf") != 2 || e.Left(&c.epoch) != 1 {
				t.Fatalf("after the release: %d executions, %d left", e.total("leaf"), e.Left(&c.epoch))
			}
			for e.feeds["in"].Pending() > 0 {
				time.Sleep(time.Hour)
			}
			defer e.stop()
			// The root has ended although nobody waited for it. Another one of its partition must not be
			// taken for it.
			if n := e.Left(&c.epoch); n != 0 {
				t.Errorf("%d are left, and none is open", n)
			}
		}, partitions("in", 2, messages(2)...), endless)
		if tries < 5 {
			e.wantEnds(2, 0)
		} else {
			e.wantEnds(0, 2)
		}
	}
}

// TestReleaseOfADeadJoin: a joined tuple of a partition that is given away, and of a root that stays and
// is dead already. Its second failure is the last thing that the dead root waits for.
func TestReleaseOfADeadJoin(t *testing.T) {
	top, join := topology(), &pair{}
	top.Bolt("join", fn(join.execute)).Timeout(1000 * time.Hour).Shuffle("in")
	top.Bolt("leaf", fn(func(*killick.Tuple, killick.Emitter) error { return errLater })).Shuffle("join")
	top.Bolt("killer", fn(func(in *killick.Tuple, _ killick.Emitter) error {
		if o, _ := in.Origin(); o.Partition == 1 {
			return killick.Permanent(errNo)
		}
		return nil
	})).Shuffle("in")
	e := during(t, top, func(e *env) {
		time.Sleep(time.Minute)
		c := e.release(0)
		time.Sleep(time.Minute)
		if e.total("leaf") != 2 || e.Left(&c.epoch) != 1 {
			t.Errorf("after the release: %d executions, %d left", e.total("leaf"), e.Left(&c.epoch))
		}
		if n := len(e.dead("in")); n != 1 {
			t.Errorf("%d roots have ended dead: that of the partition that stays would hold it for ever", n)
		}
		c.lose()
		e.stop()
	}, partitions("in", 2, messages(2)...), endless)
	e.wantEnds(0, 1)
}

// TestReleaseAtTheEnd: a bounded run that has nothing left but what a release leaves to the next owner waits
// for the partition to go, and has not failed.
func TestReleaseAtTheEnd(t *testing.T) {
	top := topology()
	top.Bolt("a", fn(func(in *killick.Tuple, _ killick.Emitter) error {
		if o, _ := in.Origin(); o.Partition == 0 {
			return errLater
		}
		return nil
	})).Shuffle("in")
	e := during(t, top, func(e *env) {
		time.Sleep(time.Second)
		c := e.release(0)
		time.Sleep(time.Minute)
		if n := e.Left(&c.epoch); n != 1 {
			t.Errorf("%d are left", n)
		}
		select {
		case <-e.done:
			t.Error("it has ended before the partition is gone")
		default:
		}
		c.lose()
	}, partitions("in", 2, messages(2)...))
	e.wantEnds(1, 0)
}

// TestReleaseFlushes: a batch that waits for more is flushed, again and again until it is empty.
func TestReleaseFlushes(t *testing.T) {
	top := topology()
	var sizes []int
	top.Bolt("batch", bolt.Batch(100, 10*time.Hour, func(_ ctx, in []*killick.Held) error {
		sizes = append(sizes, len(in))
		return nil
	})).Shuffle("in").Timeout(100 * time.Hour)
	e := during(t, top, func(e *env) {
		time.Sleep(time.Second)
		e.release(0)
		synctest.Wait()
		if !slices.Equal(sizes, []int{3}) || e.acked("in") != 3 {
			t.Errorf("batches of %v, %d acked", sizes, e.acked("in"))
		}
		e.stop()
	}, records("in", messages(3)...), endless)
	e.wantEnds(3, 0)
}

// TestOnceJoin: at most once, what a handle that acked was joined with is dropped with the output, and
// not run again.
func TestOnceJoin(t *testing.T) {
	for _, same := range []bool{false, true} { // both of one root
		top := topology().Guarantee(killick.AtMostOnce)
		from, n := "in", 2
		if same {
			from, n = "split", 1
			top.Bolt("split", fn(func(in *killick.Tuple, out killick.Emitter) error {
				out.Emit(in.Message())
				out.Emit(in.Message())
				return nil
			})).Shuffle("in")
		}
		var first *killick.Held
		top.Bolt("join", fn(func(_ *killick.Tuple, out killick.Emitter) error {
			h := out.Hold()
			if first == nil {
				first = h
				return nil
			}
			if err := h.Emit(killick.Message{}, first); err != nil {
				t.Error(err)
			}
			first.Ack()
			h.Fail(errNo)
			return nil
		})).Shuffle(from)
		top.Bolt("leaf", fn(null)).Shuffle("join")
		e := run(t, top, records("in", messages(n)...))
		e.wantEnds(0, n)
		if e.total("join") != 2 || e.total("leaf") != 0 {
			t.Errorf("same root %v: %d executions, %d of the output", same, e.total("join"), e.total("leaf"))
		}
		for _, c := range e.dead("in") {
			if c.Policy != ack.Skip {
				t.Errorf("a root that is %v", c.Policy)
			}
		}
	}
}
