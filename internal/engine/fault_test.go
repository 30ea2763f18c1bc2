package engine_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/killick-io/killick"
)

// TestVerdictAtTheDeadline: verdicts come in the very tick in which the tuple's time is up. One of the two
// counts, and the root ends once. KILLICK_FULL=1 takes 1,000,000 tuples.
func TestVerdictAtTheDeadline(t *testing.T) {
	n := 20_000
	if full() {
		n = 1_000_000
	}
	top := killick.New("race")
	top.Spout("in", kafka("in")).Pending(1000, 1<<30)
	var won, lost atomic.Int64
	var users sync.WaitGroup
	const timeout = 100 * time.Millisecond
	top.Bolt("hold", fn(func(in *killick.Tuple, out killick.Emitter) error {
		h, o := out.Hold(), offset(in)
		users.Add(1)
		// A tuple's time is up within two ticks behind its time-out, of which there are at least a hundred in
		// one: a verdict for each thousandth of that.
		at := timeout + time.Duration(o%25)*time.Millisecond
		time.AfterFunc(at, func() {
			defer users.Done()
			first := false
			if o%2 == 0 {
				first = h.Ack()
			} else {
				first = h.Fail(killick.Permanent(errNo))
			}
			if first {
				won.Add(1)
			} else {
				lost.Add(1)
			}
		})
		return nil
	})).Shuffle("in").Timeout(timeout).Retry(killick.Retry{Attempts: 1})
	var e *env
	during(t, top, func(x *env) { e = x; <-x.done; users.Wait() }, records("in", messages(n)...), quiet)
	acked, dead := e.acked("in"), len(e.dead("in"))
	timeouts := int(e.stats("hold").Timeouts)
	if acked+dead != n || int(won.Load()+lost.Load()) != n || timeouts != int(lost.Load()) {
		t.Errorf("%d acked and %d dead of %d; %d verdicts came first, %d did not, %d time-outs", acked, dead, n, won.Load(), lost.Load(), timeouts)
	}
	if late := e.ignored()[1]; late != lost.Load() {
		t.Errorf("%d late verdicts were counted, of %d", late, lost.Load())
	}
	if won.Load() < int64(n/20) || lost.Load() < int64(n/20) {
		t.Errorf("%d of %d verdicts came first: that was no race", won.Load(), n)
	}
	t.Logf("%d tuples: %d verdicts came first, %d did not", n, won.Load(), lost.Load())
}

// TestForgottenVerdicts: held tuples that nobody decides upon end by their time-outs, are counted, and
// nothing of them is left.
func TestForgottenVerdicts(t *testing.T) {
	const n = 20_000
	top := killick.New("forgotten")
	top.Spout("in", kafka("in")).Pending(1000, 1<<30)
	top.Bolt("forget", fn(func(_ *killick.Tuple, out killick.Emitter) error { out.Hold(); return nil })).
		Shuffle("in").Timeout(time.Second).Retry(killick.Retry{Attempts: 2, Min: 1, Max: time.Millisecond})
	before := heap()
	var e *env
	during(t, top, func(x *env) { e = x; <-x.done }, records("in", messages(n)...), quiet)
	e.wantEnds(0, n)
	if s := e.stats("forget"); s.Timeouts != 2*n || s.Dead != n {
		t.Errorf("stats %+v", s)
	}
	// What the test itself keeps of each root: its record, and how it ended.
	if grown := heap() - before; grown > n*1000+8<<20 {
		t.Errorf("%d MiB are left", grown>>20)
	}
	runtime.KeepAlive(e)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestFanOutOfAMillion: one root becomes a million tuples. Who emits waits for who executes, so that no
// more of them are there at a time than the queues hold, and the heap does not grow with their number.
func TestFanOutOfAMillion(t *testing.T) {
	const first, second = 1000, 1000
	top := topology()
	split := func(n int, count *atomic.Int64) killick.BoltFactory {
		return fn(func(_ *killick.Tuple, out killick.Emitter) error {
			for range n {
				out.Emit(killick.Message{})
			}
			if count != nil {
				count.Add(int64(n))
			}
			return nil
		})
	}
	var emitted, executed atomic.Int64
	var most, peak int64
	base := heap()
	top.Bolt("one", split(first, nil)).Shuffle("in").Timeout(time.Hour)
	top.Bolt("many", split(second, &emitted)).Shuffle("one").Tasks(2).Timeout(time.Hour)
	top.Bolt("leaf", fn(func(*killick.Tuple, killick.Emitter) error {
		if n := executed.Add(1); n%100_000 == 1 {
			<-time.After(time.Minute) // until all others wait
			most = max(most, emitted.Load()-n)
			peak = max(peak, heap()-base)
		}
		return nil
	})).Shuffle("many").Timeout(time.Hour)
	e := run(t, top, records("in", messages(1)...), quiet)
	e.wantEnds(1, 0)
	if executed.Load() != first*second {
		t.Errorf("%d leaves", executed.Load())
	}
	if most > 100_000 || peak > 64<<20 {
		t.Errorf("%d tuples waited at a time, and the heap grew by %d MiB", most, peak>>20)
	}
	t.Logf("at most %d tuples waited at a time, and the heap grew by %d KiB", most, peak>>10)
}
