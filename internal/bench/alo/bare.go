package alo

import (
	"context"
	"errors"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Settings that all arms have. They are killick's defaults, but for the compression: what is read
// is not compressed either.
const (
	FetchMaxWait = 50 * time.Millisecond

	session     = 10 * time.Second
	heartbeat   = 500 * time.Millisecond
	linger      = 5 * time.Millisecond
	batchBytes  = 1_000_012
	bufferBytes = 64 << 20
	buffered    = 50_000
)

// loop is the loop that a user of franz-go would write. Like killick it reads committed data only,
// sees control records, and ends at an offset of each partition.
type loop struct {
	pooled bool // record slabs
	sink   bool // each record is written again
}

func (l loop) run(ctx context.Context, m *meter) (err error) {
	s := m.s
	reach, err := s.clientOpts()
	if err != nil {
		return err
	}
	opts := append(reach[:len(reach):len(reach)],
		kgo.ConsumerGroup(s.Group), kgo.ConsumeTopics(s.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.FetchMaxBytes(s.Fetch*Partitions), kgo.FetchMaxPartitionBytes(s.Fetch), kgo.FetchMaxWait(FetchMaxWait),
		kgo.SessionTimeout(session), kgo.HeartbeatInterval(heartbeat), kgo.WithHooks(m))
	if l.pooled {
		opts = append(opts, kgo.WithPools(new(slabs)))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	var out *output
	if l.sink {
		if out, err = newOutput(s, reach); err != nil {
			return err
		}
		defer out.cl.Close()
	}
	t := m.tally()
	last := time.Now()
	at := make([]int64, Partitions) // behind the last record
	for left := Partitions; left > 0; {
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
				if out != nil {
					out.put(ctx, r)
				}
			}
			if n := len(p.Records); n > 0 {
				was := at[p.Partition]
				if at[p.Partition] = min(p.Records[n-1].Offset+1, s.End); was < s.End && at[p.Partition] == s.End {
					left--
				}
			}
			if l.pooled {
				for _, r := range p.Records {
					r.Recycle()
				}
			}
		})
		if left > 0 && time.Since(last) >= s.Commit {
			if err := out.flush(ctx); err != nil {
				return err
			}
			if err := cl.CommitUncommittedOffsets(ctx); err != nil {
				return err
			}
			last = time.Now()
		}
	}
	if err := out.flush(ctx); err != nil {
		return err
	}
	return commitEnd(ctx, cl, s)
}

// commitEnd commits the end of each partition: the client may have polled beyond it.
func commitEnd(ctx context.Context, cl *kgo.Client, s Slice) error {
	ends := map[int32]kgo.EpochOffset{}
	for p := range int32(Partitions) {
		ends[p] = kgo.EpochOffset{Epoch: -1, Offset: s.End}
	}
	var failed error
	cl.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{s.Topic: ends}, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
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

// output is the producer of the loop with a sink. nil: there is none.
type output struct {
	cl     *kgo.Client
	topic  string
	failed atomic.Pointer[error] // the first
}

func newOutput(s Slice, reach []kgo.Opt) (*output, error) {
	cl, err := kgo.NewClient(append(reach[:len(reach):len(reach)], kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(linger),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(batchBytes), kgo.MaxBufferedRecords(buffered),
		kgo.MaxBufferedBytes(bufferBytes), kgo.RecordPartitioner(kgo.UniformBytesPartitioner(64<<10, true, true, nil)))...)
	if err != nil {
		return nil, err
	}
	return &output{cl: cl, topic: s.Out}, nil
}

// put writes a copy of r: the record itself is the client's again when it is recycled.
func (o *output) put(ctx context.Context, r *kgo.Record) {
	o.cl.Produce(ctx, &kgo.Record{Topic: o.topic, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}, o.done)
}

func (o *output) done(_ *kgo.Record, err error) {
	if err != nil {
		failed := err // of its own: the parameter would be on the heap at each call
		o.failed.CompareAndSwap(nil, &failed)
	}
}

// flush waits until all that was put is durable.
func (o *output) flush(ctx context.Context) error {
	if o == nil {
		return nil
	}
	if err := o.cl.Flush(ctx); err != nil {
		return err
	}
	if err := o.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// slabs pools record slabs by size, as kgo.PoolRecords. Payload bytes are not pooled.
type slabs struct{ classes [24]sync.Pool }

// class is the smallest c with n <= 1<<c.
func class(n int) int { return bits.Len(uint(max(n, 1) - 1)) }

// GetRecords implements kgo.PoolRecords.
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

// PutRecords implements kgo.PoolRecords.
func (s *slabs) PutRecords(r []kgo.Record) {
	r = r[:cap(r)]
	if c := class(len(r)); c < len(s.classes) && len(r) == 1<<c {
		s.classes[c].Put(&r)
	}
}
