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

	// The input of the execution in progress: an item, or the i-th record of the frame.
	it    *item
	src   item // the record as an item, when one is needed
	index int
	held  *held
}

func newExec(t *task, w *watch) *exec {
	x := &exec{e: t.e, t: t, c: t.c, bolt: t.bolt, tuple: new(core.Tuple)}
	x.out = newRouter(t.e, x)
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

// run executes the items of b, sends what they emit, and then ends their edges. It returns
// how many it executed: fewer than all only in line, when the task turned out to be slow.
func (x *exec) run(b *batch, f *frame, r *runner, inline bool) int {
	prev := x.begin(f, r)
	start := time.Now()
	done, from := 0, 0
	for done < b.n {
		var pulse bool
		done, pulse = x.items(b, done)
		if pulse || done == b.n || x.t.slow.Load() {
			from = x.settle(b, from, done)
		}
		if pulse && x.gauge(start, done) && inline {
			break
		}
	}
	r.leave(prev)
	x.settle(b, from, done)
	if done > 0 {
		x.gauge(start, done)
		x.c.stats.observe(time.Since(start), done)
	}
	return done
}

// settle sends what waits and ends the edges of the items [from, to): in that order, so that
// an input's edge is open until its outputs' are.
func (x *exec) settle(b *batch, from, to int) int {
	if from == to {
		return to
	}
	x.out.flush()
	for i := from; i < to; i++ {
		if it := &b.items[i]; it.edge {
			it.edge = false
			it.anchors.End()
		}
	}
	return to
}

// gauge decides whether the task is slow.
func (x *exec) gauge(start time.Time, n int) bool {
	per := time.Since(start) / time.Duration(n)
	if per > slowAfter {
		x.t.slow.Store(true)
	} else if per < slowAfter/2 && x.t.slow.Load() {
		x.t.slow.Store(false)
	}
	return per > slowAfter
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
	for ; next < b.n; next++ {
		it := &b.items[next]
		x.it = it
		if !it.anchors.Live() {
			x.c.stats.skipped.Add(1)
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
			x.index = next
			x.panicked(p)
			next, pulse = next+1, true
		}
	}()
	x.it = nil
	c, to := f.run.Chunk, f.run.To
	port := &f.d.ports[0].Port
	t := x.fresh()
	t.Fill(nil, port, c, next, nil, f.attempt)
	for ; next < to; next++ {
		if f.hasDead && f.dead[next-f.run.From] {
			continue
		}
		if core.Race {
			t = x.fresh()
			t.Fill(nil, port, c, next, nil, f.attempt)
		}
		x.index = next
		t.Next(c.Record(next), next)
		if f.vals != nil {
			t.SetValue(f.vals[next-f.run.From])
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
	err := x.bolt.Execute(x.ctx, (*killick.Tuple)(t), killick.Emitter(out))
	x.ex.End()
	if core.Race {
		t.Poison()
	}
	if now := x.e.watch.tick.Load(); now != x.r.last {
		ticked = true
		if x.r.beat(now) {
			x.timedOut()
			return true
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
		loose := x.ex.Out // only untracked emits are here after Hold
		if err != nil {
			x.ex.Reset()
			h.Fail(err)
			return
		}
		if len(loose) > 0 {
			h.addLoose(loose)
		}
		x.ex.Reset()
		return
	}
	if err == nil {
		err = x.emit()
	}
	x.ex.Reset()
	if err != nil {
		x.c.fail(x.entry(), reasonOf(err), err, nil)
	}
}

// input returns the input of the execution in progress as an item.
func (x *exec) input() *item {
	if x.it != nil {
		return x.it
	}
	f := x.out.frame
	x.src = item{rec: f.run.Chunk.Record(x.index), port: f.d.ports[0], chunk: f.run.Chunk, i: x.index, attempt: f.attempt}
	if f.vals != nil {
		x.src.val, x.src.typed = f.vals[x.index-f.run.From], true
	}
	return &x.src
}

// entry makes the input independent of its batch, with an open edge of its own.
func (x *exec) entry() *entry {
	in := x.input()
	if !in.edge && !in.loose {
		x.out.frame.attach(in)
	}
	en := &entry{t: x.t, item: *in}
	in.edge = false // en's now
	en.item.own()
	return en
}

// emit checks and sends the outputs of an execution that returned nil. On an error nothing
// has left.
func (x *exec) emit() error {
	if x.c.sink != nil {
		return x.c.write(nil, x.ex.Out, x)
	}
	in := x.input()
	return x.out.emit(x.c.ports, in, x.ex.Out, 0, nil)
}

// emit sends outs, emitted on ports while in was executed; ordinal numbers the first. fix, if
// not nil, may change the anchors and the origin of the k-th. On an error nothing has left.
func (o *router) emit(ports []*port, in *item, outs []core.Emit[killick.Message], ordinal int, fix func(k int, it *item)) (err error) {
	tmp := &o.tmp
	o.picks, o.starts, o.counts, o.ready = o.picks[:0], o.starts[:0], o.counts[:0], o.ready[:0]
	// Whatever can fail comes first, so that a failed try leaves nothing behind.
	for k := range outs {
		p := ports[outs[k].Stream]
		if p.plain(&outs[k].M) {
			continue
		}
		o.child(p, in, &outs[k], ordinal+k, tmp)
		if err := p.take(&outs[k].M, tmp, o.e.cfg.RoundTrip); err != nil {
			return killick.Permanent(err)
		}
		for _, ed := range p.edges {
			if ed.user() {
				if err := o.chooseGuarded(ed, tmp); err != nil {
					return err
				}
			}
		}
		o.ready = append(o.ready, *tmp)
	}
	chosen, ready := 0, 0
	for k := range outs {
		p := ports[outs[k].Stream]
		p.count.add(1)
		if tell := o.e.cfg.Emitted; tell != nil {
			tell(p.Component, p.Stream, outs[k].M)
		}
		to := tmp
		if p.plain(&outs[k].M) {
			if len(p.edges) == 0 {
				continue
			}
			o.child(p, in, &outs[k], ordinal+k, to)
			m := &outs[k].M
			to.key, to.bytes, to.headers = m.Key, m.Bytes, m.Headers
		} else {
			to = &o.ready[ready]
			ready++
		}
		if fix != nil {
			fix(k, to)
		}
		for _, ed := range p.edges {
			if ed.user() {
				at := o.starts[chosen]
				o.send(ed, to, o.picks[at:at+o.counts[chosen]])
				chosen++
				continue
			}
			at := len(o.picks)
			o.choose(ed, to)
			o.send(ed, to, o.picks[at:])
			o.picks = o.picks[:at]
		}
	}
	clear(o.ready)
	return nil
}

// plain reports whether nothing about sending m can fail: raw bytes, and no user code.
func (p *port) plain(m *killick.Message) bool {
	if p.codec != nil || m.Value != nil {
		return false
	}
	for _, ed := range p.edges {
		if ed.user() {
			return false
		}
	}
	return true
}

// child makes tmp the item of one output of in.
func (o *router) child(p *port, in *item, em *core.Emit[killick.Message], ordinal int, tmp *item) {
	*tmp = item{port: p, chunk: in.chunk, i: in.i, attempt: 1, loose: em.Loose, anchors: in.anchors}
	if in.rec == nil {
		tmp.path = in.path
	}
	tmp.path = tmp.path.Then(core.Step{Port: &p.Port, Ordinal: int32(ordinal)})
	if em.Loose {
		tmp.anchors = ack.Anchors{}
	}
	if t := em.M.Time; t.IsZero() {
		tmp.ms = in.record().Time().UnixMilli()
	} else {
		tmp.ms = t.UnixMilli()
	}
}

func (o *router) chooseGuarded(ed *edge, it *item) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = killick.Permanent(panicError(p))
		}
	}()
	at := len(o.picks)
	o.choose(ed, it)
	o.starts, o.counts = append(o.starts, at), append(o.counts, len(o.picks)-at)
	return nil
}

// panicked handles a panic of user code: a failed try.
func (x *exec) panicked(p any) {
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
	if h != nil && h.Decided() {
		// The verdict came first; the panic is still a person's to see.
		x.e.cfg.Observe(Event{Kind: HookFailed, Component: x.c.spec.Name, Task: x.t.index, Reason: "Execute", Err: err, Stack: debug.Stack()})
		return
	}
	if h != nil {
		h.finish(ack.Failed, reason, err, debug.Stack())
		return
	}
	x.c.fail(x.entry(), reason, err, debug.Stack())
}

func panicError(p any) error {
	switch p := p.(type) {
	case encodeError:
		return p
	case error:
		return fmt.Errorf("panic: %w", p)
	case pickError:
		return fmt.Errorf("the custom grouping of component %q picked task %d; it has tasks 0 to %d", p.component, p.got, p.n-1)
	}
	return fmt.Errorf("panic: %v", p)
}

// timedOut handles a return that came after the watchdog had marked the try: it is late and
// counts for nothing.
func (x *exec) timedOut() {
	x.ex.Reset()
	x.newContext()
	x.e.Ignored.Late.Add(1)
	if h := x.held; h != nil {
		x.held = nil
		h.finish(ack.TimedOut, "timeout", errTimeout(x.c), nil)
		return
	}
	x.c.fail(x.entry(), "timeout", errTimeout(x.c), nil)
}

// ErrTimeout is the failure of a try that user code had for too long.
var ErrTimeout = errors.New("killick: the message time-out has passed")

func errTimeout(c *component) error {
	return fmt.Errorf("%w: user code had the tuple for more than %v", ErrTimeout, c.spec.Timeout)
}

// again executes one entry: a retry, or a tuple of an InFlight task.
func (x *exec) again(en *entry, r *runner) {
	b := x.e.get()
	*b.add() = en.item
	x.run(b, nil, r, false)
	x.e.put(b)
}

// hook calls Tick or Flush, which may emit untracked messages.
func (x *exec) hook(r *runner, name string, f func(context.Context) error) {
	prev := x.begin(nil, r)
	x.ex.Begin()
	err := guard(func() error { return f(x.ctx) })
	x.ex.End()
	if r.beat(x.e.watch.tick.Load()) {
		x.newContext()
	}
	if err == nil && x.ex.Bad != nil {
		err = x.ex.Bad
	}
	if err == nil && len(x.ex.Out) > 0 {
		in := item{attempt: 1, loose: true, ms: time.Now().UnixMilli(), port: x.c.ports[0]}
		err = x.out.emit(x.c.ports, &in, x.ex.Out, 0, nil)
	}
	x.ex.Reset()
	r.leave(prev)
	x.out.flush()
	if err != nil && x.e.hard.Err() == nil {
		x.e.cfg.Observe(Event{Kind: HookFailed, Component: x.c.spec.Name, Task: x.t.index, Reason: name, Err: err})
	}
}

// untracked is what Tick emits to.
type untracked struct{ x *exec }

func (x *exec) untracked() killick.Untracked { return untracked{x} }

func (u untracked) EmitUntracked(stream string, m killick.Message) {
	killick.Emitter(u.x.ex.Current()).EmitUntracked(stream, m)
}

// guard turns a panic of user code into an error.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w\n%s", panicError(p), debug.Stack())
		}
	}()
	return f()
}

// Hook of core.Execution.

func (x *exec) Hold() core.Holder {
	if x.held == nil {
		x.held = x.hold()
	}
	return x.held
}

func (x *exec) HeldEmit(stream string, m killick.Message) { _ = x.held.Emit(stream, &m, nil) }

func (x *exec) Misused(kind string, stale bool) {
	x.c.stats.misuse.Add(1)
	x.e.cfg.Observe(Event{Kind: Misuse, Component: x.c.spec.Name, Task: x.t.index, Reason: kind, Err: fmt.Errorf("the emitter was used for %s after Execute had returned", kind)})
}

func (x *exec) UnknownStream(stream string) error {
	return fmt.Errorf("killick: component %q declares no stream %q; add .Stream(%q, codec) to it", x.c.spec.Name, stream, stream)
}

func (x *exec) TooMuch(emits, bytes int) error {
	return fmt.Errorf("killick: one execution of component %q emitted more than %d messages or %d bytes (%d messages, %d bytes)", x.c.spec.Name, core.MaxEmits, core.MaxBytes, emits, bytes)
}
