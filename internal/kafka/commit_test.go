package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/killick-io/killick/testenv/embedded"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// By topic id (OffsetCommit 10) and by name (before).
func TestCommit(t *testing.T) {
	t.Parallel()
	for name, versions := range map[string]*kversion.Versions{"latest": kversion.Stable(), "3.7": kversion.V3_7_0(), "2.4": kversion.V2_4_0()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := embedded.Start(t, embedded.Topic("in", 2), embedded.Topic("also", 1))
			ctx := limited(t)
			_, lease := member(t, b, Consumer{Group: "g", Topics: []string{"in", "also"}, InstanceID: "slot-1"})
			// Another client may carry the request.
			c := cluster(b)
			c.Extra = append(c.Extra, kgo.MaxVersions(versions))
			cl, err := NewAdminClient(c)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(cl.Close)
			in, also := topicID(b, "in"), topicID(b, "also")
			ps := []Position{
				{Topic: "in", TopicID: in, Partition: 1, Offset: 7, LeaderEpoch: -1, Metadata: "map"},
				{Topic: "also", TopicID: also, Partition: 0, Offset: 0, LeaderEpoch: 0},
				{Topic: "in", TopicID: in, Partition: 0, Offset: 1 << 40, LeaderEpoch: -1},
				{Topic: "in", TopicID: in, Partition: 9, Offset: 1, LeaderEpoch: -1}, // does not exist
			}
			got, err := Commit(ctx, cl, "g", lease, ps)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(ps) {
				t.Fatalf("%d results, want %d", len(got), len(ps))
			}
			for i, r := range got {
				if r.Position != ps[i] {
					t.Errorf("result %d is about %+v", i, r.Position)
				}
				if i == 3 {
					if !errors.Is(r.Err, kerr.UnknownTopicOrPartition) || Refusal(r.Err) != Fatal || !strings.Contains(r.Err.Error(), "in/9") {
						t.Errorf("the partition that does not exist: %v", r.Err)
					}
				} else if r.Err != nil || Refusal(r.Err) != OK {
					t.Errorf("%+v: %v", r.Position, r.Err)
				}
			}
			for _, c := range b.Commits() {
				if c.Instance == nil || *c.Instance != "slot-1" || c.Member != lease.Member || c.Generation != lease.Generation {
					t.Errorf("seen at the broker: %+v", c)
				}
			}
			stored, err := b.Committed(ctx, "g", "in")
			if err != nil {
				t.Fatal(err)
			}
			if stored[1] != (embedded.Offset{Offset: 7, LeaderEpoch: -1, Metadata: "map"}) || stored[0].Offset != 1<<40 {
				t.Errorf("stored: %+v", stored)
			}
			stored, err = b.Committed(ctx, "g", "also")
			if err != nil || stored[0].LeaderEpoch != 0 {
				t.Errorf("stored: %+v, %v", stored, err)
			}
		})
	}
}

func TestCommitFenced(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("in", 1))
	ctx := limited(t)
	cl, lease := member(t, b, Consumer{Group: "g", Topics: []string{"in"}})
	pos := Position{Topic: "in", TopicID: topicID(b, "in"), Offset: 3, LeaderEpoch: -1}
	one := func(l Lease, p Position) error {
		t.Helper()
		rs, err := Commit(ctx, cl, "g", l, []Position{p})
		if err != nil {
			t.Fatal(err)
		}
		return rs[0].Err
	}
	older, newer := lease, lease
	older.Generation--
	newer.Generation++
	for name, l := range map[string]Lease{"older": older, "newer": newer} {
		if err := one(l, pos); !errors.Is(err, kerr.IllegalGeneration) || Refusal(err) != WaitRenewal {
			t.Errorf("%s generation: %v", name, err)
		}
	}
	if err := one(Lease{Member: "stranger", Generation: lease.Generation}, pos); !errors.Is(err, kerr.UnknownMemberID) || Refusal(err) != LostMembership {
		t.Errorf("unknown member: %v", err)
	}
	recreated := pos
	recreated.TopicID = [16]byte{9}
	if err := one(lease, recreated); !errors.Is(err, kerr.UnknownTopicID) || Refusal(err) != Fatal {
		t.Errorf("another topic id: %v", err)
	}
	if got, err := b.Committed(ctx, "g", "in"); err != nil || len(got) != 0 {
		t.Errorf("something was stored: %v, %v", got, err)
	}
	// The codes of the broker reach the caller.
	for _, code := range []*kerr.Error{kerr.RebalanceInProgress, kerr.OffsetMetadataTooLarge, kerr.TopicAuthorizationFailed} {
		b.Fail(kmsg.OffsetCommit, code, 1)
		if err := one(lease, pos); !errors.Is(err, code) {
			t.Errorf("%v: %v", code.Message, err)
		}
	}
	// kgo itself goes on when the coordinator moves.
	b.Fail(kmsg.OffsetCommit, kerr.NotCoordinator, 2)
	if err := one(lease, pos); err != nil {
		t.Errorf("after NOT_COORDINATOR twice: %v", err)
	}
}

// Nothing that would not fence leaves the process.
func TestCommitRefusesLeases(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("in", 1))
	a := admin(t, b)
	empty := ""
	pos := Position{Topic: "in", TopicID: topicID(b, "in"), Offset: 3, LeaderEpoch: -1}
	for name, c := range map[string]struct {
		group string
		lease Lease
	}{
		"no member and no generation": {"g", Lease{Generation: -1}},
		"no member":                   {"g", Lease{Generation: 3}},
		"no generation":               {"g", Lease{Member: "m", Generation: -1}},
		"no group":                    {"", Lease{Member: "m", Generation: 1}},
		"empty instance":              {"g", Lease{Member: "m", Generation: 1, Instance: &empty}},
	} {
		rs, err := Commit(limited(t), a.cl, c.group, c.lease, []Position{pos})
		if !errors.Is(err, ErrNoLease) || rs != nil || Refusal(err) != WaitRenewal {
			t.Errorf("%s: %v, %v", name, rs, err)
		}
	}
	if cs := b.Commits(); len(cs) != 0 {
		t.Errorf("%d commits reached the broker: %+v", len(cs), cs)
	}
}

func TestCommitRefusesPositions(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("in", 2))
	ctx := limited(t)
	cl, lease := member(t, b, Consumer{Group: "g", Topics: []string{"in"}})
	id := topicID(b, "in")
	good := Position{Topic: "in", TopicID: id, Partition: 1, Offset: 5, LeaderEpoch: -1}
	with := func(f func(*Position)) Position {
		p := Position{Topic: "in", TopicID: id, Offset: 1, LeaderEpoch: -1}
		f(&p)
		return p
	}
	for name, bad := range map[string]Position{
		"no topic":           with(func(p *Position) { p.Topic = "" }),
		"negative partition": with(func(p *Position) { p.Partition = -1 }),
		"negative offset":    with(func(p *Position) { p.Offset = -1 }),
		"metadata":           with(func(p *Position) { p.Metadata = strings.Repeat("x", MaxMetadata+1) }),
		"metadata, euro":     with(func(p *Position) { p.Metadata = strings.Repeat("\u20ac", MaxMetadata+1) }),
		"metadata, emoji":    with(func(p *Position) { p.Metadata = strings.Repeat("\U0001F600", MaxMetadata/2) + "x" }),
		"metadata, bytes":    with(func(p *Position) { p.Metadata = strings.Repeat("\xff", MaxMetadata+1) }),
	} {
		// The other position of the call is committed all the same.
		good.Offset++
		rs, err := Commit(ctx, cl, "g", lease, []Position{bad, good})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !errors.Is(rs[0].Err, ErrBadPosition) || Refusal(rs[0].Err) != Fatal {
			t.Errorf("%s: %v", name, rs[0].Err)
		}
		if len(rs[0].Err.Error()) > 300 {
			t.Errorf("%s: the error shows the metadata: %d bytes", name, len(rs[0].Err.Error()))
		}
		if rs[1].Err != nil {
			t.Errorf("%s: the other position: %v", name, rs[1].Err)
		}
	}
	for _, c := range b.Commits() {
		if c.Partition != 1 {
			t.Errorf("an impossible position reached the broker: %+v", c)
		}
	}
	// At the limit it is sent.
	for name, m := range map[string]string{"ascii": strings.Repeat("x", MaxMetadata), "euro": strings.Repeat("\u20ac", MaxMetadata),
		"emoji": strings.Repeat("\U0001F600", MaxMetadata/2)} {
		good.Metadata = m
		rs, err := Commit(ctx, cl, "g", lease, []Position{good})
		if err != nil || rs[0].Err != nil {
			t.Errorf("%s at the limit: %v, %v", name, err, rs)
		}
		if got, err := b.Committed(ctx, "g", "in"); err != nil || got[1].Metadata != m {
			t.Errorf("%s did not survive: %v", name, err)
		}
	}

	before := len(b.Commits())
	twice := []Position{good, good}
	if _, err := Commit(ctx, cl, "g", lease, twice); !errors.Is(err, ErrBadPosition) {
		t.Errorf("one partition twice: %v", err)
	}
	twoIDs := []Position{good, with(func(p *Position) { p.TopicID = [16]byte{1} })}
	if _, err := Commit(ctx, cl, "g", lease, twoIDs); !errors.Is(err, ErrBadPosition) {
		t.Errorf("one topic with two ids: %v", err)
	}
	if rs, err := Commit(ctx, cl, "g", lease, nil); err != nil || len(rs) != 0 {
		t.Errorf("no positions: %v, %v", rs, err)
	}
	if n := len(b.Commits()); n != before {
		t.Errorf("%d more commits reached the broker", n-before)
	}
}

// A lost answer is an error and not a refusal: the offset may be stored.
func TestCommitWithoutAnswer(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("in", 1))
	cl, lease := member(t, b, Consumer{Group: "g", Topics: []string{"in"}})
	pos := Position{Topic: "in", TopicID: topicID(b, "in"), Offset: 3, LeaderEpoch: -1}
	f := b.HoldAnswers(kmsg.OffsetCommit, make(chan struct{}))
	ctx, cancel := context.WithCancel(limited(t))
	done := make(chan error, 1)
	go func() {
		_, err := Commit(ctx, cl, "g", lease, []Position{pos})
		done <- err
	}()
	if err := b.WaitCommitted(limited(t), "g", "in", map[int32]int64{0: 3}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || Refusal(err) != RetryLater || !strings.Contains(err.Error(), `"g"`) {
		t.Errorf("Commit = %v", err)
	}
	f.Remove()
	// An answer without the partition.
	leaveOut := make(chan struct{})
	b.Cluster().ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		defer close(leaveOut)
		return req.ResponseKind(), nil, true
	})
	rs, err := Commit(limited(t), cl, "g", lease, []Position{pos})
	if err != nil {
		t.Fatal(err)
	}
	<-leaveOut
	if !errors.Is(rs[0].Err, ErrNoAnswer) || Refusal(rs[0].Err) != RetryLater {
		t.Errorf("an answer without the partition: %v", rs[0].Err)
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	for want, errs := range map[Kind][]error{
		OK: {nil},
		RetryLater: {kerr.RebalanceInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress,
			kerr.RequestTimedOut, ErrNoAnswer, context.DeadlineExceeded, kgo.ErrClientClosed, kerr.NetworkException},
		WaitRenewal:    {kerr.IllegalGeneration, kerr.StaleMemberEpoch, ErrNoLease},
		LostMembership: {kerr.UnknownMemberID, kerr.FencedInstanceID, kerr.GroupIDNotFound, kerr.FencedMemberEpoch},
		Fatal: {kerr.OffsetMetadataTooLarge, kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.UnknownTopicOrPartition,
			kerr.UnknownTopicID, kerr.InvalidGroupID, kerr.InvalidCommitOffsetSize, ErrBadPosition, kerr.UnsupportedVersion},
	} {
		for _, err := range errs {
			if got := Refusal(err); got != want {
				t.Errorf("Refusal(%v) = %v, want %v", err, got, want)
			}
			if err != nil {
				if got := Refusal(fmt.Errorf("wrapped: %w", err)); got != want {
					t.Errorf("Refusal(wrapped %v) = %v, want %v", err, got, want)
				}
			}
		}
	}
	for err, want := range map[error]bool{nil: false, kerr.TopicAuthorizationFailed: true, kerr.OffsetMetadataTooLarge: true, ErrBadPosition: true,
		kerr.UnknownMemberID: true, kerr.FencedInstanceID: true, kerr.IllegalGeneration: false, ErrNoLease: false, kerr.RebalanceInProgress: false,
		kerr.UnknownServerError: false, context.DeadlineExceeded: false, kerr.UnsupportedVersion: true} {
		if got := Hopeless(err); got != want {
			t.Errorf("Hopeless(%v) = %v, want %v", err, got, want)
		}
	}
	if s := Kind(99).String(); s != "Kind(99)" {
		t.Errorf("String of an unknown kind: %q", s)
	}
	for k, want := range map[Kind]string{OK: "ok", RetryLater: "retry later", WaitRenewal: "wait for renewal",
		LostMembership: "lost membership", Fatal: "fatal"} {
		if k.String() != want {
			t.Errorf("%d.String() = %q, want %q", k, k, want)
		}
	}
}

func FuzzUTF16Units(f *testing.F) {
	for _, s := range []string{"", "abc", "\u20ac", "\U0001F600", "\xff\xfe", "a\x00b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := utf16Units(s), len(utf16.Encode([]rune(s))); got != want {
			t.Errorf("utf16Units(%q) = %d, want %d", s, got, want)
		}
	})
}
