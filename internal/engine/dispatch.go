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
	e      *Engine
	spec   *killick.SpoutSpec
	ports  []*port // one
	feed   Feed
	out    *router
	r      *runner
	frame  frame      // of the run in progress; reused
	slab   []ack.Tree // for new trees
	source *source    // of the chunk that got a tree last
	stats  spoutStats

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
	blocked                                 atomic.Int64 // nanoseconds
	trees                                   durations    // of one root in sampleTrees
}

func newDispatcher(e *Engine, s *killick.SpoutSpec, feed Feed) *dispatcher {
	d := &dispatcher{e: e, spec: s, feed: feed, wake: make(chan struct{}, 1)}
	p := &port{Port: core.Port{Component: s.Name}, codec: s.Streams[0].Codec}
	if p.codec != nil {
		p.typ = p.codec.Type()
	}
	d.ports = []*port{p}
	d.out = newRouter(e, nil, &d.stats.blocked, true)
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
	d.r.label()
	defer func() { d.e.exited(d.r, d.spec.Name) }()
	defer d.e.watch.drop(d.r)
	d.out.r, d.out.frame = d.r, &d.frame
	var run Run
	failures := 0
	for d.e.hard.Err() == nil {
		run = Run{}
		err := d.feed.Next(d.e.hard, &run)
		d.serve() // retries go first: they hold the floor
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
		wait := spoutWait(failures, err)
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
		if d.e.ending.Load() {
			t.poke() // to Flush
		}
	}
	// After a hard stop the rest stays open.
	if next < run.To && d.e.hard.Err() == nil {
		d.out.routeRecords(f, p, next)
		d.out.flush()
		f.settle(next, run.To)
	}
	f.done()
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
// that it left, because the engine stops or t turned out to be slow.
func (d *dispatcher) fuse(t *task, f *frame) int {
	x := t.x
	prev := x.begin(f, d.r)
	x.beginAt(f, nil, f.run.From)
	x.took = 0
	next := f.run.From
	for from := next; next < f.run.To; from = next {
		start := x.clock()
		var pulse bool
		next, pulse = x.records(f, next)
		slow := x.gauge(start, next-from)
		x.out.flush()
		f.took = max(1, x.took)
		f.settle(from, next)
		if pulse && (slow || d.e.hard.Err() != nil) {
			break
		}
	}
	d.r.leave(prev)
	x.beginAt(nil, nil, 0)
	x.ex.Clear()
	x.src = item{}
	return next
}

// valued is a chunk whose records may have values already: those of users' spouts.
type valued interface {
	// Message returns what was emitted; the error says why it cannot be taken.
	Message(i int) *killick.Message
}

// values takes the values of the frame's records, as those of any emit are.
func (d *dispatcher) values(f *frame, vs valued) {
	n := f.run.To - f.run.From
	var tmp item
	for k := range n {
		i := f.run.From + k
		tmp = item{}
		m := vs.Message(i)
		if err := d.ports[0].take(m, &tmp, d.e.cfg.RoundTrip); err != nil {
			d.refuse(f, i, "codec", err, m.Key, m.Bytes)
			continue
		}
		if tmp.typed {
			f.room()
			f.vals[k] = tmp.val
		}
	}
}

// refuse ends the i-th root dead before any component has seen it.
func (d *dispatcher) refuse(f *frame, i int, reason string, err error, key, value []byte) {
	d.e.cfg.Observe(Event{Kind: TupleDead, Component: d.spec.Name, ID: idOf(f.run.Chunk, i), Attempt: f.attempt, Reason: reason, Err: err})
	policy := ack.DeadLetter
	if d.e.once {
		policy = ack.Skip
	}
	f.kill(i, &ack.Cause{Outcome: ack.Dead, Policy: policy, Component: d.spec.Name, Reason: reason, Err: err, Attempts: f.attempt, Key: key, Value: value})
}

// room makes the frame's values, all of them noValue yet.
func (f *frame) room() {
	if f.vals != nil {
		return
	}
	n := f.run.To - f.run.From
	if cap(f.vals0) < n {
		f.vals0 = make([]any, n)
	}
	f.vals = f.vals0[:n]
	for k := range f.vals {
		f.vals[k] = noValue{}
	}
}

// decode makes the values of the frame's records. What cannot be decoded is dead at once: it
// will not get better.
func (d *dispatcher) decode(f *frame) {
	f.room()
	for k := range f.vals {
		i := f.run.From + k
		rec := f.run.Chunk.Record(i)
		b := rec.Bytes()
		if b == nil {
			continue // a null value passes codecs by
		}
		v, err := d.decodeOne(b)
		if err != nil {
			d.refuse(f, i, "decode", fmt.Errorf("the record cannot be decoded: %w", err), rec.Key(), b)
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
