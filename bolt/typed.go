package bolt

import (
	"context"
	"fmt"
	"reflect"

	"github.com/killick-io/killick"
)

// Map makes bolts of a function from one value to one value, which goes to the default stream
// with the input's key, headers and time. Values are what the input stream's codec makes, or
// what was emitted; a []byte In is Tuple.Bytes, the raw bytes of whatever the stream carries.
//
// A null value is a nil In where In is a pointer, slice, map or interface, and a permanent
// failure where it is not. A nil Out of such a type is emitted as a null value.
func Map[In, Out any](f func(context.Context, In) (Out, error)) killick.BoltFactory {
	if f == nil {
		return nil
	}
	null := nullOf[Out]()
	return typed[In](reflect.TypeFor[Out](), func(ctx context.Context, v In, in *killick.Tuple, out killick.Emitter) error {
		o, err := f(ctx, v)
		if err != nil {
			return err
		}
		out.Emit(message(in, o, null))
		return nil
	})
}

// FlatMap makes bolts of a function from one value to any number, each as [Map] emits its one.
// They leave when it returns nil. emit must not be called after that, nor from other goroutines.
func FlatMap[In, Out any](f func(ctx context.Context, v In, emit func(Out)) error) killick.BoltFactory {
	if f == nil {
		return nil
	}
	null := nullOf[Out]()
	return typed[In](reflect.TypeFor[Out](), func(ctx context.Context, v In, in *killick.Tuple, out killick.Emitter) error {
		over := false
		defer func() { over = true }()
		return f(ctx, v, func(o Out) {
			if over {
				out.Emit(killick.Message{}) // dropped, and counted as misuse; in is not ours any more
				return
			}
			out.Emit(message(in, o, null))
		})
	})
}

// Filter makes bolts that pass their input on, as it is, when the function says so. What is
// filtered out is acked.
func Filter[In any](f func(context.Context, In) (bool, error)) killick.BoltFactory {
	if f == nil {
		return nil
	}
	out := reflect.TypeFor[In]()
	if out == bytesType {
		out = nil // what it passes on is what came, of whatever type
	}
	return typed[In](out, func(ctx context.Context, v In, in *killick.Tuple, e killick.Emitter) error {
		ok, err := f(ctx, v)
		if err != nil || !ok {
			return err
		}
		e.Emit(in.Message())
		return nil
	})
}

// message is the input's message with another value. null is nullOf[Out].
func message[Out any](in *killick.Tuple, o Out, null func(Out) bool) killick.Message {
	m := killick.Message{Key: in.Key(), Headers: in.Headers(), Time: in.Time()}
	if b, ok := any(&o).(*[]byte); ok {
		m.Bytes = *b
	} else if null == nil || !null(o) {
		m.Value = o
	}
	return m
}

// nullOf returns a function that says whether a value is a null value; nil: none of its type is.
func nullOf[T any]() func(T) bool {
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return func(v T) bool { return reflect.ValueOf(v).IsNil() }
	}
	return nil // a nil interface is a nil Value as it is
}

type typedBolt struct {
	ExecuteFunc
	in, out reflect.Type
}

func (t typedBolt) BoltInfo() (killick.BoltInfo, error) {
	info := killick.BoltInfo{In: known(t.in), Out: known(t.out)}
	if t.in == bytesType {
		info.In, info.Raw = nil, true
	}
	return info, nil
}

var bytesType = reflect.TypeFor[[]byte]()

// known is nil for interface types: they say nothing that can be checked at build time.
func known(t reflect.Type) reflect.Type {
	if t == nil || t.Kind() == reflect.Interface {
		return nil
	}
	return t
}

func typed[In any](out reflect.Type, f func(context.Context, In, *killick.Tuple, killick.Emitter) error) killick.BoltFactory {
	in := reflect.TypeFor[In]()
	nullable := nullOf[In]() != nil || in.Kind() == reflect.Interface
	execute := func(ctx context.Context, t *killick.Tuple, e killick.Emitter) error {
		var v In
		if b, ok := any(&v).(*[]byte); ok {
			*b = t.Bytes()
		} else if x := t.Value(); x != nil {
			if v, ok = x.(In); !ok {
				return killick.Permanent(fmt.Errorf("bolt: the value is a %T, not a %v", x, in))
			}
		} else if !nullable {
			return killick.Permanent(fmt.Errorf("bolt: a null value cannot be a %v; take a pointer to accept null values", in))
		}
		return f(ctx, v, t, e)
	}
	return func() killick.Bolt { return typedBolt{execute, in, out} }
}

func errCount(what, name string, n int) error {
	return fmt.Errorf("%s: %s is %d; it must be at least 1", what, name, n)
}
