package verify

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"sort"
)

// Errors of ParseCompletion.
var (
	// ErrForeign: the metadata is not a completion map of killick (empty, or another program's), or of a version
	// that this package does not know. It says nothing about any record.
	ErrForeign = errors.New("verify: metadata is not a completion map")

	// ErrCompletion: it is a completion map, and broken. killick never writes one.
	ErrCompletion = errors.New("verify: completion map is broken")
)

// Span is the offsets from From on, To excluded.
type Span struct{ From, To int64 }

// Completion is what the metadata of a commit says: all records in [Base, Next) had ended, those in Open had not.
type Completion struct {
	Base, Next int64  // Base is the committed position
	Open       []Span // ascending, none empty, none adjacent or overlapping, within [Base, Next)

	TakenOver bool  // the owner has not released the partition yet
	Deaths    int   // of owners in a row
	Suspect   int64 // the offset that ran alone; -1: none
	Strikes   int   // deaths at which Suspect was named
	Waits     bool  // Suspect has not run since the last of them
	Until     int64 // the floor at which the hunt for a killer ends; 0: no hunt
}

// Done reports whether c says that the record at offset had ended.
func (c *Completion) Done(offset int64) bool {
	if offset < c.Base || offset >= c.Next {
		return false
	}
	i := sort.Search(len(c.Open), func(i int) bool { return c.Open[i].To > offset })
	return i == len(c.Open) || offset < c.Open[i].From
}

// each calls f for each stretch of offsets that c says had ended.
func (c *Completion) each(f func(Span)) {
	at := c.Base
	for _, o := range c.Open {
		if at < o.From {
			f(Span{at, o.From})
		}
		at = o.To
	}
	if at < c.Next {
		f(Span{at, c.Next})
	}
}

// The format, as package offsets of killick documents it. This is a second implementation on purpose: a mistake in the
// first cannot hide here. After base64url without padding:
//
//	92 59 | version<<4 + kind | flags | crc32c (big endian, of all other bytes) | uvarint base | uvarint next-base |
//	[uvarint deaths] [uvarint suspect-base] [uvarint strikes] [uvarint until-base] | payload
//
// Kind 0: no payload, nothing open. 1: per open offset the distance to the one before. 2: per run of open offsets the
// distance and length-1. 3: a bitmap from base on. Flag 1: the payload is deflated; 2: taken over; 4, 8, 16, 32: deaths,
// suspect, until, strikes are there; 64: the suspect waits.
const (
	mapVersion  = 1
	mapChars    = 4096    // the broker's default limit; a longer text cannot have been stored by killick
	mapInflated = 1 << 15 // bytes
)

var (
	mapText = base64.RawURLEncoding.Strict()
	crc32c  = crc32.MakeTable(crc32.Castagnoli)
)

// ParseCompletion reads the metadata of a commit. Work and memory are bounded on any input.
func ParseCompletion(metadata string) (*Completion, error) {
	// 92 59 are two characters and most of a third; the fourth ends the byte of the version.
	if len(metadata) < 3 || metadata[:2] != "kl" || metadata[2] < 'k' || metadata[2] > 'n' {
		return nil, fmt.Errorf("%w: %d characters, %.40q", ErrForeign, len(metadata), metadata)
	}
	raw, err := mapText.DecodeString(metadata)
	first, _ := mapText.DecodeString(metadata[:min(4, len(metadata))])
	switch {
	case len(first) == 3 && first[2]>>4 != mapVersion:
		return nil, fmt.Errorf("%w: version %d, this package knows %d", ErrForeign, first[2]>>4, mapVersion)
	case err != nil:
		return nil, fmt.Errorf("%w: %w in %.40q", ErrCompletion, err, metadata)
	case len(metadata) > mapChars:
		return nil, fmt.Errorf("%w: %d characters, brokers take %d", ErrCompletion, len(metadata), mapChars)
	case len(metadata) != mapText.EncodedLen(len(raw)): // line ends are skipped when decoding
		return nil, fmt.Errorf("%w: characters that do not belong there in %.40q", ErrCompletion, metadata)
	case len(raw) < 8:
		return nil, fmt.Errorf("%w: %d bytes", ErrCompletion, len(raw))
	}
	sum := crc32.New(crc32c)
	sum.Write(raw[:4])
	sum.Write(raw[8:])
	if got := binary.BigEndian.Uint32(raw[4:8]); got != sum.Sum32() {
		return nil, fmt.Errorf("%w: checksum %08x, want %08x", ErrCompletion, got, sum.Sum32())
	}
	c, err := readMap(raw[2]&15, raw[3], raw[8:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCompletion, err)
	}
	return c, nil
}

func readMap(kind, flags byte, b []byte) (c *Completion, err error) {
	if flags > 127 {
		return nil, fmt.Errorf("flags %08b", flags)
	}
	c = &Completion{TakenOver: flags&2 != 0, Suspect: -1}
	var base, width, deaths, suspect, strikes, until uint64
	for _, f := range []struct {
		to   *uint64
		flag byte
	}{{&base, 0}, {&width, 0}, {&deaths, 4}, {&suspect, 8}, {&strikes, 32}, {&until, 16}} {
		if f.flag&flags != f.flag {
			continue
		}
		if *f.to, b, err = number(b); err != nil {
			return nil, err
		}
	}
	const most = math.MaxInt64
	switch {
	case base > most || width > most-base || suspect > most-base || until > most-base:
		return nil, fmt.Errorf("base %d with %d, suspect %d, until %d is beyond the largest offset", base, width, suspect, until)
	case deaths > math.MaxInt32 || strikes > math.MaxInt32:
		return nil, fmt.Errorf("%d deaths, %d strikes", deaths, strikes)
	case flags&32 != 0 && flags&8 == 0:
		return nil, errors.New("strikes without a suspect")
	case flags&64 != 0 && strikes == 0:
		return nil, errors.New("a suspect that waits without strikes")
	}
	c.Base, c.Next = int64(base), int64(base+width)
	c.Deaths, c.Strikes, c.Waits = int(deaths), int(strikes), flags&64 != 0
	if flags&8 != 0 {
		c.Suspect = int64(base + suspect)
	}
	if flags&16 != 0 {
		c.Until = int64(base + until)
	}
	if flags&1 != 0 {
		if b, err = unpack(b); err != nil {
			return nil, err
		}
	}
	return c, c.payload(kind, b)
}

// payload reads the open offsets.
func (c *Completion) payload(kind byte, b []byte) (err error) {
	at := c.Base // the first offset that nothing is known of
	open := func(skip, length uint64) error {
		room := uint64(c.Next - at)
		if skip >= room || length > room-skip {
			return fmt.Errorf("open offsets behind %d, where it ends", c.Next)
		}
		from := at + int64(skip)
		at = from + int64(length)
		if n := len(c.Open); n > 0 && c.Open[n-1].To == from {
			c.Open[n-1].To = at
		} else {
			c.Open = append(c.Open, Span{from, at})
		}
		return nil
	}
	switch kind {
	case 0:
		if len(b) > 0 {
			return fmt.Errorf("%d bytes that do not belong there", len(b))
		}
	case 1, 2:
		for len(b) > 0 {
			var skip, more uint64
			if skip, b, err = number(b); err != nil {
				return err
			}
			if kind == 2 {
				if more, b, err = number(b); err != nil {
					return err
				}
			}
			if more == math.MaxUint64 {
				return errors.New("a run without end")
			}
			if err = open(skip, more+1); err != nil {
				return err
			}
		}
	case 3:
		width := uint64(c.Next - c.Base)
		if width > 8*mapInflated || uint64(len(b)) != (width+7)/8 {
			return fmt.Errorf("a bitmap of %d bytes for %d offsets", len(b), width)
		}
		for i := range 8 * uint64(len(b)) {
			if b[i/8]&(1<<(i%8)) == 0 {
				continue
			}
			if err := open(i-uint64(at-c.Base), 1); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("kind %d", kind)
	}
	return nil
}

// number takes a uvarint in its shortest form off b.
func number(b []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 {
		return 0, nil, fmt.Errorf("%x does not begin with a number", b[:min(len(b), 10)])
	}
	return v, b[n:], nil
}

func unpack(b []byte) ([]byte, error) {
	r := bytes.NewReader(b)
	out, err := io.ReadAll(io.LimitReader(flate.NewReader(r), mapInflated+1))
	switch {
	case err != nil:
		return nil, err
	case len(out) > mapInflated:
		return nil, fmt.Errorf("inflates to more than %d bytes", mapInflated)
	case r.Len() > 0:
		return nil, fmt.Errorf("%d bytes behind the deflated ones", r.Len())
	}
	return out, nil
}
