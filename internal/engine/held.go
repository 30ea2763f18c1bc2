package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/rules"
)

// held is an input whose bolt decides later. It is a tuple and a handle of its own, never
// reused: a second verdict, however late, must not hit another tuple.
type held struct {
	entry  // with an open edge; changed by nobody until the verdict
	c      *component
	handle core.Held
	tuple  core.Tuple
	word   ack.Word
	id     uint64    // orders the locks of joint emits
	place  []uintptr // where it was held, if that was wanted; see neverEnded

	mu    sync.Mutex // guards what follows; taken in the order of id where several are
	outs  []heldEmit
	loose []core.Emit[killick.Message]
	bytes int
	bad   error // an emit was the bolt's mistake: an ack counts as a permanent failure
	sent  int   // emits that have left
	lost  bool  // what it was joined with has failed: an ack counts as a failure
	ctx   *heldContext

	// Links of the component's list; guarded by its mutex.
	deadline   uint64 // tick
	prev, next *held
	listed     bool
}

// heldContext is made when it is asked for.
type heldContext struct {
	context.Context
	cancel context.CancelCauseFunc
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
	h := &held{c: x.c, id: x.e.seq.Add(1)}
	h.handle.Set(h)
	h.trace()
	x.take(&h.entry)
	h.item.fill(&h.tuple)
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
	h.bytes, h.bad = x.ex.Bytes, x.ex.Bad
	x.c.held.add(h, x.e.watch.deadline(x.c.spec.Timeout))
	if x.e.hard.Err() != nil {
		h.leave() // the engine has given up on what is held, and will not look again
	}
	return h
}

// Handle returns what users get.
func (h *held) Handle() *core.Held { return &h.handle }

// addLoose adds untracked emits of the execution: they leave with the others.
func (h *held) addLoose(outs []core.Emit[killick.Message]) {
	h.mu.Lock()
	h.loose = append(h.loose, outs...)
	h.mu.Unlock()
	switch {
	case h.word.Load() == ack.Ack:
		h.sendLoose()
	case h.Decided(): // dropped with the others
		h.mu.Lock()
		h.loose = nil
		h.mu.Unlock()
	}
}

// Decided reports whether h has its verdict.
func (h *held) Decided() bool { return h.word.Load() != ack.Open }

func (h *held) Tuple() *core.Tuple { return &h.tuple }

func (h *held) Context() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil {
		ctx, cancel := context.WithCancelCause(h.c.e.hard)
		h.ctx = &heldContext{ctx, cancel}
		if h.Decided() {
			cancel(killick.ErrFinished)
		}
	}
	return h.ctx.Context
}

func (h *held) Emit(stream string, m any, with []core.Holder) error {
	late, err := h.emit(stream, m, with)
	if late {
		h.lateEmit()
	}
	return err
}

// emit is Emit; late says that one of the handles has its verdict.
func (h *held) emit(stream string, m any, with []core.Holder) (late bool, err error) {
	out := heldEmit{em: core.Emit[killick.Message]{M: *m.(*killick.Message)}}
	all := make([]*held, 1, 1+len(with))
	all[0] = h
	for _, w := range with {
		all = append(all, w.(*held))
	}
	// With all locks held no verdict comes in between, so the edges that are opened here are
	// opened on trees that are open.
	slices.SortFunc(all, func(a, b *held) int { return cmp.Compare(a.id, b.id) })
	all = slices.Compact(all)
	for _, o := range all {
		o.mu.Lock()
		defer o.mu.Unlock()
	}
	for _, o := range all {
		if o.Decided() {
			return true, killick.ErrFinished
		}
		if o.gone() {
			h.c.e.Ignored.Lost.Add(1)
			return false, killick.ErrFinished
		}
	}
	// What follows is the bolt's mistake.
	if out.em.Stream = slices.Index(h.c.names, stream); out.em.Stream < 0 {
		h.bad = h.c.unknownStream(stream)
		return false, h.bad
	}
	size := len(out.em.M.Key) + len(out.em.M.Bytes) + 64
	if len(h.outs) >= core.MaxEmits || h.bytes+size > core.MaxBytes {
		h.bad = h.c.tooMuch(len(h.outs)+1, h.bytes+size)
		return false, h.bad
	}
	h.bytes += size
	if len(all) > 1 {
		out.joined = slices.DeleteFunc(all, func(o *held) bool { return o == h })
		sets := make([]ack.Anchors, len(out.joined))
		for i, o := range out.joined {
			sets[i] = o.item.anchors
		}
		out.extra = h.item.anchors.Beyond(sets...)
	}
	if !rules.JoinsAnchorAll {
		out.extra = ack.Anchors{}
	}
	out.extra.Open(1)
	h.outs = append(h.outs, out)
	return false, nil
}

// gone reports whether the tuple's partitions are lost.
func (h *held) gone() bool { return h.item.anchors.Gone() }

// decideLocked takes the verdict v, if it is the first and the tuple is not lost: else it is
// counted. left says that this call has found the tuple lost, and what it was joined with has
// to be told (drop).
func (h *held) decideLocked(v ack.Verdict) (won, left bool, was ack.Verdict) {
	if h.gone() {
		v = ack.Left
	}
	won, was = h.word.Decide(v)
	if !won {
		h.c.e.Ignored.Count(was)
		return false, false, was
	}
	if v == ack.Left {
		h.c.e.Ignored.Count(v)
		return false, true, was
	}
	return true, false, was
}

// decided takes h off the deadline list and ends its context.
func (h *held) decided(cause error) {
	h.c.held.remove(h)
	h.mu.Lock()
	ctx := h.ctx
	h.mu.Unlock()
	if ctx != nil {
		ctx.cancel(cause)
	}
}

// leave gives h up: the engine has stopped. Its root stays open.
func (h *held) leave() {
	h.word.Decide(ack.Left)
	h.decided(errStopped)
}

func (h *held) Ack() bool {
	h.mu.Lock()
	err, reason := h.bad, "permanent"
	if err != nil {
		err = killick.Permanent(err)
	} else if h.lost {
		err, reason = errJoin, "join"
	}
	var won, left bool
	var was ack.Verdict
	if err == nil {
		won, left, was = h.decideLocked(ack.Ack)
	}
	h.mu.Unlock()
	if err != nil {
		h.finish(ack.Failed, reason, err, nil)
		return false
	}
	h.decided(killick.ErrFinished)
	if left {
		h.drop()
	}
	if !won {
		h.again(ack.Ack, was)
		return false
	}
	// From here on outs belong to this goroutine: Emit refuses.
	if err := h.send(); err != nil {
		h.fail(reasonOf(err), err, nil)
	}
	return true
}

// send sends the outputs and ends the tuple well; on an error nothing has left. The edges of a
// sink's tuple end when what it writes is durable.
func (h *held) send() error {
	c := h.c
	h.mu.Lock()
	loose := h.loose
	h.loose, h.sent = nil, len(h.outs)+len(loose)
	h.mu.Unlock()
	ems := make([]core.Emit[killick.Message], 0, len(h.outs)+len(loose))
	for i := range h.outs {
		ems = append(ems, h.outs[i].em)
	}
	ems = append(ems, loose...)
	if c.sink != nil {
		return c.write(&h.item, ems, nil, h, false)
	}
	if len(ems) > 0 {
		if !c.lateBegin() {
			return errStopped
		}
		defer c.lateEnd()
		if err := c.lateOut.emit(c.ports, &h.item, ems, 0, h.fix()); err != nil {
			return err
		}
		c.lateOut.flush() // opens the outputs' edges
	}
	h.end()
	return nil
}

// end ends the edges of the tuple and of its outputs' joins, well.
func (h *held) end() {
	for i := range h.outs {
		h.outs[i].extra.End()
	}
	h.outs = nil
	h.item.anchors.End()
}

// fail ends the try badly: h has its verdict.
func (h *held) fail(reason string, err error, stack []byte) {
	if h.drop() {
		err = killick.FailTree(err)
	}
	h.c.fail(&h.entry, reason, err, stack)
}

// lateBegin and lateEnd enclose the use of lateOut. Waiting for it is nobody's user code.
func (c *component) lateBegin() bool {
	select {
	case c.late <- struct{}{}:
		return true
	default:
	}
	c.blocked.Add(1)
	defer c.blocked.Add(-1)
	select {
	case c.late <- struct{}{}:
		return true
	case <-c.e.hard.Done():
		return false
	}
}

func (c *component) lateEnd() { <-c.late }

// sendLoose sends untracked emits that came after the ack.
func (h *held) sendLoose() {
	c := h.c
	h.mu.Lock()
	loose, n := h.loose, h.sent
	h.loose, h.sent = nil, n+len(loose)
	h.mu.Unlock()
	if len(loose) == 0 {
		return
	}
	err := error(nil)
	if c.sink != nil {
		err = c.write(&h.item, loose, nil, nil, true)
	} else if !c.lateBegin() {
		err = errStopped
	} else {
		if err = c.lateOut.emit(c.ports, &h.item, loose, n, nil); err == nil {
			c.lateOut.flush()
		}
		c.lateEnd()
	}
	if err != nil {
		c.looseLost(reasonOf(err), err)
	}
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
	won, left, was := h.decideLocked(v)
	h.mu.Unlock()
	if !won && !left {
		h.again(v, was)
	}
	cause := killick.ErrFinished
	if v == ack.TimedOut {
		cause = ErrTimeout
	}
	h.decided(cause)
	switch {
	case won:
		h.fail(reason, err, stack)
	case left:
		h.drop()
	}
	return won
}

func (h *held) Extend(d time.Duration) bool {
	if h.Decided() {
		return false
	}
	at := h.c.e.watch.deadline(d)
	if !h.c.held.move(h, at) {
		return false
	}
	h.c.e.watch.by(at)
	return true
}
