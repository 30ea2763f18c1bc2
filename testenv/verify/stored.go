package verify

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetsTopic is where Kafka keeps the positions of groups.
const offsetsTopic = "__consumer_offsets"

// readStored opens the log of a group. A commit in a transaction counts from the end of that on, and only if nothing was
// stored behind it meanwhile; both is what the broker does. Old entries may be compacted away on a long-lived broker.
func readStored(ctx context.Context, cl *kgo.Client, group string) (iter.Seq2[Stored, error], error) {
	_, n, err := describe(ctx, cl, offsetsTopic)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", offsetsTopic, err)
	}
	logs, err := readLogs(ctx, cl, offsetsTopic)
	if err != nil {
		return nil, err
	}
	if n == 0 || len(logs) != n {
		return nil, fmt.Errorf("%s: %d partitions", offsetsTopic, len(logs))
	}
	l := &logs[groupPartition(group, n)]
	return func(yield func(Stored, error) bool) {
		g := &groupLog{group: group, log: l, pending: map[int64][]change{}, at: map[Partition]int64{}}
		for e, err := range l.Entries {
			if err == nil {
				err = g.read(e)
			}
			if err != nil {
				yield(Stored{}, err)
				return
			}
			for _, s := range g.out {
				if !yield(s, nil) {
					return
				}
			}
			g.out = g.out[:0]
		}
	}, nil
}

// groupPartition is the partition of offsetsTopic that holds a group: Java's hash of its name, without its sign (Kafka's
// Utils.abs, which makes 0 of the number that has no positive twin).
func groupPartition(group string, n int) int {
	var h int32
	for _, u := range utf16.Encode([]rune(group)) {
		h = 31*h + int32(u)
	}
	if h == math.MinInt32 {
		return 0
	}
	return int(max(h, -h)) % n
}

// groupLog makes positions and generations of the records of offsetsTopic.
type groupLog struct {
	group   string
	log     *Log
	pending map[int64][]change  // of open transactions, by producer
	at      map[Partition]int64 // where the position that counts was written
	out     []Stored
}

// change is a position, and where it was written.
type change struct {
	offset int64
	commit *Commit
}

func (g *groupLog) read(e Entry) error {
	switch e.State {
	case Aborted, Open:
		return nil
	case Marker:
		changes := g.pending[e.ProducerID]
		delete(g.pending, e.ProducerID)
		if commit, ok := committing(e.Record); ok && commit {
			for _, c := range changes {
				g.apply(c, e)
			}
		}
		return nil
	}
	if len(e.Key) < 2 {
		return nil
	}
	switch version := int16(e.Key[0])<<8 | int16(e.Key[1]); version {
	case 0, 1:
		return g.commit(e)
	case 2:
		return g.generation(e)
	}
	return nil // of groups of another protocol
}

func (g *groupLog) ref(offset int64) string {
	return fmt.Sprintf("%s/%d@%d", g.log.Topic, g.log.Partition, offset)
}

func (g *groupLog) broken(e Entry, err error) error {
	return fmt.Errorf("verify: %s: %w", g.ref(e.Offset), err)
}

func (g *groupLog) commit(e Entry) error {
	k := kmsg.NewOffsetCommitKey()
	if err := k.ReadFrom(e.Key); err != nil {
		return g.broken(e, err)
	}
	if k.Group != g.group {
		return nil
	}
	c := change{e.Offset, &Commit{Topic: k.Topic, Partition: k.Partition, Next: -1}}
	if e.Value != nil {
		v := kmsg.NewOffsetCommitValue()
		if err := v.ReadFrom(e.Value); err != nil {
			return g.broken(e, err)
		}
		c.commit.Next, c.commit.Metadata = v.Offset, v.Metadata
	}
	if e.Attrs.IsTransactional() {
		g.pending[e.ProducerID] = append(g.pending[e.ProducerID], c)
		return nil
	}
	g.apply(c, e)
	return nil
}

// apply makes a position count, at the moment of record e.
func (g *groupLog) apply(c change, e Entry) {
	p := Partition{c.commit.Topic, c.commit.Partition}
	if at, ok := g.at[p]; ok && at > c.offset {
		return
	}
	g.at[p] = c.offset
	// The broker notes milliseconds: it may have been up to the end of this one.
	g.out = append(g.out, Stored{At: e.Timestamp.Truncate(time.Millisecond).Add(time.Millisecond - 1), Ref: g.ref(c.offset), Commit: c.commit})
}

func (g *groupLog) generation(e Entry) error {
	k := kmsg.NewGroupMetadataKey()
	if err := k.ReadFrom(e.Key); err != nil {
		return g.broken(e, err)
	}
	if k.Group != g.group || e.Value == nil {
		return nil
	}
	v := kmsg.NewGroupMetadataValue()
	if err := v.ReadFrom(e.Value); err != nil {
		return g.broken(e, err)
	}
	out := &Generation{Number: v.Generation, Members: map[string][]Partition{}}
	for _, m := range v.Members {
		out.Members[m.MemberID] = nil
		if len(m.Assignment) == 0 {
			continue
		}
		a := kmsg.NewConsumerMemberAssignment()
		if err := a.ReadFrom(m.Assignment); err != nil {
			return g.broken(e, errors.Join(fmt.Errorf("assignment of member %s", m.MemberID), err))
		}
		for _, t := range a.Topics {
			for _, n := range t.Partitions {
				out.Members[m.MemberID] = append(out.Members[m.MemberID], Partition{t.Topic, n})
			}
		}
	}
	g.out = append(g.out, Stored{At: e.Timestamp.Truncate(time.Millisecond), Ref: g.ref(e.Offset), Generation: out})
	return nil
}
