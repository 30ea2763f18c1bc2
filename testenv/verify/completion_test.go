package verify

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/killick-io/killick/offsets"
)

// open lists the open offsets one by one.
func (c *Completion) list() (out []int64) {
	for _, s := range c.Open {
		for o := s.From; o < s.To; o++ {
			out = append(out, o)
		}
	}
	return out
}

// agree compares what the two decoders make of a text.
func agree(t interface{ Fatalf(string, ...any) }, text string, base int64) {
	want, errWant := offsets.Decode(text, base)
	got, err := ParseCompletion(text)
	if err == nil && got.Base != base {
		if !errors.Is(errWant, offsets.ErrBase) && errWant == nil {
			t.Fatalf("%q at %d: the map is for %d, and offsets has taken it", text, base, got.Base)
		}
		return
	}
	switch {
	case strings.ContainsAny(text[:min(4, len(text))], "\r\n"):
		// base64 skips line ends, so it is a matter of taste what version such a text has. No map is in it.
		if err == nil || errWant == nil {
			t.Fatalf("%q: %v here, %v in offsets", text, err, errWant)
		}
		return
	case errors.Is(errWant, offsets.ErrForeign) != errors.Is(err, ErrForeign), errors.Is(errWant, offsets.ErrCorrupt) != errors.Is(err, ErrCompletion):
		t.Fatalf("%q: %v here, %v in offsets", text, err, errWant)
	case err != nil:
		return
	}
	open := got.list()
	if got.Base != want.Base || got.Next != want.Next || len(open) != len(want.Open) || got.TakenOver != want.Held.TakenOver ||
		got.Deaths != want.Held.Deaths || got.Suspect != want.Held.Suspect || got.Strikes != want.Held.Strikes || got.Waits != want.Held.Waits || got.Until != want.Held.Until {
		t.Fatalf("%q: %+v here, %+v in offsets", text, got, want)
	}
	for i, o := range open {
		if o != want.Open[i] {
			t.Fatalf("%q: open offset %d is %d here, %d in offsets", text, i, o, want.Open[i])
		}
	}
	for _, s := range got.Open {
		for _, o := range []int64{s.From - 1, s.From, s.To - 1, s.To} {
			if got.Done(o) != want.Done(o) {
				t.Fatalf("%q: offset %d is done: %v here, %v in offsets", text, o, got.Done(o), want.Done(o))
			}
		}
	}
	for _, o := range []int64{want.Base - 1, want.Base, want.Next - 1, want.Next} {
		if got.Done(o) != want.Done(o) {
			t.Fatalf("%q: offset %d is done: %v here, %v in offsets", text, o, got.Done(o), want.Done(o))
		}
	}
	n := int64(0)
	got.each(func(s Span) {
		if n += s.To - s.From; s.From >= s.To || !got.Done(s.From) || !got.Done(s.To-1) {
			t.Fatalf("%q: %v is said to be done", text, s)
		}
	})
	if n != want.Next-want.Base-int64(len(open)) {
		t.Fatalf("%q: %d done, want %d", text, n, want.Next-want.Base-int64(len(open)))
	}
}

// drawMap draws maps of all kinds: few and many open, alone and in runs, windows of any size, and the states of owners.
func drawMap(rt *rapid.T) offsets.Map {
	m := offsets.Map{
		Base: rapid.SampledFrom([]int64{0, 1, 1000, 1 << 40, math.MaxInt64 - 100}).Draw(rt, "base"),
		Held: offsets.State{
			TakenOver: rapid.Bool().Draw(rt, "taken over"),
			Deaths:    rapid.SampledFrom([]int{0, 1, math.MaxInt32}).Draw(rt, "deaths"),
			Suspect:   offsets.None,
		},
	}
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
	n := rapid.SampledFrom([]int{0, 1, 20, 500, 3000, 20_000}).Draw(rt, "open")
	gap := rapid.SampledFrom([]int64{1, 3, 200, 1 << 20}).Draw(rt, "gap")
	run := rapid.SampledFrom([]int{1, 9, 4000}).Draw(rt, "run")
	at := m.Base
	for len(m.Open) < n && at < math.MaxInt64-gap-1 {
		at += rng.Int64N(gap)
		for k := rng.IntN(run) + 1; k > 0 && len(m.Open) < n && at < math.MaxInt64-1; k-- {
			m.Open = append(m.Open, at)
			at++
		}
		at++
	}
	m.Next = min(at, math.MaxInt64)
	if rapid.Bool().Draw(rt, "suspect") {
		m.Held.Suspect, m.Held.Strikes = m.Base+rng.Int64N(90), rng.IntN(4)
		m.Held.Until, m.Held.Waits = m.Base+rng.Int64N(90), m.Held.Strikes > 0 && rng.IntN(2) == 0
	}
	return m
}

// TestCompletionAgrees compares with the decoder that killick uses, on what killick writes, and on that with a byte changed.
func TestCompletionAgrees(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := drawMap(rt)
		text := offsets.Encode(m)
		agree(rt, text, m.Base)
		if _, err := ParseCompletion(text); err != nil {
			rt.Fatalf("%v", err)
		}
		b := []byte(text)
		b[rapid.IntRange(0, len(b)-1).Draw(rt, "at")] = rapid.SampledFrom([]byte("AZaz09-_=\n%")).Draw(rt, "byte")
		agree(rt, string(b), m.Base)
		agree(rt, text[:rapid.IntRange(0, len(text)).Draw(rt, "cut")], m.Base)
		agree(rt, text+"A", m.Base)
	})
}

// mapOf writes a map by hand, with a right checksum.
func mapOf(head []byte, rest ...byte) string {
	b := append(append([]byte{0x92, 0x59}, head...), 0, 0, 0, 0)
	b = append(b, rest...)
	sum := crc32.Update(crc32.Checksum(b[:4], crc32c), crc32c, b[8:])
	binary.BigEndian.PutUint32(b[4:], sum)
	return base64.RawURLEncoding.EncodeToString(b)
}

// TestCompletionRefuses has texts that no killick writes.
func TestCompletionRefuses(t *testing.T) {
	pack := func(b []byte) []byte {
		var out bytes.Buffer
		w, err := flate.NewWriter(&out, 9)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	long := []byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 1}
	for name, tt := range map[string]struct {
		text string
		want error
	}{
		"empty":             {"", ErrForeign},
		"a member":          {"consumer-1", ErrForeign},
		"another version":   {mapOf([]byte{0x21, 0}, 0, 0), ErrForeign},
		"unknown flag":      {mapOf([]byte{0x10, 128}, 0, 0), ErrCompletion},
		"unknown kind":      {mapOf([]byte{0x14, 0}, 0, 0), ErrCompletion},
		"rest":              {mapOf([]byte{0x10, 0}, 0, 0, 0), ErrCompletion},
		"long number":       {mapOf([]byte{0x10, 0}, 0x80, 0, 0), ErrCompletion},
		"cut":               {mapOf([]byte{0x10, 0}, 0), ErrCompletion},
		"base":              {mapOf([]byte{0x10, 0}, append(long, 0)...), ErrCompletion},
		"gap behind":        {mapOf([]byte{0x11, 0}, 0, 3, 3), ErrCompletion},
		"run behind":        {mapOf([]byte{0x12, 0}, 0, 3, 1, 2), ErrCompletion},
		"run without end":   {mapOf([]byte{0x12, 0}, append([]byte{0, 3, 0}, long...)...), ErrCompletion},
		"bitmap short":      {mapOf([]byte{0x13, 0}, 0, 9, 1), ErrCompletion},
		"bit behind":        {mapOf([]byte{0x13, 0}, 0, 3, 8), ErrCompletion},
		"strikes alone":     {mapOf([]byte{0x10, 32}, 0, 3, 1), ErrCompletion},
		"waits for nothing": {mapOf([]byte{0x10, 64 | 8}, 0, 3, 1), ErrCompletion},
		"not deflated":      {mapOf([]byte{0x11, 1}, 0, 3, 0xff), ErrCompletion},
		"inflates too much": {mapOf([]byte{0x13, 1}, append([]byte{0, 3}, pack(make([]byte, 40_000))...)...), ErrCompletion},
		"behind the end":    {mapOf([]byte{0x11, 1}, append([]byte{0, 3}, append(pack([]byte{1}), 7)...)...), ErrCompletion},
		"too long":          {mapOf([]byte{0x13, 0}, append([]byte{0, 0xc0, 0xbb, 1}, make([]byte, 3000)...)...) + strings.Repeat("A", 200), ErrCompletion},
	} {
		t.Run(name, func(t *testing.T) {
			if c, err := ParseCompletion(tt.text); !errors.Is(err, tt.want) {
				t.Errorf("%+v, %v; want %v", c, err, tt.want)
			}
			agree(t, tt.text, 0)
		})
	}
	for _, good := range []string{mapOf([]byte{0x11, 0}, 0, 3, 1), mapOf([]byte{0x13, 0}, 0, 9, 5, 1), mapOf([]byte{0x12, 0}, 0, 9, 1, 2, 0, 0)} {
		if _, err := ParseCompletion(good); err != nil {
			t.Error(err)
		}
		agree(t, good, 0)
	}
}

func FuzzParseCompletion(f *testing.F) {
	f.Add(offsets.Encode(offsets.Map{Base: 5, Next: 90, Open: []int64{5, 6, 40}, Held: offsets.State{Suspect: 40, Strikes: 1, Deaths: 2, Until: 50}}), int64(5))
	f.Add("consumer-1", int64(0))
	f.Fuzz(func(t *testing.T, text string, base int64) {
		if base >= 0 {
			agree(t, text, base)
		}
	})
}
