package kafka

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Role says what a producer is for. Each role has a client of its own: kgo
// blocks a whole client when its buffer is full, so outputs that wait for a
// slow topic must not hold up the dead letters that would let them end.
type Role uint8

const (
	// Outputs are the records of sinks.
	Outputs Role = iota + 1
	// DeadLetters are few and waited for: a root ends when its dead letter
	// is durable.
	DeadLetters
)

// String is the role's part of the client id.
func (r Role) String() string {
	switch r {
	case Outputs:
		return "outputs"
	case DeadLetters:
		return "dead-letters"
	}
	return fmt.Sprintf("Role(%d)", uint8(r))
}

// Producer configures a producer client. Acks are always all and writes are
// always idempotent.
//
// There is no delivery timeout here: kgo's counts from a record's own timestamp,
// so that a record with an old one, as outputs of a backlog have, fails before its
// first try. A deadline in the record's Context does the same from its Produce.
type Producer struct {
	Role Role
	// ManualPartition sends each record to its Partition field. Default: by
	// key, murmur2 of the key as Java's client does (an empty key is a key);
	// records without a key are spread by size.
	ManualPartition bool
	// Linger is how long a batch waits for company. Negative: not at all.
	// Default: 5ms for outputs, none for dead letters.
	Linger time.Duration
	// MaxRecords and MaxBytes bound what waits in the client; beyond them
	// Produce blocks. Default: 50000 and 64 MiB for outputs, 1000 and 16 MiB
	// for dead letters. A single record larger than MaxBytes is refused.
	MaxRecords int
	MaxBytes   int
	// MaxMessageBytes bounds one batch; a record that does not fit fails at
	// once with MESSAGE_TOO_LARGE. Default: 1000012, Kafka's own.
	MaxMessageBytes int32
}

func (p Producer) withDefaults() Producer {
	switch p.Role {
	case Outputs:
		def(&p.Linger, 5*time.Millisecond)
		def(&p.MaxRecords, 50_000)
		def(&p.MaxBytes, 64<<20)
	case DeadLetters:
		def(&p.MaxRecords, 1000)
		def(&p.MaxBytes, 16<<20)
	}
	def(&p.MaxMessageBytes, 1_000_012)
	p.Linger = max(p.Linger, 0)
	return p
}

func (p Producer) validate() error {
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("kafka: producer: "+format, args...))
	}
	if p.Role != Outputs && p.Role != DeadLetters {
		fail("role %d is unknown; use Outputs or DeadLetters", p.Role)
	}
	if p.MaxRecords < 1 {
		fail("MaxRecords is %d; at least 1 is needed", p.MaxRecords)
	}
	if p.MaxBytes < int(p.MaxMessageBytes) {
		fail("MaxBytes %d is less than MaxMessageBytes %d: the largest record could never be sent", p.MaxBytes, p.MaxMessageBytes)
	}
	return errors.Join(errs...)
}

func (p Producer) opts() []kgo.Opt {
	partitioner := kgo.UniformBytesPartitioner(64<<10, true, true, nil)
	if p.ManualPartition {
		partitioner = kgo.ManualPartitioner()
	}
	return []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(p.Linger),
		// A broker before 0.10 would refuse lz4 frames; nothing that speaks
		// idempotence does.
		kgo.ProducerBatchCompression(kgo.Lz4Compression(), kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(p.MaxMessageBytes),
		kgo.MaxBufferedRecords(p.MaxRecords),
		kgo.MaxBufferedBytes(p.MaxBytes),
		kgo.RecordPartitioner(partitioner),
	}
}

// NewProducer makes a producer client for a role. The caller owns it: flush,
// then Close. Produce blocks at the buffer limits; promises run one at a time
// on one goroutine of the client and must not block.
func NewProducer(c Cluster, p Producer) (*kgo.Client, error) {
	p = p.withDefaults()
	if err := errors.Join(c.validate(), p.validate()); err != nil {
		return nil, err
	}
	opts := append(c.opts(p.Role.String(), c.dialer()), p.opts()...)
	return newChecked(append(opts, c.Extra...), []rule{
		{"RecordDeliveryTimeout", kgo.RecordDeliveryTimeout, time.Duration(0), "it counts from the record's timestamp: old records would never be written"},
		{"RequiredAcks", kgo.RequiredAcks, kgo.AllISRAcks(), "an acked output must survive its leader"},
		{"DisableIdempotentWrite", kgo.DisableIdempotentWrite, false, "retries would duplicate and reorder records"},
		{"AllowIdempotentProduceCancellation", kgo.AllowIdempotentProduceCancellation, false, "a cancelled record may be written all the same"},
		{"AlwaysRetryEOF", kgo.AlwaysRetryEOF, true, "two closed connections would fail an output"},
		{"TransactionalID", kgo.TransactionalID, "", "outputs outside of a slot are not transactional"},
		{"ConsumerGroup", kgo.ConsumerGroup, "", "a producer must not join a group"},
	})
}
