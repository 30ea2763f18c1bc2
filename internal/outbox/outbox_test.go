package outbox

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
)

// A deadline ends by itself, after the timeout and not long after; records of one moment share it.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deadlines{after: 16 * time.Second}
		start := time.Now()
		first := d.next()
		if d.next() != first {
			t.Error("records of the same moment have deadlines of their own")
		}
		<-time.After(999 * time.Millisecond)
		if d.next() != first {
			t.Error("a second deadline within a sixteenth")
		}
		<-time.After(time.Millisecond)
		second := d.next()
		if second == first {
			t.Error("one deadline for ever")
		}
		if first.Err() != nil {
			t.Errorf("it has ended: %v", first.Err())
		}
		<-first.Done()
		if took := time.Since(start); took != 17*time.Second {
			t.Errorf("ended after %v", took)
		}
		if !errors.Is(first.Err(), ErrNotDurable) || second.Err() != nil {
			t.Errorf("%v, %v", first.Err(), second.Err())
		}
		if at, ok := first.Deadline(); !ok || !at.Equal(start.Add(17*time.Second)) {
			t.Errorf("deadline %v", at)
		}
	})
}

// The size of batches: known, asked for, or found by halving; never outside of what kgo takes.
func TestLimits(t *testing.T) {
	answer := int32(0)
	l := &Limits{Most: 1000_000, Ask: func(context.Context, string) int32 { return answer }}
	want := func(n int32) {
		t.Helper()
		if got := l.Of("t"); got != n {
			t.Errorf("limit %d, want %d", got, n)
		}
	}
	want(1000_000)
	l.Set("t", 2000_000)
	want(1000_000)
	answer = 20_000
	l.learn(t.Context(), "t")
	want(20_000)
	l.learn(t.Context(), "t") // it says the same again, and yet refused
	want(10_000)
	answer = 0
	l.learn(t.Context(), "t")
	want(5_000)
	l.Set("t", 3)
	want(512)
	if l.Of("other") != 1000_000 {
		t.Error("another topic has the limit of the first")
	}
}

// Which refusals are about the record, and so for ever.
func TestJudge(t *testing.T) {
	small, large := &kgo.Record{Topic: "t", Value: make([]byte, 10)}, &kgo.Record{Topic: "t", Value: make([]byte, 2000)}
	for _, tt := range []struct {
		r         *kgo.Record
		err       error
		permanent bool
		stale     bool
	}{
		{small, kerr.InvalidRecord, true, false},
		{small, kerr.InvalidTimestamp, true, false},
		{small, fmt.Errorf("%w (compressed)", kerr.MessageTooLarge), false, true}, // the batch was
		{large, kerr.MessageTooLarge, true, false},
		{small, kerr.UnknownTopicID, false, true},
		{small, kerr.NotEnoughReplicas, false, false},
		{small, ErrNotDurable, false, false},
		{small, context.Canceled, false, false},
	} {
		d := NewDirect(nil, &Limits{Most: 1000}, time.Minute)
		err := d.judge(tt.r, tt.err)
		if !errors.Is(err, tt.err) || killick.IsPermanent(err) != tt.permanent || (d.stale["t"] != nil) != tt.stale {
			t.Errorf("%v of a record of %d bytes: permanent %v, stale %v", tt.err, len(tt.r.Value), killick.IsPermanent(err), d.stale["t"])
		}
	}
	if err := NewDirect(nil, &Limits{Most: 1000}, time.Minute).judge(small, nil); err != nil {
		t.Error(err)
	}
}

// Times that the client cannot write become that of the writing.
func TestSane(t *testing.T) {
	for _, tt := range []struct {
		at   time.Time
		kept bool
	}{
		{time.UnixMilli(-1), true}, {time.UnixMilli(0), true}, {time.Date(2261, 12, 31, 0, 0, 0, 0, time.UTC), true},
		{time.Date(2263, 1, 1, 0, 0, 0, 0, time.UTC), false}, {time.UnixMicro(1700000000_000_000).Add(0), true},
		{time.UnixMilli(1700000000_000_000), false}, // microseconds taken for milliseconds
		{time.Time{}, false},
	} {
		if got := sane(tt.at); got.IsZero() == tt.kept || tt.kept && !got.Equal(tt.at) {
			t.Errorf("%v became %v", tt.at, got)
		}
	}
}
