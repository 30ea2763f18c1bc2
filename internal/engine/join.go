package engine

import (
	"errors"

	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/rules"
)

// fix gives joined outputs their anchors and origin; nil: h has none.
func (h *held) fix() func(k int, it *item) {
	joined := false
	for i := range h.outs {
		joined = joined || len(h.outs[i].joined) > 0
	}
	if !joined {
		return nil
	}
	return func(k int, it *item) {
		if k >= len(h.outs) || len(h.outs[k].joined) == 0 {
			return
		}
		o := &h.outs[k]
		it.anchors = it.anchors.Join(o.extra)
		// h may be anchored to nothing; what it has joined with a tracked tuple is that one's.
		it.loose = it.anchors.None()
		for _, j := range o.joined {
			if j := &j.item; j.chunk != nil && !it.loose && (it.chunk == nil || less(j, it)) {
				// The origin of a join is the smallest of its roots'.
				it.chunk, it.i, it.replays = j.chunk, j.i, j.replays
				it.path = j.path.Then(core.Step{Port: &it.port.Port, Ordinal: int32(k)})
			}
		}
	}
}

func less(a, b *item) bool {
	x, y := a.chunk.Origin(int(a.i)), b.chunk.Origin(int(b.i))
	if x.Topic != y.Topic {
		return x.Topic < y.Topic
	}
	if x.Partition != y.Partition {
		return x.Partition < y.Partition
	}
	return x.Offset < y.Offset
}

// drop ends the edges of outputs that will not leave. What such an output was joined with is
// lost: the trees of a handle that has acked by then are replayed (at most once: dropped), and a handle
// that is still open cannot ack any more (lost), so that its tuple is tried again as h's is.
//
// It reports whether h's own trees must be replayed, too: a handle of the same root has acked,
// and a new try of h's tuple alone would never see it again.
func (h *held) drop() (own bool) {
	var cause *ack.Cause
	for i := range h.outs {
		o := &h.outs[i]
		var acked []ack.Anchors
		for _, j := range o.joined {
			j.mu.Lock()
			switch j.word.Load() {
			case ack.Open:
				j.lost = true
			case ack.Ack:
				acked = append(acked, j.item.anchors)
			}
			j.mu.Unlock()
		}
		replay := ack.Anchors{}.Beyond(acked...)
		own = own || replay.Beyond(h.item.anchors).Len() < h.item.anchors.Len()
		rest := replay.Beyond(o.extra)
		rest.End()
		if replay = rest.Beyond(o.extra); replay.None() {
			continue
		}
		if cause == nil {
			cause = &ack.Cause{Outcome: ack.Replayed, Component: h.c.spec.Name, Task: h.t.index, Reason: "join",
				Err: errJoin, Policy: h.c.policy(), Limit: h.c.spec.Retry.Attempts, Wait: h.c.spec.Retry.Delay,
				Key: h.item.key, Value: h.item.safeBytes()}
			if h.c.e.once && rules.OnceIsOneTry { // their roots are dropped with the output
				cause.Outcome, cause.Attempts = ack.Dead, 1
			}
		}
		replay.Fail(cause)
	}
	h.outs = nil
	return own
}

var errJoin = errors.New("killick: a tuple that this one was joined with has failed")
