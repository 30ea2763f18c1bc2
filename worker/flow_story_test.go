package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// windowed is counting with a pending limit and a quick retry.
func windowed(c *tally, pending int, f bolt.ExecuteFunc) *killick.Topology {
	top := killick.New("t")
	top.Spout("in", spout.Kafka("in")).Pending(pending, 8<<20)
	top.Bolt("count", bolt.Func(func(ctx context.Context, in *killick.Tuple, out killick.Emitter) error {
		c.add(string(in.Bytes()))
		return f(ctx, in, out)
	})).Shuffle("in")
	return top
}

var errTry = errors.New("not yet")

// A retry never waits for the window that its root sits in: the window may be full of records that
// have failed, and on a group without any commit.
// FC-09: STORM-2343, STORM-3531. FC-11: STORM-2229, STORM-2087, STORM-2077.
func TestRetryInsideAFullWindow(t *testing.T) {
	for name, failing := range map[string]func(id, n int) bool{
		"the lowest, three times":  func(id, n int) bool { return id == 0 && n <= 3 },
		"the whole window":         func(id, n int) bool { return id < 10 && n <= 2 },
		"every record once":        func(_, n int) bool { return n == 1 },
		"only the last":            func(id, n int) bool { return id == 99 && n == 1 },
		"the first of a partition": func(id, n int) bool { return id == 50 && n == 1 },
	} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				s.produce("in", 0, numbers(0, 50)...)
				var c tally
				r := s.start(windowed(&c, 10, func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
					var id int
					fmt.Sscan(string(in.Bytes()), &id)
					if failing(id, c.of(string(in.Bytes()))) {
						return errTry
					}
					return nil
				}))
				s.until("half is done", func() bool { return c.total() >= 50 })
				s.produce("in", 1, numbers(50, 100)...)
				s.drained("in")
				r.end()
				for i := range 100 {
					want := 1
					for failing(i, want) {
						want++
					}
					if got := c.of(fmt.Sprint(i)); got != want {
						t.Errorf("%d ran %d times, want %d", i, got, want)
					}
				}
				if len(s.read(dlq)) > 0 {
					t.Error("there are dead letters")
				}
			}, embedded.Topic("in", 2))
		})
	}
}

// One partition whose first record hangs does not hold up another: the other's committed offset
// goes on, and so do the commits of the first with what is known of it.
// FC-27: confluentinc/parallel-consumer #47 and #831.
func TestSlowPartitionBesideAFastOne(t *testing.T) {
	tell(t, func(s *story) {
		block := make(chan struct{})
		var c tally
		top := killick.New("t")
		top.Spout("in", spout.Kafka("in")).Pending(100, 8<<20)
		top.Bolt("count", bolt.Async(64, func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
			c.add(string(in.Bytes()))
			if string(in.Bytes()) == "0" {
				select {
				case <-block:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})).Shuffle("in").Timeout(time.Hour)
		r := s.start(top)
		s.drained("in")
		s.produce("in", 0, numbers(0, 2000)...)
		for i := range 20 {
			s.produce("in", 1, numbers(10_000+100*i, 10_000+100*(i+1))...)
			s.until("the fast one is committed", func() bool { return s.committed("in")[1] == int64(100*(i+1)) })
		}
		if got := s.committed("in")[0]; got != 0 {
			t.Errorf("the slow partition is committed at %d", got)
		}
		// The window is full: 100 started, of which 99 have ended, so 99 more may start...
		s.pass(5 * time.Second)
		st := c.total()
		if st != 2000+2000 { // ended ones make room: all but the blocked one run
			t.Errorf("%d executions", st)
		}
		// ... and every commit says what has ended above the floor.
		all := s.b.Commits()
		last := all[len(all)-1]
		for i := len(all) - 1; last.Partition != 0; i-- {
			last = all[i]
		}
		if last.Metadata == nil || *last.Metadata == "" || last.Offset != 0 {
			t.Errorf("the last commit of the slow partition: %+v", last)
		}
		close(block)
		s.drained("in")
		r.end()
	}, embedded.Topic("in", 2))
}

// With the window full and nothing ending, commits still go out (they refresh and carry the map),
// fetching stops at the high water and memory stays bounded; when records end again all goes on.
// FC-27: confluentinc/parallel-consumer #647 and #832.
func TestHighWaterPausesAndResumes(t *testing.T) {
	for name, tt := range map[string]struct{ n, size, water int }{"many small": {30_000, 100, 2 << 20}, "few large": {40, 900_000, 8 << 20}} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				var rs []*kgo.Record
				for i := range tt.n {
					v := make([]byte, tt.size)
					copy(v, fmt.Sprintf("%d ", i))
					rs = append(rs, &kgo.Record{Topic: "in", Value: v})
				}
				if err := s.b.Produce(s.ctx(), rs...); err != nil {
					t.Fatal(err)
				}
				block := make(chan struct{})
				var c tally
				top := killick.New("t")
				top.Spout("in", spout.Kafka("in")).Pending(20, int64(tt.water))
				top.Bolt("count", bolt.Func(func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
					select {
					case <-block:
					case <-ctx.Done():
						return ctx.Err()
					}
					c.add("")
					return nil
				})).Shuffle("in").Timeout(time.Hour)
				r := s.start(top, func(c *worker.Config) { c.FetchMaxBytes = int32(tt.water) })
				s.until("fetching is paused", func() bool { return r.metric("killick_paused_partitions") == 1 })
				s.pass(10 * time.Second)
				// The high water, a fetch in flight, and what the client had buffered.
				waiting := r.metric("killick_ledger_pending")
				if bytes := waiting * float64(tt.size+176); bytes > float64(tt.water+3*tt.water) || int(waiting) >= tt.n {
					t.Errorf("%v records of %d bytes wait: %.0f MiB", waiting, tt.size, bytes/(1<<20))
				}
				close(block)
				s.drained("in")
				if r.metric("killick_paused_partitions") != 0 {
					t.Error("it is still paused")
				}
				r.end()
				if c.total() != tt.n {
					t.Errorf("%d executions of %d records", c.total(), tt.n)
				}
			}, embedded.Topic("in", 1))
		})
	}
}
