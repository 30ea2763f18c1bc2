package engine_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/internal/engine"
)

// dice is a source of chance for many goroutines.
type dice struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rnd.IntN(n)
}

// pool keeps handles for somebody to join, ack, fail or forget.
type pool struct {
	mu sync.Mutex
	hs []*killick.Held
}

func (p *pool) swap(h *killick.Held, d *dice) (with []*killick.Held) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.hs) > 0 && d.n(3) > 0 {
		k := d.n(len(p.hs))
		with = append(with, p.hs[k])
		if d.n(3) > 0 { // else it is joined again, maybe after its verdict
			p.hs = append(p.hs[:k], p.hs[k+1:]...)
		}
	}
	p.hs = append(p.hs, h)
	return with
}

// TestChaos: whatever bolts do with tuples and handles, and while partitions are released or go away, each
// root of those that stay ends once, and nothing of the others does once they are gone. What is released
// ends, or is left to the next owner. KILLICK_CHAOS_SEEDS is how many runs.
func TestChaos(t *testing.T) {
	seeds := 8
	if s := os.Getenv("KILLICK_CHAOS_SEEDS"); s != "" {
		var err error
		if seeds, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { chaos(t, uint64(seed)) })
	}
}

func chaos(t *testing.T, seed uint64) {
	d := &dice{rnd: rand.New(rand.NewPCG(seed, 7))}
	var held pool
	// act does anything with an input.
	act := func(in *killick.Tuple, out killick.Emitter) error {
		m := in.Message()
		for range d.n(4) {
			switch d.n(8) {
			case 0:
				out.EmitUntracked("", m)
			case 1:
				out.EmitTo("side", m)
			default:
				out.Emit(m)
			}
		}
		switch d.n(16) {
		case 0:
			return errNo
		case 1:
			return killick.FailTree(errNo)
		case 2:
			panic("boom")
		case 3:
			out.Hold() // and forget it
		case 4:
			if d.n(10) == 0 {
				return killick.Permanent(errNo)
			}
		case 5, 6, 7:
			h := out.Hold()
			with := held.swap(h, d)
			wait := time.Duration(d.n(3000)) * time.Millisecond
			time.AfterFunc(wait, func() {
				_ = h.Emit(m, with...)
				h.Extend(time.Second)
				for _, w := range append(with, h) {
					switch d.n(6) {
					case 0:
						w.Fail(errNo)
					case 1:
						w.Fail(killick.FailTree(errNo))
					default:
						w.Ack()
					}
				}
			})
		}
		return nil
	}
	keep := killick.Retry{Attempts: 1000, Max: time.Second}
	top := killick.New("chaos")
	top.Spout("in", kafka("in")).Pending(20, 1<<20)
	for i, name := range []string{"a", "b", "c"} {
		b := top.Bolt(name, fn(act)).Tasks(1+d.n(3)).InFlight(1+d.n(2)*d.n(4)).Timeout(time.Second).Retry(keep).Stream("", nil).Stream("side", nil)
		if d.n(3) == 0 {
			keep := keep
			keep.Tree = true
			b.Retry(keep)
		}
		from := []string{"in", "a", "b"}[i]
		switch d.n(5) {
		case 0:
			b.All(from)
		case 1:
			b.Fields(from, nil)
		case 2:
			b.Custom(from, func(dst []int, _ *killick.Tuple, n int) []int { return append(dst, d.n(n)) })
		default:
			b.Shuffle(from)
		}
		if i > 0 && d.n(2) == 0 {
			b.Shuffle(from + "/side")
		}
	}
	top.Bolt("out", bolt.Kafka("out")).Shuffle("c").Shuffle("a/side").Retry(keep)
	const parts, n = 4, 120
	lost := map[int]bool{}
	e := during(t, top, func(e *env) {
		for p := range parts - 1 {
			how := d.n(3)
			if how == 0 {
				continue
			}
			time.Sleep(time.Duration(d.n(2000)) * time.Millisecond)
			c := e.feeds["in"].chunks[p]
			if how == 1 {
				e.release(p)
				until := time.Now().Add(time.Hour)
				for c.halt() > e.Left(&c.epoch) {
					if e.Flush(); time.Now().After(until) {
						t.Errorf("partition %d is released, and still has %d open roots, %d of them left", p, c.halt(), e.Left(&c.epoch))
						break
					}
					time.Sleep(10 * time.Millisecond)
				}
			}
			c.lose()
			lost[p] = true
		}
		<-e.done
		synctest.Wait()
		time.Sleep(time.Hour) // what is still planned changes nothing
	}, partitions("in", parts, messages(n)...), quiet, with(func(c *config) {
		c.RoundTrip = d.n(2) == 0
		c.Outbox = outboxFunc(func(o *engine.Output) error {
			if d.n(20) == 0 {
				return errNo
			}
			err := error(nil)
			if d.n(10) == 0 {
				err = errNo
			}
			if d.n(2) == 0 {
				o.Done(err)
			} else {
				time.AfterFunc(time.Duration(d.n(500))*time.Millisecond, func() { o.Done(err) })
			}
			return nil
		})
	}))
	if e.err != nil {
		t.Errorf("run: %v", e.err)
	}
	f := e.feeds["in"]
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, c := range f.chunks {
		for i, ends := range c.ends {
			if !lost[p] && len(ends) != 1 {
				t.Errorf("root %d/%d has ended %d times", p, i, len(ends))
			}
		}
	}
	if f.open != 0 {
		t.Errorf("%d roots open", f.open)
	}
}
