package engine

import (
	"fmt"
	"sync/atomic"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/core"
)

// write hands what a sink has emitted to the outbox. The input's edge ends when all of it is
// durable; a record-level error is a failed try of the input. en is the input, or nil: that of
// the execution of x. On an error nothing was handed over.
func (c *component) write(en *entry, outs []core.Emit[killick.Message], x *exec) error {
	var in *item
	if en != nil {
		in = &en.item
	} else {
		in = x.input()
	}
	topic := c.sink.Topic
	if c.sink.TopicOf != nil {
		var t core.Tuple
		in.fill(&t)
		if err := guard(func() error { topic = c.sink.TopicOf((*killick.Tuple)(&t)); return nil }); err != nil {
			return killick.Permanent(err)
		}
	}
	if topic == "" && len(outs) > 0 {
		return killick.Permanent(fmt.Errorf("killick: the sink %q has no topic for the tuple: TopicOf returned \"\"", c.spec.Name))
	}
	w := &written{c: c}
	w.left.Store(int64(len(outs)) + 1)
	ready := make([]Output, len(outs))
	for k := range outs {
		if err := c.output(in, &outs[k].M, &ready[k]); err != nil {
			return killick.Permanent(err)
		}
		ready[k].Topic, ready[k].Done = topic, w.done
	}
	if en == nil {
		en = x.entry() // the edge is w's from here on
	}
	w.en = en
	c.ports[0].count.add(int64(len(outs)))
	for k := range ready {
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
	}
	return c.e.cfg.Outbox.Put(c.e.hard, o)
}

// output turns one emitted message into a record.
func (c *component) output(in *item, m *killick.Message, o *Output) error {
	o.Key, o.Value = m.Key, m.Bytes
	if m.Value != nil {
		if m.Bytes != nil {
			return errBoth
		}
		codec := c.sink.Codec
		if codec == nil {
			codec = in.port.codec
		}
		var err error
		if b, ok := m.Value.([]byte); ok && (codec == nil || codec.Type() != bytesType) {
			o.Value = b
		} else if codec != nil {
			if o.Value, err = codec.Encode(m.Value); err != nil {
				return encodeError{err}
			}
		} else if o.Value, err = in.port.encode(m.Value); err != nil {
			return err
		}
	}
	for _, h := range m.Headers {
		o.Headers = append(o.Headers, core.Header(h))
	}
	if o.Time = m.Time; o.Time.IsZero() {
		o.Time = in.record().Time()
	}
	return nil
}

// written is a sink's input whose outputs are under way.
type written struct {
	c    *component
	en   *entry
	left atomic.Int64
	err  atomic.Pointer[error]
}

func (w *written) done(err error) {
	if err != nil {
		w.err.CompareAndSwap(nil, &err)
	}
	if w.left.Add(-1) > 0 {
		return
	}
	if e := w.err.Load(); e != nil {
		w.c.fail(w.en, "produce", fmt.Errorf("produce: %w", *e), nil)
		return
	}
	w.en.item.anchors.End()
}
