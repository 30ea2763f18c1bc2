package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/crash"
	"github.com/killick-io/killick/internal/rules"
)

// slowAfter is the time per execution above which a task gets its own goroutine; it loses it
// again below half of that.
const slowAfter = 100 * time.Microsecond

// exec runs the bolt of one task, one execution at a time. Its state belongs to whoever
// holds the task's token (of InFlight tasks: to the flight that took it).
type exec struct {
	e     *Engine
	t     *task
	c     *component
	bolt  killick.Bolt
	r     *runner // the goroutine that it runs on now
	ex    core.Execution[killick.Message]
	tuple *core.Tuple
	out   *router

	ctx context.Context // of the executions; replaced after a time-out cancelled it
	// cancel ends ctx; an atomic pointer because watch calls it.
	cancel atomic.Pointer[context.CancelCauseFunc]

	// The input of the execution in progress: an item, or the index-th record of the frame.
	it    *item
	src   item   // the record as an item, when one is needed
	pos   cursor // the latter's index, or the former's in its batch
	held  *held
	user  bool          // user code runs: a panic is its
	skips int           // inputs since the last gauge that were not executed
	pace  time.Duration // moving average of an execution
	took  time.Duration // what gauge has measured, since somebody set it to 0
	at    spot          // for others; last, to keep what each tuple touches together
}

func newExec(t *task, w *watch) *exec {
	x := &exec{e: t.e, t: t, c: t.c, bolt: t.bolt, tuple: new(core.Tuple)}
	x.out = newRouter(t.e, t.c, &t.c.stats.blocked, true)
	x.out.states = make([]state, len(t.c.lateOut.states))
	x.out.targets = make([]target, len(t.c.lateOut.targets))
	x.ex.Streams = t.c.names
	x.ex.Hook = x
	x.newContext()
	return x
}

func (x *exec) newContext() {
	ctx, cancel := context.WithCancelCause(x.e.hard)
	x.ctx = ctx
	x.cancel.Store(&cancel)
}

// begin takes over the goroutine of r for executions under f (nil: the items carry edges).
func (x *exec) begin(f *frame, r *runner) (prev *exec) {
	x.r, x.out.r, x.out.frame = r, r, f
	x.t.dirty.Store(true)
	return r.enter(x)
}

// run executes the items of b from from on, sends what they emit, and then ends their edges. It
// returns the index of the first that it left: when the engine stops, when the task runs in line
// and turned out to be slow, or when its own loop has something else to do.
func (x *exec) run(b *batch, from int, f *frame, r *runner, inline bool) (next int) {
	prev := x.begin(f, r)
	x.beginAt(nil, b, from)
	for next = from; next < len(b.items); from = next {
		start := x.clock()
		var pulse bool
		next, pulse = x.items(b, next)
		slow := x.gauge(start, next-from)
		x.settle(b, from, next)
		if pulse && (x.e.hard.Err() != nil || inline && slow || !inline && x.t.wanted()) {
			break
		}
	}
	r.leave(prev)
	x.beginAt(nil, nil, 0)
	x.ex.Clear()
	return next
}

// settle sends what waits and ends the edges of the items [from, to): in that order, so that
// an input's edge is open until its outputs' are.
func (x *exec) settle(b *batch, from, to int) {
	if rules.OutputsBeforeEnd {
		x.out.flush()
	}
	crash.At(crash.OutputsSent)
	for i := from; i < to; i++ {
		if it := &b.items[i]; it.edge {
			it.edge = false
			if it.anchors.Gone() {
				x.e.Ignored.Lost.Add(1)
			}
			it.anchors.End()
		}
	}
	if !rules.OutputsBeforeEnd {
		x.out.flush()
	}
}

// clock starts what gauge measures.
func (x *exec) clock() time.Time {
	x.out.away, x.skips = 0, 0
	return time.Now()
}

// gauge notes that what became of n inputs began at start, and decides whether the task is slow. A
// few long executions among many weigh as the average does; what a batch's sending takes does not
// count.
func (x *exec) gauge(start time.Time, n int) (slow bool) {
	if n -= x.skips; n == 0 {
		return x.t.slow.Load()
	}
	took := time.Since(start)
	x.took += took
	busy := took - x.out.away
	x.c.stats.observe(busy, n)
	per := busy / time.Duration(n)
	x.pace += (per - x.pace) * time.Duration(min(n, 64)) / 64
	slow = x.t.slow.Load()
	switch {
	case x.t.flights != nil: // they share the task, and never run in line
	case x.pace > slowAfter && !slow:
		x.t.slow.Store(true)
		slow = true
	case x.pace < slowAfter/2 && slow:
		x.t.slow.Store(false)
		slow = false
	}
	return slow
}

// items executes b's items from i on, until the end or until time is to be looked at (pulse):
// the clock ticked, or each execution is slow.
func (x *exec) items(b *batch, i int) (next int, pulse bool) {
	next = i
	defer func() {
		if p := recover(); p != nil {
			x.it = &b.items[next]
			x.panicked(p)
			next, pulse = next+1, true
		}
	}()
	slow := x.t.slow.Load()
	f := x.out.frame
	for ; next < len(b.items); next++ {
		it := &b.items[next]
		x.it = it
		x.pos.set(next)
		if !it.anchors.Live() || f != nil && !f.live(it) {
			x.c.stats.skipped.Add(1)
			x.skips++
			if it.edge { // here, since settle takes what it ends for a verdict
				it.edge = false
				it.anchors.End()
			}
			continue
		}
		t := x.fresh()
		it.fill(t)
		if x.execute(t) || slow {
			return next + 1, true
		}
	}
	return next, false
}

// records executes the frame's records from i on, as items does.
func (x *exec) records(f *frame, i int) (next int, pulse bool) {
	next = i
	defer func() {
		if p := recover(); p != nil {
			x.pos.set(next)
			x.panicked(p)
			next, pulse = next+1, true
		}
	}()
	x.it = nil
	c, to := f.run.Chunk, f.run.To
	port := &f.d.ports[0].Port
	x.src = item{port: f.d.ports[0], chunk: c, tries: 1, replays: int32(f.attempt - 1)}
	t := x.fresh()
	t.Fill(nil, port, c, next, nil, f.attempt)
	for ; next < to; next++ {
		if f.hasDead && f.dead[next-f.run.From] {
			x.skips++
			continue
		}
		if core.Race {
			t = x.fresh()
			t.Fill(nil, port, c, next, nil, f.attempt)
		}
		x.pos.set(next)
		t.Next(c.Record(next), next)
		if f.vals != nil {
			if v := f.vals[next-f.run.From]; v == (noValue{}) {
				t.ClearValue()
			} else {
				t.SetValue(v)
			}
		}
		if x.execute(t) {
			return next + 1, true
		}
	}
	return next, false
}

// fresh returns the tuple to fill: the executor's own, a new one under -race.
func (x *exec) fresh() *core.Tuple {
	if core.Race {
		x.tuple = new(core.Tuple)
	}
	return x.tuple
}

// execute runs user code once and does what its return says. It reports whether the clock
// has ticked since the last time, so that the caller sends what waits.
func (x *exec) execute(t *core.Tuple) (ticked bool) {
	out := x.ex.Begin()
	if tell := x.e.cfg.Executed; tell != nil {
		tell(x.c.spec.Name, t.ID(), t.Attempt())
	}
	x.user = true
	err := x.bolt.Execute(x.ctx, (*killick.Tuple)(t), killick.Emitter(out))
	x.user = false
	crash.At(crash.Executed)
	x.ex.End()
	if core.Race {
		t.Poison()
	}
	if now := x.e.watch.tick.Load(); now != x.r.last {
		ticked = true
		if x.r.beat(now) {
			x.newContext()
			// A held tuple has a clock of its own, which the bolt may have extended.
			if x.held == nil {
				x.timedOut()
				return true
			}
		}
	}
	if err == nil && len(x.ex.Out) == 0 && x.ex.Bad == nil && x.held == nil {
		return ticked
	}
	x.returned(err)
	return ticked
}

// returned handles a return that was not just an ack without outputs.
func (x *exec) returned(err error) {
	if err == nil && x.ex.Bad != nil {
		err = killick.Permanent(x.ex.Bad)
	}
	if h := x.held; h != nil {
		x.held = nil
		if err != nil {
			if !h.Decided() {
				h.Fail(err)
			} else {
				x.afterVerdict(err, nil)
			}
		} else if loose := x.ex.Out; len(loose) > 0 { // only untracked emits are here after Hold
			h.addLoose(loose)
		}
		x.ex.Reset()
		return
	}
	if err == nil || !rules.FailedTriesLeaveNothing {
		if e := x.emit(); err == nil {
			err = e
		}
	}
	x.ex.Reset()
	if err != nil {
		x.c.fail(x.entry(), reasonOf(err), err, nil)
	}
}

// afterVerdict tells of a failure that came after the tuple's verdict: it changes nothing, but
// is a person's to see.
func (x *exec) afterVerdict(err error, stack []byte) {
	x.e.cfg.Observe(Event{Kind: HookFailed, Component: x.c.spec.Name, Task: x.t.index, Reason: "Execute", Err: err, Stack: stack})
}

// input returns the input of the execution in progress as an item.
func (x *exec) input() *item {
	if x.it != nil {
		return x.it
	}
	f, i := x.out.frame, x.pos.get()
	in := &x.src // records has set what all records of the frame share
	in.rec, in.i, in.anchors, in.edge = f.run.Chunk.Record(i), int32(i), ack.Anchors{}, false
	if f.vals != nil {
		in.val, in.typed = nil, false
		f.value(i, in)
	}
	return in
}

// value gives it the i-th record's value, if there is one.
func (f *frame) value(i int, it *item) {
	if f.vals == nil {
		return
	}
	if v := f.vals[i-f.run.From]; v != (noValue{}) {
		it.val, it.typed = v, true
	}
}

// take makes en the input, independent of its batch and with an open edge of its own.
func (x *exec) take(en *entry) {
	in := x.input()
	if !in.edge && !in.loose {
		x.out.frame.attach(in)
	}
	en.t, en.item = x.t, *in
	in.edge = false // en's now
	if rules.HeldIsOwn {
		en.item.own()
	}
}

// entry is take into a new entry.
func (x *exec) entry() *entry {
	en := new(entry)
	x.take(en)
	return en
}

// emit checks and sends the outputs of an execution that returned nil. On an error nothing
// has left.
func (x *exec) emit() error {
	if x.c.sink != nil {
		return x.c.write(x.input(), x.ex.Out, x, nil, false)
	}
	return x.out.emit(x.c.ports, x.input(), x.ex.Out, 0, nil)
}

// panicked handles a panic during an execution: a failed try, if user code did it. The engine's
// own panics are broken invariants, and end the process.
func (x *exec) panicked(p any) {
	if !x.user || !rules.PanicsAreFailedTries {
		panic(p)
	}
	x.user = false
	x.ex.End()
	x.ex.Reset()
	h := x.held
	x.held = nil
	if now := x.e.watch.tick.Load(); x.r.beat(now) {
		x.newContext() // it timed out, too; the panic is the better reason
	}
	err := panicError(p)
	reason := "panic"
	var enc encodeError
	if errors.As(err, &enc) {
		err, reason = killick.Permanent(err), "codec"
	}
	if h == nil {
		x.c.fail(x.entry(), reason, err, debug.Stack())
	} else if h.Decided() || !h.finish(ack.Failed, reason, err, debug.Stack()) {
		x.afterVerdict(err, debug.Stack())
	}
}

func panicError(p any) error {
	switch p := p.(type) {
	case encodeError:
		return p
	case pickError:
		return fmt.Errorf("the custom grouping of component %q picked task %d; it has tasks 0 to %d", p.component, p.got, p.n-1)
	case error:
		return fmt.Errorf("panic: %w", p)
	}
	return fmt.Errorf("panic: %v", p)
}

// timedOut handles a return that came after the watchdog had marked the try: it is late and
// counts for nothing.
func (x *exec) timedOut() {
	x.ex.Reset()
	x.e.Ignored.Late.Add(1)
	x.c.fail(x.entry(), "timeout", errTimeout(x.c), nil)
}

// ErrTimeout is the failure of a try that user code had for too long.
var ErrTimeout = errors.New("killick: the message time-out has passed")

func errTimeout(c *component) error {
	return fmt.Errorf("%w: user code had the tuple for more than %v", ErrTimeout, c.spec.Timeout)
}

// again executes entries: retries, or a tuple of an InFlight task.
func (x *exec) again(r *runner, ens ...*entry) {
	b := x.e.get()
	for _, en := range ens {
		*b.add() = en.item
	}
	for next := 0; next < len(b.items) && x.e.hard.Err() == nil; {
		next = x.run(b, next, nil, r, false)
	}
	x.e.put(b)
}
