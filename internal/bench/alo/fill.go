package alo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

// MaxBatch is what a topic takes as one batch unless told otherwise (max.message.bytes).
const MaxBatch = 1_048_588

// Fill writes perPartition records into each of the first partitions of an empty topic: batches as
// [NewBatch] makes them, one after the other, each as it is. perPartition is a multiple of batch. cl
// must produce with acks=all. An error leaves the topic in no known state: it is to be deleted.
func Fill(ctx context.Context, cl *kgo.Client, topic string, partitions, batch, size int, perPartition int64) error {
	meta, err := kadm.NewClient(cl).Metadata(ctx, topic)
	if err == nil {
		err = meta.Topics[topic].Err
	}
	if err != nil {
		return fmt.Errorf("bench: fill %s: %w", topic, err)
	}
	t := meta.Topics[topic]
	b, _ := NewBatch(batch, size)
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(4) // what waits at the broker is bounded by that
	for p := range int32(partitions) {
		leader := t.Partitions[p].Leader
		if _, ok := t.Partitions[p]; !ok || leader < 0 {
			return errors.Join(fmt.Errorf("bench: fill %s: partition %d has no leader", topic, p), all.Wait())
		}
		all.Go(func() error {
			for at := int64(0); at < perPartition; at += int64(batch) {
				if err := putSoon(ctx, cl.Broker(int(leader)), t, p, at, b); err != nil {
					return fmt.Errorf("bench: fill %s: partition %d at offset %d: %w", topic, p, at, err)
				}
			}
			return nil
		})
	}
	return all.Wait()
}

// putSoon is put to a broker that may have to learn first that it leads the partition: it has written nothing then.
func putSoon(ctx context.Context, leader *kgo.Broker, t kadm.TopicDetail, p int32, at int64, batch []byte) error {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(10 * time.Second); ; {
		err := put(ctx, leader, t, p, at, batch)
		if err == nil || time.Now().After(end) || !errors.Is(err, kerr.NotLeaderForPartition) && !errors.Is(err, kerr.UnknownTopicOrPartition) &&
			!errors.Is(err, kerr.UnknownTopicID) {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return err
		}
	}
}

// put writes one batch, which must land at the offset at: a repeated write would lie elsewhere.
func put(ctx context.Context, leader *kgo.Broker, t kadm.TopicDetail, p int32, at int64, batch []byte) error {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 30_000
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = p, batch
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = t.Topic, t.ID
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := leader.Request(ctx, req)
	if err != nil {
		return err
	}
	topics := resp.(*kmsg.ProduceResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return errors.New("the answer is not about one partition")
	}
	got := topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return err
	}
	if got.BaseOffset != at {
		return fmt.Errorf("the batch is at %d", got.BaseOffset)
	}
	return nil
}
