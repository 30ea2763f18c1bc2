package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/killick-io/killick/testenv/embedded"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestNextOffset(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("in", 1))
	a := admin(t, b)
	ctx := limited(t)
	in := Partition{"in", 0}
	next := func(offset int64) Tail {
		t.Helper()
		tail, err := a.NextOffset(ctx, in, offset)
		if err != nil {
			t.Fatal(err)
		}
		return tail
	}
	if got := next(0); got != (Tail{0, false, 0}) {
		t.Errorf("an empty log: %+v", got)
	}
	produce(t, b, "in", 0, "a", "b", "c") // 0 1 2
	for at := range int64(3) {
		if got := next(at); got != (Tail{3, true, 3}) {
			t.Errorf("records from %d: %+v", at, got)
		}
	}
	if got := next(3); got != (Tail{3, false, 3}) {
		t.Errorf("the end: %+v", got)
	}

	p := openTransaction(t, b, "in") // 3
	if got := next(3); got != (Tail{3, false, 3}) {
		t.Errorf("an open transaction must not be passed: %+v", got)
	}
	if err := p.EndTransaction(ctx, kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	// 3 aborted, 4 the marker: a client that keeps markers delivers it.
	if got := next(3); got != (Tail{5, true, 5}) {
		t.Errorf("aborted data and its marker: %+v", got)
	}
}

// Compaction has removed the records before the last, or all after a position:
// Next leads over the hole.
func TestNextOffsetBehindCompaction(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t)
	a := admin(t, b)
	ctx := limited(t)
	if err := b.Cluster().CreateTopic("c", 1, map[string]string{"cleanup.policy": "compact", "delete.retention.ms": "0"}); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		r := &kgo.Record{Topic: "c", Key: []byte("k"), Value: fmt.Append(nil, i)}
		if i == 0 {
			r.Key = []byte("stays")
		}
		if i == 4 {
			r.Value = nil // a tombstone at the end
		}
		if err := b.Produce(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	p := Partition{"c", 0}
	b.Cluster().Compact()
	bounds, err := a.Bounds(ctx, "c")
	if err != nil {
		t.Fatal(err)
	}
	left, err := b.ReadAll(ctx, "c")
	if err != nil {
		t.Fatal(err)
	}
	got, err := a.NextOffset(ctx, p, 0)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Tail{5, len(left) > 0, bounds[p].Stable}); got != want || bounds[p].End != 5 {
		t.Errorf("from 0: %+v, want %+v (left: %v, bounds %+v)", got, want, left, bounds[p])
	}
	if len(left) == 5 {
		t.Error("nothing was compacted, so nothing was tested")
	}

	// A tail that is gone altogether, as a broker answers it: no batch below
	// the last stable offset.
	empty := func(change func(*kmsg.FetchResponse)) {
		b.Cluster().ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			fr := req.(*kmsg.FetchRequest)
			resp := fr.ResponseKind().(*kmsg.FetchResponse)
			rt := kmsg.NewFetchResponseTopic()
			rt.Topic, rt.TopicID = fr.Topics[0].Topic, fr.Topics[0].TopicID
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.HighWatermark, rp.LastStableOffset = 9, 8
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
			if change != nil {
				change(resp)
			}
			return resp, nil, true
		})
	}
	empty(nil)
	if got, err := a.NextOffset(ctx, p, 5); err != nil || got != (Tail{8, false, 8}) {
		t.Errorf("an empty tail: %+v, %v", got, err)
	}
	// An empty answer for another reason says nothing.
	empty(func(r *kmsg.FetchResponse) { r.ThrottleMillis = 1 })
	if got, err := a.NextOffset(ctx, p, 5); err != nil || got != (Tail{5, false, 8}) {
		t.Errorf("throttled: %+v, %v", got, err)
	}
	empty(func(r *kmsg.FetchResponse) { r.Topics[0].Partitions[0].PreferredReadReplica = 2 })
	if got, err := a.NextOffset(ctx, p, 5); err != nil || got != (Tail{5, false, 8}) {
		t.Errorf("sent to a follower: %+v, %v", got, err)
	}
	empty(func(r *kmsg.FetchResponse) { r.Topics = nil })
	if _, err := a.NextOffset(ctx, p, 5); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("an answer without the partition: %v", err)
	}
	empty(func(r *kmsg.FetchResponse) { r.Topics[0].Partitions[0].RecordBatches = make([]byte, 61) })
	if got, err := a.NextOffset(ctx, p, 5); err == nil {
		t.Errorf("a corrupt batch passed: %+v", got)
	}
}

func TestNextOffsetMistakes(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("in", 1))
	a := admin(t, b)
	ctx := limited(t)
	produce(t, b, "in", 0, "a")
	for name, c := range map[string]struct {
		p      Partition
		offset int64
		want   error
	}{
		"unknown topic":     {Partition{"nowhere", 0}, 0, ErrNoTopic},
		"unknown partition": {Partition{"in", 5}, 0, ErrNoPartition},
		"negative offset":   {Partition{"in", 0}, -1, ErrBadPosition},
		"out of range":      {Partition{"in", 0}, 50, kerr.OffsetOutOfRange},
	} {
		_, err := a.NextOffset(ctx, c.p, c.offset)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.p.String()) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	b.Fail(kmsg.Fetch, kerr.NotLeaderForPartition, 1)
	if _, err := a.NextOffset(ctx, Partition{"in", 0}, 0); !errors.Is(err, kerr.NotLeaderForPartition) {
		t.Errorf("the leader has moved: %v", err)
	}
}
