package embedded

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Both by topic id (OffsetCommit 10) and by name (9 and before).
func TestCommitsRecorded(t *testing.T) {
	t.Parallel()
	for name, versions := range map[string]*kversion.Versions{"latest": kversion.Stable(), "3.7": kversion.V3_7_0()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := Start(t, Topic("in", 2))
			ctx := limited(t)
			cl, id, gen := member(t, b, "g", "in", kgo.ClientID("worker-1"), kgo.InstanceID("slot-1"), kgo.MaxVersions(versions))

			req := commitRequest(b, "g", id, gen, "in", 1, 42, "map")
			instance := "slot-1"
			req.InstanceID = &instance
			if _, err := req.RequestWith(ctx, cl); err != nil {
				t.Fatal(err)
			}
			stale := commitRequest(b, "g", id, gen-1, "in", 1, 43, "")
			stale.InstanceID = &instance
			if _, err := stale.RequestWith(ctx, cl); err != nil {
				t.Fatal(err)
			}
			got := b.Commits()
			if len(got) != 2 {
				t.Fatalf("%d commits, want 2: %+v", len(got), got)
			}
			c := got[0]
			if c.Group != "g" || c.Member != id || c.Generation != gen || c.Instance == nil || *c.Instance != "slot-1" ||
				c.ClientID != "worker-1" || c.Topic != "in" || c.Partition != 1 || c.Offset != 42 || c.LeaderEpoch != -1 ||
				c.Metadata == nil || *c.Metadata != "map" || c.TransactionalID != "" {
				t.Errorf("first commit: %+v", c)
			}
			if c.Outcome != Accepted || !c.Accepted() || c.Err != nil || c.Answered.Before(c.Received) || c.Received.IsZero() {
				t.Errorf("first commit's outcome: %+v", c)
			}
			if c := got[1]; c.Outcome != Refused || c.Accepted() || !errors.Is(c.Err, kerr.IllegalGeneration) || c.Topic != "in" {
				t.Errorf("second commit: %v %v %q, want refused with ILLEGAL_GENERATION", c.Outcome, c.Err, c.Topic)
			}
			as := b.Assignments()
			if len(as) == 0 {
				t.Fatal("no assignment recorded")
			}
			a := as[len(as)-1]
			ps := a.Partitions["in"]
			slices.Sort(ps)
			if a.Group != "g" || a.Member != id || a.Generation != gen || a.Protocol != "range" || !slices.Equal(ps, []int32{0, 1}) ||
				a.ClientID != "worker-1" || a.Instance == nil || *a.Instance != "slot-1" {
				t.Errorf("assignment: %+v", a)
			}
			if s := b.CommitsByNonOwners(); len(s) != 0 {
				t.Errorf("an owner's commit is called a stranger's: %+v", s)
			}
			if b.Dropped() != 0 {
				t.Errorf("Dropped = %d", b.Dropped())
			}
		})
	}
}

func TestCommitsByNonOwners(t *testing.T) {
	t.Parallel()
	b := Start(t, Topic("in", 1), Topic("other", 1))
	ctx := limited(t)
	cl, id, gen := member(t, b, "g", "in")
	// Kafka checks the member, not who owns the partition.
	if _, err := commitRequest(b, "g", id, gen, "other", 0, 9, "").RequestWith(ctx, cl); err != nil {
		t.Fatal(err)
	}
	if _, err := commitRequest(b, "g", id, gen, "in", 0, 1, "").RequestWith(ctx, cl); err != nil {
		t.Fatal(err)
	}
	// Refused, so no harm done.
	if _, err := commitRequest(b, "g", id, gen+1, "other", 0, 9, "").RequestWith(ctx, cl); err != nil {
		t.Fatal(err)
	}
	got := b.CommitsByNonOwners()
	if len(got) != 1 || got[0].Topic != "other" || got[0].Offset != 9 {
		t.Errorf("CommitsByNonOwners = %+v, want the accepted one on other", got)
	}
}

func TestTxnOffsetCommitRecorded(t *testing.T) {
	t.Parallel()
	for name, versions := range map[string]*kversion.Versions{"latest": kversion.Stable(), "3.7": kversion.V3_7_0()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := Start(t, Topic("in", 1), Topic("out", 1))
			ctx := limited(t)
			_, id, gen := member(t, b, "g", "in")
			p := client(t, b, kgo.TransactionalID("slot"), kgo.DefaultProduceTopic("out"), kgo.MaxVersions(versions), kgo.ClientID("producer"))
			if err := p.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := p.ProduceSync(ctx, kgo.StringRecord("v")).FirstErr(); err != nil {
				t.Fatal(err)
			}
			pid, epoch, err := p.ProducerID(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if name == "3.7" {
				add := kmsg.NewPtrAddOffsetsToTxnRequest()
				add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = "slot", pid, epoch, "g"
				if _, err := add.RequestWith(ctx, p); err != nil {
					t.Fatal(err)
				}
			}
			req := kmsg.NewPtrTxnOffsetCommitRequest()
			req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = "slot", "g", pid, epoch
			req.MemberID, req.Generation = id, gen
			rt := kmsg.NewTxnOffsetCommitRequestTopic()
			rt.Topic, rt.TopicID = "in", b.Cluster().TopicInfo("in").TopicID
			rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			rp.Offset = 17
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			if _, err := req.RequestWith(ctx, p); err != nil {
				t.Fatal(err)
			}
			got := b.Commits()
			if len(got) != 1 {
				t.Fatalf("Commits = %+v, want one", got)
			}
			c := got[0]
			if c.TransactionalID != "slot" || c.Topic != "in" || c.Offset != 17 || c.Member != id || c.Generation != gen || c.Outcome != Accepted {
				t.Errorf("commit: %+v", c)
			}
			if now, err := b.Committed(ctx, "g", "in"); err != nil || len(now) != 0 {
				t.Errorf("offsets of an open transaction show: %v, %v", now, err)
			}
			waited := make(chan error, 1)
			go func() { waited <- b.WaitCommitted(ctx, "g", "in", map[int32]int64{0: 17}) }()
			if err := p.EndTransaction(ctx, kgo.TryCommit); err != nil {
				t.Fatal(err)
			}
			if err := <-waited; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUnknownTopicID(t *testing.T) {
	t.Parallel()
	b := Start(t, Topic("in", 1))
	req := commitRequest(b, "g", "", -1, "in", 0, 1, "")
	req.Topics[0].TopicID = [16]byte{1, 2, 3}
	if _, err := req.RequestWith(limited(t), client(t, b)); err != nil {
		t.Fatal(err)
	}
	got := b.Commits()
	if len(got) != 1 || got[0].Outcome != Refused || got[0].TopicID != [16]byte{1, 2, 3} || !errors.Is(got[0].Err, kerr.UnknownTopicID) {
		t.Errorf("Commits = %+v, want one refused with UNKNOWN_TOPIC_ID", got)
	}
}

func TestRecordLimit(t *testing.T) {
	t.Parallel()
	b := Start(t, Topic("in", 1), RecordLimit(10))
	cl := client(t, b)
	for i := range 25 {
		if _, err := commitRequest(b, "g", "", -1, "in", 0, int64(i), "").RequestWith(limited(t), cl); err != nil {
			t.Fatal(err)
		}
	}
	got := b.Commits()
	if len(got) > 10 || len(got)+b.Dropped() != 25 || got[len(got)-1].Offset != 24 {
		t.Errorf("%d kept, %d dropped, last %+v", len(got), b.Dropped(), got[len(got)-1])
	}
}

func TestWaitCommits(t *testing.T) {
	t.Parallel()
	b := Start(t, Topic("in", 1))
	cl := client(t, b)
	type res struct {
		got []Commit
		err error
	}
	done := make(chan res, 1)
	go func() {
		got, err := b.WaitCommits(limited(t), func(cs []Commit) bool { return len(cs) >= 2 && cs[1].Accepted() })
		done <- res{got, err}
	}()
	for o := range 2 {
		if _, err := commitRequest(b, "g", "", -1, "in", 0, int64(o), "").RequestWith(limited(t), cl); err != nil {
			t.Fatal(err)
		}
	}
	if r := <-done; r.err != nil || len(r.got) != 2 {
		t.Errorf("WaitCommits = %+v, %v", r.got, r.err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if got, err := b.WaitCommits(ctx, func([]Commit) bool { return false }); !errors.Is(err, context.DeadlineExceeded) || len(got) != 2 {
		t.Errorf("WaitCommits that never holds = %d commits, %v", len(got), err)
	}
}

func TestOutcomeString(t *testing.T) {
	t.Parallel()
	for o, want := range map[Outcome]string{Pending: "pending", Accepted: "accepted", Refused: "refused",
		AnswerLost: "answer lost", Unanswered: "unanswered", 99: "unknown outcome"} {
		if got := o.String(); got != want {
			t.Errorf("Outcome(%d) = %q, want %q", o, got, want)
		}
	}
}
