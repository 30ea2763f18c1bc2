package engine_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/bubble"
)

// feed hands out records in order, up to its pending limit, and notes how each root ended. The
// i-th record is of partition i % parts. It implements engine.Feed.
type feed struct {
	t      testing.TB
	name   string
	limit  int
	chunks []*chunk

	mu      sync.Mutex
	order   []engine.Run // what is still to be handed out
	open    int
	most    int  // most that were open at a time
	endless bool // ends at a stop only
	hold    int  // records left to hand out before more() is called; -1: no limit

	core.Intake
}

// chunk is one partition. It implements engine.Chunk.
type chunk struct {
	f     *feed
	part  int32
	recs  []record
	epoch ack.Epoch
	ends  [][]*ack.Cause // by record; guarded by f.mu, as what follows
	acked int
	// halted: no record behind the first started is handed out any more.
	halted  bool
	started int
}

type record struct{ m killick.Message }

func (r *record) Key() []byte            { return r.m.Key }
func (r *record) Bytes() []byte          { return r.m.Bytes }
func (r *record) Time() time.Time        { return r.m.Time }
func (r *record) Headers() []core.Header { return core.Headers[core.Header](r.m.Headers) }

func newFeed(t testing.TB, name string, limit, parts int, ms []killick.Message) *feed {
	f := &feed{t: t, name: name, limit: limit, hold: -1, Intake: core.NewIntake()}
	for p := range parts {
		f.chunks = append(f.chunks, &chunk{f: f, part: int32(p)})
	}
	for i, m := range ms {
		c := f.chunks[i%parts]
		c.recs = append(c.recs, record{m})
		f.order = append(f.order, engine.Run{Chunk: c, From: len(c.recs) - 1, To: len(c.recs)})
	}
	for _, c := range f.chunks {
		c.ends = make([][]*ack.Cause, len(c.recs))
	}
	return f
}

func (f *feed) Next(ctx context.Context, r *engine.Run) error {
	return f.Intake.Next(ctx, func(stopped bool) (found, end bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if stopped || len(f.order) == 0 && !f.endless {
			return false, true
		}
		room := f.limit - f.open
		if f.hold >= 0 {
			room = min(room, f.hold)
		}
		if room <= 0 || len(f.order) == 0 {
			return false, false
		}
		*r = f.order[0]
		n := 1
		for n < min(room, 256) && n < len(f.order) && f.order[n].Chunk == r.Chunk && f.order[n].From == r.To {
			r.To++
			n++
		}
		f.order = f.order[n:]
		f.open += n
		f.most = max(f.most, f.open)
		if f.hold >= 0 {
			f.hold -= n
		}
		return true, false
	})
}

// more lets n more records be handed out.
func (f *feed) more(n int) {
	f.mu.Lock()
	f.hold += n
	f.mu.Unlock()
	f.Poke()
}

func (f *feed) Pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

func (c *chunk) Record(i int) core.Record { return &c.recs[i] }
func (c *chunk) Partition() int32         { return c.part }
func (c *chunk) Epoch() *ack.Epoch        { return &c.epoch }
func (c *chunk) Origin(i int) core.Origin {
	return core.Origin{Topic: c.f.name, Partition: c.part, Offset: int64(i)}
}

func (c *chunk) EndRun(from, to int) {
	for i := from; i < to; i++ {
		c.End(i, nil)
	}
}

func (c *chunk) End(i int, cause *ack.Cause) {
	if c.epoch.Closed() {
		return // as a partition does
	}
	c.f.mu.Lock()
	if len(c.ends[i]) > 0 {
		c.f.t.Errorf("root %s/%d/%d ended twice: %v, then %v", c.f.name, c.part, i, c.ends[i][0], cause)
	}
	c.ends[i] = append(c.ends[i], cause)
	if cause == nil {
		c.acked++
	}
	c.f.open--
	c.f.mu.Unlock()
	c.f.Poke()
}

// lose closes the partition's epoch: its roots are nobody's any more.
func (c *chunk) lose() {
	c.epoch.Close()
	open := c.halt()
	c.f.mu.Lock()
	c.f.open -= open
	c.f.mu.Unlock()
	c.f.Poke()
}

// halt ends the partition's intake, and returns how many of its roots are open.
func (c *chunk) halt() (open int) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	started := len(c.ends)
	if c.halted {
		started = c.started
	}
	c.f.order = slices.DeleteFunc(c.f.order, func(r engine.Run) bool {
		if r.Chunk == c {
			started = min(started, r.From)
		}
		return r.Chunk == c
	})
	c.halted, c.started = true, started
	for i := range started {
		if len(c.ends[i]) == 0 {
			open++
		}
	}
	return open
}

// env is one engine on test feeds, and what it did.
type env struct {
	*engine.Engine
	t     testing.TB
	feeds map[string]*feed
	stop  context.CancelFunc
	done  chan struct{} // closed when Run has returned, under during
	err   error

	mu     sync.Mutex
	execs  map[string]map[string][]int // component -> ID -> attempts, in order
	events []engine.Event
	out    []engine.Output
}

// option changes the engine before it runs.
type option func(e *env, c *engine.Config)

// records feeds a spout with messages.
func records(name string, ms ...killick.Message) option { return partitions(name, 1, ms...) }

// partitions feeds a spout with messages of several partitions in turn.
func partitions(name string, parts int, ms ...killick.Message) option {
	return func(e *env, c *engine.Config) {
		limit := 1024
		for _, s := range c.Spec.Spouts {
			if s.Name == name {
				limit = s.Pending
			}
		}
		f := newFeed(e.t, name, limit, parts, ms)
		e.feeds[name], c.Feeds[name] = f, f
	}
}

// with changes the configuration.
func with(f func(c *engine.Config)) option { return func(_ *env, c *engine.Config) { f(c) } }

// build makes the engine; it does not run it.
func build(t testing.TB, top *killick.Topology, opts ...option) *env {
	t.Helper()
	spec, err := top.Spec()
	if err != nil {
		t.Fatal(err)
	}
	e := &env{t: t, feeds: map[string]*feed{}, execs: map[string]map[string][]int{}}
	c := engine.Config{Spec: spec, Feeds: map[string]engine.Feed{}, Outbox: e, Observe: e.observe, Executed: e.executed}
	for _, o := range opts {
		o(e, &c)
	}
	for _, s := range spec.Spouts {
		if s.Kafka() && c.Feeds[s.Name] == nil {
			records(s.Name)(e, &c)
		}
	}
	if e.Engine, err = engine.New(c); err != nil {
		t.Fatal(err)
	}
	return e
}

// run runs the engine to its end, in the time of the caller.
func (e *env) run() *env {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	e.stop = cancel
	e.err = e.Run(ctx)
	return e
}

// run runs top to its end in virtual time. A goroutine that is left over fails the test.
func run(t *testing.T, top *killick.Topology, opts ...option) (e *env) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) { e = build(t, top, opts...).run() })
	e.t = t
	return e
}

// during runs top in virtual time, and f beside it.
func during(t *testing.T, top *killick.Topology, f func(e *env), opts ...option) (e *env) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		e = build(t, top, opts...)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		e.stop = cancel
		e.done = make(chan struct{})
		go func() { defer close(e.done); e.err = e.Run(ctx) }()
		f(e)
		<-e.done
	})
	e.t = t
	return e
}

func (e *env) executed(component, id string, attempt int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.execs[component] == nil {
		e.execs[component] = map[string][]int{}
	}
	e.execs[component][id] = append(e.execs[component][id], attempt)
}

func (e *env) observe(ev engine.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, ev)
}

// Put implements engine.Outbox: durable at once.
func (e *env) Put(_ context.Context, o *engine.Output) error {
	e.mu.Lock()
	e.out = append(e.out, *o)
	e.mu.Unlock()
	o.Done(nil)
	return nil
}

// of returns the events of a kind.
func (e *env) of(kind engine.EventKind) (evs []engine.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.events {
		if ev.Kind == kind {
			evs = append(evs, ev)
		}
	}
	return evs
}

// total returns how often a component executed.
func (e *env) total(component string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, as := range e.execs[component] {
		n += len(as)
	}
	return n
}

// ids returns the IDs that a component executed, sorted.
func (e *env) ids(component string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.execs[component]))
}

// acked and dead return how the roots of a spout ended.
func (e *env) acked(name string) (n int) {
	f := e.feeds[name]
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.chunks {
		n += c.acked
	}
	return n
}

func (e *env) dead(name string) (cs []*ack.Cause) {
	f := e.feeds[name]
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.chunks {
		for _, ends := range c.ends {
			if len(ends) > 0 && ends[0] != nil {
				cs = append(cs, ends[0])
			}
		}
	}
	return cs
}

func (e *env) stats(component string) engine.ComponentStats {
	bolts, _ := e.Stats()
	for _, b := range bolts {
		if b.Component == component {
			return b
		}
	}
	e.t.Fatalf("no component %q", component)
	return engine.ComponentStats{}
}

// ignored returns the verdicts that changed nothing.
func (e *env) ignored() [3]int64 {
	return [3]int64{e.Ignored.Double.Load(), e.Ignored.Late.Load(), e.Ignored.Lost.Load()}
}

// wantEnds checks that all roots of spout "in" ended, so many well and so many dead.
func (e *env) wantEnds(acked, dead int) {
	e.t.Helper()
	if e.err != nil {
		e.t.Errorf("run: %v", e.err)
	}
	if a, d, p := e.acked("in"), len(e.dead("in")), e.feeds["in"].Pending(); a != acked || d != dead || p != 0 {
		e.t.Errorf("%d roots acked, %d dead, %d open; want %d, %d, 0", a, d, p, acked, dead)
	}
}

// messages makes n messages with their number as value, and keys k0 to k9.
func messages(n int) []killick.Message {
	ms := make([]killick.Message, n)
	for i := range ms {
		ms[i] = killick.Message{Key: fmt.Appendf(nil, "k%d", i%10), Bytes: fmt.Append(nil, i), Time: time.UnixMilli(int64(i))}
	}
	return ms
}

func topology() *killick.Topology {
	t := killick.New("test")
	t.Spout("in", spout.Kafka("in"))
	return t
}

// fn is a bolt of one function.
func fn(f func(in *killick.Tuple, out killick.Emitter) error) killick.BoltFactory {
	return bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error { return f(in, out) })
}

func null(*killick.Tuple, killick.Emitter) error { return nil }

func pass(in *killick.Tuple, out killick.Emitter) error {
	out.Emit(in.Message())
	return nil
}

func offset(in *killick.Tuple) int {
	id := strings.SplitN(in.ID(), ":", 2)[0]
	var n int
	fmt.Sscan(id[strings.LastIndexByte(id, '/')+1:], &n)
	return n
}

type (
	config = engine.Config
	ctx    = context.Context
)

func kafka(topic string) killick.Source { return spout.Kafka(topic) }

// quiet keeps nothing of what happens: for volume.
func quiet(_ *env, c *config) { c.Executed, c.Observe = nil, nil }
