package engine

import (
	"fmt"
	"sync/atomic"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/rules"
)

// write hands what a sink has emitted to the outbox; it has the default stream only. The edge of
// its input, in, ends when all of it is durable; a record-level error is a failed try. x is the
// execution, or h the held tuple whose outs they are; loose: they are anchored to nothing, and in
// ends without them. On an error nothing has left.
func (c *component) write(in *item, outs []core.Emit[killick.Message], x *exec, h *held, loose bool) error {
	topic := c.sink.Topic
	if c.sink.TopicOf != nil {
		var t core.Tuple
		in.fill(&t)
		if err := guard(func() error { topic = c.sink.TopicOf((*killick.Tuple)(&t)); return nil }); err != nil {
			return killick.Permanent(err)
		}
	}
	w := &written{c: c, h: h}
	ready := w.one[:0]
	if len(outs) > 1 {
		ready = make([]Output, 0, len(outs))
	}
	for k := range outs {
		if topic == "" {
			return killick.Permanent(fmt.Errorf("killick: the sink %q has no topic for the tuple: TopicOf returned \"\"", c.spec.Name))
		}
		o := Output{Topic: topic, Done: w.done}
		if err := c.output(in, &outs[k].M, &o); err != nil {
			return killick.Permanent(err)
		}
		ready = append(ready, o)
	}
	switch {
	case loose:
	case h != nil:
		w.en = &h.entry
	default:
		w.en = &w.own
		x.take(w.en) // the edge is w's from here on
	}
	c.ports[0].count.add(int64(len(outs)))
	if tell := c.e.cfg.Emitted; tell != nil {
		for k := range outs {
			tell(c.spec.Name, "", outs[k].M)
		}
	}
	w.left.Store(int64(len(ready)) + 1)
	for k := range ready {
		if !rules.SinksWaitForDurable {
			ready[k].Done = func(error) {}
			w.done(nil)
		}
		if err := c.put(&ready[k], x); err != nil {
			w.done(err)
		}
	}
	w.done(nil)
	return nil
}

// put waits for room in the outbox, which is nobody's user code.
func (c *component) put(o *Output, x *exec) error {
	if x != nil {
		cur := x.r.pause()
		defer x.r.resume(cur)
	} else {
		c.blocked.Add(1)
		defer c.blocked.Add(-1)
	}
	return c.e.cfg.Outbox.Put(c.e.hard, o)
}

// output turns one emitted message into a record.
func (c *component) output(in *item, m *killick.Message, o *Output) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = encodeError{panicError(r)}
		}
	}()
	o.Key, o.Value = m.Key, m.Bytes
	if m.Value != nil {
		if m.Bytes != nil {
			return errBoth
		}
		codec := c.sink.Codec
		if codec == nil {
			codec = in.port.codec
		}
		if b, ok := m.Value.([]byte); ok && (codec == nil || codec.Type() != bytesType || b == nil) {
			o.Value = b
		} else if codec != nil {
			if o.Value, err = codec.Encode(m.Value); err != nil {
				return encodeError{err}
			}
		} else if o.Value, err = in.port.encode(m.Value); err != nil {
			return encodeError{err}
		}
	}
	if o.Value == nil && !rules.NullIsNotEmpty {
		o.Value = []byte{}
	}
	o.Headers = core.Headers[core.Header](m.Headers)
	if o.Time = m.Time; o.Time.IsZero() {
		o.Time = in.record().Time()
	}
	return nil
}

// written is a sink's input whose outputs are under way. It is one object with what nearly all of
// them need, since each costs as much as a tenth of a produced record. Like a held tuple it is never reused: whoever
// calls done late, or twice, must not meet another input.
type written struct {
	c    *component
	en   *entry // nil: untracked outputs
	h    *held  // en's, when the bolt held it
	left atomic.Int64
	err  atomic.Pointer[error]
	own  entry     // en, when the bolt did not hold it
	one  [1]Output // the outputs, when there is one
}

func (w *written) done(err error) {
	if err != nil {
		failed := err // of its own: the parameter would be on the heap at each call
		w.err.CompareAndSwap(nil, &failed)
	}
	if w.left.Add(-1) > 0 {
		return
	}
	e := w.err.Load()
	switch {
	case w.en == nil && e != nil:
		w.c.looseLost("produce", fmt.Errorf("produce: %w", *e))
	case w.en == nil:
	case e == nil && w.h != nil:
		w.h.end()
	case e == nil:
		w.en.item.anchors.End()
	case w.h != nil:
		w.h.fail("produce", fmt.Errorf("produce: %w", *e), nil)
	default:
		w.c.fail(w.en, "produce", fmt.Errorf("produce: %w", *e), nil)
	}
}

// looseLost tells of untracked outputs that were given up, but for those that a hard stop cuts
// off; no tuple waits for them.
func (c *component) looseLost(reason string, err error) {
	if c.e.hard.Err() != nil {
		return
	}
	c.e.cfg.Observe(Event{Kind: LooseDropped, Component: c.spec.Name, Reason: reason, Err: err})
}
