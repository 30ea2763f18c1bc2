package offsets

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
	"strings"

	"github.com/killick-io/killick/internal/rules"
)

// Decode reads the metadata of a commit at base. The error wraps ErrForeign (ErrVersion), ErrCorrupt or ErrBase;
// the map that comes with it says that nothing is done, and is safe to open a ledger with.
//
// Any input is read in bounded time and memory: a text has at most MaxUnits characters, inflates to at most
// 32 KiB and names at most 262,144 open offsets. Windows and holes of any size cost nothing.
func Decode(metadata string, base int64) (Map, error) {
	m, err := decode(metadata, base)
	if err != nil {
		base = max(base, 0)
		return Map{Base: base, Next: base, Held: State{Suspect: None}}, err
	}
	return m, nil
}

func decode(metadata string, base int64) (Map, error) {
	// The first three characters hold the magic; looking at them first keeps foreign texts of any shape apart.
	if len(metadata) < 3 || metadata[:2] != "kl" || metadata[2] < 'k' || metadata[2] > 'n' {
		if metadata == "" {
			return Map{}, fmt.Errorf("%w: it is empty", ErrForeign)
		}
		return Map{}, fmt.Errorf("%w: %d bytes that begin with %.24q", ErrForeign, len(metadata), metadata)
	}
	if v, ok := versionOf(metadata); ok && v != version {
		return Map{}, fmt.Errorf("%w: %d, this build reads %d", ErrVersion, v, version)
	}
	if len(metadata) > MaxUnits {
		return Map{}, fmt.Errorf("%w: %d characters, the most is %d", ErrCorrupt, len(metadata), MaxUnits)
	}
	if i := strings.IndexAny(metadata, "\r\n"); i >= 0 { // encoding/base64 skips line ends
		return Map{}, fmt.Errorf("%w: line end at character %d", ErrCorrupt, i)
	}
	raw, err := alphabet.DecodeString(metadata)
	if err != nil {
		return Map{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if len(raw) < fixedLen {
		return Map{}, fmt.Errorf("%w: cut off after %d bytes", ErrCorrupt, len(raw))
	}
	if has, want := binary.BigEndian.Uint32(raw[crcAt:]), checksum(raw); has != want {
		return Map{}, fmt.Errorf("%w: checksum %08x, the content has %08x", ErrCorrupt, has, want)
	}
	return parse(raw, base)
}

// versionOf reads the version alone: what follows it in another version is not ours to judge.
func versionOf(metadata string) (v byte, ok bool) {
	if len(metadata) < 4 {
		return 0, false
	}
	var b [3]byte
	if _, err := alphabet.Decode(b[:], []byte(metadata[:4])); err != nil {
		return 0, false
	}
	return b[2] >> 4, true
}

// parse reads a map whose checksum is right. It still trusts nothing: a checksum is no signature.
func parse(raw []byte, base int64) (Map, error) {
	kind, flags := raw[2]&15, raw[3]
	if flags&^flagsKnown != 0 {
		return Map{}, fmt.Errorf("%w: unknown flags %08b", ErrCorrupt, flags)
	}
	r := reader{rest: raw[fixedLen:]}
	m := Map{Held: State{TakenOver: flags&flagTakenOver != 0, Suspect: None}}
	m.Base = int64(r.uvarint("base", math.MaxInt64))
	if r.err == nil && m.Base != base && rules.MapBaseIsCompared {
		return Map{}, fmt.Errorf("%w: made for %d, committed is %d", ErrBase, m.Base, base)
	}
	above := uint64(math.MaxInt64 - m.Base) // how far an offset can be above the base
	m.Next = m.Base + int64(r.uvarint("window", above))
	if flags&flagDeaths != 0 {
		m.Held.Deaths = int(r.uvarint("deaths", math.MaxInt32))
	}
	if flags&flagSuspect != 0 {
		m.Held.Suspect = m.Base + int64(r.uvarint("suspect", above))
	}
	if flags&flagStrikes != 0 {
		if m.Held.Suspect == None && r.err == nil {
			return Map{}, fmt.Errorf("%w: strikes without a suspect", ErrCorrupt)
		}
		m.Held.Strikes = int(r.uvarint("strikes", math.MaxInt32))
	}
	if m.Held.Waits = flags&flagWaits != 0; m.Held.Waits && m.Held.Strikes == 0 && r.err == nil {
		return Map{}, fmt.Errorf("%w: a suspect that waits without strikes", ErrCorrupt)
	}
	if flags&flagUntil != 0 {
		m.Held.Until = m.Base + int64(r.uvarint("until", above))
	}
	if r.err != nil {
		return Map{}, r.err
	}
	if flags&flagDeflate != 0 {
		plain, err := inflate(r.rest)
		if err != nil {
			return Map{}, err
		}
		r.rest = plain
	}
	window := uint64(m.Next - m.Base)
	switch kind {
	case kindNone:
		if len(r.rest) > 0 {
			return Map{}, fmt.Errorf("%w: %d bytes too many", ErrCorrupt, len(r.rest))
		}
	case kindGaps:
		m.Open = r.gaps(m.Base, window)
	case kindRuns:
		m.Open = r.runs(m.Base, window)
	case kindBitmap:
		m.Open = r.bitmap(m.Base, window)
	default:
		return Map{}, fmt.Errorf("%w: unknown kind %d", ErrCorrupt, kind)
	}
	return m, r.err
}

// inflate refuses what is larger than any writer makes it, and bytes behind the end of the stream.
func inflate(packed []byte) ([]byte, error) {
	src := bytes.NewReader(packed) // an io.ByteReader: flate reads no byte more than it needs
	plain, err := io.ReadAll(io.LimitReader(flate.NewReader(src), maxPayload+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: inflating %d bytes: %w", ErrCorrupt, len(packed), err)
	case len(plain) > maxPayload:
		return nil, fmt.Errorf("%w: inflates to more than %d bytes", ErrCorrupt, maxPayload)
	case src.Len() > 0:
		return nil, fmt.Errorf("%w: %d bytes behind the compressed payload", ErrCorrupt, src.Len())
	}
	return plain, nil
}

// reader takes a map apart. The first error sticks, and everything read after it is 0 or nil.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
	}
	r.rest = nil
}

// uvarint reads a number of at most limit in its shortest form.
func (r *reader) uvarint(what string, limit uint64) uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.rest)
	switch {
	case n == 0:
		r.fail("cut off in %s", what)
	case n < 0 || n > 1 && r.rest[n-1] == 0:
		r.fail("%s is not a uvarint in its shortest form", what)
	case v > limit:
		r.fail("%s is %d, the most is %d", what, v, limit)
	default:
		r.rest = r.rest[n:]
		return v
	}
	return 0
}

// gaps reads to the end of the payload: one open offset takes at least a byte, so the work is bounded by it.
func (r *reader) gaps(base int64, window uint64) []int64 {
	open := make([]int64, 0, min(len(r.rest), maxOpen))
	at := uint64(0) // offsets of the window that are accounted for
	for len(r.rest) > 0 {
		if at >= window {
			r.fail("open offsets behind the window of %d", window)
			break
		}
		at += r.uvarint("gap", window-at-1)
		open = append(open, base+int64(at))
		at++
	}
	if r.err != nil {
		return nil
	}
	return open
}

// runs reads to the end of the payload. A run of any length takes few bytes, so the sum is bounded first.
func (r *reader) runs(base int64, window uint64) []int64 {
	var open []int64
	at := uint64(0)
	for len(r.rest) > 0 {
		if at >= window {
			r.fail("open offsets behind the window of %d", window)
			break
		}
		at += r.uvarint("gap", window-at-1)
		more := r.uvarint("run", window-at-1)
		if r.err != nil {
			break
		}
		if more >= uint64(maxOpen-len(open)) {
			r.fail("more than %d open offsets", maxOpen)
			break
		}
		for end := at + more; at <= end; at++ {
			open = append(open, base+int64(at))
		}
	}
	if r.err != nil {
		return nil
	}
	return open
}

// bitmap reads exactly one bit per offset of the window.
func (r *reader) bitmap(base int64, window uint64) []int64 {
	if window > maxOpen || uint64(len(r.rest)) != (window+7)/8 {
		r.fail("bitmap of %d bytes for a window of %d", len(r.rest), window)
		return nil
	}
	n := 0
	for _, b := range r.rest {
		n += bits.OnesCount8(b)
	}
	open := make([]int64, 0, n)
	for i, b := range r.rest {
		for ; b != 0; b &= b - 1 {
			bit := uint64(8*i + bits.TrailingZeros8(b))
			if bit >= window {
				r.fail("bit %d behind the window of %d", bit, window)
				return nil
			}
			open = append(open, base+int64(bit))
		}
	}
	return open
}
