package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/rules"
)

// Config is what an engine runs.
type Config struct {
	Spec *killick.Spec

	// Feeds has one feed per spout, by name.
	Feeds map[string]Feed

	// Outbox takes what sinks write. Nil is fine for a topology without sinks.
	Outbox Outbox

	// Drain is how long a stop waits for trees to end. Default: 30s.
	Drain time.Duration

	// Grace is how long a hard stop waits for user code, and Cleanup. Default: 5s.
	Grace time.Duration

	// RoundTrip encodes and decodes the values of all streams that have a codec, as a hop
	// between workers would.
	RoundTrip bool

	// Executed and Emitted, if set, are told of each execution and each output, from any
	// goroutine: for tests.
	Executed func(component, id string, attempt int)
	Emitted  func(component, stream string, m killick.Message)

	// Observe is told what goes wrong; nil: nobody. It must not block.
	Observe func(Event)
}

// Event is something that a person may want to read.
type Event struct {
	Kind      EventKind
	Component string
	Task      int
	ID        string // of the tuple
	Attempt   int
	Reason    string
	Err       error
	Stack     []byte
	Wait      time.Duration // until the next try
}

// EventKind says what happened.
type EventKind uint8

// The kinds of events.
const (
	TryFailed     EventKind = iota // and will be tried again after Wait
	TupleDead                      // tries used up, or permanent
	RootReplayed                   // a tree will run again as a new attempt
	LooseDropped                   // an untracked tuple, or output, was given up
	TaskStuck                      // user code has had a tuple for twice its time-out
	PrepareFailed                  // and will be tried again after Wait
	HookFailed                     // Tick, Flush or Cleanup returned an error
	Misuse                         // an emitter or handle was used after its end
)

// ErrDrain says that the drain limit passed with roots still open; they run again after the
// next start.
var ErrDrain = errors.New("engine: the drain limit passed with open trees")

// StopError is a worker stop by policy, or by a component that cannot work.
type StopError struct {
	Component string
	Err       error
	now       bool // without a drain: the component cannot work
}

func (e *StopError) Error() string { return fmt.Sprintf("component %q: %v", e.Component, e.Err) }
func (e *StopError) Unwrap() error { return e.Err }

// Engine runs one topology once.
type Engine struct {
	cfg     Config
	once    bool         // at most once: a failed try drops its root
	comps   []*component // bolts, in topological order
	byName  map[string]*component
	spouts  []*dispatcher
	tasks   []*task
	delays  *delays
	watch   *watch
	Ignored ack.Ignored // verdicts that changed nothing

	// hard ends when the engine gives up on what is still running. Every blocking wait of
	// the engine selects on it.
	hard     context.Context
	hardStop context.CancelCauseFunc

	ending   atomic.Bool // intake has ended: idle tasks flush
	rush     atomic.Bool // a stop does not take long; see Rush
	draining atomic.Bool // a stop is wanted: waiting retries run at once, once
	parked   parked
	seq      atomic.Uint64 // ids of held tuples, for the lock order of joint emits

	fatal     chan error // first one counts
	intake    sync.WaitGroup
	loops     sync.WaitGroup
	flights   sync.WaitGroup // executions beside the task loops
	free      sync.Mutex     // guards batches
	batches   []*batch
	preparing atomic.Int64 // tasks that have not prepared yet
}

// New builds an engine; it does not start it.
func New(cfg Config) (*Engine, error) {
	if cfg.Drain == 0 {
		cfg.Drain = 30 * time.Second
	}
	if cfg.Grace == 0 {
		cfg.Grace = 5 * time.Second
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Event) {}
	}
	e := &Engine{cfg: cfg, once: cfg.Spec.Guarantee == killick.AtMostOnce, byName: map[string]*component{}, fatal: make(chan error, 1)}
	e.delays = newDelays(e.urgent)
	e.hard, e.hardStop = context.WithCancelCause(context.Background())
	shortest := time.Hour
	for i := range cfg.Spec.Bolts {
		shortest = min(shortest, cfg.Spec.Bolts[i].Timeout)
		e.add(&cfg.Spec.Bolts[i])
	}
	e.watch = newWatch(e, min(max(shortest/10, time.Millisecond), 10*time.Millisecond))
	for i := range cfg.Spec.Spouts {
		s := &cfg.Spec.Spouts[i]
		feed := cfg.Feeds[s.Name]
		if feed == nil {
			return nil, fmt.Errorf("engine: spout %q has no feed", s.Name)
		}
		e.spouts = append(e.spouts, newDispatcher(e, s, feed))
	}
	for i := range cfg.Spec.Bolts {
		if err := e.subscribe(&cfg.Spec.Bolts[i]); err != nil {
			return nil, err
		}
	}
	for _, d := range e.spouts {
		d.out.lay(d.ports)
	}
	for _, c := range e.comps {
		if c.sink != nil && cfg.Outbox == nil {
			return nil, fmt.Errorf("engine: component %q is a sink, but there is no outbox", c.spec.Name)
		}
		c.makeTasks()
	}
	return e, nil
}

func (e *Engine) subscribe(s *killick.BoltSpec) error {
	to := e.byName[s.Name]
	for _, in := range s.Inputs {
		p := e.port(in.From, in.Stream)
		if p == nil {
			return fmt.Errorf("engine: component %q: no stream %q of %q", s.Name, in.Stream, in.From)
		}
		p.edges = append(p.edges, &edge{to: to, grouping: in.Grouping, key: in.Key, pick: in.Pick})
	}
	return nil
}

func (e *Engine) port(component, stream string) *port {
	for _, d := range e.spouts {
		if d.spec.Name == component {
			return d.ports[0]
		}
	}
	if c := e.byName[component]; c != nil {
		for _, p := range c.ports {
			if p.Stream == stream {
				return p
			}
		}
	}
	return nil
}

// Run executes the topology until its feeds are exhausted, ctx is cancelled (a soft stop:
// intake ends, trees end, within Drain), or a component stops it. It returns nil after a
// clean end, ErrDrain, or a *StopError. When it returns, no goroutine of the engine runs,
// but user code that ignores its context may.
func (e *Engine) Run(ctx context.Context) error {
	e.start()
	defer e.finish()
	exhausted := make(chan struct{})
	go func() { e.intake.Wait(); close(exhausted) }()
	const first, coarsest = 5 * time.Millisecond, 100 * time.Millisecond
	poll := time.NewTimer(time.Hour)
	defer poll.Stop()
	var (
		result error
		soft   = ctx.Done()
		quiet  <-chan time.Time // fires once intake has ended
		ending time.Time        // when that was
		limit  <-chan time.Time // once a stop is wanted; a bounded run has none for its trees
	)
	stop := func() {
		if limit == nil {
			limit = time.After(e.hurried(e.cfg.Drain))
			if !rules.DrainBeforeLastCommit {
				limit = time.After(0)
			}
		}
		e.draining.Store(true)
		for _, d := range e.spouts {
			d.feed.Stop()
		}
		e.delays.flush()
	}
	for {
		select {
		case <-soft:
			soft = nil
			stop()
		case err := <-e.fatal:
			if result == nil {
				result = err
			}
			var s *StopError
			if errors.As(err, &s) && s.now {
				return result
			}
			stop()
		case <-exhausted:
			exhausted, quiet, ending = nil, poll.C, time.Now()
			poll.Reset(first)
			e.ending.Store(true)
			for _, t := range e.tasks {
				t.poke() // to Flush
			}
		case <-quiet:
			// The longer the end takes, the less it matters to notice it at once.
			poll.Reset(min(max(first, time.Since(ending)/64), coarsest))
			pending, parked := e.remaining()
			if pending > parked {
				continue
			}
			// Untracked tuples and Flush have nothing pending. They get as long as a drain.
			if !e.quiet() {
				if limit == nil {
					limit = time.After(e.cfg.Drain)
				}
				continue
			}
			return e.ended(result, parked)
		case <-limit:
			// Without open trees it was for a Flush, an untracked tuple, or a spout's Next.
			pending, parked := e.remaining()
			if pending <= parked {
				return e.ended(result, parked)
			}
			if result == nil {
				result = fmt.Errorf("%w: %d after %v", ErrDrain, pending, e.cfg.Drain)
			}
			return result
		}
	}
}

// ended is what Run returns when no root is open any more but parked ones.
func (e *Engine) ended(result error, parked int64) error {
	if result == nil && parked > 0 {
		result = fmt.Errorf("%w: %d, whose retry failed again during the stop", ErrDrain, parked)
	}
	return result
}

// quiet reports whether no task has anything to do.
func (e *Engine) quiet() bool {
	if !e.Ready() {
		return false // and what a task has made in prepare must not be looked at yet
	}
	if e.delays.waiting() > 0 {
		return false
	}
	for _, t := range e.tasks { // upstream first: work only moves down
		if !t.quiet() {
			return false
		}
	}
	return true
}

func (e *Engine) pending() int64 {
	var n int64
	for _, d := range e.spouts {
		n += int64(d.feed.Pending())
	}
	return n
}

// remaining returns how many roots are open, and how many of them a stop leaves so. What a release leaves
// open is waited for: it goes with its partition, and is no failure of this run.
func (e *Engine) remaining() (pending, parked int64) {
	pending = e.pending() // first, see parked
	if e.draining.Load() {
		parked = e.parked.open()
	}
	return pending, parked
}

func (e *Engine) start() {
	e.preparing.Store(int64(len(e.tasks)))
	e.watch.start()
	e.delays.start()
	for _, t := range e.tasks {
		e.loops.Add(1)
		go t.loop()
	}
	for _, d := range e.spouts {
		e.intake.Add(1)
		e.loops.Add(1)
		go d.loop()
	}
}

var errStopped = errors.New("killick: the worker has stopped")

// finish ends all goroutines. User code gets Grace to notice that its context is done.
func (e *Engine) finish() {
	e.hardStop(errStopped)
	for _, d := range e.spouts {
		d.feed.Stop()
	}
	for _, c := range e.comps {
		c.held.leave()
	}
	done := make(chan struct{})
	go func() {
		e.intake.Wait()
		e.loops.Wait()
		e.flights.Wait()
		close(done)
	}()
	grace := time.NewTimer(e.hurried(e.cfg.Grace))
	defer grace.Stop()
	select {
	case <-done:
	case <-grace.C:
	}
	e.watch.stop()
	e.delays.stop()
}

// stop ends the run because of component; now: without waiting for trees.
func (e *Engine) stop(component string, err error, now bool) {
	select {
	case e.fatal <- &StopError{component, err, now}:
	default:
	}
}

// exited is called when a goroutine that runs user code ends. Before the end of the engine that
// is the work of runtime.Goexit, which testing.T.FailNow calls, too: there is no way to go on
// from it, and waiting for the goroutine's tuples would be in vain.
func (e *Engine) exited(r *runner, component string) {
	if r == nil || e.hard.Err() != nil {
		return
	}
	if x := r.cur.Load(); x != nil {
		component = x.c.spec.Name
	}
	e.stop(component, errGoexit, true)
}

var errGoexit = errors.New("killick: user code ended the goroutine that it was called on (runtime.Goexit; testing.T.FailNow does that, too)")

// Ready reports whether every task has prepared.
func (e *Engine) Ready() bool { return e.preparing.Load() == 0 }

// get returns an empty batch.
func (e *Engine) get() *batch {
	e.free.Lock()
	defer e.free.Unlock()
	if n := len(e.batches); n > 0 {
		b := e.batches[n-1]
		e.batches = e.batches[:n-1]
		return b
	}
	return new(batch)
}

// maxBatches is how many empty batches are kept.
const maxBatches = 64

// put takes back a batch that nobody refers to any more.
func (e *Engine) put(b *batch) {
	b.reset()
	e.free.Lock()
	defer e.free.Unlock()
	if len(e.batches) < maxBatches {
		e.batches = append(e.batches, b)
	}
}
