package verify

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/testenv/kafkaenv"
)

// TestRealKafka shows on Apache Kafka what the embedded broker cannot: the group's own log. KILLICK_FULL=1 adds the older
// releases.
func TestRealKafka(t *testing.T) {
	releases := []string{kafkaenv.Latest}
	if os.Getenv("KILLICK_FULL") != "" {
		releases = append(releases, kafkaenv.First4, kafkaenv.Oldest3)
	}
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			k := kafkaenv.Start(t, kafkaenv.Version(release))
			t.Run("toy", func(t *testing.T) { toys(t, k, "toy.", "early commit", "duplicate", "regress") })
			t.Run("owners", func(t *testing.T) { realOwners(t, k) })
			t.Run("transactions", func(t *testing.T) { realTransactions(t, k) })
			t.Run("compacted", func(t *testing.T) { realCompacted(t, k) })
		})
	}
}

// storedOf collects what a group has stored.
func storedOf(t *testing.T, h *History) (commits []string, generations []*Generation) {
	t.Helper()
	if h.Stored == nil {
		t.Fatal(h.Notes)
	}
	for s, err := range h.Stored {
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(s.At); d < -time.Millisecond || d > time.Minute {
			t.Errorf("%s is of %v", s.Ref, s.At)
		}
		if s.Generation != nil {
			generations = append(generations, s.Generation)
		} else {
			commits = append(commits, fmt.Sprintf("%d at %d %q", s.Commit.Partition, s.Commit.Next, s.Commit.Metadata))
		}
	}
	return commits, generations
}

// realOwners: Kafka takes a commit for a partition that its sender does not own; the generations tell.
func realOwners(t *testing.T, k cluster) {
	ctx := limited(t)
	admin := client(t, k)
	made, err := kadm.NewClient(admin).CreateTopic(ctx, 2, 1, nil, "owners.in")
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.ProduceSync(ctx, &kgo.Record{Topic: "owners.in"}, &kgo.Record{Topic: "owners.in", Partition: 1}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	type state struct {
		cl *kgo.Client
		ps []int32
	}
	assigned := make(chan state, 100)
	join := func() *kgo.Client {
		return client(t, k, kgo.ConsumerGroup("owners"), kgo.ConsumeTopics("owners.in"), kgo.DisableAutoCommit(), kgo.Balancers(kgo.RangeBalancer()),
			kgo.HeartbeatInterval(100*time.Millisecond), kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, m map[string][]int32) {
				assigned <- state{cl, slices.Clone(m["owners.in"])}
			}))
	}
	a, b := join(), join()
	have := map[*kgo.Client][]int32{}
	for len(have[a]) != 1 || len(have[b]) != 1 || have[a][0] == have[b][0] {
		select {
		case s := <-assigned:
			have[s.cl] = s.ps
		case <-ctx.Done():
			t.Fatal(have)
		}
	}
	book := newBook()
	w := book.worker("a", 1)
	ins := []*bookLog{{topic: "owners.in"}, {topic: "owners.in", id: 1}}
	for _, in := range ins {
		w.effect(in, 0)
	}
	commit := func(cl *kgo.Client, p int32) {
		t.Helper()
		member, generation := cl.GroupMetadata()
		w.gen, w.member = generation, member
		book.now = time.Now().UnixNano()
		x := w.send(ins[p], 1, 0)
		g := "owners"
		w.lines[len(w.lines)-1].Group = &g
		x.Group = &g
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group, req.MemberID, req.Generation = g, member, generation
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic, rt.TopicID = "owners.in", made.ID
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset = p, 1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := req.RequestWith(ctx, cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
		}
		if err != nil {
			t.Fatal(err)
		}
		book.now = time.Now().Add(10 * time.Millisecond).UnixNano()
		w.answer(x, "")
	}
	commit(a, have[a][0])
	commit(a, have[b][0]) // not its own
	h, err := Read(ctx, admin, Target{Group: "owners", Inputs: []string{"owners.in"}})
	if err != nil {
		t.Fatal(err)
	}
	h.Events = []EventFile{w.file()}
	rep, err := Check(Rules{}, h)
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Findings) != 1 || rep.Findings[0].Kind != NonOwner || rep.Findings[0].Partition != have[b][0] || rep.Totals.GenerationsStored == 0 {
		t.Error(rep)
	}
}

// realTransactions: positions in transactions count when these are committed.
func realTransactions(t *testing.T, k cluster) {
	ctx := limited(t)
	cl := client(t, k, kgo.TransactionalID("txn.producer"))
	made, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, "txn.in")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, "txn.out"); err != nil {
		t.Fatal(err)
	}
	for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "txn.in", Value: fmt.Append(nil, i)}, &kgo.Record{Topic: "txn.out", Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		pid, epoch, err := cl.ProducerID(ctx)
		if err != nil {
			t.Fatal(err)
		}
		add := kmsg.NewPtrAddOffsetsToTxnRequest() // transaction.version 2 needs none, and takes it
		add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = "txn.producer", pid, epoch, "txn"
		if _, err := add.RequestWith(ctx, cl); err != nil {
			t.Fatal(err)
		}
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = "txn.producer", "txn", pid, epoch, -1
		rt := kmsg.NewTxnOffsetCommitRequestTopic()
		rt.Topic, rt.TopicID = "txn.in", made.ID
		rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rp.Offset = int64(10 * (i + 1))
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := req.RequestWith(ctx, cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := cl.EndTransaction(ctx, end); err != nil {
			t.Fatal(err)
		}
	}
	target := Target{Group: "txn", Inputs: []string{"txn.in"}, Outputs: []string{"txn.out"}}
	if err := Settle(ctx, cl, target); err != nil {
		t.Fatal(err)
	}
	h, err := Read(ctx, cl, target)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`0 at 10 ""`, `0 at 30 ""`}
	if got, _ := storedOf(t, h); !slices.Equal(got, want) {
		t.Errorf("stored %q, want %q", got, want)
	}
	for _, l := range []*Log{&h.Inputs[0], &h.Outputs[0]} {
		got, _ := entries(t, l)
		want := []string{"0 visible 0", "1 marker true true", "2 aborted 1", "3 marker false true", "4 visible 2", "5 marker true true"}
		if !slices.Equal(got, want) || l.Stable != l.End {
			t.Errorf("%s: %q, stable %d of %d", l.Topic, got, l.Stable, l.End)
		}
	}
}

// realCompacted: the end of a log is found behind records that were compacted away.
func realCompacted(t *testing.T, k cluster) {
	ctx := limited(t)
	cl := client(t, k)
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, map[string]*string{"cleanup.policy": ptr("compact"), "segment.bytes": ptr("1048576"),
		"min.cleanable.dirty.ratio": ptr("0.0"), "segment.ms": ptr("100")}, "compacted.in"); err != nil {
		t.Fatal(err)
	}
	const n = 50
	for i := range n {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "compacted.in", Key: []byte{byte(i % 2)}, Value: []byte{byte(i)}}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	h, err := Read(ctx, cl, Target{Inputs: []string{"compacted.in"}})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := entries(t, &h.Inputs[0])
	if h.Inputs[0].End != n || len(got) == 0 || len(got) > n {
		t.Errorf("%d records, end %d", len(got), h.Inputs[0].End)
	}
}
