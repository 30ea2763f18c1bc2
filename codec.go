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

// NewCodec makes a codec of two functions. Decode must not keep or change the bytes that
// it gets, unless it returns them.
func NewCodec[T any](encode func(T) ([]byte, error), decode func([]byte) (T, error)) Codec {
	return codec[T]{encode, decode}
}

type codec[T any] struct {
	encode func(T) ([]byte, error)
	decode func([]byte) (T, error)
}

func (c codec[T]) Encode(v any) ([]byte, error) {
	t, ok := v.(T)
	if !ok {
		return nil, fmt.Errorf("killick: the codec encodes %v, not %T", c.Type(), v)
	}
	return c.encode(t)
}

func (c codec[T]) Decode(b []byte) (any, error) { return c.decode(b) }
func (c codec[T]) Type() reflect.Type           { return reflect.TypeFor[T]() }

// JSON is encoding/json for T. Decode refuses anything after the value.
func JSON[T any]() Codec {
	return codec[T]{
		encode: func(v T) ([]byte, error) { return json.Marshal(v) },
		decode: func(b []byte) (v T, err error) {
			d := json.NewDecoder(bytes.NewReader(b))
			if err = d.Decode(&v); err != nil {
				return v, err
			}
			if _, err := d.Token(); err != io.EOF {
				return v, errors.New("data after the JSON value")
			}
			return v, nil
		},
	}
}

// Bytes is the codec of raw bytes, which is what a stream without a codec carries.
func Bytes() Codec {
	return codec[[]byte]{
		encode: func(b []byte) ([]byte, error) { return b, nil },
		decode: func(b []byte) ([]byte, error) { return b, nil },
	}
}

// String is the codec of UTF-8 text. Decode refuses what is not valid UTF-8.
func String() Codec {
	return codec[string]{
		encode: func(s string) ([]byte, error) { return []byte(s), nil },
		decode: func(b []byte) (string, error) {
			if !utf8.Valid(b) {
				return "", errors.New("not valid UTF-8")
			}
			return string(b), nil
		},
	}
}
