package killick

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"unicode/utf8"
)

// Codec turns the values of a stream into bytes where they leave the process, and back.
// It is called from several goroutines. Null values pass it by. A Decode error makes the
// record a dead letter at once.
type Codec interface {
	Encode(v any) ([]byte, error)
	Decode(b []byte) (any, error)
	Type() reflect.Type // of the values; nil: any
}

// NewCodec makes a codec of two functions, which are called from several goroutines. decode
// may keep the bytes that it gets, in what it returns, but must not change them. A nil
// function is a mistake that the topology's validation names.
func NewCodec[T any](encode func(T) ([]byte, error), decode func([]byte) (T, error)) Codec {
	return &codec[T]{encode, decode}
}

type codec[T any] struct {
	encode func(T) ([]byte, error)
	decode func([]byte) (T, error)
}

func (c *codec[T]) Encode(v any) ([]byte, error) {
	t, ok := v.(T)
	if !ok {
		return nil, fmt.Errorf("killick: the codec encodes %v, not %T", c.Type(), v)
	}
	return c.encode(t)
}

func (c *codec[T]) Decode(b []byte) (any, error) { return c.decode(b) }
func (c *codec[T]) Type() reflect.Type           { return reflect.TypeFor[T]() }

// check is looked for when a topology is validated.
func (c *codec[T]) check() error {
	if c.encode == nil || c.decode == nil {
		return fmt.Errorf("NewCodec[%v] was given a nil function; it needs encode and decode", c.Type())
	}
	return nil
}

// JSON is encoding/json for T. Decode refuses anything but white space after the value. The
// text null is a value, as encoding/json has it: nil of a pointer, slice, map or interface, the
// zero value of another T. A null record value never gets here. A nil interface (null in JSON[any])
// is a null value where it is emitted again.
func JSON[T any]() Codec {
	return &codec[T]{
		encode: func(v T) ([]byte, error) { return json.Marshal(v) },
		decode: func(b []byte) (v T, err error) {
			d := json.NewDecoder(bytes.NewReader(b))
			if err = d.Decode(&v); err != nil {
				return v, err
			}
			if _, err := d.Token(); err != io.EOF {
				return v, errors.New("killick: data after the JSON value")
			}
			return v, nil
		},
	}
}

// Bytes is the codec of raw bytes, which is what a stream without a codec carries.
func Bytes() Codec {
	return &codec[[]byte]{
		encode: func(b []byte) ([]byte, error) { return b, nil },
		decode: func(b []byte) ([]byte, error) { return b, nil },
	}
}

// String is the codec of UTF-8 text. Both ways refuse what is not valid UTF-8: a stream means
// the same inside a process as between two.
func String() Codec {
	return &codec[string]{
		encode: func(s string) ([]byte, error) {
			if !utf8.ValidString(s) {
				return nil, errUTF8
			}
			return []byte(s), nil
		},
		decode: func(b []byte) (string, error) {
			if !utf8.Valid(b) {
				return "", errUTF8
			}
			return string(b), nil
		},
	}
}

var errUTF8 = errors.New("killick: not valid UTF-8")
