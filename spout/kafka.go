package spout

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/killick-io/killick"
)

// KafkaSource reads topics of Kafka in the topology's consumer group. Only committed data is
// read (read_committed). Each record is a root; a partition's committed offset passes it only
// when its whole tree has ended.
type KafkaSource struct {
	// Topics are read, or all topics whose names match Pattern (RE2). One of them must be
	// set. Topics that killick makes itself (dead letters) never match a pattern.
	Topics  []string
	Pattern string
	// Start is where a partition begins that has no committed offset. It is committed at once,
	// so that a crash before the first record does not move it. Partitions that are born later
	// begin at their beginning. Default: Earliest().
	Start Position
	// Until makes the run a bounded one: each partition ends there, and the worker drains,
	// commits and exits 0 when all have. Latest() is the end at start-up. Default: never.
	Until Position
	// Lost is where a partition goes on when its committed offset is not in the log any more.
	// Default: the partition stops, and says so.
	Lost Position
	// Codec makes values of the raw bytes. What it cannot decode is a dead letter at once.
	// Default: bytes.
	Codec killick.Codec
}

// Kafka reads the named topics, with the defaults of [KafkaSource].
func Kafka(topics ...string) KafkaSource { return KafkaSource{Topics: topics} }

// SourceInfo implements [killick.Source]. Names and the pattern itself are checked by the
// topology's validation, with those of other spouts.
func (k KafkaSource) SourceInfo() (killick.SourceInfo, error) {
	var errs []error
	switch {
	case len(k.Topics) == 0 && k.Pattern == "":
		errs = append(errs, errors.New("spout.KafkaSource: set Topics or Pattern"))
	case len(k.Topics) > 0 && k.Pattern != "":
		errs = append(errs, errors.New("spout.KafkaSource: both Topics and Pattern are set; use two spouts, or one pattern"))
	}
	if k.Until.kind == earliest {
		errs = append(errs, errors.New("spout.KafkaSource: Until is Earliest(): the run would read nothing; use Latest, At or Offsets"))
	}
	if k.Lost.kind == offsets {
		errs = append(errs, errors.New("spout.KafkaSource: Lost cannot be Offsets; use Earliest, Latest or At"))
	}
	errs = append(errs, k.check("Start", k.Start), k.check("Until", k.Until))
	if k.Start.kind == at && k.Until.kind == at && !k.Start.at.Before(k.Until.at) {
		errs = append(errs, fmt.Errorf("spout.KafkaSource: Start is %v, which is not before Until, %v", k.Start, k.Until))
	}
	return killick.SourceInfo{Topics: k.Topics, Pattern: k.Pattern, Codec: k.Codec}, errors.Join(errs...)
}

// check looks for offsets that no partition of the source can have.
func (k KafkaSource) check(field string, p Position) error {
	var errs []error
	wrong := func(o killick.Origin, what string) {
		errs = append(errs, fmt.Errorf("spout.KafkaSource: %s: offset %d of topic %q, partition %d: %s", field, o.Offset, o.Topic, o.Partition, what))
	}
	switch {
	case p.kind == at && p.at.IsZero():
		errs = append(errs, fmt.Errorf("spout.KafkaSource: %s is At the zero time; give it a time", field))
	case p.kind == offsets && len(p.offs) == 0:
		errs = append(errs, fmt.Errorf("spout.KafkaSource: %s is Offsets without any partition; list at least one", field))
	}
	type partition struct {
		topic string
		id    int32
	}
	seen := map[partition]bool{}
	for _, o := range p.offs {
		if o.Offset < 0 || o.Partition < 0 {
			wrong(o, "neither may be negative")
		}
		if len(k.Topics) > 0 && !slices.Contains(k.Topics, o.Topic) {
			wrong(o, "the topic is not among Topics")
		}
		if at := (partition{o.Topic, o.Partition}); seen[at] {
			wrong(o, "the partition is listed twice")
		} else {
			seen[at] = true
		}
	}
	return errors.Join(errs...)
}

// Position is a place in each partition's log. The zero value is "not set".
type Position struct {
	kind positionKind
	at   time.Time
	offs []killick.Origin
}

type positionKind uint8

const (
	unset positionKind = iota
	earliest
	latest
	at
	offsets
)

// Earliest is the beginning of the log.
func Earliest() Position { return Position{kind: earliest} }

// Latest is the end of the log: the last stable offset, when the partition is first seen.
func Latest() Position { return Position{kind: latest} }

// At is the first record whose timestamp is t or later; the end, where there is none.
func At(t time.Time) Position { return Position{kind: at, at: t} }

// Offsets is an offset for each of the partitions listed. A partition that is not listed
// starts at its beginning, and as an end has none.
func Offsets(at ...killick.Origin) Position { return Position{kind: offsets, offs: at} }

// IsSet reports whether the position is not the zero value.
func (p Position) IsSet() bool { return p.kind != unset }

// IsEarliest reports whether p is the beginning of the log.
func (p Position) IsEarliest() bool { return p.kind == earliest }

// IsLatest reports whether p is the end of the log.
func (p Position) IsLatest() bool { return p.kind == latest }

// Time returns what At was given.
func (p Position) Time() (t time.Time, ok bool) { return p.at, p.kind == at }

// Offset returns what Offsets was given for a partition; listed is false for another kind of
// position and for a partition that is not listed.
func (p Position) Offset(topic string, partition int32) (offset int64, listed bool) {
	if p.kind != offsets {
		return 0, false
	}
	for _, o := range p.offs {
		if o.Topic == topic && o.Partition == partition {
			return o.Offset, true
		}
	}
	return 0, false
}

// String names the position for logs.
func (p Position) String() string {
	switch p.kind {
	case earliest:
		return "earliest"
	case latest:
		return "latest"
	case at:
		return "at " + p.at.Format(time.RFC3339)
	case offsets:
		return fmt.Sprintf("%d given offsets", len(p.offs))
	}
	return "unset"
}
