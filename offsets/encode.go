package offsets

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"math/bits"
	"slices"
)

// Encode writes a map as the metadata of a commit at m.Base: ASCII, at most MaxUnits long by construction. If
// the map does not fit, its highest completions are forgotten (Next gets lower) until it does; Held is always kept.
// An offset that m does not call done is never done in the text, whatever m looks like.
// A negative Base is no place to commit at and gives "". Encoder does the same with less garbage.
func Encode(m Map) string {
	text, _ := new(Encoder).Encode(m)
	return text
}

// Encoder encodes maps one after the other and keeps its buffers (about 1 MiB once it has had to compress).
// The zero value is ready. It is not safe for concurrent use.
type Encoder struct {
	plain  []byte // payload being tried
	best   []byte // smallest payload so far
	raw    []byte // the whole map in binary
	ascii  []byte
	packed bytes.Buffer
	zip    *flate.Writer // made when first needed: most maps never are that large
}

// Encode is the function Encode. next is the Next that the text has: m.Next if all of m fitted, less if the
// completions from next on were forgotten.
func (e *Encoder) Encode(m Map) (text string, next int64) {
	if m.Base < 0 {
		return "", m.Base
	}
	m = m.sane()
	// The header is longest with the highest Next, so what fits beside this one fits beside the final one.
	e.raw = appendHeader(e.raw[:0], m, kindNone, false)
	c := e.choose(m, maxBytes-len(e.raw))

	m.Next = c.next
	e.raw = appendHeader(e.raw[:0], m, c.kind, c.deflated)
	e.raw = append(e.raw, e.best[:c.size]...)
	binary.BigEndian.PutUint32(e.raw[crcAt:], checksum(e.raw))
	e.ascii = alphabet.AppendEncode(e.ascii[:0], e.raw)
	return string(e.ascii), c.next
}

func appendHeader(b []byte, m Map, kind byte, deflated bool) []byte {
	var flags byte
	for _, f := range []struct {
		on   bool
		flag byte
	}{
		{deflated, flagDeflate},
		{m.Held.TakenOver, flagTakenOver},
		{m.Held.Deaths > 0, flagDeaths},
		{m.Held.Suspect != None, flagSuspect},
		{m.Held.Strikes > 0, flagStrikes},
		{m.Held.Until > m.Base, flagUntil},
		{m.Held.Waits, flagWaits},
	} {
		if f.on {
			flags |= f.flag
		}
	}
	b = append(b, magic0, magic1, version<<4|kind, flags, 0, 0, 0, 0)
	b = binary.AppendUvarint(b, uint64(m.Base))
	b = binary.AppendUvarint(b, uint64(m.Next-m.Base))
	if flags&flagDeaths != 0 {
		b = binary.AppendUvarint(b, uint64(m.Held.Deaths))
	}
	if flags&flagSuspect != 0 {
		b = binary.AppendUvarint(b, uint64(m.Held.Suspect-m.Base))
	}
	if flags&flagStrikes != 0 {
		b = binary.AppendUvarint(b, uint64(m.Held.Strikes))
	}
	if flags&flagUntil != 0 {
		b = binary.AppendUvarint(b, uint64(m.Held.Until-m.Base))
	}
	return b
}

// choice is a way to write the lower part [Base, next) of a map.
type choice struct {
	cut
	deflated bool
}

// choose finds the payload of at most room bytes that remembers most and, of those, the smallest. It is in
// e.best[:size]. There always is one: no bytes at all, remembering nothing.
//
// Cost: O(open), plus a few compressions of at most maxPayload if it does not fit in deflateAbove bytes.
func (e *Encoder) choose(m Map, room int) choice {
	if len(m.Open) == 0 {
		return choice{cut: cut{kind: kindNone, next: m.Next}}
	}
	var best choice
	found := false
	better := func(c choice) bool {
		return !found || c.next > best.next || c.next == best.next && c.size < best.size
	}
	kinds := [...]byte{kindGaps, kindRuns, kindBitmap}
	for _, kind := range kinds {
		if c := (choice{cut: m.cut(kind, room)}); better(c) {
			best, found = c, true
		}
	}
	e.best = m.appendPayload(e.best[:0], best.cut)
	if best.next == m.Next && best.size <= deflateAbove {
		return best
	}
	for _, kind := range kinds {
		if c, ok := e.deflate(m, kind, room); ok && better(c) {
			best = c
			e.best = append(e.best[:0], e.packed.Bytes()...)
		}
	}
	return best
}

// deflate compresses as much of the map as fits into room, about. The share that compresses to room is not
// known in advance; it is approached from above in few rounds, and if none fits there is no such choice.
func (e *Encoder) deflate(m Map, kind byte, room int) (choice, bool) {
	limit := maxPayload
	for range 5 {
		c := m.cut(kind, limit)
		e.plain = m.appendPayload(e.plain[:0], c)
		e.packed.Reset()
		if e.zip == nil {
			e.zip, _ = flate.NewWriter(&e.packed, flate.DefaultCompression) // errs on an unknown level only
		} else {
			e.zip.Reset(&e.packed)
		}
		e.zip.Write(e.plain) // into memory: cannot fail
		e.zip.Close()
		size := e.packed.Len()
		if size <= room {
			c.size = size
			return choice{cut: c, deflated: true}, true
		}
		limit = len(e.plain) * room / size * 31 / 32
	}
	return choice{}, false
}

// cut is the lower part [Base, next) of a map, written as kind in size bytes.
type cut struct {
	kind byte
	next int64
	open int // Open[:open] is below next
	size int
}

// cut finds the largest lower part of the map that takes at most limit bytes as kind, uncompressed, within the
// limits of the format. What is forgotten begins with an open offset or run, since these are what costs bytes.
func (m Map) cut(kind byte, limit int) cut {
	c := cut{kind: kind, next: m.Next, open: len(m.Open)}
	after := m.Base // first offset that is not written yet
	switch kind {
	case kindGaps:
		for i, o := range m.Open {
			n := uvarintLen(uint64(o - after))
			if c.size+n > limit {
				c.next, c.open = o, i
				break
			}
			c.size += n
			after = o + 1
		}
	case kindRuns:
		for i := 0; i < len(m.Open); {
			j := runEnd(m.Open, i)
			n := uvarintLen(uint64(m.Open[i]-after)) + uvarintLen(uint64(j-i-1))
			if c.size+n > limit || j > maxOpen {
				c.next, c.open = m.Open[i], i
				break
			}
			c.size += n
			after = m.Open[j-1] + 1
			i = j
		}
	case kindBitmap:
		if window := m.Next - m.Base; window > 8*int64(limit) {
			c.next = m.Base + 8*int64(limit)
			c.open, _ = slices.BinarySearch(m.Open, c.next)
		}
		c.size = int((c.next - m.Base + 7) / 8)
	}
	return c
}

// appendPayload writes the part of the map that c describes: c.size bytes.
func (m Map) appendPayload(b []byte, c cut) []byte {
	open := m.Open[:c.open]
	after := m.Base
	switch c.kind {
	case kindGaps:
		for _, o := range open {
			b = binary.AppendUvarint(b, uint64(o-after))
			after = o + 1
		}
	case kindRuns:
		for i := 0; i < len(open); {
			j := runEnd(open, i)
			b = binary.AppendUvarint(b, uint64(open[i]-after))
			b = binary.AppendUvarint(b, uint64(j-i-1))
			after = open[j-1] + 1
			i = j
		}
	case kindBitmap:
		at := len(b)
		b = append(b, make([]byte, c.size)...)
		for _, o := range open {
			i := o - m.Base
			b[at+int(i>>3)] |= 1 << uint(i&7)
		}
	}
	return b
}

// runEnd is the index after the last of the consecutive offsets that begin at open[i].
func runEnd(open []int64, i int) int {
	j := i + 1
	for j < len(open) && open[j] == open[j-1]+1 {
		j++
	}
	return j
}

func uvarintLen(v uint64) int { return max(bits.Len64(v)+6, 7) / 7 }
