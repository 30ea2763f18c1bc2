package embedded

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/testenv/bubble"
)

// once keeps a client from repeating a request by itself.
func once() []kgo.Opt { return []kgo.Opt{kgo.RequestRetries(0)} }

func TestFail(t *testing.T) {
	t.Parallel()
	b := Start(t, Topic("in", 1))
	ctx := limited(t)
	cl := client(t, b, once()...)
	code := func() error {
		t.Helper()
		resp, err := commitRequest(b, "g", "", -1, "in", 0, 1, "").RequestWith(ctx, cl)
		if err != nil {
			t.Fatal(err)
		}
		return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	f := b.Fail(kmsg.OffsetCommit, kerr.RebalanceInProgress, 2)
	for range 2 {
		if err := code(); !errors.Is(err, kerr.RebalanceInProgress) {
			t.Errorf("code %v, want REBALANCE_IN_PROGRESS", err)
		}
	}
	if err := code(); err != nil {
		t.Errorf("the third commit: %v", err)
	}
	if f.Hits() != 2 || f.Wait(ctx, 2) != nil {
		t.Errorf("Hits = %d, want 2", f.Hits())
	}

	none := b.Fail(kmsg.OffsetCommit, kerr.RebalanceInProgress, 0)
	if err := code(); err != nil || none.Hits() != 0 {
		t.Errorf("a fault for 0 requests acted: %v", err)
	}

	other := b.Fail(kmsg.OffsetCommit, kerr.RebalanceInProgress, -1, func(req kmsg.Request) bool {
		return req.(*kmsg.OffsetCommitRequest).Group == "other"
	})
	if err := code(); err != nil {
		t.Errorf("a fault for another group acted: %v", err)
	}
	other.Remove()
}

func TestDelayAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := StartVirtual(t, Topic("in", 1))
		ctx := limited(t)
		cl := client(t, b)
		const late = 700 * time.Millisecond
		took := func(offset int64) time.Duration {
			t.Helper()
			begin := time.Now()
			if _, err := commitRequest(b, "g", "", -1, "in", 0, offset, "").RequestWith(ctx, cl); err != nil {
				t.Fatal(err)
			}
			return time.Since(begin)
		}
		took(1) // connected
		f := b.DelayAnswers(kmsg.OffsetCommit, late)
		for n := range 2 {
			if d := took(2); d < late || d > late+100*time.Millisecond {
				t.Errorf("answer %d came after %v, want %v", n, d, late)
			}
		}
		if f.Hits() != 2 {
			t.Errorf("Hits = %d, want 2", f.Hits())
		}
		f.Remove()
		if d := took(3); d > 100*time.Millisecond {
			t.Errorf("after Remove an answer came after %v", d)
		}
	})
}

func TestHold(t *testing.T) {
	t.Parallel()
	b := Start(t, Topic("in", 1))
	ctx := limited(t)
	cl := client(t, b)
	gate := make(chan struct{})
	f := b.Hold(kmsg.OffsetCommit, gate)
	done := make(chan error, 1)
	go func() {
		_, err := commitRequest(b, "g", "", -1, "in", 0, 5, "").RequestWith(ctx, cl)
		done <- err
	}()
	if err := f.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	// The broker has not acted: it does not know the group yet.
	if got, err := b.Committed(ctx, "g", "in"); err != nil || len(got) != 0 {
		t.Errorf("committed while the request is held: %v, %v", got, err)
	}
	if cs := b.Commits(); len(cs) != 1 || cs[0].Outcome != Pending || cs[0].Accepted() {
		t.Errorf("Commits = %+v, want one pending", cs)
	}
	select {
	case err := <-done:
		t.Fatalf("answered while held: %v", err)
	default:
	}
	close(gate)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got, err := b.Committed(ctx, "g", "in"); err != nil || got[0].Offset != 5 {
		t.Errorf("committed after the hold: %v, %v", got, err)
	}
}

func TestHoldAnswers(t *testing.T) {
	t.Parallel()
	b := Start(t, Topic("in", 1))
	ctx := limited(t)
	cl := client(t, b)
	f := b.HoldAnswers(kmsg.OffsetCommit, make(chan struct{}))
	done := make(chan error, 1)
	go func() {
		_, err := commitRequest(b, "g", "", -1, "in", 0, 5, "").RequestWith(ctx, cl)
		done <- err
	}()
	// The broker has acted, the client waits.
	if err := b.WaitCommitted(ctx, "g", "in", map[int32]int64{0: 5}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Fatalf("answered while held: %v", err)
	default:
	}
	f.Remove()
	f.Remove()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestDrop(t *testing.T) {
	t.Parallel()
	b := Start(t, Topic("in", 1))
	ctx := limited(t)
	cl := client(t, b, once()...)
	if _, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, cl); err != nil {
		t.Fatal(err)
	}
	f := b.Drop(kmsg.OffsetCommit, 1)
	if _, err := commitRequest(b, "g", "", -1, "in", 0, 5, "").RequestWith(ctx, cl); err == nil {
		t.Error("a dropped request was answered")
	}
	if f.Hits() != 1 {
		t.Errorf("Hits = %d, want 1", f.Hits())
	}
	if got, err := b.Committed(ctx, "g", "in"); err != nil || len(got) != 0 {
		t.Errorf("the broker acted on a dropped request: %v, %v", got, err)
	}
	if cs := b.Commits(); len(cs) != 1 || cs[0].Outcome != Unanswered || cs[0].Accepted() {
		t.Errorf("Commits = %+v, want one unanswered", cs)
	}
	if _, err := commitRequest(b, "g", "", -1, "in", 0, 6, "").RequestWith(ctx, cl); err != nil {
		t.Errorf("the commit after it: %v", err)
	}
}

func TestLoseAnswers(t *testing.T) {
	t.Parallel()
	b := Start(t, Topic("in", 1))
	ctx := limited(t)
	cl := client(t, b, once()...)
	b.LoseAnswers(kmsg.OffsetCommit, 1, func(req kmsg.Request) bool {
		return req.(*kmsg.OffsetCommitRequest).Group == "g"
	})
	if _, err := commitRequest(b, "h", "", -1, "in", 0, 1, "").RequestWith(ctx, cl); err != nil {
		t.Errorf("another group's commit: %v", err)
	}
	if _, err := commitRequest(b, "g", "", -1, "in", 0, 5, "").RequestWith(ctx, cl); err == nil {
		t.Error("the answer arrived")
	}
	if got, err := b.Committed(ctx, "g", "in"); err != nil || got[0].Offset != 5 {
		t.Errorf("the broker should have acted: %v, %v", got, err)
	}
	cs := b.Commits()
	if len(cs) != 2 || cs[1].Outcome != AnswerLost || !cs[1].Accepted() {
		t.Errorf("Commits = %+v, want the second's answer lost", cs)
	}
}

// Exactly-once produce: the broker stored the batch, the answer was lost, the
// client sends it again, and it is there once.
func TestLoseProduceAnswers(t *testing.T) {
	t.Parallel()
	b := Start(t, Topic("out", 1))
	ctx := limited(t)
	cl := client(t, b, kgo.DefaultProduceTopic("out"))
	f := b.LoseAnswers(kmsg.Produce, 1)
	if err := cl.ProduceSync(ctx, kgo.StringRecord("once")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if f.Hits() != 1 {
		t.Errorf("Hits = %d", f.Hits())
	}
	if got, err := b.ReadAll(ctx, "out"); err != nil || len(got) != 1 {
		t.Errorf("%d records, %v; want 1", len(got), err)
	}
}

func TestDownUp(t *testing.T) {
	t.Parallel()
	b := Start(t, Topic("in", 1), Brokers(2))
	ctx := limited(t)
	if err := b.Produce(ctx, &kgo.Record{Topic: "in", Value: []byte("before")}); err != nil {
		t.Fatal(err)
	}
	b.Down()
	b.Down()
	for _, addr := range b.Addrs() {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			t.Errorf("%s accepts connections while down", addr)
		}
	}
	if err := b.Up(); err != nil {
		t.Fatal(err)
	}
	if err := b.Up(); err != nil {
		t.Errorf("second Up: %v", err)
	}
	if err := b.Produce(ctx, &kgo.Record{Topic: "in", Value: []byte("after")}); err != nil {
		t.Fatal(err)
	}
	if got, err := b.ReadAll(ctx, "in"); err != nil || len(got) != 2 {
		t.Errorf("%d records, %v; want 2", len(got), err)
	}
}

func TestDisconnect(t *testing.T) {
	t.Parallel()
	b := Start(t, Topic("in", 1))
	ctx := limited(t)
	cl := client(t, b, kgo.DefaultProduceTopic("in"))
	for range 3 {
		if err := cl.ProduceSync(ctx, kgo.StringRecord("v")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		b.Disconnect()
	}
	if got, err := b.ReadAll(ctx, "in"); err != nil || len(got) != 3 {
		t.Errorf("%d records, %v; want 3", len(got), err)
	}
}

// Close must not hang on what is held.
func TestCloseReleasesHolds(t *testing.T) {
	t.Parallel()
	b, err := New(Topic("in", 1))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(limited(t))
	cl := client(t, b, once()...)
	f := b.Hold(kmsg.OffsetCommit, make(chan struct{}))
	done := make(chan struct{})
	req := commitRequest(b, "g", "", -1, "in", 0, 5, "")
	go func() {
		defer close(done)
		_, _ = req.RequestWith(ctx, cl) // the outcome is of no interest
	}()
	if err := f.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() { b.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("Close hangs")
	}
	cancel()
	<-done
}

func TestFaultWaitEndsWithContext(t *testing.T) {
	t.Parallel()
	b := Start(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, f := range map[string]Fault{
		"Drop": b.Drop(kmsg.OffsetCommit, 1),
		"Fail": b.Fail(kmsg.OffsetCommit, kerr.UnknownServerError, 1),
	} {
		if err := f.Wait(ctx, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: Wait = %v", name, err)
		}
	}
}
