package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/internal/partition"
	"github.com/killick-io/killick/offsets"
	"github.com/killick-io/killick/testenv/bubble"
)

// A deadline ends by itself, after the timeout and not long after; records of one moment share it.
func TestDeadlines(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
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

// A dead letter that could not be written and whose partition goes away is not waited for any more:
// nobody says that its topic cannot be written to.
func TestLettersOfLostPartitions(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var dead []partition.Dead
		f := partition.NewFeed("in", 10, 1<<20, partition.Hooks{Dead: func(d partition.Dead) { dead = append(dead, d) }})
		open := func(topic string) *partition.Partition {
			p := f.Open(topic, 0, 0, offsets.Map{}, false)
			if _, err := p.Deliver([]*kgo.Record{{Topic: topic, Value: []byte("v")}}); err != nil {
				t.Fatal(err)
			}
			var run engine.Run
			if err := f.Next(t.Context(), &run); err != nil {
				t.Fatal(err)
			}
			run.Chunk.End(run.From, &ack.Cause{Outcome: ack.Dead, Policy: ack.DeadLetter, Reason: "error"})
			return p
		}
		a, b := open("a"), open("b")
		no := errors.New("no")
		w := NewDeadLetters(DeadLetterConfig{Topology: "t", Timeout: time.Second,
			Partitions: func(context.Context, string, bool) (int, error) { return 0, no }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		start := time.Now()
		w.Put(dead[0])
		<-time.After(time.Minute)
		w.Put(dead[1])
		<-time.After(time.Minute)
		want := func(waiting int, since time.Time, topic string) {
			t.Helper()
			s := w.Stats()
			if s.Waiting != waiting || !s.Since.Equal(since) || topic == "" && s.Err != nil ||
				topic != "" && (!errors.Is(s.Err, no) || !strings.Contains(s.Err.Error(), topic)) {
				t.Errorf("%+v; want %d waiting since %v for %q", s, waiting, since, topic)
			}
		}
		want(2, start, "a.t.dlq")
		a.Close()
		<-time.After(time.Minute)
		want(1, start.Add(time.Minute), "b.t.dlq")
		b.Close()
		<-time.After(time.Minute)
		want(0, time.Time{}, "")
		cancel()
		<-done
	})
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
		{time.Date(1677, 12, 31, 23, 59, 59, 999, time.UTC), false}, {time.Date(1678, 1, 1, 0, 0, 0, 0, time.UTC), true},
		{time.Date(2261, 12, 31, 23, 59, 59, 999, time.UTC), true}, {time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC), false},
	} {
		if got := sane(tt.at); got.IsZero() == tt.kept || tt.kept && !got.Equal(tt.at) {
			t.Errorf("%v became %v", tt.at, got)
		}
	}
}
