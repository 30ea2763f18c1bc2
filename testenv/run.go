package testenv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/engine"
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
// Kafka spout of it, or a spout's codec cannot encode what it is fed. In a bubble of the test's
// own use RunReal.
func Run(t *testing.T, top *killick.Topology, in ...Input) *Result {
	t.Helper()
	var r *Result
	var err error
	synctest.Test(t, func(*testing.T) { r, err = run(top, in) })
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
	cfg := engine.Config{Spec: spec, Feeds: map[string]engine.Feed{}, RoundTrip: true, Outbox: outbox{r},
		Executed: r.executed, Emitted: r.emit, Observe: r.event}
	var spouts []*engine.SpoutFeed
	var feeds []*feed
	for i := range spec.Spouts {
		s := &spec.Spouts[i]
		if !s.Kafka() {
			f := engine.NewSpoutFeed(s, spec.Name, r.event)
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
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	serrs := make([]error, len(spouts))
	for i, f := range spouts {
		wg.Go(func() { serrs[i] = f.Run(ctx) })
	}
	r.err = e.Run(ctx)
	cancel()
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
	if r.attempts[component] == nil {
		r.attempts[component] = map[string]int{}
	}
	r.attempts[component][id]++
}

func (r *Result) emit(component, stream string, m killick.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := component + "/" + stream
	r.emitted[k] = append(r.emitted[k], m)
}

func (r *Result) event(ev engine.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
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
