package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	// ErrNoTopic: a topic does not exist, or is not visible to this user.
	// Create it, or correct the name.
	ErrNoTopic = errors.New("kafka: topic does not exist")
	// ErrNoPartition: a topic has no such partition.
	ErrNoPartition = errors.New("kafka: partition does not exist")
	// ErrUnstable: a transaction over the group's offsets is still open. Ask
	// again; it ends by itself within the transaction timeout.
	ErrUnstable = errors.New("kafka: committed offset is not stable yet")
	// ErrFewPartitions: a topic that exists has fewer partitions than needed.
	ErrFewPartitions = errors.New("kafka: topic has too few partitions")
)

// Admin asks and tells the cluster what is not records or commits. It has no
// goroutine and no state; its methods may be called concurrently, block until
// the answer and end with ctx.
type Admin struct {
	cl    *kgo.Client
	adm   *kadm.Client
	seeds []string
	user  string
}

// NewAdmin makes an Admin that talks through cl, which stays the caller's. user is who we are, for
// the commands in errors; "" if that is not known.
func NewAdmin(cl *kgo.Client, user string) *Admin {
	seeds, _ := cl.OptValue(kgo.SeedBrokers).([]string)
	return &Admin{cl: cl, adm: kadm.NewClient(cl), seeds: seeds, user: user}
}

// NewAdminClient makes a client for an Admin, outside of any group. The caller
// closes it.
func NewAdminClient(c Cluster) (*kgo.Client, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return newChecked(append(c.opts("admin", c.dialer()), c.Extra...), []rule{
		{"ConsumerGroup", kgo.ConsumerGroup, "", "an admin client must not join a group"},
	})
}

// Committed is a committed offset.
type Committed struct {
	Offset      int64 // the next to read
	LeaderEpoch int32 // -1: none
	Metadata    string
}

// Committed returns what a group has committed on the topics, all topics if
// none is named. Partitions without a commit are absent. Only stable offsets
// are returned: partitions whose offset waits for the end of a transaction are
// absent too, and are named in an error that wraps ErrUnstable, beside the
// others. A group that does not exist has no commits. A coordinator that is
// loading or moving, or that a fresh cluster has yet to make, is waited for until
// ctx ends, for coordinatorTime at most.
func (a *Admin) Committed(ctx context.Context, group string, topics ...string) (map[Partition]Committed, error) {
	if group == "" {
		return nil, errors.New("kafka: committed offsets: the group is empty")
	}
	resps, err := a.fetchOffsets(ctx, group)
	out := make(map[Partition]Committed)
	switch {
	case errors.Is(err, kerr.GroupIDNotFound):
		return out, nil
	case errors.Is(err, kerr.UnstableOffsetCommit):
		return out, fmt.Errorf("%w: group %q", ErrUnstable, group)
	case err != nil:
		return nil, fmt.Errorf("kafka: committed offsets of group %q: %w", group, a.Denied(err, kmsg.ACLOperationRead, kmsg.ACLResourceTypeGroup, group))
	}
	wanted := make(map[string]bool, len(topics))
	for _, t := range topics {
		wanted[t] = true
	}
	var errs []error
	for topic, ps := range resps {
		if len(topics) > 0 && !wanted[topic] {
			continue
		}
		for id, o := range ps {
			p := Partition{topic, id}
			switch {
			case errors.Is(o.Err, kerr.UnstableOffsetCommit):
				errs = append(errs, fmt.Errorf("%w: group %q, %s", ErrUnstable, group, p))
			case o.Err != nil:
				errs = append(errs, fmt.Errorf("kafka: committed offset of group %q, %s: %w", group, p, o.Err))
			case o.At >= 0:
				out[p] = Committed{Offset: o.At, LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata}
			}
		}
	}
	return out, errors.Join(errs...)
}

// coordinatorTime bounds the wait for a group's coordinator. The first need of one
// makes Kafka's topic of offsets, which took 0.3 to 1.3 s on Apache Kafka 4.
const coordinatorTime = 20 * time.Second

func (a *Admin) fetchOffsets(ctx context.Context, group string) (kadm.OffsetResponses, error) {
	end := time.Now().Add(coordinatorTime)
	for {
		resps, err := a.adm.FetchOffsets(kadm.RequireStable(ctx), group)
		away := errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.CoordinatorLoadInProgress) || errors.Is(err, kerr.NotCoordinator)
		if !away || time.Now().After(end) {
			return resps, err
		}
		again := time.NewTimer(100 * time.Millisecond)
		select {
		case <-ctx.Done():
			again.Stop()
			return resps, err
		case <-again.C:
		}
	}
}

// Bounds are the ends of a partition's log at one moment. The three are asked
// for one after the other, start first, so Start <= Stable <= End holds unless
// the log was truncated or trimmed meanwhile.
type Bounds struct {
	Start  int64 // the first offset that is still there
	Stable int64 // the last stable offset: read_committed readers stop here
	End    int64 // the next offset to be written: the high watermark
}

// Bounds returns the bounds of the partitions of the topics. What cannot be had, since a topic is
// missing or a partition has no leader now, is absent; an error beside the others says why.
func (a *Admin) Bounds(ctx context.Context, topics ...string) (map[Partition]Bounds, error) {
	out := make(map[Partition]Bounds)
	if len(topics) == 0 {
		return out, nil // to kadm no topic means all topics
	}
	there, err := a.Topics(ctx, topics...)
	if len(there) == 0 {
		return out, err
	}
	names := slices.Sorted(maps.Keys(there))
	answers := make(map[Partition]int)
	var first error // the others say the same of the same partitions
	questions := []struct {
		what string
		list listFunc
		set  func(*Bounds, int64)
	}{
		{"log start", a.adm.ListStartOffsets, func(b *Bounds, o int64) { b.Start = o }},
		{"last stable offset", a.adm.ListCommittedOffsets, func(b *Bounds, o int64) { b.Stable = o }},
		{"log end", a.adm.ListEndOffsets, func(b *Bounds, o int64) { b.End = o }},
	}
	for _, q := range questions {
		err := a.list(ctx, q.list, q.what, names, func(p Partition, o kadm.ListedOffset) {
			b := out[p]
			q.set(&b, o.Offset)
			out[p] = b
			answers[p]++
		})
		if first == nil {
			first = err
		}
	}
	for p, n := range answers {
		if n < len(questions) {
			delete(out, p)
		}
	}
	return out, errors.Join(err, first)
}

type listFunc func(context.Context, ...string) (kadm.ListedOffsets, error)

// list asks for one offset of each partition of the topics. It goes by kgo's
// cached metadata, so Topics is called first.
func (a *Admin) list(ctx context.Context, ask listFunc, what string, topics []string, each func(Partition, kadm.ListedOffset)) error {
	got, err := ask(ctx, topics...)
	var errs []error
	if err != nil {
		errs = append(errs, fmt.Errorf("kafka: %s of topics %q: %w", what, topics, err))
	}
	for topic, ps := range got {
		for id, o := range ps {
			switch {
			case o.Err != nil:
				errs = append(errs, fmt.Errorf("kafka: %s of %s/%d: %w", what, topic, id, o.Err))
			default:
				each(Partition{topic, id}, o)
			}
		}
	}
	return errors.Join(errs...)
}

// At says where in a log to start.
type At struct {
	kind atKind
	time time.Time
}

type atKind uint8

const (
	atEarliest atKind = iota + 1
	atLatest
	atTime
)

// Earliest is the first offset that is still there.
func Earliest() At { return At{kind: atEarliest} }

// Latest is the last stable offset: everything behind it is new to a
// read_committed reader. (The end of the log would skip what a transaction
// that is open now commits later.)
func Latest() At { return At{kind: atLatest} }

// AtTime is the first record whose timestamp is at or after t, to the
// millisecond, or Latest if there is none.
func AtTime(t time.Time) At { return At{kind: atTime, time: t} }

// Positions resolves At for each of the partitions. Topics and partitions that do not exist, or
// have no leader now, are an error; of several mistakes all are returned, joined, beside what could
// be resolved.
func (a *Admin) Positions(ctx context.Context, at At, partitions ...Partition) (map[Partition]int64, error) {
	seen := make(map[string]bool)
	var topics []string
	for _, p := range partitions {
		if !seen[p.Topic] {
			seen[p.Topic] = true
			topics = append(topics, p.Topic)
		}
	}
	out := make(map[Partition]int64, len(partitions))
	if len(topics) == 0 {
		return out, nil
	}
	if _, err := a.Topics(ctx, topics...); err != nil {
		return out, err
	}
	all := make(map[Partition]int64)
	var err error
	switch at.kind {
	case atEarliest:
		err = a.list(ctx, a.adm.ListStartOffsets, "log start", topics, func(p Partition, o kadm.ListedOffset) { all[p] = o.Offset })
	case atLatest:
		err = a.stable(ctx, topics, all)
	case atTime:
		err = a.atTime(ctx, at.time, topics, all)
	default:
		err = errors.New("kafka: positions: the zero At; use Earliest, Latest or AtTime")
	}
	var errs []error
	for _, p := range partitions {
		switch o, ok := all[p]; {
		case ok:
			out[p] = o
		case err == nil:
			errs = append(errs, fmt.Errorf("%w: %s", ErrNoPartition, p))
		}
	}
	if len(out) < len(partitions) {
		errs = append(errs, err) // else it is about partitions that nobody asked for
	}
	return out, errors.Join(errs...)
}

func (a *Admin) stable(ctx context.Context, topics []string, into map[Partition]int64) error {
	return a.list(ctx, a.adm.ListCommittedOffsets, "last stable offset", topics,
		func(p Partition, o kadm.ListedOffset) { into[p] = o.Offset })
}

// atTime resolves a time. Where nothing is that late kadm answers the end of
// the log, with timestamp -1; the last stable offset takes its place, and it
// was asked for first, so that no record written meanwhile is skipped.
func (a *Admin) atTime(ctx context.Context, t time.Time, topics []string, into map[Partition]int64) error {
	latest := make(map[Partition]int64)
	err := a.stable(ctx, topics, latest)
	// Negative times have meanings of their own in the protocol; no record
	// that Kafka accepts is older than 1970.
	ms := max(t.UnixMilli(), 0)
	ask := func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
		return a.adm.ListOffsetsAfterMilli(ctx, ms, topics...)
	}
	found := a.list(ctx, ask, "offset at "+t.UTC().Format(time.RFC3339), topics, func(p Partition, o kadm.ListedOffset) {
		last, ok := latest[p]
		switch {
		case o.Timestamp >= 0:
			into[p] = o.Offset
		case ok:
			into[p] = last
		}
	})
	return errors.Join(err, found)
}
