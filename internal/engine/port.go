package engine

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/core"
)

// port is one output stream of a component, and who has subscribed to it.
type port struct {
	core.Port
	codec killick.Codec
	typ   reflect.Type // of its values; nil: any
	edges []*edge
	count counter // messages emitted
	// simple: an emit of raw bytes cannot fail, since it needs no codec and no user code, and
	// goes to one task of each subscriber.
	simple bool
}

// edge is one subscription.
type edge struct {
	to       *component
	grouping killick.Grouping
	key      func(*killick.Tuple) []byte
	pick     func([]int, *killick.Tuple, int) []int
	base     int // index of its first target among the emitter's targets
	index    int // among the emitter's edges, for its state
}

// user reports whether choosing a task runs user code.
func (ed *edge) user() bool {
	return ed.grouping == killick.CustomGrouping || ed.key != nil
}

// simple reports whether router.pick chooses its task: one, without user code.
func (ed *edge) simple() bool { return ed.grouping != killick.AllGrouping && !ed.user() }

// keyed reports whether it goes by key.
func (ed *edge) keyed() bool {
	return ed.grouping == killick.FieldsGrouping || ed.grouping == killick.PartialKeyGrouping
}

var bytesType = reflect.TypeFor[[]byte]()

var errBoth = errors.New("killick: a message has both Bytes and a Value; set one of them")

// take makes m the message of it: checks it against the codec, and gives typed streams their value.
// What the codec does wrong is an error.
func (p *port) take(m *killick.Message, it *item, roundTrip bool) (err error) {
	it.key, it.bytes, it.headers = m.Key, m.Bytes, m.Headers
	bytes := m.Bytes
	if m.Value != nil {
		if m.Bytes != nil {
			return errBoth
		}
		if b, ok := m.Value.([]byte); ok && (p.codec == nil || p.typ != bytesType || b == nil) {
			it.bytes, bytes = b, b
		} else if !p.carries(m.Value) {
			return fmt.Errorf("killick: stream %s carries %v, but a %T was emitted", p, p.typ, m.Value)
		} else {
			it.val, it.typed = m.Value, true
			if p.codec == nil || !roundTrip {
				return nil
			}
		}
	}
	if p.codec == nil {
		return nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("killick: the codec of stream %s: %w", p, panicError(r))
		}
	}()
	if it.typed {
		if bytes, err = p.codec.Encode(m.Value); err != nil {
			return encodeError{err}
		}
	}
	if bytes == nil { // a null value passes codecs by
		it.val, it.typed = nil, false
		return nil
	}
	v, err := p.codec.Decode(bytes)
	if err != nil {
		return fmt.Errorf("killick: stream %s cannot decode the emitted bytes: %w", p, err)
	}
	it.val, it.typed = v, true
	return nil
}

// carries reports whether v is of the stream's type.
func (p *port) carries(v any) bool {
	if p.typ == nil {
		return true
	}
	t := reflect.TypeOf(v)
	return t == p.typ || p.typ.Kind() == reflect.Interface && t.AssignableTo(p.typ)
}

func (p *port) encode(v any) ([]byte, error) {
	if p.codec != nil {
		return p.codec.Encode(v)
	}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case []byte:
		return v, nil
	case string:
		return []byte(v), nil
	}
	return nil, fmt.Errorf("stream %s has no codec for a %T; declare one with Stream", p, v)
}

// String is the stream's name as topologies write it.
func (p *port) String() string {
	if p.Stream == "" {
		return p.Component
	}
	return p.Component + "/" + p.Stream
}
