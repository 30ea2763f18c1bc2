package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/killick-io/killick/internal/rules"
)

// watch keeps time for the engine, so that no tuple costs a clock call: it counts ticks, and
// executors compare the count after each execution.
//
// An executor that sees a new tick writes it to its runner (beat). A runner that has not
// beaten for a message time-out's worth of ticks is inside one execution all that time, and
// watch marks it; the beat that follows tells the executor so. A plain tuple's time-out is
// thus decided by one atomic word per goroutine: either the beat comes first, and the return
// counts, or the mark does, and the return is late.
//
// While no user code runs, watch rests until the first deadline of a held tuple: a worker without
// work costs nothing here. Who starts user code, or brings a deadline forward, ends the rest.
type watch struct {
	e      *Engine
	period time.Duration
	tick   atomic.Uint64 // behind the clock during a rest
	began  time.Time

	// until is the tick that the rest lasts to, awake if there is none. No wake-up is lost: watch
	// stores it before it looks whether anything runs and what is due, the others load it after
	// they have written that; so one of the two sees the other.
	until atomic.Uint64
	wake  chan struct{} // has room for one

	mu      sync.Mutex
	runners map[*runner]struct{}
	ids     uint64

	quit, done chan struct{}
}

// runner is a goroutine that executes user code.
type runner struct {
	w      *watch
	id     uint64
	labels context.Context // of the profiler; carry the id
	last   uint64          // the tick of the last beat; the goroutine's own

	// word is the tick of the last beat << 1, and the mark in the lowest bit.
	word atomic.Uint64
	cur  atomic.Pointer[exec] // whose user code runs; nil: none

	// Watch's own:
	told   bool   // the stuck event was sent, or is about to be
	shown  bool   // it was, and line is known if it can be
	line   string // where user code stood then
	seen   uint64 // the word when it looked last
	credit uint64 // ticks since then in which the component's emits waited for room
}

func newWatch(e *Engine, period time.Duration) *watch {
	return &watch{e: e, period: period, runners: map[*runner]struct{}{},
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
}

func (w *watch) start() {
	w.began = time.Now()
	go w.loop()
}

func (w *watch) stop() {
	close(w.quit)
	<-w.done
}

// runner makes a runner, which label then puts on a goroutine.
func (w *watch) runner() *runner {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	r := &runner{w: w, id: w.ids, labels: runnerLabels(w.ids)}
	w.runners[r] = struct{}{}
	return r
}

func (w *watch) drop(r *runner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.runners, r)
}

// beat says that the goroutine is between executions, at tick now. It reports whether the one
// before was marked as timed out.
func (r *runner) beat(now uint64) (marked bool) {
	r.last = now
	return r.word.Swap(now<<1)&1 == 1
}

// enter says that x executes from now on, and returns who did before.
func (r *runner) enter(x *exec) (prev *exec) {
	prev = r.cur.Load()
	r.start(prev, x)
	return prev
}

// start says that cur's code runs from now on; x's did until the last beat.
func (r *runner) start(x, cur *exec) {
	w := r.w
	if w.until.Load() != awake {
		w.advance(w.clock()) // or the time before would be cur's
	}
	r.between(x)
	r.cur.Store(cur)
	w.by(0)
}

// leave gives the goroutine back to prev.
func (r *runner) leave(prev *exec) {
	r.between(r.cur.Swap(prev))
}

// pause and resume enclose a wait of the engine's own, which is nobody's user code.
func (r *runner) pause() (cur *exec) {
	if !rules.WaitsAreNotUserTime {
		return r.cur.Load()
	}
	return r.cur.Swap(nil)
}

func (r *runner) resume(cur *exec) {
	if !rules.WaitsAreNotUserTime {
		return
	}
	r.start(cur, cur)
}

// between beats outside user code. A mark that comes here, because the whole process stood
// still, is about no tuple; but x's context has been cancelled.
func (r *runner) between(x *exec) {
	if r.beat(r.w.tick.Load()) && x != nil {
		x.newContext()
	}
}

// clock returns the tick that it should be: the count may be late on a busy machine.
func (w *watch) clock() uint64 { return uint64(time.Since(w.began) / w.period) }

// deadline returns the tick at which d will have passed, and not more than a period more.
func (w *watch) deadline(d time.Duration) uint64 {
	return w.clock() + uint64((max(d, 1)-1)/w.period) + 2
}

// awake is watch.until while watch counts ticks; never is far away.
const (
	awake uint64 = 0
	never uint64 = 1<<64 - 1
)

func (w *watch) loop() {
	defer close(w.done)
	t := time.NewTimer(w.period)
	defer t.Stop()
	for {
		wait := w.period
		select {
		case <-t.C:
			w.until.Store(awake)
			w.turn()
			if at := w.rest(); at != awake {
				wait = w.in(at)
			}
		case <-w.wake: // for a period at least, so that a trickle of work does not wake it each time
		case <-w.quit:
			return
		}
		t.Reset(wait)
	}
}

// turn counts a tick and looks at everything that has a time-out.
func (w *watch) turn() {
	// Timers are late on a busy machine; the count follows the clock all the same.
	last := w.tick.Load()
	now := w.advance(max(last+1, w.clock()))
	var found []stuck
	w.mu.Lock()
	for r := range w.runners {
		if x, age := w.look(r, now, now-last); x != nil {
			found = append(found, stuck{r, x, age})
		}
	}
	w.mu.Unlock()
	for _, s := range found {
		s.tell()
	}
	for _, c := range w.e.comps {
		if !rules.HeldTimesOut {
			break
		}
		c.held.expire(now)
	}
}

// advance sets the count to at least now, and returns it.
func (w *watch) advance(now uint64) uint64 {
	for {
		last := w.tick.Load()
		if last >= now || w.tick.CompareAndSwap(last, now) {
			return max(last, now)
		}
	}
}

// rest begins a rest if no user code runs, and returns until when; awake: something runs.
func (w *watch) rest() (until uint64) {
	w.until.Store(never)
	if w.busy() {
		w.until.Store(awake)
		return awake
	}
	until = never
	for _, c := range w.e.comps { // after busy: what was held by then is on the lists
		until = min(until, c.held.next())
	}
	if !w.until.CompareAndSwap(never, until) {
		return awake
	}
	return until
}

// busy reports whether user code runs.
func (w *watch) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range w.runners {
		if r.cur.Load() != nil {
			return true
		}
	}
	return false
}

// by ends a rest that would last beyond tick at.
func (w *watch) by(at uint64) {
	for {
		until := w.until.Load()
		if until == awake || at >= until {
			return
		}
		if w.until.CompareAndSwap(until, awake) {
			break
		}
	}
	select {
	case w.wake <- struct{}{}:
	default: // it has not seen the one before yet, and will
	}
}

// in returns the time until tick at, an hour at most.
func (w *watch) in(at uint64) time.Duration {
	now := w.clock()
	if at <= now {
		return 1
	}
	if at-now > uint64(time.Hour/w.period) {
		return time.Hour
	}
	return time.Until(w.began.Add(time.Duration(at) * w.period))
}

// look marks r when the execution in progress has taken too long. At twice that it returns it,
// once.
func (w *watch) look(r *runner, now, since uint64) (_ *exec, age time.Duration) {
	x := r.cur.Load()
	if x == nil {
		return nil, 0
	}
	word := r.word.Load()
	if word != r.seen {
		r.seen, r.credit, r.told, r.shown, r.line = word, 0, false, false, ""
	}
	if x.c.blocked.Load() > 0 {
		// User code may be in an Ack that waits for room downstream.
		r.credit += since
	}
	age = time.Duration(now-word>>1-r.credit) * w.period
	limit := x.c.spec.Timeout
	if age <= limit {
		return nil, 0
	}
	cancel := *x.cancel.Load() // before the mark: the executor replaces it after
	if word&1 == 0 && r.word.CompareAndSwap(word, word|1) {
		r.seen = word | 1
		cancel(ErrTimeout)
	}
	if age > 2*limit && !r.told {
		r.told = true
		return x, age
	}
	return nil, 0
}
