package embedded

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

// helperPartitioner obeys Record.Partition, and where that is negative hashes
// the key as Java's client does.
func helperPartitioner() kgo.Partitioner { return manualOrKey{} }

type manualOrKey struct{}

func (manualOrKey) ForTopic(topic string) kgo.TopicPartitioner {
	return manualOrKeyTopic{kgo.StickyKeyPartitioner(nil).ForTopic(topic)}
}

type manualOrKeyTopic struct{ byKey kgo.TopicPartitioner }

func (manualOrKeyTopic) RequiresConsistency(*kgo.Record) bool { return true }

func (m manualOrKeyTopic) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return m.byKey.Partition(r, n)
}

// Produce writes records and waits for all of them. A record goes to its own
// Partition field, which is 0 when not set; with -1 its key decides, as with
// Java's client. The topic must exist. The records get their offsets filled in.
func (b *Broker) Produce(ctx context.Context, records ...*kgo.Record) error {
	cl, err := b.kgo()
	if err != nil {
		return err
	}
	var errs []error
	for _, res := range cl.ProduceSync(ctx, records...) {
		if res.Err != nil {
			errs = append(errs, fmt.Errorf("embedded: produce to %s/%d: %w", res.Record.Topic, res.Record.Partition, res.Err))
		}
	}
	return errors.Join(errs...)
}

// Offset is what a group has committed for a partition.
type Offset struct {
	Offset      int64 // the next to read
	LeaderEpoch int32 // -1: none
	Metadata    string
}

// Committed returns what a group has committed on a topic, by partition;
// partitions without a commit are absent. Offsets in an open transaction do
// not show. A group or topic that does not exist has no commits.
func (b *Broker) Committed(ctx context.Context, group, topic string) (map[int32]Offset, error) {
	cl, err := b.kgo()
	if err != nil {
		return nil, err
	}
	resps, err := kadm.NewClient(cl).FetchOffsets(ctx, group)
	if err == nil {
		err = resps.Error()
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return map[int32]Offset{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("embedded: offsets of group %q: %w", group, err)
	}
	out := make(map[int32]Offset)
	for p, o := range resps[topic] {
		if o.At >= 0 {
			out[p] = Offset{Offset: o.At, LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata}
		}
	}
	return out, nil
}

// WaitCommitted returns when the group has committed at least these offsets,
// by partition, or with an error that says what was missing when ctx ended.
func (b *Broker) WaitCommitted(ctx context.Context, group, topic string, atLeast map[int32]int64) error {
	// Plain commits signal the recorder; offsets of a transaction appear at
	// its end, which nothing signals, hence the tick.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	r := b.wire.rec
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		got, err := b.Committed(ctx, group, topic)
		if err != nil && ctx.Err() == nil {
			return err
		}
		missing := ""
		for _, p := range slices.Sorted(maps.Keys(atLeast)) {
			if o, ok := got[p]; !ok {
				missing += fmt.Sprintf(" %d: nothing, want %d;", p, atLeast[p])
			} else if o.Offset < atLeast[p] {
				missing += fmt.Sprintf(" %d: at %d, want %d;", p, o.Offset, atLeast[p])
			}
		}
		if missing == "" && err == nil {
			return nil
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("embedded: group %q on %s:%s %w", group, topic, missing, ctx.Err())
		}
	}
}

// Ends are the bounds of a partition's log.
type Ends struct {
	Start  int64 // the first offset that is still there
	Stable int64 // the last stable offset: read_committed readers stop here
	End    int64 // the next offset to be written (the high watermark)
}

// End returns the bounds of all partitions of a topic.
func (b *Broker) End(ctx context.Context, topic string) (map[int32]Ends, error) {
	cl, err := b.kgo()
	if err != nil {
		return nil, err
	}
	adm := kadm.NewClient(cl)
	out := make(map[int32]Ends)
	for _, f := range []struct {
		list func(context.Context, ...string) (kadm.ListedOffsets, error)
		set  func(*Ends, int64)
	}{
		{adm.ListStartOffsets, func(e *Ends, o int64) { e.Start = o }},
		{adm.ListCommittedOffsets, func(e *Ends, o int64) { e.Stable = o }},
		{adm.ListEndOffsets, func(e *Ends, o int64) { e.End = o }},
	} {
		got, err := f.list(ctx, topic)
		if err == nil {
			err = got.Error()
		}
		if err != nil {
			return nil, fmt.Errorf("embedded: offsets of topic %q: %w", topic, err)
		}
		for p, o := range got[topic] {
			e := out[p]
			f.set(&e, o.Offset)
			out[p] = e
		}
	}
	return out, nil
}

// ReadAll returns what a read_committed reader sees of a topic now: all
// records up to the last stable offset, by partition and offset. It reads the
// raw log outside of any group, so it is independent of the code under test,
// and it ends also behind aborted data and compacted tails.
func (b *Broker) ReadAll(ctx context.Context, topic string) ([]*kgo.Record, error) {
	cl, err := b.kgo()
	if err != nil {
		return nil, err
	}
	ends, err := b.End(ctx, topic)
	if err != nil {
		return nil, err
	}
	md, err := kadm.NewClient(cl).Metadata(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("embedded: metadata of topic %q: %w", topic, err)
	}
	detail := md.Topics[topic]
	var out []*kgo.Record
	for _, p := range slices.Sorted(maps.Keys(ends)) {
		rs, err := readPartition(ctx, cl, topic, detail.ID, p, detail.Partitions[p].Leader, ends[p])
		if err != nil {
			return nil, fmt.Errorf("embedded: read %s/%d: %w", topic, p, err)
		}
		out = append(out, rs...)
	}
	return out, nil
}

func readPartition(ctx context.Context, cl *kgo.Client, topic string, id [16]byte, partition, leader int32, ends Ends) ([]*kgo.Record, error) {
	var out []*kgo.Record
	for next := ends.Start; next < ends.Stable; {
		req := kmsg.NewPtrFetchRequest()
		req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.IsolationLevel = 0, 0, 8<<20, 1
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = topic, id
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, next, 8<<20
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		kresp, err := cl.Broker(int(leader)).RetriableRequest(ctx, req)
		if err != nil {
			return nil, err
		}
		resp := kresp.(*kmsg.FetchResponse)
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return nil, err
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return nil, errors.New("the fetch answer lacks the partition")
		}
		rp := &resp.Topics[0].Partitions[0]
		fp, after := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
			Offset:         next,
			IsolationLevel: kgo.ReadCommitted(),
			Topic:          topic,
			Partition:      partition,
		}, rp, kgo.DefaultDecompressor(), nil)
		if fp.Err != nil {
			return nil, fp.Err
		}
		for _, r := range fp.Records {
			if r.Offset < ends.Stable {
				out = append(out, r)
			}
		}
		if after <= next {
			break // nothing is left before the end: a compacted tail
		}
		next = after
	}
	return out, nil
}
