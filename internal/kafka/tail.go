package kafka

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Tail is what a raw fetch found at an offset.
type Tail struct {
	// Next is the offset behind what the broker returned: last offset of the
	// last batch + 1. It is at least the offset that was asked for.
	Next int64
	// Records says that between the asked offset and Next there is at least
	// one record or marker that a read_committed client which keeps control
	// records delivers. If so, wait for it: Next must not be taken.
	Records bool
	// Stable is the last stable offset at the time.
	Stable int64
}

// NextOffset asks the leader, once, with a raw Fetch, what is at an offset. A
// polling client never says that it has passed offsets which compaction has
// removed at the end of a log; with Records false a reader whose position is
// the asked offset may go to Next.
//
// It reads no further than one answer, at most 1 MiB or one batch, so Next can
// be short of Stable: ask again from there. If the leader has just moved it
// fails with a retriable *kerr.Error.
func (a *Admin) NextOffset(ctx context.Context, p Partition, offset int64) (Tail, error) {
	fail := func(err error) (Tail, error) {
		return Tail{}, fmt.Errorf("kafka: fetch of %s at %d: %w", p, offset, err)
	}
	if offset < 0 {
		return fail(ErrBadPosition)
	}
	got, err := a.metadata(ctx, p.Topic)
	if err != nil {
		return fail(err)
	}
	topic, ok := got[p.Topic]
	if err := topicErr(p.Topic, topic, ok); err != nil {
		return fail(err)
	}
	i := slices.IndexFunc(topic.Partitions, func(mp kmsg.MetadataResponseTopicPartition) bool { return mp.Partition == p.ID })
	if i < 0 {
		return fail(ErrNoPartition)
	}
	leader := topic.Partitions[i].Leader
	if err := kerr.ErrorForCode(topic.Partitions[i].ErrorCode); err != nil && leader < 0 {
		return fail(err)
	}

	const maxBytes = 1 << 20
	req := kmsg.NewPtrFetchRequest()
	// No waiting: whatever is there now. Version, session and epoch defaults
	// make it a full fetch outside of a session.
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 0, maxBytes
	req.IsolationLevel = 1 // read_committed
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = p.Topic, topic.TopicID
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p.ID, offset, maxBytes
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := a.cl.Broker(int(leader)).RetriableRequest(ctx, req)
	if err != nil {
		return fail(err)
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fail(err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return fail(ErrNoAnswer)
	}
	part := &resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(part.ErrorCode); err != nil {
		return fail(err)
	}
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		KeepControlRecords: true,
		Offset:             offset,
		IsolationLevel:     kgo.ReadCommitted(),
		Topic:              p.Topic,
		Partition:          p.ID,
	}, part, kgo.DefaultDecompressor(), nil)
	if fp.Err != nil {
		return fail(fp.Err)
	}
	tail := Tail{Next: max(next, offset), Records: len(fp.Records) > 0, Stable: part.LastStableOffset}
	// An empty answer to an unthrottled fetch below the last stable offset
	// says that no batch is left there: a broker returns at least one batch,
	// whatever its size, if it has one (KIP-74). A follower that we are sent
	// to instead (KIP-392) answers empty, too.
	if len(part.RecordBatches) == 0 && resp.ThrottleMillis == 0 && part.PreferredReadReplica < 0 {
		tail.Next = max(offset, part.LastStableOffset)
	}
	return tail, nil
}
