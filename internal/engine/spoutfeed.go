package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/core"
)

// SpoutFeed feeds the engine from a user's spout. Each task has a goroutine that calls Next
// while fewer than the limit of its roots are open; Run owns them.
type SpoutFeed struct {
	spec     *killick.SpoutSpec
	topology string
	port     *port
	epoch    ack.Epoch
	observe  func(Event)
	once     bool // see Once

	mu      sync.Mutex
	tasks   []*spoutTask
	running int // tasks that may still emit
	stopped bool
	paused  bool // no Next is called; one in progress may still bring a message
	turn    int
	ready   []*spoutChunk // full chunks
	cur     *spoutChunk   // with an order: what is being handed out
	at      int           // of cur: its first message that was not looked at
	stop    context.CancelFunc
	wg      sync.WaitGroup

	core.Intake // for Next, and Wake as Feed has it
}

// spoutTask is one task of the spout. Everything but sp is guarded by the feed's mutex.
type spoutTask struct {
	f     *SpoutFeed
	index int
	sp    killick.Spout
	chunk *spoutChunk   // collects what Next returned; nil: nothing waits
	next  int64         // offset of the next message
	open  int           // emitted and not ended
	room  chan struct{} // open fell below the limit, or the spout goes on
	left  map[*spoutChunk]struct{}
	lanes *core.Lanes[spoutPlace] // nil: no order
}

const spoutChunkSize = 64

// NewSpoutFeed makes a feed; Run starts it.
func NewSpoutFeed(spec *killick.SpoutSpec, topology string, observe func(Event)) *SpoutFeed {
	if observe == nil {
		observe = func(Event) {}
	}
	f := &SpoutFeed{spec: spec, topology: topology, observe: observe, Intake: core.NewIntake(), running: spec.Tasks}
	f.port = &port{Port: core.Port{Component: spec.Name}, codec: spec.Streams[0].Codec}
	for i := range spec.Tasks {
		f.tasks = append(f.tasks, &spoutTask{f: f, index: i, room: make(chan struct{}, 1), left: map[*spoutChunk]struct{}{}})
		if spec.Order != killick.NoOrder {
			f.tasks[i].lanes = core.NewLanes[spoutPlace]()
		}
	}
	return f
}

// Run calls the spouts until all are exhausted, Stop is called or ctx ends. It returns the
// error of a Prepare that failed for good.
func (f *SpoutFeed) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	f.mu.Lock()
	f.stop = cancel
	if f.stopped {
		cancel()
	}
	f.mu.Unlock()
	defer cancel()
	errs := make([]error, len(f.tasks))
	for i, t := range f.tasks {
		f.wg.Add(1)
		go func() {
			defer f.wg.Done()
			errs[i] = errGoexit // unless it returns
			defer func() {
				f.mu.Lock()
				f.running--
				f.mu.Unlock()
				f.Poke()
			}()
			errs[i] = t.loop(ctx)
		}()
	}
	f.wg.Wait()
	return errors.Join(errs...)
}

// Close gives up what has not ended: done is called with an error for each, once. It is called
// after the engine has returned.
func (f *SpoutFeed) Close() {
	f.epoch.Close()
	f.mu.Lock()
	var dones []func(error)
	for _, t := range f.tasks {
		for c := range t.left {
			for i := range c.recs {
				if !c.ended[i] {
					c.ended[i] = true
					dones = append(dones, c.dones[i])
				}
			}
		}
		clear(t.left)
	}
	f.mu.Unlock()
	for _, done := range dones {
		f.tell(done, errStopped)
	}
}

func (t *spoutTask) loop(ctx context.Context) error {
	err := guard(func() error { t.sp = t.f.spec.Info.New(); return nil })
	if err == nil && t.sp == nil {
		err = errors.New("the spout factory returned nil")
	}
	if err != nil {
		return &StopError{Component: t.f.spec.Name, Err: err}
	}
	if ok, err := t.prepare(ctx); !ok {
		return err
	}
	defer t.cleanup()
	failures := 0
	for ctx.Err() == nil {
		if !t.wait(ctx) {
			return nil
		}
		var m killick.Message
		var done func(error)
		err := guard(func() (err error) { m, done, err = t.sp.Next(ctx); return err })
		switch {
		case err == nil:
			failures = 0
			t.add(m, done)
			continue
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return nil
		}
		failures++
		wait := spoutWait(failures, err)
		t.f.observe(Event{Kind: HookFailed, Component: t.f.spec.Name, Task: t.index, Reason: "Next", Attempt: failures, Err: err, Wait: wait})
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	return nil
}

// prepare calls Prepare until it succeeds, its tries are used up, or a stop is wanted: then it is
// neither ready nor an error.
func (t *spoutTask) prepare(ctx context.Context) (ready bool, _ error) {
	p, ok := t.sp.(killick.Preparer)
	if !ok {
		return true, nil
	}
	tk := killick.Task{Topology: t.f.topology, Component: t.f.spec.Name, Index: t.index, Count: t.f.spec.Tasks}
	for n := 1; ; n++ {
		err := guard(func() error { return p.Prepare(ctx, tk) })
		if err == nil || ctx.Err() != nil {
			return err == nil, nil
		}
		if n >= prepareTries || killick.IsPermanent(err) {
			return false, &StopError{Component: t.f.spec.Name, Err: fmt.Errorf("task %d: Prepare failed %d times, the last time with: %w", t.index, n, err)}
		}
		wait := spoutWait(n, err)
		t.f.observe(Event{Kind: PrepareFailed, Component: t.f.spec.Name, Task: t.index, Attempt: n, Err: err, Wait: wait})
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

const prepareTries = 5 // of a spout, which has no retry policy

// spoutWait is how long a spout waits after so many failures, the last of them err.
func spoutWait(failures int, err error) time.Duration {
	if d, ok := killick.RetryDelay(err); ok {
		return d
	}
	return killick.Retry{Min: 100 * time.Millisecond, Max: 30 * time.Second}.Delay(failures)
}

func (t *spoutTask) cleanup() {
	if c, ok := t.sp.(killick.Cleaner); ok {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := guard(func() error { return c.Cleanup(ctx) }); err != nil {
			t.f.observe(Event{Kind: HookFailed, Component: t.f.spec.Name, Task: t.index, Reason: "Cleanup", Err: err})
		}
	}
}

// Pause stops the calls of Next, or lets them go on. A call in progress is not ended: what it returns
// is taken.
func (f *SpoutFeed) Pause(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused = on
	for _, t := range f.tasks {
		select {
		case t.room <- struct{}{}: // to look again
		default:
		}
	}
}

// wait blocks while the task's limit is reached, or the spout is paused.
func (t *spoutTask) wait(ctx context.Context) bool {
	for {
		t.f.mu.Lock()
		ok := t.open < t.f.spec.Pending && !t.f.paused
		t.f.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-t.room:
		case <-ctx.Done():
			return false
		}
	}
}

func (t *spoutTask) add(m killick.Message, done func(error)) {
	if m.Time.IsZero() {
		m.Time = time.Now()
	}
	f := t.f
	f.mu.Lock()
	c := t.chunk
	if c == nil {
		c = &spoutChunk{t: t, base: t.next}
		t.chunk = c
		t.left[c] = struct{}{}
	}
	c.recs = append(c.recs, spoutRecord{f.port, m})
	c.dones = append(c.dones, done)
	c.ended = append(c.ended, false)
	t.next++
	t.open++
	if len(c.recs) == spoutChunkSize {
		t.chunk = nil
		f.ready = append(f.ready, c)
	}
	f.mu.Unlock()
	f.Poke()
}

// Once makes the feed one of an at-most-once topology: done is called, with nil, before its message is
// handed out. It is called before Run.
func (f *SpoutFeed) Once() { f.once = true }

// Next implements Feed.
func (f *SpoutFeed) Next(ctx context.Context, r *Run) error {
	err := f.next(ctx, r)
	if err == nil && f.once && r.Chunk != nil {
		c := r.Chunk.(*spoutChunk)
		for i := r.From; i < r.To; i++ {
			f.mu.Lock()
			done := c.dones[i]
			c.dones[i] = nil
			f.mu.Unlock()
			f.tell(done, nil)
		}
	}
	return err
}

func (f *SpoutFeed) next(ctx context.Context, r *Run) error {
	return f.Intake.Next(ctx, func(bool) (found, end bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.spec.Order != killick.NoOrder {
			return f.takeInOrder(r)
		}
		c := f.take()
		if c == nil {
			return false, f.running == 0
		}
		*r = Run{Chunk: c, From: 0, To: len(c.recs)}
		return true, false
	})
}

// take returns a chunk that nothing is added to any more.
func (f *SpoutFeed) take() *spoutChunk {
	if len(f.ready) > 0 {
		c := f.ready[0]
		f.ready = f.ready[1:]
		return c
	}
	for range f.tasks {
		t := f.tasks[f.turn%len(f.tasks)]
		f.turn++
		if c := t.chunk; c != nil {
			t.chunk = nil
			return c
		}
	}
	return nil
}

// Stop implements Feed: what the spouts have emitted by then still comes.
func (f *SpoutFeed) Stop() {
	f.mu.Lock()
	f.stopped = true
	stop := f.stop
	f.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// Pending implements Feed.
func (f *SpoutFeed) Pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, t := range f.tasks {
		n += t.open
	}
	return n
}

// spoutChunk is a batch of messages of one task. It implements Chunk and valued.
type spoutChunk struct {
	t     *spoutTask
	base  int64
	recs  []spoutRecord
	dones []func(error)
	ended []bool   // guarded by the feed's mutex
	over  int      // how many have ended
	lanes []uint64 // with an order: of each message, once the chunk is handed out
}

func (c *spoutChunk) Origin(i int) core.Origin {
	return core.Origin{Topic: c.t.f.spec.Name, Partition: int32(c.t.index), Offset: c.base + int64(i)}
}
func (c *spoutChunk) Partition() int32               { return int32(c.t.index) }
func (c *spoutChunk) Epoch() *ack.Epoch              { return &c.t.f.epoch }
func (c *spoutChunk) Message(i int) *killick.Message { return &c.recs[i].m }
func (c *spoutChunk) Record(i int) core.Record       { return &c.recs[i] }

func (c *spoutChunk) EndRun(from, to int) {
	for i := from; i < to; i++ {
		c.end(i, nil)
	}
}

func (c *spoutChunk) End(i int, cause *ack.Cause) {
	if cause == nil {
		c.end(i, nil)
		return
	}
	c.end(i, fmt.Errorf("component %q gave the tuple up after %d tries: %w", cause.Component, cause.Attempts, cause.Err))
}

func (c *spoutChunk) end(i int, err error) {
	f := c.t.f
	f.mu.Lock()
	if c.ended[i] {
		f.mu.Unlock()
		return
	}
	c.ended[i] = true
	done := c.dones[i]
	f.mu.Unlock()
	f.tell(done, err) // before its place is free, and before the run can end
	f.mu.Lock()
	c.over++
	if c.over == len(c.recs) && c != c.t.chunk {
		delete(c.t.left, c)
	}
	c.t.open--
	turn := c.t.lanes != nil && i < len(c.lanes) && c.t.lanes.Leave(c.lanes[i])
	f.mu.Unlock()
	if turn {
		f.Poke()
	}
	select {
	case c.t.room <- struct{}{}:
	default:
	}
}

// tell calls a message's done, which is user code.
func (f *SpoutFeed) tell(done func(error), err error) {
	if done == nil {
		return
	}
	if err := guard(func() error { done(err); return nil }); err != nil {
		f.observe(Event{Kind: HookFailed, Component: f.spec.Name, Reason: "done", Err: err})
	}
}

// spoutRecord is one message as a record.
type spoutRecord struct {
	port *port
	m    killick.Message
}

func (r *spoutRecord) Key() []byte     { return r.m.Key }
func (r *spoutRecord) Time() time.Time { return r.m.Time }

func (r *spoutRecord) Bytes() []byte {
	if r.m.Value == nil {
		return r.m.Bytes
	}
	if b, ok := r.m.Value.([]byte); ok {
		return b
	}
	b, err := r.port.encode(r.m.Value)
	if err != nil {
		panic(encodeError{err})
	}
	return b
}

func (r *spoutRecord) Headers() []core.Header {
	return core.Headers[core.Header](r.m.Headers)
}
