package embedded

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Filter narrows a fault to some requests. It runs on the broker's goroutines:
// it must not block, call the broker, or keep or change the request. Topic
// names are empty in requests that carry topic ids.
type Filter func(kmsg.Request) bool

// Fault is an installed fault.
type Fault interface {
	// Hits is the number of requests that the fault has acted on.
	Hits() int
	// Wait returns when Hits is at least n, or with the error of ctx.
	Wait(ctx context.Context, n int) error
	// Remove ends the fault; what it holds goes on.
	Remove()
}

func all(where []Filter, req kmsg.Request) bool {
	for _, f := range where {
		if !f(req) {
			return false
		}
	}
	return true
}

// Fail answers the next n requests of the kind with an error, all until Remove
// if n is negative. The broker does not act on them, except when the error is
// REQUEST_TIMED_OUT on a request that a broker can answer so after the fact
// (Produce, OffsetCommit, TxnOffsetCommit, admin requests): then it acts.
func (b *Broker) Fail(key kmsg.Key, with *kerr.Error, n int, where ...Filter) Fault {
	f := kfake.Fault{Keys: []kmsg.Key{key}, Err: with, Count: n}
	if n == 0 {
		// To kfake 0 means once.
		return b.wire.add(&rule{key: key, left: 0})
	}
	if len(where) > 0 {
		where = slices.Clone(where)
		f.When = func(req kmsg.Request) bool { return all(where, req) }
	}
	return b.cluster.Fault(f)
}

// Hold keeps requests of the kind from the broker until the channel is closed
// or the fault removed: it has not acted on them meanwhile. Requests behind a
// held one on the same connection wait, too. (franz-go has a connection each
// for produce, fetch, join and sync, requests with a timeout, and the rest:
// commits and heartbeats share one.) A client gives up a request, and the
// connection, after its request timeout.
func (b *Broker) Hold(key kmsg.Key, until <-chan struct{}, where ...Filter) Fault {
	return b.wire.add(&rule{key: key, left: -1, until: until, where: where})
}

// HoldAnswers lets the broker act on requests of the kind, and keeps the
// answers until the channel is closed or the fault removed. What follows on
// the same connection waits, as with Hold.
func (b *Broker) HoldAnswers(key kmsg.Key, until <-chan struct{}, where ...Filter) Fault {
	return b.wire.add(&rule{key: key, left: -1, until: until, where: where, answers: true})
}

// DelayAnswers lets the broker act on requests of the kind, and gives each
// answer d later, until the fault is removed. What follows on the same
// connection waits, as with Hold.
func (b *Broker) DelayAnswers(key kmsg.Key, d time.Duration, where ...Filter) Fault {
	return b.wire.add(&rule{key: key, left: -1, delay: d, where: where, answers: true})
}

// Drop cuts the connection of the next n requests of the kind before the
// broker acts on them, of all until Remove if n is negative.
func (b *Broker) Drop(key kmsg.Key, n int, where ...Filter) Fault {
	return b.wire.add(&rule{key: key, left: n, where: where})
}

// LoseAnswers lets the broker act on the next n requests of the kind, on all
// until Remove if n is negative, and cuts the connection instead of answering.
// The client cannot tell this from Drop.
func (b *Broker) LoseAnswers(key kmsg.Key, n int, where ...Filter) Fault {
	return b.wire.add(&rule{key: key, left: n, where: where, answers: true})
}

// rule is a fault on the wire: it cuts, or waits for until or the delay if one of them is set.
type rule struct {
	w       *wire
	key     kmsg.Key
	where   []Filter
	answers bool // acts on the answer, not on the request
	until   <-chan struct{}
	delay   time.Duration // used if positive; until is nil then
	removed chan struct{}

	mu      sync.Mutex
	left    int // requests still to act on; negative: no end
	hits    int
	changed chan struct{} // closed and replaced at each hit
	gone    bool
}

func (r *rule) cuts() bool { return r.until == nil && r.delay <= 0 }

// take reports whether the rule acts on the request, and counts it.
func (r *rule) take(req kmsg.Request) bool {
	if !all(r.where, req) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone || r.left == 0 {
		return false
	}
	if r.left > 0 {
		r.left--
	}
	r.hits++
	close(r.changed)
	r.changed = make(chan struct{})
	return true
}

func (r *rule) Hits() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hits
}

func (r *rule) Wait(ctx context.Context, n int) error {
	for {
		r.mu.Lock()
		hits, changed := r.hits, r.changed
		r.mu.Unlock()
		if hits >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *rule) Remove() {
	r.mu.Lock()
	gone := r.gone
	r.gone = true
	r.mu.Unlock()
	if gone {
		return
	}
	close(r.removed)
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.w.rules = slices.DeleteFunc(r.w.rules, func(o *rule) bool { return o == r })
}

func (w *wire) add(r *rule) *rule {
	r.w = w
	r.where = slices.Clone(r.where)
	r.removed = make(chan struct{})
	r.changed = make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rules = append(w.rules, r)
	return r
}

// ruled reports whether any rule is about requests of the kind.
func (w *wire) ruled(key kmsg.Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.rules, func(r *rule) bool { return r.key == key })
}

// match returns the rules that act on the request. Of several that would cut,
// only the first is used up.
func (w *wire) match(x *exchange) []*rule {
	w.mu.Lock()
	rules := slices.Clone(w.rules)
	w.mu.Unlock()
	var out []*rule
	cut := false
	for _, r := range rules {
		if r.key != x.key || cut && r.cuts() || !r.take(x.req) {
			continue
		}
		cut = cut || r.cuts()
		out = append(out, r)
	}
	return out
}
