package offsets

import (
	"encoding/base64"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeRefuses(t *testing.T) {
	good := Map{Base: 1000, Next: 1500, Open: []int64{1000, 1010, 1211}, Held: State{TakenOver: true, Deaths: 1, Suspect: 1000}}
	text := Encode(good)
	bomb := func(n int) []byte { return deflated(t, make([]byte, n)) }
	cat := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
	const v = version << 4
	tests := []struct {
		name, text string
		want       error
		says       string
	}{
		{"empty", "", ErrForeign, "empty"},
		{"short", "kl", ErrForeign, "2 bytes"},
		{"a kgo member id", "kgo-1f6ad0b9-6f4c-4b55-8f9e-2f7b8f0f2f11", ErrForeign, `"kgo-1f6ad0b9`},
		{"a Java member id", "consumer-orders-1-0e3bb3f5-9a83-4ae5-b9a6-0a4ab1c9d2aa", ErrForeign, ""},
		{"Kafka Streams 1", base64.StdEncoding.EncodeToString([]byte{1, 0, 0, 1, 0x93, 0x5a, 0xd1, 0x10, 0x20}), ErrForeign, `"AQAA`},
		{"Kafka Streams 2", base64.StdEncoding.EncodeToString([]byte{2, 0, 0, 1, 0x93, 0x5a, 0xd1, 0x10, 0x20, 0, 0, 0, 0}), ErrForeign, `"AgAA`},
		{"parallel-consumer", base64.StdEncoding.EncodeToString([]byte("l\x00\x10\xff\xff\x01\x02")), ErrForeign, ""},
		{"not UTF-8", "\xff\xfe\xfd\xfc", ErrForeign, ""},
		{"long and foreign", strings.Repeat("x", 30_000), ErrForeign, "30000 bytes"},
		{"version 0", forge(0<<4|kindGaps, 0, uvarints(1000, 500)...), ErrVersion, ": 0, "},
		{"version 2", forge(2<<4|kindGaps, 0, uvarints(1000, 500)...), ErrVersion, ": 2, "},
		{"version 15, long", forge(15<<4, 0, make([]byte, 5000)...), ErrVersion, ": 15, "},

		{"cut off", text[:len(text)-4], ErrCorrupt, "checksum"},
		{"cut off in the header", text[:8], ErrCorrupt, "cut off after 6 bytes"},
		{"cut off behind the magic", text[:4], ErrCorrupt, "cut off after 3 bytes"},
		{"three characters", text[:3], ErrCorrupt, ""},
		{"bytes too many", text + "AAAA", ErrCorrupt, "checksum"},
		{"one character too many", text + "A", ErrCorrupt, ""},
		{"padded", text + "=", ErrCorrupt, ""},
		{"a line end", text[:10] + "\n" + text[10:], ErrCorrupt, "line end"},
		{"another alphabet", text[:9] + "+/" + text[11:], ErrCorrupt, ""},
		{"too long", forge(v|kindBitmap, 0, cat(uvarints(1000, 8*3100), make([]byte, 3100))...), ErrCorrupt, "the most is 4096"},
		{"unknown kind", forge(v|4, 0, uvarints(1000, 500)...), ErrCorrupt, "kind 4"},
		{"unknown flag", forge(v|kindNone, 1<<7, uvarints(1000, 500)...), ErrCorrupt, "flags 10000000"},
		{"no base", forge(v|kindNone, 0), ErrCorrupt, "base"},
		{"base above int64", forge(v|kindNone, 0, uvarints(1<<63, 0)...), ErrCorrupt, "base"},
		{"no window", forge(v|kindNone, 0, uvarints(1000)...), ErrCorrupt, "window"},
		{"window overflows", forge(v|kindNone, 0, uvarints(1000, math.MaxInt64-999)...), ErrCorrupt, "window"},
		{"uvarint overlong", forge(v|kindNone, 0, cat(uvarints(1000), []byte{0x80, 0})...), ErrCorrupt, "shortest"},
		{"uvarint of 11 bytes", forge(v|kindNone, 0, cat(uvarints(1000), []byte(strings.Repeat("\xff", 10)+"\x01"))...), ErrCorrupt, "shortest"},
		{"deaths too many", forge(v|kindNone, flagDeaths, uvarints(1000, 5, 1<<31)...), ErrCorrupt, "deaths"},
		{"deaths missing", forge(v|kindNone, flagDeaths, uvarints(1000, 5)...), ErrCorrupt, "deaths"},
		{"suspect overflows", forge(v|kindNone, flagSuspect, uvarints(1000, 5, math.MaxInt64)...), ErrCorrupt, "suspect"},
		{"strikes of nobody", forge(v|kindNone, flagStrikes, uvarints(1000, 5, 1)...), ErrCorrupt, "strikes without a suspect"},
		{"strikes missing", forge(v|kindNone, flagSuspect|flagStrikes, uvarints(1000, 5, 2)...), ErrCorrupt, "strikes"},
		{"strikes too many", forge(v|kindNone, flagSuspect|flagStrikes, uvarints(1000, 5, 2, 1<<31)...), ErrCorrupt, "strikes"},
		{"waits without strikes", forge(v|kindNone, flagSuspect|flagWaits, uvarints(1000, 5, 2)...), ErrCorrupt, "waits without strikes"},
		{"until overflows", forge(v|kindNone, flagUntil, uvarints(1000, 5, math.MaxInt64)...), ErrCorrupt, "until"},
		{"none with a payload", forge(v|kindNone, 0, uvarints(1000, 5, 1)...), ErrCorrupt, "too many"},
		{"gap behind the window", forge(v|kindGaps, 0, uvarints(1000, 5, 5)...), ErrCorrupt, "gap"},
		{"more gaps than window", forge(v|kindGaps, 0, uvarints(1000, 2, 0, 0, 0)...), ErrCorrupt, "behind the window"},
		{"gap in no window", forge(v|kindGaps, 0, uvarints(1000, 0, 0)...), ErrCorrupt, "behind the window"},
		{"gap cut off", forge(v|kindGaps, 0, cat(uvarints(1000, 500), []byte{0x80})...), ErrCorrupt, "gap"},
		{"run behind the window", forge(v|kindRuns, 0, uvarints(1000, 5, 0, 5)...), ErrCorrupt, "run"},
		{"run cut off", forge(v|kindRuns, 0, uvarints(1000, 5, 0)...), ErrCorrupt, "run"},
		{"run bomb", forge(v|kindRuns, 0, uvarints(1000, 1<<60, 0, 1<<59)...), ErrCorrupt, "more than 262144"},
		{"run bomb in pieces", forge(v|kindRuns, 0, uvarints(1000, 1<<60, 0, maxOpen-1, 0, 0)...), ErrCorrupt, "more than 262144"},
		{"bitmap too short", forge(v|kindBitmap, 0, uvarints(1000, 17, 0xf, 0xf)...), ErrCorrupt, "bitmap"},
		{"bitmap too long", forge(v|kindBitmap, 0, uvarints(1000, 16, 1, 1, 1)...), ErrCorrupt, "bitmap"},
		{"bitmap for a huge window", forge(v|kindBitmap, 0, uvarints(1000, 1<<60, 1)...), ErrCorrupt, "bitmap"},
		{"bitmap with bits behind the window", forge(v|kindBitmap, 0, uvarints(1000, 5, 0x21)...), ErrCorrupt, "bit 5"},
		{"not deflated", forge(v|kindGaps, flagDeflate, uvarints(1000, 500, 0x7f, 0x7f)...), ErrCorrupt, "inflating"},
		{"deflate cut off", forge(v|kindGaps, flagDeflate, cat(uvarints(1000, 500), bomb(100)[:4])...), ErrCorrupt, "inflating"},
		{"bytes behind the deflated", forge(v|kindGaps, flagDeflate, cat(uvarints(1000, 500), bomb(100), []byte{0})...), ErrCorrupt, "behind the compressed"},
		{"deflate bomb", forge(v|kindGaps, flagDeflate, cat(uvarints(1000, 1<<40), bomb(2_000_000))...), ErrCorrupt, "more than 32768"},

		{"another base", Encode(Map{Base: 999, Next: 1500, Held: clean}), ErrBase, "made for 999, committed is 1000"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := Decode(tt.text, 1000)
			if !errors.Is(err, tt.want) {
				t.Fatalf("error is %v, want %v", err, tt.want)
			}
			if tt.want == ErrVersion && !errors.Is(err, ErrForeign) {
				t.Error("an unknown version is not foreign")
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %q does not say %q", err, tt.says)
			}
			if d := cmp.Diff(Map{Base: 1000, Next: 1000, Held: clean}, m); d != "" {
				t.Errorf("a refused map knows something:\n%s", d)
			}
			if l := Open(1000, m); l.Ignored() != nil || l.Floor() != 1000 {
				t.Errorf("a ledger opened with it: %v", l.Ignored())
			}
		})
	}
	// The checks above would also pass if nothing could be read.
	for _, ok := range []string{text,
		forge(v|kindGaps, flagDeflate, cat(uvarints(1000, 200), bomb(100))...),
		forge(v|kindRuns, 0, uvarints(1000, 1<<60, 0, maxOpen-1)...),
		forge(v|kindBitmap, 0, uvarints(1000, 5, 0x11)...),
		forge(v|kindNone, 0, uvarints(1000, math.MaxInt64-1000)...),
	} {
		if _, err := Decode(ok, 1000); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	if m, err := Decode(text, -1); !errors.Is(err, ErrBase) || m.Base != 0 {
		t.Errorf("at offset -1: %+v, %v", m, err)
	}
}

// A change of any character is seen: by the checksum, by the unused bits of the last character, or because the
// text is not ours any more.
func TestEveryChangedCharacterIsSeen(t *testing.T) {
	lengths := map[int]bool{}
	for _, held := range []State{clean, {Deaths: 1, Suspect: None}, {TakenOver: true, Deaths: 1, Suspect: 1000}, {TakenOver: true, Deaths: 1, Suspect: 1000, Strikes: 1, Waits: true}} {
		text := Encode(Map{Base: 1000, Next: 1500, Open: []int64{1000, 1010, 1211}, Held: held})
		lengths[len(text)%4] = true
		for i := range len(text) {
			for _, ch := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_ =\n\x00\xff") {
				if text[i] == ch {
					continue
				}
				bad := text[:i] + string([]byte{ch}) + text[i+1:]
				if _, err := Decode(bad, 1000); err == nil {
					t.Errorf("character %d of %q changed to %q is not seen", i, text, ch)
				}
			}
			if _, err := Decode(text[:i], 1000); err == nil {
				t.Errorf("%q cut off after %d characters is not seen", text, i)
			}
		}
	}
	if len(lengths) != 3 {
		t.Errorf("the texts do not have all lengths that base64 can have: %v", lengths)
	}
}
