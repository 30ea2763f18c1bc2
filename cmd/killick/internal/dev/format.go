package dev

import (
	"bufio"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Format is how a record is printed, a line each. The zero value is the value alone.
type Format int

// The formats. In text, a null key or value is as an empty one, and line ends in a value are as they are; JSON tells all.
const (
	Value Format = iota
	KeyValue
	JSON
)

// ParseFormat reads value, key-value or json.
func ParseFormat(s string) (Format, error) {
	switch s {
	case "value":
		return Value, nil
	case "key-value":
		return KeyValue, nil
	case "json":
		return JSON, nil
	}
	return 0, wrong("%q is no format: want value, key-value or json", s)
}

// line is a record as JSON. What is not UTF-8 is in the second field of each pair, in base64, and the first is null.
type line struct {
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Time      string   `json:"time"`
	Key       *string  `json:"key"`
	KeyBytes  []byte   `json:"key_base64,omitempty"`
	Value     *string  `json:"value"`
	Bytes     []byte   `json:"value_base64,omitempty"`
	Headers   []header `json:"headers,omitempty"`
}

type header struct {
	Key   string  `json:"key"`
	Value *string `json:"value"`
	Bytes []byte  `json:"value_base64,omitempty"`
}

// text is b as a string, or as bytes if that would change it. nil is neither.
func text(b []byte) (*string, []byte) {
	switch {
	case b == nil:
		return nil, nil
	case !utf8.Valid(b):
		return nil, b
	}
	s := string(b)
	return &s, nil
}

// write prints a record. Errors of w are those of its Flush.
func (f Format) write(w *bufio.Writer, r *kgo.Record) error {
	switch f {
	case JSON:
		l := line{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Time: r.Timestamp.UTC().Format(time.RFC3339Nano)}
		l.Key, l.KeyBytes = text(r.Key)
		l.Value, l.Bytes = text(r.Value)
		for _, h := range r.Headers {
			x := header{Key: h.Key}
			x.Value, x.Bytes = text(h.Value)
			l.Headers = append(l.Headers, x)
		}
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return e.Encode(l)
	case KeyValue:
		_, err := fmt.Fprintf(w, "%s\t%s\n", r.Key, r.Value)
		return err
	default:
		_, err := fmt.Fprintf(w, "%s\n", r.Value)
		return err
	}
}
