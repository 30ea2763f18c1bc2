package verify

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrHistory is under every error of Check that speaks of what it was given: the history cannot be judged. Mend what
// collects it, or the rules; the run itself may be good or bad.
var ErrHistory = errors.New("verify: history unusable")

// Guarantee is what the run promised.
type Guarantee uint8

const (
	// AtLeastOnce: a position passes a record when what the record wants is there.
	AtLeastOnce Guarantee = iota
	// ExactlyOnce: of the outputs, a read_committed reader sees all of a record or none, each once.
	ExactlyOnce
	// AtMostOnce: a record's position is committed and confirmed before it is processed; up to MaxLost may be lost.
	AtMostOnce
)

// Ordering is the order in which records have their effects and outputs.
type Ordering uint8

const (
	Unordered    Ordering = iota
	PerKey                // of one key in one partition; records without a key are not ordered
	PerPartition          // of one partition
)

// Rules are what a run is held against. The zero value asks for one effect of each record, nothing twice, and all
// partitions committed to their end.
type Rules struct {
	// Want says what an input record must leave behind. It is called once for each input record that counts, in the order
	// of offsets. Records that the run was not to see, as those before a start at the end of the log, want nothing.
	// Default: one effect.
	Want func(in *kgo.Record) Want

	// ID is what event files call an input record (field id). Events that have none are not compared. Default: nothing is.
	ID func(in *kgo.Record) string

	// Made says what an output was made from and how it reads in the terms of Want.Outputs. An error makes it a Foreign
	// finding. Default: outputs are known by topic, key and value alone, which must then differ for each that is wanted.
	Made func(out *kgo.Record) (Made, error)

	// Letter says the same of a dead letter. Default: the headers of killick are read; key, value and headers must be the
	// record's own.
	Letter func(letter *kgo.Record) (Made, error)

	// Select picks the effects that count, in runs that note several for a root. Default: all.
	Select func(*Event) bool

	Guarantee Guarantee
	Order     Ordering

	// Running: the run has not come to its end; records at and above the committed position may have nothing yet.
	Running bool

	// ReadUncommitted: the topology reads its inputs so; records of aborted transactions count like any other.
	ReadUncommitted bool

	// Holes: input logs are compacted, or their beginning is deleted while the run goes on; an effect where no record is
	// (any more) is not held against the run, but counted.
	Holes bool

	// Duplicates bounds what happens more than once.
	Duplicates Duplicates

	// MaxLost bounds the records without an outcome at most once.
	MaxLost int64

	// Resets are the positions to which somebody set the group back on purpose.
	Resets []Reset

	// Exclusive: after a generation has given a partition to another member, and that one has begun, its old owner has no
	// effects there any more. True for planned moves; a process that was frozen may break it. Needs generations.
	Exclusive bool

	// MaxStall is how long the position of a partition that is behind its end may stand still. 0: not judged.
	MaxStall time.Duration

	// Healed are moments from which on the run must catch up: within the time given, positions pass what was the end then.
	Healed []Healing

	// Timed: the timestamps of outputs are the moment of their writing (message.timestamp.type=LogAppendTime, or a
	// producer that sets none, on a clock that agrees with the broker's up to Skew). Outputs are then held against each
	// stored commit, not against samples alone.
	Timed bool

	// Skew is by how much the broker's clock may differ from that of the processes. Default: 0, one machine.
	Skew time.Duration

	// Listed is how many findings of a kind the report names; all are counted. Default: 20.
	Listed int
}

// Want is what an input record must leave behind. The zero Want asks for nothing: a record that is filtered out.
type Want struct {
	Effect  bool     // a side effect: an effect line in an event file
	Outputs []Output // records in output topics
	Dead    bool     // a dead letter, and nothing of the above
	MayDie  bool     // a dead letter in place of the above is fine, too
}

// Output is a record that is wanted. nil and empty are different keys and values.
type Output struct {
	Topic      string
	Key, Value []byte
}

// Made says what a record was made from.
type Made struct {
	Topic     string
	Partition int32
	Offset    int64

	// Key and Value are compared with Output's, or with the input record's if it is a dead letter.
	Key, Value []byte
}

// Duplicates bounds what happens more than once. 0 is none, a negative number any.
type Duplicates struct {
	// PerCrash bounds, for each life of a process that was killed or frozen, the effects that others repeat (and, of a frozen
	// one, that it repeats after it thaws).
	PerCrash int64
	// Other bounds all other effects beyond the first of their records: planned moves, stops, losses.
	Other int64
	// Outputs and DeadLetters bound those beyond the first.
	Outputs, DeadLetters int64
}

// Reset is a position that was set on purpose.
type Reset struct {
	Topic     string
	Partition int32
	To        int64 // -1: deleted
}

// Healing is a moment from which on the run must catch up.
type Healing struct {
	At     time.Time
	Within time.Duration
}

func (r *Rules) withDefaults() Rules {
	d := *r
	if d.Want == nil {
		d.Want = func(*kgo.Record) Want { return Want{Effect: true} }
	}
	if d.Listed == 0 {
		d.Listed = 20
	}
	return d
}

func (r *Rules) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("verify: Rules."+format, args...))
	}
	if r.Guarantee > AtMostOnce {
		bad("Guarantee: %d is none", r.Guarantee)
	}
	if r.Order > PerPartition {
		bad("Order: %d is none", r.Order)
	}
	if r.Listed < 0 {
		bad("Listed: %d; at least 1, or 0 for the default", r.Listed)
	}
	if r.Skew < 0 || r.MaxStall < 0 {
		bad("Skew %v, MaxStall %v: not below 0", r.Skew, r.MaxStall)
	}
	if r.MaxLost != 0 && (r.Guarantee != AtMostOnce || r.MaxLost < 0) {
		bad("MaxLost: %d: records may be lost at most once only, and not fewer than none", r.MaxLost)
	}
	if len(r.Resets) > 64 {
		bad("Resets: %d of them; at most 64", len(r.Resets))
	}
	for i, h := range r.Healed {
		if h.At.IsZero() || h.Within <= 0 {
			bad("Healed[%d]: at %v within %v: both are needed", i, h.At, h.Within)
		}
	}
	return errors.Join(errs...)
}
