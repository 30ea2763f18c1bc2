package outbox

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/internal/partition"
	"github.com/killick-io/killick/offsets"
)

// deadRoot makes a root of rec that has died of c.
func deadRoot(t testing.TB, rec *kgo.Record, c *ack.Cause) partition.Dead {
	t.Helper()
	var got partition.Dead
	f := partition.NewFeed("in", 10, 1<<20, partition.Hooks{Dead: func(d partition.Dead) { got = d }})
	p := f.Open("in", 3, rec.Offset, offsets.Map{}, false)
	if _, err := p.Deliver([]*kgo.Record{rec}); err != nil {
		t.Fatal(err)
	}
	var run engine.Run
	if err := f.Next(context.Background(), &run); err != nil {
		t.Fatal(err)
	}
	run.Chunk.End(run.From, c)
	return got
}

// parseHeaders reads headers from fuzz input: a length byte and a key, a length byte and a value.
func parseHeaders(b []byte) (hs []kgo.RecordHeader) {
	part := func() ([]byte, bool) {
		if len(b) == 0 {
			return nil, false
		}
		n := min(int(b[0]), len(b)-1)
		p := b[1 : 1+n]
		b = b[1+n:]
		return p, true
	}
	for {
		k, ok := part()
		if !ok {
			return hs
		}
		v, ok := part()
		if !ok {
			v = nil
		}
		hs = append(hs, kgo.RecordHeader{Key: string(k), Value: v})
	}
}

// FuzzDeadLetterHeaders: whatever a record's headers are, its dead letter keeps those that are not
// ours, in order and byte for byte, and one set of ours; a dead letter that dies again after a
// redrive has as many headers as the first.
func FuzzDeadLetterHeaders(f *testing.F) {
	f.Add([]byte{}, "boom", uint8(0))
	f.Add([]byte("\x01a\x01b\x01a\x00"), "text with \xff and \u20ac", uint8(1))
	f.Add([]byte("\x11killick-dlq-topic\x05other\x0fkillick-attempt\x019\x01x\x02yz"), strings.Repeat("\u20ac", 600), uint8(2))
	f.Add([]byte("\x17killick-first-failed-ms\x0d1000000000000\x10killick-dlq-mine\x01v"), "", uint8(3))
	f.Fuzz(func(t *testing.T, raw []byte, text string, cut uint8) {
		rec := &kgo.Record{Topic: "in", Partition: 3, Offset: 7, Key: []byte("k"), Value: []byte("v"), Timestamp: time.UnixMilli(5), Headers: parseHeaders(raw)}
		c := &ack.Cause{Outcome: ack.Dead, Component: "c", Reason: "error", Err: errors.New(text), Attempts: 5, Key: []byte("tk"), Value: raw}
		w := NewDeadLetters(DeadLetterConfig{Topology: "t", Group: "g"})
		build := func(rec *kgo.Record, cut int) *kgo.Record {
			return w.build(letter{d: deadRoot(t, rec, c), cut: cut})
		}
		level := int(cut) % (cutPointer + 1)
		first := build(rec, level)

		var foreign, kept []kgo.RecordHeader
		for _, h := range rec.Headers {
			if !own(h.Key) {
				foreign = append(foreign, h)
			}
		}
		ours := map[string]int{}
		for _, h := range first.Headers {
			if own(h.Key) {
				ours[h.Key]++
				if h.Key == HeaderError && (!utf8.Valid(h.Value) || len(h.Value) > maxError) {
					t.Errorf("error header of %d bytes, valid %v", len(h.Value), utf8.Valid(h.Value))
				}
				continue
			}
			kept = append(kept, h)
		}
		if level == cutPointer {
			foreign = nil
		}
		if len(kept) != len(foreign) {
			t.Fatalf("%d foreign headers became %d", len(foreign), len(kept))
		}
		for i := range kept {
			if kept[i].Key != foreign[i].Key || !bytes.Equal(kept[i].Value, foreign[i].Value) || (kept[i].Value == nil) != (foreign[i].Value == nil) {
				t.Errorf("header %d is %q=%q, was %q=%q", i, kept[i].Key, kept[i].Value, foreign[i].Key, foreign[i].Value)
			}
		}
		for k, n := range ours {
			if n != 1 {
				t.Errorf("%d headers %s", n, k)
			}
		}
		if ours[HeaderTopic]+ours[HeaderPartition]+ours[HeaderOffset] != 3 {
			t.Errorf("the origin is missing: %v", ours)
		}
		again := *first
		again.Offset = 9
		if second := build(&again, level); len(second.Headers) != len(first.Headers) {
			t.Errorf("%d headers became %d after a redrive", len(first.Headers), len(second.Headers))
		}
	})
}
