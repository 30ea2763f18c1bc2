package faults

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Action is what a rule does to the requests that it fits.
type Action int

const (
	// Pass does nothing: the rule only counts.
	Pass Action = iota
	// DropRequest: the request does not reach the broker, and nothing behind it on its connection does,
	// as on a network that loses all packets in this direction. Answers to earlier requests arrive. The
	// client sees a request that is never answered, until it gives up and closes the connection. (A
	// request that was missing from a connection that otherwise works is nothing that TCP can do: the
	// client would take the next answer for a wrong one.)
	DropRequest
	// DropAnswer: the broker acts on the request, and neither its answer nor anything behind it on the
	// connection reaches the client. Later requests still reach the broker.
	DropAnswer
	// HoldRequest keeps the request from the broker until Fault.Release or Remove. What is behind it on
	// its connection waits, too. If the client goes away meanwhile, the broker gets the request all the
	// same, as one that was long on its way.
	HoldRequest
	// HoldAnswer: the broker acts on the request, and the answer waits until Fault.Release or Remove;
	// what is behind it on the connection, too.
	HoldAnswer
	// DelayRequest lets Rule.Delay pass before the request goes on. Otherwise as HoldRequest.
	DelayRequest
	// DelayAnswer lets Rule.Delay pass before the answer goes on. Otherwise as HoldAnswer.
	DelayAnswer
	// Duplicate gives the broker the request twice, one right behind the other. The second answer is
	// swallowed.
	Duplicate
	// DuplicateLater gives the broker the request, and once more at Fault.Release or Remove, on the same
	// connection to the broker, which is kept for that if the client goes away. The answer to the copy is
	// swallowed. Where the broker has closed the connection meanwhile there is no copy.
	DuplicateLater
	// CutBefore closes the connection, to both sides, before the broker gets the request.
	CutBefore
	// CutAfter closes the connection when the broker has answered, before the client gets the answer.
	// The client cannot tell it from CutBefore.
	CutAfter

	actions int = iota
)

var actionNames = [...]string{"Pass", "DropRequest", "DropAnswer", "HoldRequest", "HoldAnswer", "DelayRequest", "DelayAnswer",
	"Duplicate", "DuplicateLater", "CutBefore", "CutAfter"}

func (a Action) String() string {
	if a < 0 || int(a) >= actions {
		return fmt.Sprintf("Action(%d)", int(a))
	}
	return actionNames[a]
}

// onAnswer reports whether the action is for the time when the broker has answered.
func (a Action) onAnswer() bool {
	return a == DropAnswer || a == HoldAnswer || a == DelayAnswer || a == CutAfter
}

// ends reports whether nothing of the request is left for further rules.
func (a Action) ends() bool { return a == DropRequest || a == CutBefore }

func (a Action) delays() bool { return a == DelayRequest || a == DelayAnswer }

// Rule says which requests a fault is for, and what becomes of them. All that is set must fit.
type Rule struct {
	// Do is what the rule does. Default: Pass.
	Do Action
	// Delay is the time of DelayRequest and DelayAnswer, and nothing for the others.
	Delay time.Duration

	// Keys are the kinds of requests. Default: all. (Some requests come where one does not think of
	// them: each connection begins with ApiVersions.)
	Keys []kmsg.Key
	// Topics: requests that name at least one of them, by name, or by an id that the proxy has seen in
	// an answer to Metadata or CreateTopics. Default: all requests.
	Topics []string
	// ClientID: requests of clients that call themselves so. Default: all.
	ClientID string
	// Connection: only requests of the n-th connection that the proxy has accepted, from 1, over all
	// brokers. (The number stands in ConnError, and is counted by Proxy.Connections.) Default: all.
	Connection int
	// Broker: only requests to the broker at this address, "127.0.0.1:9092". Default: all.
	Broker string
	// When looks at the request itself. It runs while the request waits: it must not block, nor keep or
	// change the request. Topic names are empty in versions that carry ids. Default: all.
	When func(kmsg.Request) bool

	// After is how many requests that fit pass first. Default: 0.
	After int
	// Count is on how many it acts then; negative: on all from then on. Default: 1.
	Count int
}

// validate joins all that is wrong with a rule.
func (r *Rule) validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("faults: rule: "+format, args...)) }
	if r.Do < 0 || int(r.Do) >= actions {
		fail("Do is %v, which is no action", r.Do)
	}
	switch {
	case r.Do.delays() && r.Delay <= 0:
		fail("Delay is %v; %v needs one above 0", r.Delay, r.Do)
	case !r.Do.delays() && r.Delay != 0:
		fail("Delay is %v; only DelayRequest and DelayAnswer have one, and Do is %v", r.Delay, r.Do)
	}
	for _, k := range r.Keys {
		switch req := k.Request(); {
		case req == nil && (len(r.Topics) > 0 || r.When != nil):
			fail("Keys has %d, a request that this version of kmsg cannot read: neither Topics nor When can look at it", int16(k))
		case req != nil && len(r.Topics) > 0 && !canName(reflect.TypeOf(req)):
			fail("Topics are set, and Keys has %s, which names no topic: it would never fit", k.Name())
		}
	}
	if slices.Contains(r.Topics, "") {
		fail("Topics has an empty name")
	}
	if r.Connection < 0 {
		fail("Connection is %d; they are counted from 1", r.Connection)
	}
	if r.After < 0 {
		fail("After is %d; it is a number of requests", r.After)
	}
	if r.Broker != "" {
		if _, _, err := splitAddress(r.Broker); err != nil {
			fail("Broker: %w", err)
		}
	}
	return errors.Join(errs...)
}

// Fault is a rule at work. Its methods may be called from any goroutine.
type Fault struct {
	p    *Proxy
	rule Rule

	mu   sync.Mutex
	fits int // requests that fitted, those of After included
	left int // on how many it will still act; negative: no end
	hits int
	gone bool
	// changed is closed and replaced at each hit, release at each Release; removed is closed once.
	changed, release, removed chan struct{}
}

// Inject adds a rule. Rules act in the order in which they were added; one that drops or cuts a request
// leaves it to no other. The rule ends with its Count, with Fault.Remove or with the proxy.
func (p *Proxy) Inject(r Rule) (*Fault, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	if r.Count == 0 {
		r.Count = 1
	}
	if r.Broker != "" {
		host, port, _ := splitAddress(r.Broker)
		r.Broker = joinAddress(host, port)
	}
	r.Keys, r.Topics = slices.Clone(r.Keys), slices.Clone(r.Topics)
	f := &Fault{p: p, rule: r, left: r.Count, changed: make(chan struct{}), release: make(chan struct{}), removed: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	p.setFaultsLocked(append(slices.Clone(*p.faults.Load()), f))
	return f, nil
}

// Inject adds a rule until the end of the test, and fails the test at once if it is wrong.
func Inject(t TB, p *Proxy, r Rule) *Fault {
	t.Helper()
	f, err := p.Inject(r)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	t.Cleanup(f.Remove)
	return f
}

// Hits is on how many requests the rule has acted: those that are held or delayed at the moment are
// among them; those whose answer is still to come are not, for rules about answers.
func (f *Fault) Hits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits
}

// Wait returns when the rule has acted on n requests, or with an error that wraps that of ctx.
func (f *Fault) Wait(ctx context.Context, n int) error {
	for {
		f.mu.Lock()
		hits, fits, changed := f.hits, f.fits, f.changed
		f.mu.Unlock()
		if hits >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("faults: %v has acted on %d requests of %d, and %d fitted: %w", f.rule.Do, hits, n, fits, ctx.Err())
		case <-f.p.done:
			return fmt.Errorf("faults: %v has acted on %d requests of %d: %w", f.rule.Do, hits, n, ErrClosed)
		}
	}
}

// Release lets go what the rule holds at the moment. The rule stays.
func (f *Fault) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.release)
	f.release = make(chan struct{})
}

// Remove ends the rule, and lets go what it holds. Removing twice does nothing.
func (f *Fault) Remove() {
	f.mu.Lock()
	gone := f.gone
	f.gone = true
	f.mu.Unlock()
	if gone {
		return
	}
	close(f.removed)
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.p.setFaultsLocked(slices.DeleteFunc(slices.Clone(*f.p.faults.Load()), func(o *Fault) bool { return o == f }))
}

func (f *Fault) isGone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gone
}

// take reports whether the rule acts on a request, and reserves one of its Count.
func (f *Fault) take() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone || f.left == 0 {
		return false
	}
	if f.fits++; f.fits <= f.rule.After {
		return false
	}
	if f.left > 0 {
		f.left--
	}
	return true
}

// giveBack returns what take has reserved and nobody has acted on: the connection ended before the
// answer came.
func (f *Fault) giveBack() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left >= 0 && f.rule.Count >= 0 {
		f.left++
	}
}

// hit counts a request on which the rule acts, and returns what ends a hold.
func (f *Fault) hit() (release <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hits++
	close(f.changed)
	f.changed = make(chan struct{})
	return f.release
}

// fits reports whether the rule is for the request. decode is called only if it has to be.
func (r *Rule) fits(h *header, c *conn, decode func() (kmsg.Request, error)) (bool, error) {
	if len(r.Keys) > 0 && !slices.Contains(r.Keys, h.key) ||
		r.ClientID != "" && r.ClientID != string(h.clientID) ||
		r.Connection != 0 && r.Connection != c.number ||
		r.Broker != "" && r.Broker != c.link.broker {
		return false, nil
	}
	if len(r.Topics) == 0 && r.When == nil {
		return true, nil
	}
	if !h.known {
		return false, nil
	}
	req, err := decode()
	if err != nil {
		return false, err
	}
	if len(r.Topics) > 0 && !c.p.topics.named(reflect.ValueOf(req), func(name string) bool { return slices.Contains(r.Topics, name) }) {
		return false, nil
	}
	return r.When == nil || r.When(req), nil
}
