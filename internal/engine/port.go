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

var bytesType = reflect.TypeFor[[]byte]()

var errBoth = errors.New("killick: a message has both Bytes and a Value; set one of them")

// take turns what was emitted into it: checks it against the codec, and gives typed
// streams their value.
func (p *port) take(m *killick.Message, it *item, roundTrip bool) error {
	it.port = p
	it.key, it.bytes, it.headers = m.Key, m.Bytes, m.Headers
	if m.Value != nil {
		if b, ok := m.Value.([]byte); ok && (p.typ == nil || p.typ != reflect.TypeFor[[]byte]() || p.codec == nil) {
			if m.Bytes != nil {
				return errBoth
			}
			it.bytes = b
			m = &killick.Message{Bytes: b}
		} else {
			if m.Bytes != nil {
				return errBoth
			}
			if p.typ != nil && reflect.TypeOf(m.Value) != p.typ && !(p.typ.Kind() == reflect.Interface && reflect.TypeOf(m.Value).AssignableTo(p.typ)) {
				return fmt.Errorf("killick: stream %s carries %v, but a %T was emitted", p, p.typ, m.Value)
			}
			it.val, it.typed = m.Value, true
			if p.codec == nil || !roundTrip {
				return nil
			}
			b, err := p.codec.Encode(m.Value)
			if err != nil {
				return encodeError{err}
			}
			m = &killick.Message{Bytes: b}
		}
	}
	if p.codec == nil || m.Bytes == nil {
		return nil
	}
	v, err := p.codec.Decode(m.Bytes)
	if err != nil {
		return fmt.Errorf("killick: stream %s cannot decode the emitted bytes: %w", p, err)
	}
	it.val, it.typed = v, true
	return nil
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
