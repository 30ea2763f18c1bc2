package killick

import (
	"time"

	"github.com/killick-io/killick/internal/core"
)

// Tuple is one delivery of a message to one task, one try. It is read-only and valid
// until Execute returns; [Emitter.Hold] gives one that stays valid. What Key, Bytes and
// Value return stays valid for ever, and is shared between branches: do not change it.
type Tuple core.Tuple

// Origin is the place of a root record in Kafka. A spout other than Kafka numbers what
// it emits, from 0 in each process: Topic is the spout's name, Partition its task.
type Origin struct {
	Topic     string
	Partition int32
	Offset    int64
}

func (t *Tuple) core() *core.Tuple { return (*core.Tuple)(t) }

// Key returns the message's key; nil and empty are different.
func (t *Tuple) Key() []byte { return t.core().Rec().Key() }

// Bytes returns the raw value, nil for a null value; of an emitted Value what the
// stream's codec makes of it, when asked.
func (t *Tuple) Bytes() []byte { return t.core().Rec().Bytes() }

// Value returns what the stream's codec made, or what was emitted; without a codec the
// bytes as a []byte, and nil for a null value.
func (t *Tuple) Value() any {
	if v, ok := t.core().Value(); ok {
		return v
	}
	if b := t.core().Rec().Bytes(); b != nil {
		return b
	}
	return nil
}

// Headers returns a copy of the headers, made when asked.
func (t *Tuple) Headers() []Header { return fromCore(t.core().Rec().Headers()) }

// Time returns the record's timestamp, in milliseconds. It is in UTC, so that what is made of it
// does not depend on the machine.
func (t *Tuple) Time() time.Time { return time.UnixMilli(t.core().Rec().Time().UnixMilli()).UTC() }

// Message returns the tuple's message, to emit it again as it is or changed.
func (t *Tuple) Message() Message {
	m := Message{Key: t.Key(), Headers: t.Headers(), Time: t.Time()}
	if v, ok := t.core().Value(); ok {
		m.Value = v
	} else {
		m.Bytes = t.Bytes()
	}
	return m
}

// Source returns the component that emitted the tuple, and the stream, "" for the
// default one.
func (t *Tuple) Source() (component, stream string) {
	p := t.core().Port()
	return p.Component, p.Stream
}

// Origin returns the root record's place; !ok for a tuple with several roots or none.
func (t *Tuple) Origin() (o Origin, ok bool) {
	c, ok := t.core().Origin()
	return Origin(c), ok
}

// Attempt returns the number of this execution of the tuple in this process, from 1.
// A try that ended by [RetryAfter] counts, too.
func (t *Tuple) Attempt() int { return t.core().Attempt() }

// ID names the tuple: the origin, and the way of emits from there. It is equal on every
// replay as long as bolts emit the same in the same order, which makes it the
// idempotency key for side effects. It is "" for what is anchored to nothing. Of a spout
// other than Kafka it is equal on replays in one process only, and the next process gives
// the same IDs to other messages: take a key from the message there.
func (t *Tuple) ID() string { return t.core().ID() }
