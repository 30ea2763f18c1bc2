package testenv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/testenv/bubble"
)

// Input is what [Run] gives to a spout. See [Feed].
type Input struct {
	spout string
	ms    []killick.Message
}

// Feed gives messages to a Kafka spout, as records of partition 0 of its first topic, from
// offset 0. Several inputs for one spout add up. Other spouts run themselves. A zero Time is the
// (virtual) present.
func Feed(spout string, ms ...killick.Message) Input { return Input{spout, ms} }

// Result is what a run did. It is complete when Run returns.
type Result struct {
	mu       sync.Mutex
	emitted  map[string][]killick.Message
	written  map[string][]killick.Message
	dead     []DeadLetter
	attempts map[string]map[string]int
	acked    map[string]int
	skipped  map[string]int
	events   []engine.Event
	steps    int // calls of executed, emit and event: while it grows, something happens
	err      error
}

// DeadLetter is a root that was given up, with the root's message.
type DeadLetter struct {
	killick.Message
	Origin    killick.Origin
	Component string // that gave it up
	Reason    string // error, permanent, panic, timeout, decode, ...
	Attempts  int
	Err       error
}

// Emitted returns what went to "component" (its default stream) or "component/stream", in the
// order in which it left.
func (r *Result) Emitted(stream string) []killick.Message {
	component, name, _ := strings.Cut(stream, "/")
	return r.emitted[component+"/"+name]
}

// Written returns what sinks wrote to a topic, encoded.
func (r *Result) Written(topic string) []killick.Message { return r.written[topic] }

// DeadLetters returns the roots of Kafka spouts that were given up, in the order in which their trees
// ended. Other spouts are told by done.
func (r *Result) DeadLetters() []DeadLetter { return r.dead }

// Attempts returns how often a component executed each tuple, by the tuple's ID.
func (r *Result) Attempts(component string) map[string]int { return r.attempts[component] }

// Acked returns how many roots of a spout ended well.
func (r *Result) Acked(spout string) int { return r.acked[spout] }

// Skipped returns how many roots of a spout were given up by a policy of [killick.Skip].
func (r *Result) Skipped(spout string) int { return r.skipped[spout] }

// Err returns why the topology stopped before its input had ended, such as a component whose
// policy is to stop; nil otherwise.
func (r *Result) Err() error { return r.err }

// Run executes top on the inputs until every tree has ended, in virtual time: time passes only
// while everything waits (an hour of it takes about a second). Bolts must not use real sockets or
// files that block; see [RunReal]. Values of streams with a codec are encoded and decoded, as
// between processes. It fails the test at once if the topology is not valid, an input names no
// Kafka spout of it, or a spout's codec cannot encode what it is fed; and later if user code does
// not return at ten times its time-out and nothing else happens (a goroutine that never ends then
// makes package synctest panic, with its stack). In a bubble of the test's own use RunReal.
func Run(t *testing.T, top *killick.Topology, in ...Input) *Result {
	t.Helper()
	var r *Result
	var err error
	bubble.Test(t, func(b *testing.T) {
		if r, err = run(top, in); errors.As(err, new(stuckError)) {
			b.Error(err) // before the bubble ends, and panics over what is left in it
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// RunReal is Run in real time, for bolts that do real input and output; inside a testing/synctest
// bubble in the bubble's.
func RunReal(t testing.TB, top *killick.Topology, in ...Input) *Result {
	t.Helper()
	r, err := run(top, in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func run(top *killick.Topology, in []Input) (*Result, error) {
	spec, err := top.Spec()
	if err != nil {
		return nil, err
	}
	r := &Result{emitted: map[string][]killick.Message{}, written: map[string][]killick.Message{},
		attempts: map[string]map[string]int{}, acked: map[string]int{}, skipped: map[string]int{}}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	observe := func(ev engine.Event) {
		r.event(ev)
		if ev.Kind == engine.TaskStuck {
			r.awaitStuck(cancel, spec, ev)
		}
	}
	cfg := engine.Config{Spec: spec, Feeds: map[string]engine.Feed{}, RoundTrip: true, Outbox: outbox{r},
		Executed: r.executed, Emitted: r.emit, Observe: observe}
	var spouts []*engine.SpoutFeed
	var feeds []*feed
	for i := range spec.Spouts {
		s := &spec.Spouts[i]
		if !s.Kafka() {
			f := engine.NewSpoutFeed(s, spec.Name, r.event)
			if spec.Guarantee == killick.AtMostOnce {
				f.Once()
			}
			spouts = append(spouts, f)
			cfg.Feeds[s.Name] = f
			continue
		}
		f := newFeed(s, r)
		feeds = append(feeds, f)
		cfg.Feeds[s.Name] = f
	}
	var errs []error
	for _, i := range in {
		n := slices.IndexFunc(feeds, func(f *feed) bool { return f.spec.Name == i.spout })
		if n < 0 {
			errs = append(errs, errNoFeed(spec, i.spout))
			continue
		}
		errs = append(errs, feeds[n].add(i.ms))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	e, err := engine.New(cfg)
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	serrs := make([]error, len(spouts))
	for i, f := range spouts {
		wg.Go(func() { serrs[i] = f.Run(ctx) })
	}
	r.err = e.Run(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause // nothing else ends ctx so far
	}
	cancel(nil)
	wg.Wait()
	for _, f := range spouts {
		f.Close()
	}
	r.err = errors.Join(r.err, errors.Join(serrs...))
	_, stats := e.Stats()
	for _, s := range stats {
		r.acked[s.Spout], r.skipped[s.Spout] = int(s.Acked), int(s.Skipped)
	}
	return r, nil
}

// awaitStuck ends the run if the execution that ev tells of, at twice its time-out, is still all that
// there is at ten times: nothing else will happen, and virtual time would go on for ever.
func (r *Result) awaitStuck(cancel context.CancelCauseFunc, spec *killick.Spec, ev engine.Event) {
	i := slices.IndexFunc(spec.Bolts, func(b killick.BoltSpec) bool { return b.Name == ev.Component })
	wait := 8 * spec.Bolts[i].Timeout
	var again func(steps int)
	again = func(steps int) {
		time.AfterFunc(wait, func() {
			if now := r.step(); now != steps {
				again(now)
				return
			}
			cancel(stuckError{ev})
		})
	}
	again(r.step())
}

// stuckError says that user code does not return.
type stuckError struct{ ev engine.Event }

func (s stuckError) Error() string {
	return fmt.Sprintf("testenv: component %q, task %d: %v, and nothing else happens; Execute must return when its context ends\n%s",
		s.ev.Component, s.ev.Task, s.ev.Err, s.ev.Stack)
}

// step returns the number of things that have happened.
func (r *Result) step() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.steps
}

// errNoFeed says which spouts take input instead.
func errNoFeed(spec *killick.Spec, name string) error {
	var kafka []string
	for i := range spec.Spouts {
		s := &spec.Spouts[i]
		if s.Kafka() {
			kafka = append(kafka, fmt.Sprintf("%q", s.Name))
		} else if s.Name == name {
			return fmt.Errorf("testenv: Feed(%q): the spout has its own source; only Kafka spouts are fed", name)
		}
	}
	return fmt.Errorf("testenv: Feed(%q): topology %q has no such spout; its Kafka spouts: %s", name, spec.Name, strings.Join(kafka, ", "))
}

func (r *Result) executed(component, id string, _ int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps++
	if r.attempts[component] == nil {
		r.attempts[component] = map[string]int{}
	}
	r.attempts[component][id]++
}

func (r *Result) emit(component, stream string, m killick.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps++
	k := component + "/" + stream
	r.emitted[k] = append(r.emitted[k], m)
}

func (r *Result) event(ev engine.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps++
	r.events = append(r.events, ev)
}

// outbox keeps what sinks write; it is durable at once.
type outbox struct{ r *Result }

func (o outbox) Put(_ context.Context, out *engine.Output) error {
	m := killick.Message{Key: out.Key, Bytes: out.Value, Time: out.Time, Headers: headers(out.Headers)}
	o.r.mu.Lock()
	o.r.written[out.Topic] = append(o.r.written[out.Topic], m)
	o.r.mu.Unlock()
	out.Done(nil)
	return nil
}

func headers(hs []core.Header) []killick.Header {
	if hs == nil {
		return nil
	}
	out := make([]killick.Header, len(hs))
	for i, h := range hs {
		out[i] = killick.Header(h)
	}
	return out
}
