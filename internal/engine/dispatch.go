package engine

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/core"
)

// dispatcher starts the roots of one spout. Its goroutine runs the first bolt too, when that is
// quick and alone.
type dispatcher struct {
	e     *Engine
	spec  *killick.SpoutSpec
	ports []*port // one
	feed  Feed
	out   *router
	r     *runner
	frame frame // of the run in progress; reused
	stats spoutStats

	wake chan struct{}
	mu   sync.Mutex
	// restarts are roots whose next attempt is due; bounded by the pending limits.
	restarts []restart
}

type restart struct {
	chunk   Chunk
	i       int
	attempt int
}

type spoutStats struct {
	started, acked, dead, skipped, replayed atomic.Int64
}

func newDispatcher(e *Engine, s *killick.SpoutSpec, feed Feed) *dispatcher {
	d := &dispatcher{e: e, spec: s, feed: feed, wake: make(chan struct{}, 1)}
	p := &port{Port: core.Port{Component: s.Name}, codec: s.Streams[0].Codec}
	if p.codec != nil {
		p.typ = p.codec.Type()
	}
	d.ports = []*port{p}
	d.out = newRouter(e, nil)
	d.frame.d = d
	return d
}

// restart queues the next attempt of a root. It does not block.
func (d *dispatcher) restart(c Chunk, i, attempt int) {
	d.mu.Lock()
	d.restarts = append(d.restarts, restart{c, i, attempt})
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
	d.feed.Wake()
}

func (d *dispatcher) due() []restart {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.restarts
	d.restarts = nil
	return r
}

// loop ends with the engine's hard context. Intake ends at the feed's io.EOF; restarts are
// served until the end.
func (d *dispatcher) loop() {
	var once sync.Once
	intakeDone := func() { once.Do(d.e.intake.Done) }
	defer d.e.loops.Done()
	defer intakeDone()
	d.r = d.e.watch.runner()
	defer d.e.watch.drop(d.r)
	d.out.r, d.out.frame = d.r, &d.frame
	var run Run
	failures := 0
	for d.e.hard.Err() == nil {
		run = Run{}
		err := d.feed.Next(d.e.hard, &run)
		d.serve()
		switch {
		case err == nil:
			failures = 0
			if run.From < run.To {
				d.run(run, 1)
			}
			continue
		case errors.Is(err, io.EOF):
			intakeDone()
			for {
				select {
				case <-d.wake:
					d.serve()
				case <-d.e.hard.Done():
					return
				}
			}
		case d.e.hard.Err() != nil:
			return
		}
		failures++
		wait := killick.Retry{Min: 100 * time.Millisecond, Max: 30 * time.Second}.Delay(failures)
		d.e.cfg.Observe(Event{Kind: HookFailed, Component: d.spec.Name, Reason: "Next", Attempt: failures, Err: err, Wait: wait})
		select {
		case <-time.After(wait):
		case <-d.e.hard.Done():
		}
	}
}

func (d *dispatcher) serve() {
	for _, r := range d.due() {
		if r.chunk.Epoch().Closed() {
			continue
		}
		d.run(Run{r.chunk, r.i, r.i + 1}, r.attempt)
	}
}

// run starts the roots of run and returns when no synchronous call of theirs is in progress.
func (d *dispatcher) run(run Run, attempt int) {
	f := &d.frame
	f.reset(run, attempt)
	if attempt == 1 {
		d.stats.started.Add(int64(run.To - run.From))
	}
	p := d.ports[0]
	p.count.add(int64(run.To - run.From))
	if vs, ok := run.Chunk.(valued); ok {
		d.values(f, vs)
	} else if p.codec != nil {
		d.decode(f)
	}
	next := run.From
	if t := d.only(); t != nil && !t.slow.Load() && t.tryAcquire() {
		next = d.fuse(t, f)
		t.release()
	}
	if next < run.To {
		d.route(f, next)
		d.out.flush()
		f.settle(next, run.To)
	}
}

// only returns the task that gets everything, if it may run in line.
func (d *dispatcher) only() *task {
	es := d.ports[0].edges
	if len(es) != 1 || es[0].grouping == killick.CustomGrouping {
		return nil
	}
	if t := es[0].to.tasks[0]; t.inline {
		return t
	}
	return nil
}

// fuse executes the frame's records by t on this goroutine. It returns the index of the first
// that it left, because t turned out to be slow.
func (d *dispatcher) fuse(t *task, f *frame) int {
	x, from, to := t.x, f.run.From, f.run.To
	prev := x.begin(f, d.r)
	start := time.Now()
	next, ended := from, from
	for next < to {
		var pulse bool
		next, pulse = x.records(f, next)
		if pulse {
			x.out.flush()
			f.settle(ended, next)
			ended = next
			if next > from && x.gauge(start, next-from) {
				break
			}
		}
	}
	d.r.leave(prev)
	x.out.flush()
	f.settle(ended, next)
	if n := next - from; n > 0 {
		x.gauge(start, n)
		t.c.stats.observe(time.Since(start), n)
	}
	return next
}

// route sends the frame's records from i on to the tasks.
func (d *dispatcher) route(f *frame, i int) {
	p := d.ports[0]
	for ; i < f.run.To; i++ {
		if f.hasDead && f.dead[i-f.run.From] {
			continue
		}
		it := &d.out.tmp
		*it = item{rec: f.run.Chunk.Record(i), port: p, chunk: f.run.Chunk, i: i, attempt: 1}
		if f.vals != nil {
			it.val, it.typed = f.vals[i-f.run.From], true
		}
		for _, ed := range p.edges {
			o := d.out
			o.picks, o.starts, o.counts = o.picks[:0], o.starts[:0], o.counts[:0]
			if err := o.chooseGuarded(ed, it); err != nil {
				f.kill(i, &ack.Cause{Outcome: ack.Dead, Component: ed.to.spec.Name, Reason: "grouping", Err: err, Attempts: 1,
					Key: it.record().Key(), Value: it.record().Bytes()})
				break
			}
			o.send(ed, it, o.picks)
		}
	}
}

// valued is a chunk whose records may have values already: those of users' spouts.
type valued interface {
	// Message returns what was emitted; the error says why it cannot be taken.
	Message(i int) *killick.Message
}

// values takes the values of the frame's records, as those of any emit are.
func (d *dispatcher) values(f *frame, vs valued) {
	n := f.run.To - f.run.From
	f.room(n)
	var tmp item
	for k := range n {
		i := f.run.From + k
		tmp = item{}
		if err := d.ports[0].take(vs.Message(i), &tmp, d.e.cfg.RoundTrip); err != nil {
			d.e.cfg.Observe(Event{Kind: TupleDead, Component: d.spec.Name, ID: idOf(f.run.Chunk, i), Attempt: 1, Reason: "codec", Err: err})
			f.kill(i, &ack.Cause{Outcome: ack.Dead, Component: d.spec.Name, Reason: "codec", Err: err, Attempts: 1, Key: tmp.key})
			continue
		}
		switch {
		case tmp.typed:
			f.vals[k] = tmp.val
		case tmp.bytes != nil:
			f.vals[k] = tmp.bytes
		}
	}
}

// room makes vals n long.
func (f *frame) room(n int) {
	if cap(f.vals0) < n {
		f.vals0 = make([]any, n)
	}
	f.vals = f.vals0[:n]
}

// decode makes the values of the frame's records. What cannot be decoded is dead at once: it
// will not get better.
func (d *dispatcher) decode(f *frame) {
	n := f.run.To - f.run.From
	f.room(n)
	for k := range n {
		rec := f.run.Chunk.Record(f.run.From + k)
		b := rec.Bytes()
		if b == nil {
			continue // a null value passes codecs by
		}
		v, err := d.decodeOne(b)
		if err != nil {
			err = fmt.Errorf("the record cannot be decoded: %w", err)
			d.e.cfg.Observe(Event{Kind: TupleDead, Component: d.spec.Name, ID: idOf(f.run.Chunk, f.run.From+k), Attempt: 1, Reason: "decode", Err: err})
			f.kill(f.run.From+k, &ack.Cause{Outcome: ack.Dead, Component: d.spec.Name, Reason: "decode", Err: err, Attempts: 1, Key: rec.Key(), Value: b})
			continue
		}
		f.vals[k] = v
	}
}

func (d *dispatcher) decodeOne(b []byte) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicError(p)
		}
	}()
	return d.ports[0].codec.Decode(b)
}

func idOf(c Chunk, i int) string {
	var t core.Tuple
	t.Fill(nil, nil, c, i, nil, 1)
	return t.ID()
}

func (f *frame) reset(run Run, attempt int) {
	n := run.To - run.From
	f.run, f.attempt, f.hasDead, f.hasTree = run, attempt, false, false
	clear(f.vals0[:min(cap(f.vals0), len(f.vals))])
	f.vals = nil
	if cap(f.trees) < n {
		f.trees = make([]*root, n)
	}
	f.trees = f.trees[:n]
	clear(f.trees)
}

// kill ends the i-th root dead with the run; it is not executed (any more).
func (f *frame) kill(i int, c *ack.Cause) {
	n := f.run.To - f.run.From
	if !f.hasDead {
		if cap(f.dead) < n {
			f.dead = make([]bool, n)
		}
		f.dead = f.dead[:n]
		clear(f.dead)
		f.hasDead = true
	}
	f.dead[i-f.run.From] = true
	r := f.root(i)
	r.Open(1)
	r.Fail(c)
}

// settle ends the synchronous calls of the roots [from, to): those without a tree have ended.
func (f *frame) settle(from, to int) {
	if !f.hasTree {
		if from < to {
			f.run.Chunk.EndRun(from, to)
			f.d.stats.acked.Add(int64(to - from))
		}
		return
	}
	at := from
	end := func(i int) {
		if at < i {
			f.run.Chunk.EndRun(at, i)
			f.d.stats.acked.Add(int64(i - at))
		}
	}
	for i := from; i < to; i++ {
		k := i - f.run.From
		if r := f.trees[k]; r != nil {
			end(i)
			at = i + 1
			f.trees[k] = nil
			r.End()
		}
	}
	end(to)
}
