package engine_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
)

// TestLateVerdicts is late verdicts at volume: each tuple is acked, and acked, failed and emitted
// on again 1 to 50 ms later by another goroutine, under forced collections, while a tenth of all
// first tries fail. The misuse counters are exactly the number of second calls, no late emit
// leaves, and a root ends only after its tuple's first verdict. KILLICK_FULL=1 takes 1,000,000
// tuples.
func TestLateVerdicts(t *testing.T) {
	n := 12_000
	if full() {
		n = 1_000_000
	}
	ignore := goleak.IgnoreCurrent()
	top := killick.New("late")
	top.Spout("in", kafka("in")).Pending(10_000, 1<<30)

	type late struct {
		h    *killick.Held
		when time.Time
	}
	lates := make(chan late, n)
	var seconds, emits atomic.Int64
	var users sync.WaitGroup
	for range 2 {
		users.Go(func() {
			for l := range lates {
				if d := time.Until(l.when); d > 0 {
					timer := time.NewTimer(d)
					<-timer.C
				}
				if l.h.Ack() || l.h.Fail(errNo) {
					t.Error("a second verdict counted")
				}
				seconds.Add(2)
				if err := l.h.Emit(killick.Message{Bytes: []byte("late")}); !errors.Is(err, killick.ErrFinished) {
					t.Errorf("a late emit: %v", err)
				}
				emits.Add(1)
			}
		})
	}
	verdicts := make([]atomic.Bool, n) // by offset: the ack has been called
	acks := make(chan *killick.Held, 1000)
	users.Go(func() { // the asynchronous work: acks from another goroutine
		defer close(lates)
		for h := range acks {
			o := offset(h.Tuple())
			verdicts[o].Store(true)
			if !h.Ack() {
				t.Error("the first ack did not count")
			}
			lates <- late{h, time.Now().Add(time.Duration(1+o%50) * time.Millisecond)}
		}
	})
	var leaves atomic.Int64
	top.Bolt("async", fn(func(in *killick.Tuple, out killick.Emitter) error {
		out.Emit(killick.Message{Key: in.Key(), Bytes: in.Bytes()})
		h := out.Hold()
		if in.Attempt() == 1 && offset(in)%10 == 0 {
			return errNo
		}
		acks <- h
		return nil
	})).Shuffle("in").Retry(killick.Retry{Min: 1, Max: time.Millisecond})
	top.Bolt("leaf", fn(func(in *killick.Tuple, _ killick.Emitter) error {
		if string(in.Bytes()) == "late" {
			t.Error("a late emit left")
		}
		leaves.Add(1)
		return nil
	})).Shuffle("async")

	e := build(t, top, records("in", messages(n)...), quiet)
	stop := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() { // the collector, and the floor
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		floor := 0
		c := e.feeds["in"].chunks[0]
		for {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
			runtime.GC()
			c.f.mu.Lock()
			for floor < n && len(c.ends[floor]) > 0 {
				if !verdicts[floor].Load() {
					t.Errorf("root %d ended before its verdict", floor)
				}
				floor++
			}
			c.f.mu.Unlock()
		}
	})
	e.run()
	close(acks)
	users.Wait()
	close(stop)
	watcher.Wait()
	e.wantEnds(n, 0)
	if g := e.ignored(); g[0]+g[2] != seconds.Load() || g[1] != 0 || seconds.Load() != int64(2*n) {
		t.Errorf("ignored %v, %d second verdicts", g, seconds.Load())
	}
	if m := e.stats("async").Misuse; m != emits.Load() || m != int64(n) {
		t.Errorf("misuse %d, %d late emits", m, emits.Load())
	}
	if leaves.Load() != int64(n) || e.stats("async").Failed != int64(n/10) {
		t.Errorf("%d leaves, %d failures", leaves.Load(), e.stats("async").Failed)
	}
	goleak.VerifyNone(t, ignore)
}

// full asks for the whole size of the tests of volume.
func full() bool { return os.Getenv("KILLICK_FULL") == "1" }

// TestKeptPayloads: the Held, Key, Bytes and Headers of all executions are kept, and are what they
// were after forced collections and many more executions. KILLICK_FULL=1 takes 100,000 tuples.
func TestKeptPayloads(t *testing.T) {
	n := 15_000
	if full() {
		n = 100_000
	}
	ms := messages(n)
	for i := range ms {
		ms[i].Headers = []killick.Header{{Key: "h", Value: ms[i].Bytes}}
	}
	top := killick.New("kept")
	top.Spout("in", kafka("in"))
	top.Bolt("pass", fn(pass)).Shuffle("in")
	var k keeper
	type payload struct {
		key, bytes []byte
		headers    []killick.Header
	}
	var kept []payload
	top.Bolt("keep", fn(func(in *killick.Tuple, out killick.Emitter) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.held = append(k.held, out.Hold())
		k.copy = append(k.copy, show(in))
		kept = append(kept, payload{in.Key(), in.Bytes(), in.Headers()})
		k.held[len(k.held)-1].Ack()
		return nil
	})).Tasks(2).Shuffle("pass")
	e := build(t, top, records("in", ms...), quiet).run()
	e.wantEnds(n, 0)
	runtime.GC()
	k.check(t)
	for i, h := range k.held {
		in, p := h.Tuple(), kept[i]
		if string(in.Key()) != string(p.key) || string(in.Bytes()) != string(p.bytes) || string(in.Headers()[0].Value) != string(p.headers[0].Value) || string(p.bytes) != string(p.headers[0].Value) {
			t.Fatalf("payload %d changed", i)
		}
	}
	runtime.GC()
	k.check(t)
}

// TestLeaks: a run in real time leaves no goroutine behind, however it ends.
func TestLeaks(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	for _, stops := range []bool{false, true} {
		top := topology()
		top.Bolt("a", bolt.Async(8, func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			if in.Attempt() == 1 && offset(in)%7 == 0 {
				return killick.RetryAfter(time.Millisecond, errNo)
			}
			return pass(in, out)
		})).Tasks(2).Shuffle("in")
		top.Bolt("b", fn(func(_ *killick.Tuple, out killick.Emitter) error {
			h := out.Hold()
			h.Context()
			h.Ack()
			return nil
		})).Shuffle("a")
		e := build(t, top, records("in", messages(500)...))
		ctx, cancel := context.WithCancel(t.Context())
		if stops {
			cancel()
		}
		e.err = e.Run(ctx)
		cancel()
		if !stops {
			e.wantEnds(500, 0)
		}
	}
	goleak.VerifyNone(t, ignore)
}
