package main

import (
	"context"
	"errors"
	"math/bits"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchMaxWait is killick's default; all arms have it.
const fetchMaxWait = 50 * time.Millisecond

// bare is the loop that a user of franz-go would write. Like killick it reads committed data
// only, sees control records, and ends at an offset of each partition.
func bare(ctx context.Context, m *meter) error { return loop(ctx, m, false) }

// pooled is bare with pooled record slabs.
func pooled(ctx context.Context, m *meter) error {
	return loop(ctx, m, true, kgo.WithPools(new(slabs)))
}

func loop(ctx context.Context, m *meter, recycle bool, extra ...kgo.Opt) error {
	s := m.s
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(s.Addr), kgo.ConsumerGroup(s.Group), kgo.ConsumeTopics(topicOf(s.Size)), kgo.DisableAutoCommit(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.FetchMaxBytes(s.Fetch * partitions), kgo.FetchMaxPartitionBytes(s.Fetch), kgo.FetchMaxWait(fetchMaxWait),
		kgo.WithHooks(m),
	}, extra...)...)
	if err != nil {
		return err
	}
	defer cl.Close()
	t := m.tally()
	last := time.Now()
	at := make([]int64, partitions) // behind the last record
	for left := partitions; left > 0; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return err
		}
		for _, e := range fetches.Errors() {
			return e.Err
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			for _, r := range p.Records {
				if r.Offset >= s.End {
					break
				}
				if r.Attrs.IsControl() {
					continue
				}
				t.touch(r.Value)
				if m.seen != nil {
					m.mark(r.Partition, r.Offset)
				}
			}
			if n := len(p.Records); n > 0 {
				was := at[p.Partition]
				if at[p.Partition] = min(p.Records[n-1].Offset+1, s.End); was < s.End && at[p.Partition] == s.End {
					left--
				}
			}
			if recycle {
				for _, r := range p.Records {
					r.Recycle()
				}
			}
		})
		if left > 0 && time.Since(last) >= s.Commit {
			if err := cl.CommitUncommittedOffsets(ctx); err != nil {
				return err
			}
			last = time.Now()
		}
	}
	// The client has polled beyond the end; what is committed is the end.
	ends := map[int32]kgo.EpochOffset{}
	for p := range int32(partitions) {
		ends[p] = kgo.EpochOffset{Epoch: -1, Offset: s.End}
	}
	var failed error
	cl.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{topicOf(s.Size): ends}, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if failed = err; err != nil {
			return
		}
		for _, rt := range resp.Topics {
			for _, rp := range rt.Partitions {
				failed = errors.Join(failed, kerr.ErrorForCode(rp.ErrorCode))
			}
		}
	})
	return failed
}

// slabs pools record slabs by size, as kgo.PoolRecords. Payload bytes are not pooled.
type slabs struct{ classes [24]sync.Pool }

// class is the smallest c with n <= 1<<c.
func class(n int) int { return bits.Len(uint(max(n, 1) - 1)) }

func (s *slabs) GetRecords(n int) []kgo.Record {
	c := class(n)
	if c >= len(s.classes) {
		return make([]kgo.Record, n)
	}
	if v := s.classes[c].Get(); v != nil {
		return *v.(*[]kgo.Record)
	}
	return make([]kgo.Record, 1<<c)
}

func (s *slabs) PutRecords(r []kgo.Record) {
	r = r[:cap(r)]
	if c := class(len(r)); c < len(s.classes) && len(r) == 1<<c {
		s.classes[c].Put(&r)
	}
}
