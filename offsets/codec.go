package offsets

import (
	"encoding/base64"
	"hash/crc32"
)

// The encoding, before base64url without padding:
//
//	magic       2 bytes   92 59, in base64 the text "kl" and one of k, l, m, n
//	version     4 bits    1
//	kind        4 bits    how the open offsets are written
//	flags       1 byte
//	checksum    4 bytes   CRC32C of all other bytes, big endian
//	base        uvarint   the committed offset
//	window      uvarint   Next - Base
//	deaths      uvarint   if flagged
//	suspect     uvarint   Suspect - Base, if flagged
//	strikes     uvarint   if flagged, and only beside a suspect
//	until       uvarint   Until - Base, if flagged
//	payload               the rest; by kind, and deflated (RFC 1951) if flagged
//
// Kinds of payload; the writer takes the smallest:
//
//	0 none      nothing is open, no payload
//	1 gaps      per open offset: uvarint of the offsets between it and the one before (the first: from Base)
//	2 runs      per run of open offsets: uvarint of the offsets before it, uvarint of its length - 1
//	3 bitmap    bit i of byte i/8 (lowest first): Base + i is open; the last byte is filled with 0
//
// Uvarints are those of encoding/binary in their shortest form. The text is ASCII, so its UTF-16 units are its bytes.
const (
	magic0, magic1 = 0x92, 0x59
	version        = 1

	kindNone   = 0
	kindGaps   = 1
	kindRuns   = 2
	kindBitmap = 3

	flagDeflate   = 1 << 0
	flagTakenOver = 1 << 1
	flagDeaths    = 1 << 2
	flagSuspect   = 1 << 3
	flagUntil     = 1 << 4
	flagStrikes   = 1 << 5
	flagWaits     = 1 << 6 // only beside strikes
	flagsKnown    = 1<<7 - 1

	fixedLen = 8 // magic, version and kind, flags, checksum
	crcAt    = 4
)

// Limits of the format. They bound the reader's work and memory on any input: 32 KiB inflated, 2 MiB of offsets.
const (
	// MaxUnits is how long a commit's metadata may be, in UTF-16 units: Apache Kafka's offset.metadata.max.bytes
	// (4096 by default) is compared with the length of a Java string and answered with OFFSET_METADATA_TOO_LARGE.
	MaxUnits = 4096

	maxBytes   = MaxUnits / 4 * 3 // what base64 makes MaxUnits characters of
	maxPayload = 32 << 10         // bytes of a payload before deflate
	maxOpen    = 8 * maxPayload   // open offsets of a map: what the largest bitmap can hold

	// deflateAbove is the payload size from which on compressing is tried. Below it there is room enough, and a
	// commit should not cost milliseconds.
	deflateAbove = 2400
)

// Both are constants in all but name: nothing changes them.
var (
	alphabet   = base64.RawURLEncoding.Strict() // strict: of several spellings of the same bytes only one is accepted
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// checksum is CRC32C of a map without the four bytes that hold it.
func checksum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:crcAt], castagnoli), castagnoli, b[fixedLen:])
}
