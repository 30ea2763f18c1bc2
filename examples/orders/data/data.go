// Package data holds the input of the orders example: 6,000 records made from a public table of flights.
// README.md beside it names the source, its licence and how to make the file again.
package data

import (
	"bytes"
	_ "embed" // the records travel inside the binary
	"fmt"
)

// One record a line, in the order of their events: key, tab, value. kafka-console-producer reads the same with
// --property parse.key=true. It is not plain NDJSON because one value is cut half way and still has its key.
//
//go:embed orders.tsv
var orders []byte

// Record is one input record. Key and Value are shared and read-only.
type Record struct {
	Key   []byte // the customer
	Value []byte // the order as JSON; one is cut half way
}

// Records returns all records in file order. The error says that the embedded file is damaged, and in which line.
func Records() ([]Record, error) { return parse(orders) }

func parse(b []byte) ([]Record, error) {
	out := make([]Record, 0, bytes.Count(b, []byte{'\n'}))
	for n := 1; len(b) > 0; n++ {
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		key, value, ok := bytes.Cut(line, []byte{'\t'})
		if !ok || !ended || len(key) == 0 || len(value) == 0 {
			return nil, fmt.Errorf("data: orders.tsv:%d: %q is not \"key TAB value LF\": make the file again as README.md says", n, line)
		}
		// Full slice expressions: an append to a key cannot run into its value.
		out = append(out, Record{Key: key[:len(key):len(key)], Value: value[:len(value):len(value)]})
		b = rest
	}
	return out, nil
}
