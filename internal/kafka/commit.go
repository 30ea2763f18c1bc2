package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// MaxMetadata is the limit for the metadata of a commit, in UTF-16 units:
// Kafka's offset.metadata.max.bytes counts Java characters, not bytes.
const MaxMetadata = 4096

var (
	// ErrNoLease: the lease has no member or no generation. Nothing was sent;
	// wait until an assignment has renewed the lease.
	ErrNoLease = errors.New("kafka: commit without a lease")
	// ErrBadPosition: a position cannot be sent as it is. A broken invariant
	// of the caller; trying again does not help.
	ErrBadPosition = errors.New("kafka: commit of an impossible position")
	// ErrNoAnswer: the answer lacks the partition. A commit may be
	// stored or not; commit again from the current state.
	ErrNoAnswer = errors.New("kafka: the broker's answer lacks the partition")
)

// Lease is what allows a member to commit for the partitions it owns. It is
// taken from an Assigned callback and from nothing else: a generation read
// later could be one in which the partition belongs to somebody else, and the
// broker checks the member, not ownership (KIP-1287 describes the gap).
type Lease struct {
	Member     string
	Generation int32
	// Instance is the static member's id, nil for a dynamic one. It must be
	// sent whenever there is one: it alone fences the former holder.
	Instance *string
}

// Position is what to commit for one partition.
type Position struct {
	Topic string
	// TopicID is needed by brokers from 4.1 on, whose OffsetCommit goes by
	// id alone; older ones go by name.
	TopicID   [16]byte
	Partition int32
	Offset    int64 // the next to read
	// LeaderEpoch of the record before Offset; -1 if not known.
	LeaderEpoch int32
	Metadata    string
}

// Result is what became of one position. Err is nil when it is stored, else
// the partition's *kerr.Error or a sentinel of this file; see Refusal.
type Result struct {
	Position Position
	Err      error
}

// Commit stores positions of a group under a lease and reports on each of
// them, in the same order. It is the only place in killick that builds an
// OffsetCommit: kgo's own commit calls wait for a running join and then send
// the new generation, with offsets computed under the old one.
//
// A returned error means that no answer came: the positions may be stored or
// not, and the request may even be applied later, after a following one. So
// the next commit carries the state of that moment, not these positions again.
// Without an error every partition's code is in its Result; positions that
// could not be stored anyway (negative offset, metadata over MaxMetadata) are
// refused here, without holding up the others.
//
// It blocks until the answer, through changes of coordinator, and ends with
// ctx. The client need not be the member's own.
func Commit(ctx context.Context, cl *kgo.Client, group string, lease Lease, ps []Position) ([]Result, error) {
	if err := lease.check(group); err != nil {
		return nil, err
	}
	results := make([]Result, len(ps))
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID = group, lease.Member, lease.Generation, lease.Instance
	topics := make(map[string]int, 1)        // name to index in req.Topics
	sent := make(map[Partition]int, len(ps)) // to index in results
	for i, p := range ps {
		results[i] = Result{Position: p, Err: p.check()}
		if results[i].Err != nil {
			continue
		}
		part := Partition{p.Topic, p.Partition}
		if _, twice := sent[part]; twice {
			return nil, fmt.Errorf("%w: %s is there twice", ErrBadPosition, part)
		}
		sent[part] = i
		n, ok := topics[p.Topic]
		if !ok {
			n = len(req.Topics)
			topics[p.Topic] = n
			rt := kmsg.NewOffsetCommitRequestTopic()
			rt.Topic, rt.TopicID = p.Topic, p.TopicID
			req.Topics = append(req.Topics, rt)
		}
		rt := &req.Topics[n]
		if rt.TopicID != p.TopicID {
			return nil, fmt.Errorf("%w: topic %q with two ids", ErrBadPosition, p.Topic)
		}
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch = p.Partition, p.Offset, p.LeaderEpoch
		rp.Metadata = kmsg.StringPtr(p.Metadata)
		rt.Partitions = append(rt.Partitions, rp)
	}
	if len(sent) == 0 {
		return results, nil
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("kafka: commit of group %q, generation %d: %w", group, lease.Generation, err)
	}
	// The answer names topics as the request's version did: by name or id.
	names := make(map[[16]byte]string, len(req.Topics))
	for _, rt := range req.Topics {
		names[rt.TopicID] = rt.Topic
	}
	for _, rt := range resp.Topics {
		name := rt.Topic
		if name == "" {
			name = names[rt.TopicID]
		}
		for _, rp := range rt.Partitions {
			part := Partition{name, rp.Partition}
			i, ok := sent[part]
			if !ok {
				continue
			}
			delete(sent, part)
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				results[i].Err = fmt.Errorf("kafka: commit of %s at %d: %w", part, results[i].Position.Offset, err)
			}
		}
	}
	for part, i := range sent {
		results[i].Err = fmt.Errorf("%w: %s", ErrNoAnswer, part)
	}
	return results, nil
}

// check refuses leases that would not fence. A commit of ("", -1) is what
// tools send: an empty group accepts it from anybody.
func (l Lease) check(group string) error {
	switch {
	case group == "":
		return fmt.Errorf("%w: the group is empty", ErrNoLease)
	case l.Member == "":
		return fmt.Errorf("%w: group %q: the member id is empty", ErrNoLease, group)
	case l.Generation < 0:
		return fmt.Errorf("%w: group %q: generation %d", ErrNoLease, group, l.Generation)
	case l.Instance != nil && *l.Instance == "":
		return fmt.Errorf("%w: group %q: the instance id is empty; nil means none", ErrNoLease, group)
	}
	return nil
}

func (p Position) check() error {
	switch {
	case p.Topic == "":
		return fmt.Errorf("%w: partition %d of a topic without a name", ErrBadPosition, p.Partition)
	case p.Partition < 0:
		return fmt.Errorf("%w: topic %q, partition %d", ErrBadPosition, p.Topic, p.Partition)
	case p.Offset < 0:
		return fmt.Errorf("%w: %s/%d at offset %d", ErrBadPosition, p.Topic, p.Partition, p.Offset)
	}
	if n := utf16Units(p.Metadata); n > MaxMetadata {
		return fmt.Errorf("%w: %s/%d at %d: metadata of %d UTF-16 units; %d are allowed: %w",
			ErrBadPosition, p.Topic, p.Partition, p.Offset, n, MaxMetadata, kerr.OffsetMetadataTooLarge)
	}
	return nil
}

// utf16Units is the length of s as Java counts it. An invalid byte counts as
// the replacement character that Java would read.
func utf16Units(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xFFFF {
			n++
		}
	}
	return n
}
