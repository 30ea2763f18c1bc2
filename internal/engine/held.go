package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/core"
)

// held is an input whose bolt decides later. It is a tuple and a handle of its own, never
// reused: a second verdict, however late, must not hit another tuple.
type held struct {
	en    *entry // with an open edge; changed by nobody until the verdict
	c     *component
	tuple core.Tuple
	word  ack.Word
	id    uint64 // orders the locks of joint emits

	mu     sync.Mutex // guards outs, bytes, bad, ctx; taken in the order of id where several are
	outs   []heldEmit
	loose  []core.Emit[killick.Message]
	bytes  int
	bad    error
	sent   int  // emits that have left
	lost   bool // what it was joined with has failed: an ack counts as a failure
	ctx    context.Context
	cancel context.CancelCauseFunc

	// Links of the component's list; guarded by its mutex.
	deadline   time.Time
	prev, next *held
	listed     bool
}

// heldEmit is an output that leaves at Ack.
type heldEmit struct {
	em core.Emit[killick.Message]
	// joined are the other handles that it is anchored to, and extra their trees that are not
	// the holder's own: an edge of each is open for this output.
	joined []*held
	extra  ack.Anchors
}

// hold takes over the input of the execution in progress, with what it has emitted so far.
func (x *exec) hold() *held {
	h := &held{en: x.entry(), c: x.c, id: x.e.seq.Add(1)}
	h.en.item.fill(&h.tuple)
	keep := x.ex.Out[:0]
	for _, em := range x.ex.Out {
		if em.Loose {
			keep = append(keep, em)
			continue
		}
		h.outs = append(h.outs, heldEmit{em: em})
	}
	clear(x.ex.Out[len(keep):])
	x.ex.Out, x.ex.Held = keep, true
	h.bytes = x.ex.Bytes
	x.c.held.add(h, time.Now().Add(x.c.spec.Timeout))
	return h
}

// addLoose adds untracked emits of the execution: they leave with the others.
func (h *held) addLoose(outs []core.Emit[killick.Message]) {
	h.mu.Lock()
	h.loose = append(h.loose, outs...)
	h.mu.Unlock()
	if h.word.Load() == ack.Ack {
		h.sendLoose()
	}
}

// Decided reports whether h has its verdict.
func (h *held) Decided() bool { return h.word.Load() != ack.Open }

func (h *held) Tuple() *core.Tuple { return &h.tuple }

func (h *held) Context() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil {
		h.ctx, h.cancel = context.WithCancelCause(h.c.e.hard)
		if h.word.Load() != ack.Open {
			h.cancel(killick.ErrFinished)
		}
	}
	return h.ctx
}

func (h *held) Emit(stream string, m any, with []core.Holder) error {
	i := slices.Index(h.c.names, stream)
	if i < 0 {
		err := (&exec{c: h.c}).UnknownStream(stream)
		h.mu.Lock()
		h.bad = err
		h.mu.Unlock()
		return err
	}
	out := heldEmit{em: core.Emit[killick.Message]{Stream: i, M: *m.(*killick.Message)}}
	all := []*held{h}
	for _, w := range with {
		if o := w.(*held); !slices.Contains(all, o) {
			all = append(all, o)
			out.joined = append(out.joined, o)
		}
	}
	// With all locks held no verdict comes in between, so the edges that are opened here are
	// opened on trees that are open.
	slices.SortFunc(all, func(a, b *held) int { return int(int64(a.id) - int64(b.id)) })
	for _, o := range all {
		o.mu.Lock()
		defer o.mu.Unlock()
	}
	for _, o := range all {
		if o.word.Load() != ack.Open {
			h.c.stats.misuse.Add(1)
			return killick.ErrFinished
		}
	}
	if len(h.outs) >= core.MaxEmits {
		h.bad = (&exec{c: h.c}).TooMuch(len(h.outs)+1, h.bytes)
		return h.bad
	}
	for _, o := range out.joined {
		o.en.item.anchors.Each(func(t *ack.Tree) {
			if !h.en.item.anchors.Has(t) {
				out.extra = out.extra.Join(ack.On(t))
			}
		})
	}
	out.extra.Open(1)
	h.outs = append(h.outs, out)
	return nil
}

// decideLocked takes the verdict v, if it is the first. A later one is counted.
func (h *held) decideLocked(v ack.Verdict) bool {
	won, was := h.word.Decide(v)
	if !won {
		h.c.e.Ignored.Count(was)
	}
	return won
}

// decided takes h off the deadline list and ends its context.
func (h *held) decided() {
	h.c.held.remove(h)
	h.mu.Lock()
	cancel := h.cancel
	h.mu.Unlock()
	if cancel != nil {
		cancel(killick.ErrFinished)
	}
}

func (h *held) Ack() bool {
	h.mu.Lock()
	err, reason := h.bad, "permanent"
	if err != nil {
		err = killick.Permanent(err)
	} else if h.lost {
		err, reason = errJoin, "join"
	}
	won := false
	if err == nil {
		won = h.decideLocked(ack.Ack)
	}
	h.mu.Unlock()
	if err != nil {
		h.finish(ack.Failed, reason, err, nil)
		return false
	}
	if !won {
		return false
	}
	h.decided()
	// From here on outs belong to this goroutine: Emit refuses.
	if err := h.send(); err != nil {
		h.drop()
		h.c.fail(h.en, reasonOf(err), err, nil)
		return true
	}
	if h.c.sink == nil {
		h.c.stats.acked.Add(1)
		h.en.item.anchors.End()
	}
	return true
}

// send sends the outputs; on an error nothing has left. The edge of a sink's input goes over
// to what it writes.
func (h *held) send() error {
	c := h.c
	if c.sink != nil {
		ems := make([]core.Emit[killick.Message], len(h.outs))
		for i, o := range h.outs {
			ems[i] = o.em
		}
		return c.write(h.en, ems, nil)
	}
	if len(h.outs) == 0 && len(h.loose) == 0 {
		return nil
	}
	select {
	case c.late <- struct{}{}:
	case <-c.e.hard.Done():
		return errStopped
	}
	defer func() { <-c.late }()
	in := &h.en.item
	ems := make([]core.Emit[killick.Message], 0, len(h.outs)+len(h.loose))
	for _, o := range h.outs {
		ems = append(ems, o.em)
	}
	h.mu.Lock()
	ems = append(ems, h.loose...)
	h.loose, h.sent = nil, len(ems)
	h.mu.Unlock()
	err := c.lateOut.emit(c.ports, in, ems, 0, func(k int, it *item) {
		if k >= len(h.outs) || len(h.outs[k].joined) == 0 {
			return
		}
		o := &h.outs[k]
		it.anchors = it.anchors.Join(o.extra)
		for _, j := range o.joined {
			if j := &j.en.item; j.chunk != nil && (it.chunk == nil || less(j, it)) {
				// The origin of a join is the smallest of its roots'.
				it.chunk, it.i, it.path = j.chunk, j.i, j.path.Then(core.Step{Port: &it.port.Port, Ordinal: int32(k)})
			}
		}
	})
	if err != nil {
		return err
	}
	c.lateOut.flush() // opens the outputs' edges
	for _, o := range h.outs {
		o.extra.End()
	}
	h.outs = nil
	return nil
}

// sendLoose sends untracked emits that came after the ack.
func (h *held) sendLoose() {
	select {
	case h.c.late <- struct{}{}:
	case <-h.c.e.hard.Done():
		return
	}
	defer func() { <-h.c.late }()
	h.mu.Lock()
	loose, n := h.loose, h.sent
	h.loose, h.sent = nil, n+len(loose)
	h.mu.Unlock()
	if len(loose) > 0 && h.c.lateOut.emit(h.c.ports, &h.en.item, loose, n, nil) == nil {
		h.c.lateOut.flush()
	}
}

func less(a, b *item) bool {
	x, y := a.chunk.Origin(a.i), b.chunk.Origin(b.i)
	if x.Topic != y.Topic {
		return x.Topic < y.Topic
	}
	if x.Partition != y.Partition {
		return x.Partition < y.Partition
	}
	return x.Offset < y.Offset
}

func (h *held) Fail(err error) bool {
	if err == nil {
		err = errNil
	}
	return h.finish(ack.Failed, reasonOf(err), err, nil)
}

var errNil = errors.New("killick: failed without a reason")

// finish ends the try badly: v is Failed or TimedOut.
func (h *held) finish(v ack.Verdict, reason string, err error, stack []byte) bool {
	h.mu.Lock()
	won := h.decideLocked(v)
	h.mu.Unlock()
	if !won {
		return false
	}
	h.decided()
	h.drop()
	h.c.fail(h.en, reason, err, stack)
	return true
}

// drop ends the edges of outputs that will not leave. A tree of a handle that has acked by
// then is replayed, since what it was joined to is lost; a handle that is still open cannot ack
// any more (lost), so its tuple is tried again as h's is.
func (h *held) drop() {
	var cause *ack.Cause
	for _, o := range h.outs {
		replay := ack.Anchors{}
		for _, j := range o.joined {
			j.mu.Lock()
			switch j.word.Load() {
			case ack.Open:
				j.lost = true
			case ack.Ack:
				replay = replay.Join(j.en.item.anchors)
			}
			j.mu.Unlock()
		}
		o.extra.Each(func(t *ack.Tree) {
			if !replay.Has(t) {
				t.End()
				return
			}
			if cause == nil {
				cause = &ack.Cause{Outcome: ack.Replayed, Component: h.c.spec.Name, Task: h.en.t.index, Reason: "join",
					Err: errJoin, Policy: policyOf(h.c.spec.Retry.After), Limit: h.c.spec.Retry.Attempts, Wait: h.c.spec.Retry.Delay,
					Key: h.en.item.key, Value: h.en.item.safeBytes()}
			}
			t.Fail(cause)
		})
	}
	h.outs = nil
}

var errJoin = errors.New("killick: a tuple that this one was joined with has failed")

func (h *held) Extend(d time.Duration) bool {
	if h.word.Load() != ack.Open {
		return false
	}
	return h.c.held.move(h, time.Now().Add(d))
}

// heldList keeps a component's held tuples in the order of their deadlines. Nearly all are
// added at the end, and any is removed in constant time.
type heldList struct {
	mu          sync.Mutex
	first, last *held
	n           int
}

func (l *heldList) add(h *held, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.insert(h, at)
}

func (l *heldList) insert(h *held, at time.Time) {
	h.deadline, h.listed = at, true
	after := l.last
	for after != nil && after.deadline.After(at) {
		after = after.prev
	}
	h.prev = after
	if after == nil {
		h.next, l.first = l.first, h
	} else {
		h.next, after.next = after.next, h
	}
	if h.next == nil {
		l.last = h
	} else {
		h.next.prev = h
	}
	l.n++
}

func (l *heldList) remove(h *held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlink(h)
}

func (l *heldList) unlink(h *held) bool {
	if !h.listed {
		return false
	}
	if h.prev == nil {
		l.first = h.next
	} else {
		h.prev.next = h.next
	}
	if h.next == nil {
		l.last = h.prev
	} else {
		h.next.prev = h.prev
	}
	h.prev, h.next, h.listed = nil, nil, false
	l.n--
	return true
}

// move gives h another deadline; false: it is not on the list any more.
func (l *heldList) move(h *held, at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.unlink(h) {
		return false
	}
	l.insert(h, at)
	return true
}

// expire times out what is due.
func (l *heldList) expire(now time.Time) {
	for {
		l.mu.Lock()
		h := l.first
		if h == nil || h.deadline.After(now) {
			l.mu.Unlock()
			return
		}
		l.unlink(h)
		l.mu.Unlock()
		if h.finish(ack.TimedOut, "timeout", errTimeout(h.c), nil) {
			h.c.stats.timeouts.Add(1)
		}
	}
}

// Len returns the number of held tuples without a verdict.
func (l *heldList) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}
