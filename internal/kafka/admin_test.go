package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/killick-io/killick/testenv/bubble"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// openTransaction leaves a transaction with one record of a topic open.
func openTransaction(t *testing.T, b *embedded.Broker, topic string) *kgo.Client {
	t.Helper()
	p, err := kgo.NewClient(b.ClientOpts(kgo.TransactionalID("open"), kgo.DefaultProduceTopic(topic))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if err := p.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := p.ProduceSync(limited(t), kgo.StringRecord("open")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTopics(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("in", 3), embedded.Topic("out", 1))
	a := admin(t, b)
	ctx := limited(t)
	got, err := a.Topics(ctx, "in", "out")
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]int{"in": 3, "out": 1} {
		if want := (Topic{Name: name, ID: topicID(b, name), Partitions: n}); got[name] != want {
			t.Errorf("%s = %+v, want %+v", name, got[name], want)
		}
	}
	got, err = a.Topics(ctx, "in", "no-1", "no-2")
	if !errors.Is(err, ErrNoTopic) || !strings.Contains(err.Error(), "no-1") || !strings.Contains(err.Error(), "no-2") || len(got) != 1 {
		t.Errorf("missing topics: %v, %v", got, err)
	}
	if got, err := a.Topics(ctx); err != nil || len(got) != 0 {
		t.Errorf("no topics: %v, %v", got, err)
	}
	b.Fail(kmsg.Metadata, kerr.TopicAuthorizationFailed, 1)
	if _, err := a.Topics(ctx, "in"); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("without the right: %v", err)
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("in", 2))
	a := admin(t, b)
	ctx := limited(t)
	if _, err := a.Bounds(ctx, "later"); !errors.Is(err, ErrNoTopic) {
		t.Errorf("a topic before its time: %v", err)
	}
	if err := b.Cluster().CreateTopic("later", 1, nil); err != nil {
		t.Fatal(err)
	}
	// No cache may hide it.
	if got, err := a.Bounds(ctx, "later"); err != nil || len(got) != 1 {
		t.Errorf("a topic just created: %v, %v", got, err)
	}
	if _, err := a.adm.CreatePartitions(ctx, 2, "later"); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Positions(ctx, Latest(), Partition{"later", 2}); err != nil || len(got) != 1 {
		t.Errorf("a partition just added: %v, %v", got, err)
	}
	produce(t, b, "in", 0, "a", "b", "c")
	if err := b.Cluster().DeleteRecords("in", 0, 1); err != nil {
		t.Fatal(err)
	}
	got, err := a.Bounds(ctx, "in")
	if err != nil {
		t.Fatal(err)
	}
	if got[Partition{"in", 0}] != (Bounds{1, 3, 3}) || got[Partition{"in", 1}] != (Bounds{}) || len(got) != 2 {
		t.Errorf("Bounds = %v", got)
	}
	if _, err := a.Bounds(ctx, "nowhere"); !errors.Is(err, ErrNoTopic) || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("unknown topic: %v", err)
	}
	if got, err := a.Bounds(ctx); err != nil || len(got) != 0 {
		t.Errorf("no topics: %v, %v", got, err)
	}
}

func TestPositions(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("in", 1), embedded.Topic("empty", 2))
	a := admin(t, b)
	ctx := limited(t)
	base := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for i, v := range []string{"a", "b", "c"} {
		r := &kgo.Record{Topic: "in", Value: []byte(v), Timestamp: base.Add(time.Duration(i) * time.Hour)}
		if err := b.Produce(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Cluster().DeleteRecords("in", 0, 1); err != nil {
		t.Fatal(err)
	}
	p := openTransaction(t, b, "in") // offset 3, written now
	in, empty := Partition{"in", 0}, Partition{"empty", 1}
	for name, c := range map[string]struct {
		at   At
		want int64
	}{
		"earliest":          {Earliest(), 1},
		"latest":            {Latest(), 3}, // not 4: the transaction may commit
		"before everything": {AtTime(time.Unix(-5, 0)), 1},
		"between":           {AtTime(base.Add(90 * time.Minute)), 2},
		"exactly":           {AtTime(base.Add(2 * time.Hour)), 2},
		"in the future":     {AtTime(time.Now().AddDate(10, 0, 0)), 3},
	} {
		got, err := a.Positions(ctx, c.at, in, empty)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got[in] != c.want || got[empty] != 0 || len(got) != 2 {
			t.Errorf("%s: %v, want %d and 0", name, got, c.want)
		}
	}
	if err := p.EndTransaction(ctx, kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Positions(ctx, Latest(), in); err != nil || got[in] != 5 {
		t.Errorf("latest after the transaction: %v, %v", got, err)
	}

	_, err := a.Positions(ctx, Earliest(), Partition{"in", 7}, Partition{"in", 8})
	if !errors.Is(err, ErrNoPartition) || !strings.Contains(err.Error(), "in/7") || !strings.Contains(err.Error(), "in/8") {
		t.Errorf("partitions that do not exist: %v", err)
	}
	for name, at := range map[string]At{"earliest": Earliest(), "latest": Latest(), "time": AtTime(base)} {
		if _, err := a.Positions(ctx, at, Partition{"nowhere", 0}); !errors.Is(err, ErrNoTopic) {
			t.Errorf("%s of an unknown topic: %v", name, err)
		}
	}
	if _, err := a.Positions(ctx, At{}, in); err == nil {
		t.Error("the zero At was accepted")
	}
	if got, err := a.Positions(ctx, Earliest()); err != nil || len(got) != 0 {
		t.Errorf("no partitions: %v, %v", got, err)
	}
	b.Fail(kmsg.ListOffsets, kerr.TopicAuthorizationFailed, -1)
	if _, err := a.Positions(ctx, Latest(), in); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("without the right: %v", err)
	}
}

// A partition without a leader does not hide what is known of the others.
func TestPartitionWithoutLeader(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("in", 3))
	a := admin(t, b)
	ctx := limited(t)
	produce(t, b, "in", 0, "a", "b")
	gone := b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "in", Partitions: []int32{1}, Err: kerr.LeaderNotAvailable, Count: -1})
	got, err := a.Bounds(ctx, "in", "nowhere")
	if !errors.Is(err, ErrNoTopic) || !errors.Is(err, kerr.LeaderNotAvailable) || len(got) != 2 || got[Partition{"in", 0}] != (Bounds{0, 2, 2}) {
		t.Errorf("Bounds = %v, %v", got, err)
	}
	for name, at := range map[string]At{"earliest": Earliest(), "latest": Latest(), "time": AtTime(time.Now().AddDate(1, 0, 0))} {
		if got, err := a.Positions(ctx, at, Partition{"in", 0}); err != nil || len(got) != 1 {
			t.Errorf("%s of a sound partition: %v, %v", name, got, err)
		}
		got, err := a.Positions(ctx, at, Partition{"in", 0}, Partition{"in", 1})
		if !errors.Is(err, kerr.LeaderNotAvailable) || len(got) != 1 {
			t.Errorf("%s of both: %v, %v", name, got, err)
		}
	}
	gone.Remove()
	if got, err := a.Bounds(ctx, "in"); err != nil || len(got) != 3 {
		t.Errorf("with a leader again: %v, %v", got, err)
	}
}

// A fresh cluster makes its topic of offsets at the first need of a coordinator, and says until then
// that there is none; one that has just moved loads. Neither is an answer about the group.
func TestCommittedWaitsForACoordinator(t *testing.T) {
	for key, code := range map[kmsg.Key]*kerr.Error{kmsg.FindCoordinator: kerr.CoordinatorNotAvailable, kmsg.OffsetFetch: kerr.CoordinatorLoadInProgress} {
		bubble.Test(t, func(t *testing.T) {
			b := embedded.StartVirtual(t, embedded.Topic("in", 1))
			a := admin(t, b)
			away := b.Fail(key, code, 60)
			if got, err := a.Committed(limited(t), "g", "in"); err != nil || len(got) != 0 {
				t.Errorf("%s: %v, %v", code.Message, got, err)
			}
			if n := away.Hits(); n != 60 {
				t.Errorf("%s: asked %d times", code.Message, n)
			}
			b.Fail(key, code, -1)
			ctx, cancel := context.WithTimeout(limited(t), 300*time.Millisecond)
			defer cancel()
			if _, err := a.Committed(ctx, "other", "in"); err == nil {
				t.Errorf("%s, for ever: no error", code.Message)
			}
		})
	}
}

func TestCommitted(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("in", 3), embedded.Topic("also", 1))
	a := admin(t, b)
	ctx := limited(t)
	if got, err := a.Committed(ctx, "g", "in"); err != nil || len(got) != 0 {
		t.Errorf("unknown group: %v, %v", got, err)
	}
	cl, lease := member(t, b, Consumer{Group: "g", Topics: []string{"in", "also"}})
	rs, err := Commit(ctx, cl, "g", lease, []Position{
		{Topic: "in", TopicID: topicID(b, "in"), Partition: 2, Offset: 8, LeaderEpoch: 0, Metadata: "m"},
		{Topic: "also", TopicID: topicID(b, "also"), Partition: 0, Offset: 0, LeaderEpoch: -1},
	})
	if err != nil || rs[0].Err != nil || rs[1].Err != nil {
		t.Fatal(err, rs)
	}
	got, err := a.Committed(ctx, "g")
	if err != nil || len(got) != 2 || got[Partition{"in", 2}] != (Committed{8, 0, "m"}) || got[Partition{"also", 0}] != (Committed{0, -1, ""}) {
		t.Errorf("Committed = %v, %v", got, err)
	}
	if got, err := a.Committed(ctx, "g", "in"); err != nil || len(got) != 1 {
		t.Errorf("Committed of one topic = %v, %v", got, err)
	}
	if _, err := a.Committed(ctx, ""); err == nil {
		t.Error("an empty group was accepted")
	}

	// An offset in an open transaction is not stable.
	p := openTransaction(t, b, "also")
	pid, epoch, err := p.ProducerID(ctx)
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = "open", "g", pid, epoch
	req.MemberID, req.Generation = lease.Member, lease.Generation
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = "in", topicID(b, "in")
	rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset = 2, 9
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	if _, err := req.RequestWith(ctx, p); err != nil {
		t.Fatal(err)
	}
	// kgo repeats the request while offsets are unstable; the context ends it.
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if got, err := a.Committed(short, "g", "in"); err == nil || len(got) != 0 {
		t.Errorf("an unstable offset was returned: %v, %v", got, err)
	} else if !errors.Is(err, ErrUnstable) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("unstable: %v", err)
	}
	if err := p.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Committed(ctx, "g", "in"); err != nil || got[Partition{"in", 2}].Offset != 9 {
		t.Errorf("after the transaction: %v, %v", got, err)
	}
	b.Fail(kmsg.OffsetFetch, kerr.GroupAuthorizationFailed, -1)
	if _, err := a.Committed(ctx, "g", "in"); !errors.Is(err, kerr.GroupAuthorizationFailed) || !strings.Contains(err.Error(), `"g"`) {
		t.Errorf("without the right: %v", err)
	}
}
