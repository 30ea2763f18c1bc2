package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/rules"
)

// component is one bolt of the topology with its tasks.
type component struct {
	e       *Engine
	spec    *killick.BoltSpec
	sink    *killick.SinkInfo
	ports   []*port // the default stream first
	tasks   []*task
	stats   Stats
	names   []string // of the streams
	held    heldList // held tuples in order of their deadline
	misuses misuses

	// late routes what held tuples emit, from whatever goroutine acks. late is its token.
	lateOut *router
	late    chan struct{}
	blocked atomic.Int64 // goroutines that wait for late, or in it for room downstream
}

func (e *Engine) add(s *killick.BoltSpec) {
	c := &component{e: e, spec: s, sink: s.Info.Sink, late: make(chan struct{}, 1)}
	for _, st := range s.Streams {
		p := &port{Port: core.Port{Component: s.Name, Stream: st.Name}, codec: st.Codec}
		if st.Codec != nil {
			p.typ = st.Codec.Type()
		}
		c.ports = append(c.ports, p)
		c.names = append(c.names, st.Name)
	}
	e.comps = append(e.comps, c)
	e.byName[s.Name] = c
}

// makeTasks is called when all subscriptions are known.
func (c *component) makeTasks() {
	c.lateOut = newRouter(c.e, c, &c.stats.blocked, false)
	c.lateOut.lay(c.ports)
	for i := range c.spec.Tasks {
		room := queueLen
		if !rules.QueuesAreBounded {
			room = 1 << 16
		}
		t := &task{c: c, e: c.e, index: i, in: make(chan *batch, room), wake: make(chan struct{}, 1), own: make(chan struct{}, 1)}
		t.own <- struct{}{} // until it has prepared
		t.inline = c.spec.Tasks == 1 && c.spec.InFlight == 1 && c.sink == nil
		c.tasks = append(c.tasks, t)
		c.e.tasks = append(c.e.tasks, t)
	}
}

// queueLen is how many batches may wait at a task. Senders block when it is full.
const queueLen = 8

// task is one instance of a component.
type task struct {
	c     *component
	e     *Engine
	index int
	bolt  killick.Bolt
	x     *exec // executes for whoever holds own

	// own is the ownership token: whoever has put a value in runs the bolt. A channel, not a
	// mutex, so that waiting for it ends with the engine.
	own    chan struct{}
	inline bool        // may run on the goroutine of the task upstream
	slow   atomic.Bool // its executions take so long that it should have its own goroutine
	dirty  atomic.Bool // executed since the last Flush
	// flushNow: a partition is released, and may wait for what the bolt has collected.
	flushNow atomic.Bool

	in     chan *batch
	queued atomic.Int64 // batches sent to in whose execution has not ended
	wake   chan struct{}

	mu    sync.Mutex
	again []*entry // retries that are due. Not bounded here: each is an open tuple of a started root

	flights chan *exec // InFlight > 1: idle executions
}

// poke makes the loop look at its retries and hooks.
func (t *task) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// retry queues en to run now.
func (t *task) retry(en *entry) {
	t.mu.Lock()
	t.again = append(t.again, en)
	t.mu.Unlock()
	t.poke()
}

// due returns a batch of the retries that are due. The others follow after what else waits, so
// that a storm of retries does not hold up fresh tuples.
func (t *task) due() []*entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(t.again), batchSize)
	d := t.again[:n:n]
	if t.again = t.again[n:]; len(t.again) == 0 {
		t.again = nil
	} else {
		t.poke()
	}
	return d
}

// waiting returns how many retries are due.
func (t *task) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.again)
}

// acquire takes ownership; false: the engine has stopped, and nothing may begin any more.
func (t *task) acquire() bool {
	select {
	case t.own <- struct{}{}:
		if t.e.hard.Err() == nil {
			return true
		}
		t.release()
	case <-t.e.hard.Done():
	}
	return false
}

// tryAcquire takes ownership if the task is idle. Not while a batch that came before is still to
// be executed: it would be overtaken.
func (t *task) tryAcquire() bool {
	if t.queued.Load() > 0 {
		return false
	}
	select {
	case t.own <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t *task) release() { <-t.own }

// loop is the task's own goroutine. It ends with the engine's hard context.
func (t *task) loop() {
	defer t.e.loops.Done()
	r := t.e.watch.runner()
	r.label()
	defer t.e.watch.drop(r)
	defer func() { t.e.exited(r, t.c.spec.Name) }()
	if !t.prepare() { // holds own
		return
	}
	t.e.preparing.Add(-1)
	var tick <-chan time.Time
	if t.c.spec.Tick > 0 {
		tk := time.NewTicker(t.c.spec.Tick)
		defer tk.Stop()
		tick = tk.C
	}
	t.release()
	defer t.cleanup()
	always := make(chan struct{})
	close(always)
	var (
		batch *batch // in progress
		next  int    // its first item that was not executed
		// ticked: the last thing was a tick, so others are next, however long one takes.
		ticked bool
	)
	for {
		// A batch is executed in pieces if that takes long: ticks and retries come in between.
		in, more := t.in, (chan struct{})(nil)
		if batch != nil {
			in, more = nil, always
		}
		// A tick goes before the rest of a batch: left to chance, some would be left out where each
		// piece is long.
		after := ticked
		ticked = false
		if batch != nil && !after {
			select {
			case <-tick:
				ticked = true
			default:
			}
		}
		if !ticked {
			select {
			case <-t.e.hard.Done():
				return
			case batch = <-in:
				next = 0
				continue
			case <-more:
				if !t.acquire() {
					return
				}
				if next = t.runSome(batch, next, r); next == len(batch.items) {
					t.e.put(batch)
					batch = nil
					t.queued.Add(-1)
				}
				t.release()
			case <-t.wake:
				if !t.acquire() {
					return
				}
				t.runDue(r)
				t.release()
			case <-tick:
				ticked = true
			}
		}
		if ticked {
			if !t.acquire() {
				return
			}
			t.x.hook(r, "Tick", func(ctx context.Context) error { return t.bolt.(killick.Ticker).Tick(ctx, t.x.untracked()) })
			t.release()
		}
		if t.flushNow.Swap(false) && t.flushes() || t.e.ending.Load() && t.queued.Load() == 0 && t.waiting() == 0 {
			if !t.acquire() {
				return
			}
			t.flush(r)
			t.release()
		}
	}
}

// runSome executes items of a batch that was handed over, and returns the index of the first that
// it left.
func (t *task) runSome(b *batch, next int, r *runner) int {
	if t.flights == nil {
		return t.x.run(b, next, nil, r, false)
	}
	t.fly(&entry{item: b.items[next]})
	return next + 1
}

// wanted reports whether the loop may have something else to do than to go on with a batch.
func (t *task) wanted() bool { return t.c.spec.Tick > 0 || len(t.wake) > 0 }

func (t *task) runDue(r *runner) {
	due := t.due()
	if t.flights == nil {
		t.x.again(r, due...)
		return
	}
	for _, en := range due {
		t.fly(en)
	}
}

// fly executes en beside the loop, at most InFlight at a time: it waits for an idle
// execution first, so that no clock runs in a queue.
func (t *task) fly(en *entry) {
	var x *exec
	select {
	case x = <-t.flights:
	case <-t.e.hard.Done():
		return
	}
	t.e.flights.Add(1)
	go func() {
		defer t.e.flights.Done()
		x.r.label()
		returned := false
		defer func() {
			if !returned {
				t.e.exited(x.r, t.c.spec.Name)
			}
		}()
		x.again(x.r, en)
		returned = true
		t.flights <- x
		if t.e.ending.Load() {
			t.poke()
		}
	}()
}

// idle reports whether no execution is in flight.
func (t *task) idle() bool { return t.flights == nil || len(t.flights) == cap(t.flights) }

// flush calls the bolt's Flush if it has executed since the last one.
func (t *task) flush(r *runner) {
	f, ok := t.bolt.(killick.Flusher)
	if !ok || !t.idle() || !t.dirty.Load() {
		return
	}
	t.x.hook(r, "Flush", f.Flush)
	// Not before: the hook begins like an execution does. Nothing else has executed meanwhile,
	// since the caller holds own and no flight is in the air.
	t.dirty.Store(false)
}

// quiet reports whether the task has nothing to do: nothing queued, executing or to flush. One
// that has not prepared yet is not quiet.
func (t *task) quiet() bool {
	if t.waiting() > 0 || !t.tryAcquire() {
		return false
	}
	defer t.release()
	return t.idle() && (!t.flushes() || !t.dirty.Load())
}

// prepare makes the bolt and calls Prepare until it succeeds or its tries are used up.
func (t *task) prepare() bool {
	err := guard(func() error { t.bolt = t.c.spec.Factory(); return nil })
	if err == nil && t.bolt == nil {
		err = errors.New("the bolt factory returned nil")
	}
	if err != nil {
		t.e.stop(t.c.spec.Name, fmt.Errorf("task %d has no bolt: %w", t.index, err), true)
		return false
	}
	t.x = newExec(t, t.e.watch)
	if n := t.c.spec.InFlight; n > 1 {
		t.flights = make(chan *exec, n)
		for range n {
			x := newExec(t, t.e.watch)
			x.r = t.e.watch.runner()
			t.flights <- x
		}
	}
	p, ok := t.bolt.(killick.Preparer)
	if !ok {
		return true
	}
	tk := killick.Task{Topology: t.e.cfg.Spec.Name, Component: t.c.spec.Name, Index: t.index, Count: t.c.spec.Tasks}
	for n := 1; ; n++ {
		err := guard(func() error { return p.Prepare(t.e.hard, tk) })
		if err == nil {
			return true
		}
		if t.e.hard.Err() != nil {
			return false
		}
		if n >= t.c.spec.Retry.Attempts || killick.IsPermanent(err) {
			t.e.stop(t.c.spec.Name, fmt.Errorf("task %d: Prepare failed %d times, the last time with: %w", t.index, n, err), true)
			return false
		}
		wait := t.c.spec.Retry.Delay(n)
		if d, ok := killick.RetryDelay(err); ok {
			wait = d
		}
		t.e.cfg.Observe(Event{Kind: PrepareFailed, Component: t.c.spec.Name, Task: t.index, Attempt: n, Err: err, Wait: wait})
		select {
		case <-time.After(wait):
		case <-t.e.hard.Done():
			return false
		}
	}
}

// cleanup waits for the executions in progress and calls the bolt's Cleanup. After the engine's
// hard context has ended no new one begins.
func (t *task) cleanup() {
	c, ok := t.bolt.(killick.Cleaner)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.e.cfg.Grace)
	defer cancel()
	select {
	case t.own <- struct{}{}: // for good
	case <-ctx.Done():
		return
	}
	for range cap(t.flights) {
		select {
		case <-t.flights:
		case <-ctx.Done():
			return
		}
	}
	if err := guard(func() error { return c.Cleanup(ctx) }); err != nil {
		t.e.cfg.Observe(Event{Kind: HookFailed, Component: t.c.spec.Name, Task: t.index, Reason: "Cleanup", Err: err})
	}
}
