package offsets

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var clean = State{Suspect: None}

// forge is a map text with a right checksum around any content.
func forge(verKind, flags byte, content ...byte) string {
	b := append([]byte{magic0, magic1, verKind, flags, 0, 0, 0, 0}, content...)
	binary.BigEndian.PutUint32(b[crcAt:], checksum(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

func uvarints(vs ...uint64) []byte {
	var b []byte
	for _, v := range vs {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// form is kind and compression of a text.
func form(t testing.TB, text string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) < fixedLen {
		t.Fatalf("text %q: %v", text, err)
	}
	name := map[byte]string{kindNone: "none", kindGaps: "gaps", kindRuns: "runs", kindBitmap: "bitmap"}[raw[2]&15]
	if raw[3]&flagDeflate != 0 {
		name += "+deflate"
	}
	return name
}

func evens(from, n int64) []int64 {
	offs := make([]int64, 0, n)
	for i := range n {
		offs = append(offs, from+2*i)
	}
	return offs
}

// randomOpen draws n distinct open offsets of the window, ascending.
func randomOpen(seed uint64, n int, base, window int64) []int64 {
	rng := rand.New(rand.NewPCG(seed, 0))
	seen := make(map[int64]bool, n)
	for len(seen) < n {
		seen[base+rng.Int64N(window)] = true
	}
	offs := make([]int64, 0, n)
	for o := range seen {
		offs = append(offs, o)
	}
	slices.Sort(offs)
	return offs
}

// The texts are what groups have in their commits: a change of the format needs a new version.
func TestGoldenTexts(t *testing.T) {
	tests := []struct {
		name, form, text string
		m                Map
	}{
		{"nothing known", "none", "klkQAPzDhdwAAA", Map{Held: clean}},
		{"all ended above", "none", "klkQAHOeDchk6AI", Map{Base: 100, Next: 460, Held: clean}},
		{"gaps", "gaps", "klkRACdnquvAhD3oBwAJyAE", Map{Base: 1_000_000, Next: 1_001_000, Open: []int64{1_000_000, 1_000_010, 1_000_211}, Held: clean}},
		{"runs", "runs", "klkSACE5m1cq9AMAYwoE", Map{Base: 42, Next: 542, Open: append(span(42, 142), span(152, 157)...), Held: clean}},
		{"bitmap", "bitmap", "klkTALr6x6gAIFVVVVU", Map{Base: 0, Next: 32, Open: evens(0, 16), Held: clean}},
		{"an accused that waits", "gaps", "klkRfmxiTVAKBQMBAVoA", Map{Base: 10, Next: 15, Open: []int64{10}, Held: State{TakenOver: true, Deaths: 3, Suspect: 11, Strikes: 1, Waits: true, Until: 100}}},
		{"state", "gaps", "klkRHttXGxYKBQMBWgA", Map{Base: 10, Next: 15, Open: []int64{10}, Held: State{TakenOver: true, Deaths: 3, Suspect: 11, Until: 100}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := Encode(tt.m)
			if text != tt.text {
				t.Errorf("Encode gives %q, want %q", text, tt.text)
			}
			if f := form(t, text); f != tt.form {
				t.Errorf("form is %s, want %s", f, tt.form)
			}
			m, err := Decode(tt.text, tt.m.Base)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.m, m, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("round trip:\n%s", d)
			}
		})
	}
}

// The sizes of typical loads: pending roots, window, longest text that they may take.
func TestSizes(t *testing.T) {
	busyHead := append([]int64{7}, randomOpen(1, 500, 99_007, 1000)...)
	tests := []struct {
		name string
		open []int64
		base int64
		next int64
		most int
		form string
	}{
		{"1 stuck of a million", []int64{7}, 7, 1_000_007, 20, "gaps"},
		{"100 random of 100,000", randomOpen(2, 100, 7, 100_000), 7, 100_007, 280, "gaps"},
		{"1,000 random of 10,000", randomOpen(3, 1000, 7, 10_000), 7, 10_007, 1360, "gaps"},
		{"1,400 random of 2,000,000", randomOpen(4, 1400, 7, 2_000_000), 7, 2_000_007, 3600, "gaps+deflate"},
		{"1 stuck and a busy head", busyHead, 7, 100_007, 700, "runs"},
		{"1,024 not ended at all", span(7, 1031), 7, 1031, 22, "runs"},
		{"a million not ended at all", span(7, 1_000_007), 7, 1_000_007, 4096, ""},
		{"every second of 2,048", evens(7, 1024), 7, 2055, 370, "bitmap"},
		{"every second of 24,000", evens(7, 12_000), 7, 24_007, 200, "bitmap+deflate"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := Map{Base: tt.base, Next: tt.next, Open: tt.open, Held: clean}
			text := Encode(m)
			if len(text) > tt.most {
				t.Errorf("%d characters, want at most %d", len(text), tt.most)
			}
			t.Logf("%d characters, %s", len(text), form(t, text))
			if tt.form != "" {
				if f := form(t, text); f != tt.form {
					t.Errorf("form is %s, want %s", f, tt.form)
				}
				got, err := Decode(text, tt.base)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(m, got, cmpopts.EquateEmpty()); d != "" {
					t.Errorf("round trip:\n%s", d)
				}
			}
		})
	}
}

// Up to 1,400 pending records in a window of 2^21 need no compression and lose nothing, at their worst: gaps that
// just need two bytes, or three, and every header field at its largest.
func TestPendingThatAlwaysFits(t *testing.T) {
	const window = 1 << 21
	held := State{TakenOver: true, Deaths: math.MaxInt32, Suspect: 1<<60 + window - 1, Until: 1<<60 + window}
	shapes := map[string]func(i int64) int64{
		"gaps of 128":            func(i int64) int64 { return 129 * i },
		"as many gaps of 16,384": func(i int64) int64 { return min(i, 119)*16_385 + max(0, i-119)*129 },
		"equal gaps":             func(i int64) int64 { return i * (window / 1400) },
	}
	for name, at := range shapes {
		t.Run(name, func(t *testing.T) {
			m := Map{Base: 1 << 60, Next: 1<<60 + window, Held: held}
			for i := range int64(1400) {
				m.Open = append(m.Open, min(m.Base+at(i+1), m.Next-1400+i))
			}
			if c := m.cut(kindGaps, maxPayload); c.size > maxBytes-53 {
				t.Errorf("the gaps take %d bytes", c.size)
			}
			text, next := new(Encoder).Encode(m)
			if next != m.Next || len(text) > MaxUnits {
				t.Errorf("%d characters, next %d of %d", len(text), next, m.Next)
			}
			got, err := Decode(text, m.Base)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(m, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestForgetsTheHighestEndsFirst(t *testing.T) {
	held := State{TakenOver: true, Deaths: 2, Suspect: 1_000_003, Until: 2_000_000}
	rng := rand.New(rand.NewPCG(9, 9))
	for _, tt := range []struct {
		name string
		open []int64
		next int64
		most int64 // at least so many ends are kept
	}{
		{"half of a large window", randomOpen(5, 150_000, 1_000_000, 300_000), 1_300_000, 10_000},
		{"wide gaps", randomOpen(6, 5000, 1_000_000, 1<<50), 1 << 51, 1 << 46},
		{"an end every 30 offsets", func() (offs []int64) {
			for o := int64(1_000_000); o < 1_600_000; o++ {
				if rng.IntN(30) != 0 {
					offs = append(offs, o)
				}
			}
			return offs
		}(), 1_600_000, 1500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := Map{Base: 1_000_000, Next: tt.next, Open: tt.open, Held: held}
			text, next := new(Encoder).Encode(m)
			if len(text) > MaxUnits || len(text) < MaxUnits*9/10 {
				t.Errorf("%d characters, %s", len(text), form(t, text))
			}
			got, err := Decode(text, m.Base)
			if err != nil {
				t.Fatal(err)
			}
			i, _ := slices.BinarySearch(m.Open, got.Next)
			if got.Next != next || next >= m.Next || !slices.Equal(got.Open, m.Open[:i]) {
				t.Errorf("the text is not the map below %d: next %d, %d open, want %d", next, got.Next, len(got.Open), i)
			}
			if kept := got.Next - got.Base - int64(len(got.Open)); kept < tt.most {
				t.Errorf("only %d ends are kept", kept)
			} else {
				t.Logf("%s keeps %d ends", form(t, text), kept)
			}
			if d := cmp.Diff(held, got.Held); d != "" {
				t.Errorf("the state has changed:\n%s", d)
			}
		})
	}
}

// A run of any length is written in few bytes, but is many offsets to its reader.
func TestLongRunsAreBounded(t *testing.T) {
	m := Map{Base: 0, Next: maxOpen + 11, Open: span(1, maxOpen+1), Held: clean}
	if text, next := new(Encoder).Encode(m); next != m.Next || len(text) > 24 {
		t.Errorf("the largest run: next %d, %q", next, text)
	}
	m.Open = append(m.Open, maxOpen+5)
	text, next := new(Encoder).Encode(m)
	got, err := Decode(text, 0)
	if err != nil || next != maxOpen+5 || got.Next != next || len(got.Open) != maxOpen {
		t.Errorf("one open offset more: next %d, %d open, %v", next, len(got.Open), err)
	}
	m.Open = span(1, maxOpen+2)
	text, next = new(Encoder).Encode(m)
	if got, err := Decode(text, 0); err != nil || !got.Done(0) || next > maxOpen || next < 1 {
		t.Errorf("a run that is one too long: next %d, %v", next, err)
	}
}

func TestBrokenMapsAreNeverCalledDone(t *testing.T) {
	big := Map{Base: math.MaxInt64 - 10, Next: math.MaxInt64, Open: []int64{math.MaxInt64 - 1}, Held: State{Suspect: math.MaxInt64, Until: math.MaxInt64, Deaths: math.MaxInt}}
	tests := []struct {
		name  string
		m     Map
		open  []int64
		done  []int64
		state State
	}{
		{"out of order, twice, outside", Map{Base: 10, Next: 20, Open: []int64{15, 12, 15, 3, 40}, Held: clean}, []int64{12, 15, 20, 40, 3}, []int64{10, 19}, clean},
		{"next below base", Map{Base: 10, Next: 5, Open: []int64{7}, Held: clean}, []int64{5, 7, 10}, nil, clean},
		{"suspect below base", Map{Base: 10, Next: 20}, nil, []int64{10, 19}, clean},
		{"negative deaths", Map{Base: 10, Next: 20, Held: State{Deaths: -4, Suspect: 10, Until: 10}}, nil, []int64{15}, State{Suspect: 10}},
		{"the highest offsets", big, []int64{math.MaxInt64 - 1, math.MaxInt64}, []int64{math.MaxInt64 - 2}, State{Suspect: math.MaxInt64, Until: math.MaxInt64, Deaths: math.MaxInt32}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.m.Open)
			m, err := Decode(Encode(tt.m), tt.m.Base)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range tt.open {
				if m.Done(o) {
					t.Errorf("%d is done", o)
				}
			}
			for _, o := range tt.done {
				if !m.Done(o) {
					t.Errorf("%d is not done", o)
				}
			}
			if d := cmp.Diff(tt.state, m.Held); d != "" {
				t.Errorf("state:\n%s", d)
			}
			if !slices.Equal(before, tt.m.Open) {
				t.Error("Encode has changed its argument")
			}
		})
	}
	if text, next := new(Encoder).Encode(Map{Base: -1, Next: 10}); text != "" || next != -1 {
		t.Errorf("a map at offset -1: %q, %d", text, next)
	}
}

func TestEncoderIsReusable(t *testing.T) {
	var e Encoder
	maps := []Map{
		{Base: 0, Next: 1_000_000, Open: randomOpen(8, 200_000, 0, 1_000_000), Held: clean},
		{Base: 5, Next: 6, Open: []int64{5}, Held: clean},
		{Base: 0, Next: 2_000_000, Open: randomOpen(9, 1400, 0, 2_000_000), Held: clean},
		{Base: 9, Next: 9, Held: clean},
	}
	for range 2 {
		for i, m := range maps {
			if text, _ := e.Encode(m); text != Encode(m) {
				t.Errorf("map %d: the text depends on what was encoded before", i)
			}
		}
	}
	small := maps[1]
	if a := testing.AllocsPerRun(100, func() { e.Encode(small) }); a > 1 {
		t.Errorf("Encode of a small map allocates %v times", a)
	}
}

// No kind takes more room than it was given, to the byte, and none stops early.
func TestCutFillsTheRoom(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		m := Map{Base: rng.Int64N(1 << 40)}
		at := m.Base
		for range rng.IntN(300) {
			at += rng.Int64N([]int64{1, 3, 200, 20_000}[rng.IntN(4)] + 1)
			m.Open = append(m.Open, at)
			at++
		}
		m.Next = at + rng.Int64N(100)
		for _, kind := range []byte{kindGaps, kindRuns, kindBitmap} {
			for _, limit := range []int{0, 1, 2, 3, rng.IntN(100), rng.IntN(1000)} {
				c := m.cut(kind, limit)
				payload := m.appendPayload(nil, c)
				if len(payload) != c.size || c.size > limit {
					t.Fatalf("kind %d: %d bytes, announced %d, room for %d", kind, len(payload), c.size, limit)
				}
				if i, _ := slices.BinarySearch(m.Open, c.next); i != c.open {
					t.Fatalf("kind %d: %d open offsets below %d, announced %d", kind, i, c.next, c.open)
				}
				text := forge(version<<4|kind, 0, slices.Concat(uvarints(uint64(m.Base), uint64(c.next-m.Base)), payload)...)
				back, err := Decode(text, m.Base)
				if err != nil || back.Next != c.next {
					t.Fatalf("kind %d: %v, next %d, announced %d", kind, err, back.Next, c.next)
				}
				checkSubset(t, m, back)
				if whole := m.cut(kind, maxPayload); limit >= whole.size && c != whole {
					t.Fatalf("kind %d: %d bytes fit into %d and were cut", kind, whole.size, limit)
				}
			}
		}
	}
}

func TestDone(t *testing.T) {
	m := Map{Base: 10, Next: 20, Open: []int64{10, 15}}
	for o, want := range map[int64]bool{9: false, 10: false, 11: true, 14: true, 15: false, 16: true, 19: true, 20: false, -1: false, math.MaxInt64: false} {
		if m.Done(o) != want {
			t.Errorf("Done(%d) is %t", o, !want)
		}
	}
	if (Map{}).Done(0) {
		t.Error("the zero map knows something")
	}
}

func units(text string) int { return len(utf16.Encode([]rune(text))) }
