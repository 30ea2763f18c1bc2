package offsets

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func deflated(t testing.TB, plain []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// checkSubset: back, read from a text of m, knows nothing that m does not know, and all of it below back.Next.
func checkSubset(t failer, m, back Map) {
	t.Helper()
	if err := back.check(); err != nil {
		t.Fatal(err)
	}
	if back.Base != m.Base || back.Next > max(m.Next, m.Base) {
		t.Fatalf("[%d, %d) of a map of [%d, %d)", back.Base, back.Next, m.Base, m.Next)
	}
	want := slices.DeleteFunc(slices.Clone(m.Open), func(o int64) bool { return o < m.Base || o >= back.Next })
	slices.Sort(want)
	want = slices.Compact(want)
	if !slices.Equal(want, back.Open) {
		t.Fatalf("below %d there are %d open offsets, the text has %d", back.Next, len(want), len(back.Open))
	}
}

// adversarial draws maps that are hard to write: from empty to hundreds of thousands of open offsets, in shapes
// that suit none of the kinds, at the ends of the number range.
func adversarial(rt *rapid.T) Map {
	m := Map{
		Base: rapid.SampledFrom([]int64{0, 1, 1 << 20, 1 << 62, math.MaxInt64 - 5, math.MaxInt64}).Draw(rt, "base"),
		Held: State{
			TakenOver: rapid.Bool().Draw(rt, "taken over"),
			Deaths:    rapid.SampledFrom([]int{-1, 0, 3, math.MaxInt32, math.MaxInt}).Draw(rt, "deaths"),
			Suspect:   rapid.SampledFrom([]int64{None, 0, 1 << 62, math.MaxInt64, math.MinInt64}).Draw(rt, "suspect"),
			Strikes:   rapid.SampledFrom([]int{-1, 0, 1, math.MaxInt}).Draw(rt, "strikes"),
			Waits:     rapid.Bool().Draw(rt, "waits"),
			Until:     rapid.SampledFrom([]int64{None, 0, 1 << 62, math.MaxInt64, math.MinInt64}).Draw(rt, "until"),
		},
	}
	n := rapid.SampledFrom([]int{0, 1, 10, 1000, 3000, 30_000, 400_000}).Draw(rt, "open")
	gap := rapid.SampledFrom([]int64{1, 2, 3, 130, 20_000, 1 << 40}).Draw(rt, "gap")
	run := rapid.SampledFrom([]int{1, 2, 50, 300_000}).Draw(rt, "run")
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
	at := m.Base
	for len(m.Open) < n && at < math.MaxInt64-gap {
		at += rng.Int64N(gap)
		for k := rng.IntN(run) + 1; k > 0 && len(m.Open) < n && at < math.MaxInt64; k-- {
			m.Open = append(m.Open, at)
			at++
		}
		at = min(at, math.MaxInt64-1) + 1
	}
	m.Next = at
	if tail := rapid.SampledFrom([]int64{0, 1, 1 << 40, math.MaxInt64}).Draw(rt, "tail"); tail < math.MaxInt64-at {
		m.Next = at + tail
	}
	if rapid.IntRange(0, 9).Draw(rt, "disorder") == 0 {
		rng.Shuffle(len(m.Open), func(i, j int) { m.Open[i], m.Open[j] = m.Open[j], m.Open[i] })
	}
	return m
}

func TestEncodeRemembersASubset(t *testing.T) {
	var e Encoder
	left := 30 // of rapid's 100: the maps are large
	if os.Getenv("KILLICK_FULL") == "1" {
		left = 100
	}
	failed := false // from then on rapid looks for a smaller example: it has to fail again
	rapid.Check(t, func(rt *rapid.T) {
		if left--; left < 0 && !failed {
			return
		}
		defer func() { failed = failed || rt.Failed() }()
		m := adversarial(rt)
		text, next := e.Encode(m)
		if n := units(text); n > MaxUnits || n != len(text) {
			rt.Fatalf("%d units, %d bytes", n, len(text))
		}
		back, err := Decode(text, m.Base)
		if err != nil {
			rt.Fatal(err)
		}
		if back.Next != next {
			rt.Fatalf("Encode says next is %d, the text %d", next, back.Next)
		}
		checkSubset(rt, m, back)
		if d := cmp.Diff(m.sane().Held, back.Held); d != "" {
			rt.Fatalf("state:\n%s", d)
		}
		if l := Open(m.Base, back); l.Ignored() != nil {
			rt.Fatal(l.Ignored())
		}
	})
}

// corpus are the committed seeds of FuzzDecode. KILLICK_UPDATE=1 writes them anew.
func corpus(t testing.TB) map[string]string {
	const v = version << 4
	gaps := Encode(Map{Base: 1000, Next: 1500, Open: []int64{1000, 1010, 1211}, Held: clean})
	return map[string]string{
		"none":              Encode(Map{Base: 1000, Next: 1100, Held: clean}),
		"gaps":              gaps,
		"runs":              Encode(Map{Base: 1000, Next: 1500, Open: append(span(1000, 1100), span(1110, 1115)...), Held: clean}),
		"bitmap":            Encode(Map{Base: 1000, Next: 1032, Open: evens(1000, 16), Held: clean}),
		"gaps-deflate":      Encode(Map{Base: 1000, Next: 25_000, Open: evens(1000, 12_000), Held: clean}),
		"bitmap-deflate":    forge(v|kindBitmap, flagDeflate, slices.Concat(uvarints(1000, 800), deflated(t, bytes.Repeat([]byte{0x51}, 100)))...),
		"runs-deflate":      forge(v|kindRuns, flagDeflate, slices.Concat(uvarints(1000, 800), deflated(t, bytes.Repeat([]byte{1, 2}, 100)))...),
		"state":             Encode(Map{Base: 1000, Next: 1500, Open: []int64{1000}, Held: State{TakenOver: true, Deaths: 3, Suspect: 1001, Until: 2000}}),
		"truncated":         gaps[:len(gaps)-4],
		"truncated-header":  gaps[:8],
		"trailing":          gaps + "AAAA",
		"bad-checksum":      gaps[:6] + "AAAA" + gaps[10:],
		"other-base":        Encode(Map{Base: 999, Next: 1500, Held: clean}),
		"version-2":         forge(2<<4, 0, uvarints(1000, 5)...),
		"run-bomb":          forge(v|kindRuns, 0, uvarints(1000, 1<<60, 0, 1<<59)...),
		"deflate-bomb":      forge(v|kindGaps, flagDeflate, slices.Concat(uvarints(1000, 1<<40), deflated(t, make([]byte, 2_000_000)))...),
		"empty":             "",
		"member-kgo":        "kgo-1f6ad0b9-6f4c-4b55-8f9e-2f7b8f0f2f11",
		"member-java":       "consumer-orders-1-0e3bb3f5-9a83-4ae5-b9a6-0a4ab1c9d2aa",
		"member-our-magic":  "klk-orders-1",
		"kafka-streams-1":   base64.StdEncoding.EncodeToString([]byte{1, 0, 0, 1, 0x93, 0x5a, 0xd1, 0x10, 0x20}),
		"kafka-streams-2":   base64.StdEncoding.EncodeToString([]byte{2, 0, 0, 1, 0x93, 0x5a, 0xd1, 0x10, 0x20, 0, 0, 0, 0}),
		"parallel-consumer": base64.StdEncoding.EncodeToString([]byte("l\x00\x10\xff\xff\x01\x02")),
	}
}

func corpusFile(name string) string {
	return filepath.Join("testdata", "fuzz", "FuzzDecode", name)
}

func TestCorpusIsCommitted(t *testing.T) {
	read := map[string]bool{
		"none": true, "gaps": true, "runs": true, "bitmap": true, "gaps-deflate": true, "bitmap-deflate": true, "runs-deflate": true, "state": true,
	}
	for name, text := range corpus(t) {
		content := "go test fuzz v1\nstring(" + strconv.Quote(text) + ")\nint64(1000)\n"
		if os.Getenv("KILLICK_UPDATE") == "1" {
			if err := os.MkdirAll(filepath.Dir(corpusFile(name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(corpusFile(name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(corpusFile(name))
		if err != nil {
			t.Fatalf("%v; KILLICK_UPDATE=1 go test ./offsets -run TestCorpusIsCommitted writes it", err)
		}
		// What compress/flate makes of the same bytes may change with Go; what it was must stay readable.
		if !strings.Contains(name, "deflate") && string(got) != content {
			t.Errorf("%s differs from what it stands for: the format has changed without a new version", name)
		}
		lines := strings.Split(string(got), "\n")
		text, err = strconv.Unquote(strings.TrimSuffix(strings.TrimPrefix(lines[1], "string("), ")"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(text, 1000); (err == nil) != read[name] {
			t.Errorf("%s: Decode says %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) { // seeds: testdata/fuzz/FuzzDecode
	f.Fuzz(func(t *testing.T, text string, base int64) {
		m, err := Decode(text, base)
		if err != nil {
			if !errors.Is(err, ErrForeign) && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrBase) {
				t.Fatalf("an error without a sentinel: %v", err)
			}
			if m.Next != m.Base || len(m.Open) != 0 || m.Held != clean {
				t.Fatalf("a refused map knows something: %+v", m)
			}
			return
		}
		if err := m.check(); err != nil || m.Base != base {
			t.Fatalf("read %+v at %d: %v", m, base, err)
		}
		if units(text) > MaxUnits || len(m.Open) > maxOpen {
			t.Fatalf("%d units, %d open offsets", units(text), len(m.Open))
		}
		if l := Open(base, m); l.Ignored() != nil {
			t.Fatal(l.Ignored())
		}
		again := Encode(m)
		back, err := Decode(again, base)
		if err != nil || units(again) > MaxUnits {
			t.Fatalf("%d units, %v", units(again), err)
		}
		checkSubset(t, m, back)
		if d := cmp.Diff(m.sane().Held, back.Held); d != "" {
			t.Fatalf("state:\n%s", d)
		}
		if back.Next == m.Next {
			if d := cmp.Diff(m.sane(), back, cmpopts.EquateEmpty()); d != "" {
				t.Fatal(d)
			}
		}
	})
}
