package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv"
	"github.com/killick-io/killick/testenv/bubble"
)

// batches notes the batches that a function was given, as "at:size" with the time since start.
type batches struct {
	mu    sync.Mutex
	start time.Time
	sizes []int
	at    []time.Duration
}

func (b *batches) note(in []*killick.Held) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sizes = append(b.sizes, len(in))
	b.at = append(b.at, time.Since(b.start))
}

// trickle is a spout that pauses after so many messages.
type trickle struct {
	n, after int
	pause    time.Duration
	sent     int
}

func (s *trickle) Next(ctx context.Context) (killick.Message, func(error), error) {
	if s.sent == s.after {
		select {
		case <-time.After(s.pause):
		case <-ctx.Done():
			return killick.Message{}, nil, ctx.Err()
		}
	}
	if s.sent == s.n {
		return killick.Message{}, nil, io.EOF
	}
	s.sent++
	return killick.Message{Key: fmt.Append(nil, s.sent)}, nil, nil
}

func TestBatchBySizeWaitAndFlush(t *testing.T) {
	for _, c := range []struct {
		name     string
		max      int
		wait     time.Duration
		spout    trickle
		sizes    []int
		from, to []time.Duration
	}{
		{"by size", 5, time.Minute, trickle{n: 10, after: -1}, []int{5, 5}, []time.Duration{0, 0}, []time.Duration{time.Second, time.Second}},
		{"by wait", 100, time.Minute, trickle{n: 5, after: 3, pause: 10 * time.Minute}, []int{3, 2},
			[]time.Duration{time.Minute, 10 * time.Minute}, []time.Duration{67 * time.Second, 10*time.Minute + time.Second}},
		{"flush at the end", 5, time.Hour, trickle{n: 7, after: -1}, []int{5, 2}, []time.Duration{0, 0}, []time.Duration{time.Second, time.Second}},
	} {
		bubble.Test(t, func(t *testing.T) {
			got := batches{start: time.Now()}
			top := killick.New("batches")
			top.Spout("in", spout.New(func() killick.Spout { s := c.spout; return &s }))
			top.Bolt("b", bolt.Batch(c.max, c.wait, func(_ context.Context, in []*killick.Held) error {
				got.note(in)
				return nil
			})).Shuffle("in").Timeout(2 * time.Hour)
			r := testenv.RunReal(t, top)
			if took, most := time.Since(got.start), c.to[len(c.to)-1]+time.Second; took > most {
				t.Errorf("%s: the run ended after %v, want at most %v: nothing waits any more", c.name, took, most)
			}
			if r.Acked("in") != c.spout.n || r.Err() != nil || !slices.Equal(got.sizes, c.sizes) {
				t.Fatalf("%s: acked %d, %v, batches %v", c.name, r.Acked("in"), r.Err(), got.sizes)
			}
			for i, at := range got.at {
				if at < c.from[i] || at > c.to[i] {
					t.Errorf("%s: batch %d after %v, want %v to %v", c.name, i, at, c.from[i], c.to[i])
				}
			}
			for id, n := range r.Attempts("b") {
				if n != 1 {
					t.Errorf("%s: %s was executed %d times", c.name, id, n)
				}
			}
		})
	}
}

// Each item has a verdict of its own: what f decides counts, the rest follows its return.
func TestBatchVerdicts(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name string
		end  func() error
		// tries of the items 0 to 5: 0 and 1 acked by f, 2 and 3 failed by f (3 for good), the
		// others left to f's end.
		tries string
		dead  []string
	}{
		{"nil acks the rest", func() error { return nil }, "1 1 2 1 1 1", []string{"3"}},
		{"an error fails the rest", func() error { return boom }, "1 1 2 1 3 3", []string{"3", "4", "5"}},
		{"a permanent error ends the rest", func() error { return killick.Permanent(boom) }, "1 1 2 1 1 1", []string{"3", "4", "5"}},
		{"a panic fails the rest", func() error { panic(boom) }, "1 1 2 1 3 3", []string{"3", "4", "5"}},
	} {
		var mu sync.Mutex
		var first *killick.Held
		again := 0
		top, d := line(bolt.Batch(6, time.Second, func(_ context.Context, in []*killick.Held) error {
			mu.Lock()
			defer mu.Unlock()
			for _, h := range in {
				_ = h.Emit(h.Tuple().Message())
				switch string(h.Tuple().Key()) {
				case "0":
					first = h
					h.Ack()
				case "1":
					h.Ack()
					if h.Ack() || h.Fail(boom) {
						t.Errorf("%s: a second verdict counts", c.name)
					}
				case "2":
					if h.Tuple().Attempt() == 1 {
						h.Fail(boom)
					} else {
						again++
						h.Ack()
					}
				case "3":
					h.Fail(killick.Permanent(boom))
				}
			}
			return c.end()
		}), nil, nil)
		d.Retry(killick.Retry{Attempts: 3})
		r := testenv.Run(t, top, testenv.Feed("in", numbers(6)...))
		var tries, dead, written []string
		for i := range 6 {
			tries = append(tries, fmt.Sprint(r.Attempts("b")[fmt.Sprintf("in/0/%d", i)]))
		}
		for _, l := range r.DeadLetters() {
			dead = append(dead, string(l.Key))
			if !errors.Is(l.Err, boom) && !strings.Contains(l.Err.Error(), "boom") {
				t.Errorf("%s: %s died of %v", c.name, l.Key, l.Err)
			}
		}
		for _, m := range r.Written("out") {
			written = append(written, string(m.Key))
		}
		slices.Sort(dead)
		slices.Sort(written)
		if got := strings.Join(tries, " "); got != c.tries || !slices.Equal(dead, c.dead) || again != 1 {
			t.Errorf("%s: tries %s, dead %v, item 2 came back %d times", c.name, got, dead, again)
		}
		if r.Acked("in") != 6-len(c.dead) || len(written) != 6-len(c.dead) {
			t.Errorf("%s: acked %d, written %v", c.name, r.Acked("in"), written)
		}
		if first.Ack() || !errors.Is(first.Emit(killick.Message{}), killick.ErrFinished) {
			t.Errorf("%s: a verdict after the end counts", c.name)
		}
	}
}

// One output for a whole batch is anchored to all of it.
func TestBatchJoins(t *testing.T) {
	top, _ := line(bolt.Batch(4, time.Second, func(_ context.Context, in []*killick.Held) error {
		var keys [][]byte
		for _, h := range in {
			keys = append(keys, h.Tuple().Key())
		}
		return in[0].Emit(killick.Message{Bytes: bytes.Join(keys, []byte("+"))}, in[1:]...)
	}), nil, nil)
	r := testenv.Run(t, top, testenv.Feed("in", numbers(8)...))
	if got := r.Written("out"); len(got) != 2 || string(got[0].Bytes) != "0+1+2+3" || string(got[1].Bytes) != "4+5+6+7" || r.Acked("in") != 8 {
		t.Errorf("acked %d, written %q, dead %+v", r.Acked("in"), got, r.DeadLetters())
	}
}

// With InFlight several batches of one task run at a time, each tuple in one of them.
func TestBatchInFlight(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		got := batches{start: time.Now()}
		seen := map[string]int{}
		top, d := line(bolt.Batch(5, time.Second, func(_ context.Context, in []*killick.Held) error {
			got.note(in)
			<-time.After(time.Second) // virtual time
			got.mu.Lock()
			defer got.mu.Unlock()
			for _, h := range in {
				seen[string(h.Tuple().Key())]++
			}
			return nil
		}), nil, nil)
		d.InFlight(20)
		r := testenv.RunReal(t, top, testenv.Feed("in", numbers(100)...))
		took := time.Since(got.start)
		if r.Acked("in") != 100 || len(seen) != 100 || took > 5*time.Second {
			t.Errorf("acked %d, seen %d, took %v, batches %v", r.Acked("in"), len(seen), took, got.sizes)
		}
		for k, n := range seen {
			if n != 1 {
				t.Errorf("%s was in %d batches", k, n)
			}
		}
	})
}

// One bolt by itself: what waits is acked at Flush or after the wait, not before.
func TestBatchAlone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := bolt.Batch(3, time.Minute, func(context.Context, []*killick.Held) error { return nil })()
		execute := func() *testenv.Recorder {
			r, err := testenv.Execute(t.Context(), b, killick.Message{})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		open := func(r *testenv.Recorder) bool { ended, _ := r.Verdict(); return !ended }
		r1, r2 := execute(), execute()
		if !open(r1) || !open(r2) {
			t.Error("acked before the batch ran")
		}
		execute()
		if open(r1) || open(r2) {
			t.Error("a full batch did not run")
		}
		r4 := execute()
		tick := func() {
			if err := b.(killick.Ticker).Tick(t.Context(), new(testenv.Recorder)); err != nil {
				t.Error(err)
			}
		}
		<-time.After(59 * time.Second) // virtual time
		if tick(); !open(r4) {
			t.Error("ran before the wait")
		}
		<-time.After(time.Second) // virtual time
		if tick(); open(r4) {
			t.Error("did not run after the wait")
		}
		r5 := execute()
		if err := b.(killick.Flusher).Flush(t.Context()); err != nil || open(r5) {
			t.Errorf("Flush: %v", err)
		}
	})
}

// A panic of f fails the tuples with what it said, and is then whoever called the bolt's to
// report.
func TestBatchPanic(t *testing.T) {
	b := bolt.Batch(1, time.Minute, func(context.Context, []*killick.Held) error { panic("out of rows") })()
	r, err := testenv.Execute(t.Context(), b, killick.Message{})
	if err == nil || !strings.Contains(err.Error(), "panic: out of rows") {
		t.Errorf("the panic is lost: %v", err)
	}
	if ended, err := r.Verdict(); !ended || err == nil || err.Error() != "bolt: the batch function panicked: out of rows" {
		t.Errorf("verdict %v, %v", ended, err)
	}
}
