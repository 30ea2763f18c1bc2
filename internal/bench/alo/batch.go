package alo

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// valueSum is how a value counts in a checksum: its first eight bytes, which are random.
func valueSum(v []byte) uint64 {
	if len(v) < 8 {
		return uint64(len(v)) + 1
	}
	return binary.LittleEndian.Uint64(v)
}

// NewBatch makes a record batch of n records with keys of 8 bytes and values of size bytes, half
// of them random, and the sum of their values. It is the same for the same arguments.
func NewBatch(n, size int) (batch []byte, sum uint64) {
	rng := rand.New(rand.NewPCG(1, uint64(n)<<32|uint64(size)))
	var recs, value []byte
	for i := range n {
		value = value[:0]
		for len(value) < size/2 {
			value = binary.LittleEndian.AppendUint64(value, rng.Uint64())
		}
		for len(value) < size {
			value = append(value, byte('a'+len(value)%8))
		}
		value = value[:size]
		sum += valueSum(value)
		r := kmsg.Record{OffsetDelta: int32(i), Key: binary.BigEndian.AppendUint64(nil, rng.Uint64()), Value: value}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // of what follows the length, which takes one byte while it is 0
		recs = r.AppendTo(recs)
	}
	const time2020 = 1_577_836_800_000
	rb := kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(n - 1), FirstTimestamp: time2020, MaxTimestamp: time2020,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(n), Records: recs}
	batch = rb.AppendTo(nil)
	// Length counts what follows it, the checksum covers everything from the attributes on.
	binary.BigEndian.PutUint32(batch[8:], uint32(len(batch)-12))
	binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli)))
	return batch, sum
}
