package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// once makes a topology that runs its records at most once, in a window of the given size.
func once(c *tally, window int, f bolt.ExecuteFunc) *killick.Topology {
	top := killick.New("t").Guarantee(killick.AtMostOnce)
	top.Spout("in", spout.Kafka("in")).Pending(window, 1<<20)
	top.Bolt("count", bolt.Async(8, func(ctx context.Context, in *killick.Tuple, out killick.Emitter) error {
		c.add(string(in.Bytes()))
		if f != nil {
			return f(ctx, in, out)
		}
		return nil
	})).Shuffle("in")
	return top
}

// most is how often the value ran that ran most often, and how many different ones did.
func (c *tally) most() (most, different int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.n {
		most = max(most, n)
	}
	return most, len(c.n)
}

// stored is the highest position of a partition that the broker has accepted.
func (s *story) stored(p int32) (offset int64) {
	for _, c := range s.b.Commits() {
		if c.Accepted() && c.Partition == p {
			offset = max(offset, c.Offset)
		}
	}
	return offset
}

// No record is given to a bolt before the broker has confirmed a commit behind it.
func TestAtMostOnceCommitsFirst(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		s.produce("in", 0, numbers(0, 100)...)
		gate := make(chan struct{})
		held := s.b.HoldAnswers(kmsg.OffsetCommit, gate)
		r := s.start(once(&c, 16, func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if o, _ := in.Origin(); o.Offset >= s.stored(0) {
				s.Errorf("offset %d runs, stored is %d", o.Offset, s.stored(0))
			}
			s.pass(time.Millisecond)
			return nil
		}))
		if err := held.Wait(s.ctx(), 1); err != nil {
			s.Fatal(err)
		}
		s.pass(time.Second)
		if c.total() != 0 {
			s.Errorf("%d records ran before a commit was confirmed", c.total())
		}
		held.Remove()
		close(gate)
		s.drained("in")
		s.until("all have run", func() bool { return c.total() == 100 })
		s.produce("in", 0, numbers(100, 200)...)
		s.until("all have run", func() bool { return c.total() == 200 })
		r.end()
		c.once(s, numbers(0, 200)...)
	}, embedded.Topic("in", 1))
}

// Workers are killed at any moment, and commits fail, or their answers are lost, now and then: no record
// runs twice, and a kill costs no more than a window of each partition.
func TestAtMostOnceOverKills(t *testing.T) {
	const partitions, window, kills = 2, 10, 4
	seeds := uint64(5)
	if full() {
		seeds = 100
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			tell(t, func(s *story) {
				rng := rand.New(rand.NewPCG(seed, 7))
				var c tally
				var mu sync.Mutex
				draw := func(n int) int {
					mu.Lock()
					defer mu.Unlock()
					return rng.IntN(n)
				}
				pause := func(most int) { s.pass(time.Duration(draw(most)) * time.Millisecond) }
				top := func() *killick.Topology {
					return once(&c, window, func(context.Context, *killick.Tuple, killick.Emitter) error { pause(20); return nil })
				}
				n, doubts := 0, 0
				for range kills {
					for p := range int32(partitions) {
						s.produce("in", p, numbers(n, n+100)...)
						n += 100
					}
					r := s.start(top(), func(c *worker.Config) { c.Drain = time.Millisecond }) // a kill leaves no time
					s.until("it works", func() bool { return len(r.parts("in")) == partitions })
					for range draw(4) {
						pause(100)
						switch draw(3) {
						case 0:
							s.b.Fail(kmsg.OffsetCommit, kerr.RequestTimedOut, 1)
							doubts++
						case 1:
							s.b.Fail(kmsg.OffsetCommit, kerr.CoordinatorNotAvailable, 1)
						case 2:
							s.b.Disconnect()
						}
					}
					pause(100)
					r.kill()
				}
				r := s.start(top())
				s.drained("in")
				last := -1
				s.until("nothing runs any more", func() bool { was := last; last = c.total(); s.pass(time.Second); return was == last })
				r.end()
				most, different := c.most()
				if most > 1 {
					s.Errorf("a record ran %d times", most)
				}
				// A commit whose outcome is not known may have been stored: that is a window, too.
				if lost := n - different; lost > (kills+doubts)*partitions*window {
					s.Errorf("%d of %d records were lost by %d kills and %d doubts", lost, n, kills, doubts)
				} else {
					s.Logf("%d of %d records were lost by %d kills and %d doubts", lost, n, kills, doubts)
				}
			}, embedded.Topic("in", partitions))
		})
	}
}

// After a commit whose outcome is not known no position is stored under its generation any more: it might
// arrive later and set the offset back.
func TestAtMostOnceDoubt(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		a := s.start(once(&c, 10, nil))
		b := s.start(once(&c, 10, nil)) // one of them is not the leader
		s.share(map[*running]int{a: 1, b: 1})
		s.drained("in")
		for round := range 6 {
			before := len(s.b.Commits())
			s.b.Fail(kmsg.OffsetCommit, kerr.RequestTimedOut, 1)
			s.produce("in", int32(round%2), numbers(round*50, round*50+50)...)
			s.drained("in")
			all := s.b.Commits()[before:]
			at := slices.IndexFunc(all, func(o embedded.Commit) bool { return errors.Is(o.Err, kerr.RequestTimedOut) })
			if at < 0 {
				s.Fatalf("round %d: no commit was in doubt", round)
			}
			for _, o := range all[at+1:] {
				if o.Member == all[at].Member && o.Generation == all[at].Generation {
					s.Errorf("round %d: after a commit in doubt, of offset %d, one of offset %d under the same generation", round, all[at].Offset, o.Offset)
				}
			}
			s.share(map[*running]int{a: 1, b: 1})
		}
		if n := len(s.logs.lines("whether a commit was stored is not known")); n != 6 {
			s.Errorf("%d times in doubt", n)
		}
		if most, different := c.most(); most > 1 || different < 300-6*10 {
			s.Errorf("%d different records ran, one %d times", different, most)
		}
		a.end()
		b.end()
	}, embedded.Topic("in", 2))
}

// A stop lets what is claimed end, and so does a partition that moves: nothing is lost, nothing runs twice.
func TestAtMostOnceMoves(t *testing.T) {
	tell(t, func(s *story) {
		const partitions = 4
		var c tally
		n := 0
		top := func() *killick.Topology {
			return once(&c, 16, func(context.Context, *killick.Tuple, killick.Emitter) error { s.pass(3 * time.Millisecond); return nil })
		}
		feed := func() {
			for p := range int32(partitions) {
				s.produce("in", p, numbers(n, n+20)...)
				n += 20
			}
		}
		a := s.start(top())
		s.share(map[*running]int{a: partitions})
		for range 3 {
			feed()
			b := s.start(top())
			s.until("both work", func() bool { feed(); return len(a.parts("in")) == 2 && len(b.parts("in")) == 2 })
			feed()
			a.end()
			feed()
			s.share(map[*running]int{b: partitions})
			a = b
		}
		s.drained("in")
		a.end()
		c.once(s, numbers(0, n)...)
		if lines := s.logs.lines("have not ended"); len(lines) > 0 {
			s.Errorf("said: %v", lines)
		}
	}, embedded.Topic("in", 4))
}

// What fails is dropped after its one try, and counted; there is no dead-letter topic.
func TestAtMostOnceFailures(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		s.produce("in", 0, numbers(0, 60)...)
		r := s.start(once(&c, 100, func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			switch o, _ := in.Origin(); o.Offset % 6 {
			case 1:
				return errors.New("no")
			case 2:
				return killick.RetryAfter(time.Second, errors.New("later"))
			case 3:
				return killick.FailTree(errors.New("all of it"))
			case 4:
				panic("oh")
			case 5:
				return killick.Permanent(errors.New("never"))
			}
			return nil
		}))
		s.drained("in")
		s.until("all have run", func() bool { return c.total() == 60 })
		s.pass(time.Minute)
		if got := r.metric("killick_dropped_total", "reason=failed"); got != 50 {
			s.Errorf("%v are counted as dropped, want 50", got)
		}
		r.end()
		c.once(s, numbers(0, 60)...)
		if infos := s.b.Cluster().PartitionInfos(dlq); len(infos) > 0 {
			s.Error("there is a dead-letter topic")
		}
	}, embedded.Topic("in", 1))
}

// What is in a bolt when the drain limit passes is not run again, and is counted.
func TestAtMostOnceAbandons(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		var handles []*killick.Held
		top := killick.New("t").Guarantee(killick.AtMostOnce).Timeout(time.Hour)
		top.Spout("in", spout.Kafka("in"))
		top.Bolt("hold", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			c.add(string(in.Bytes()))
			handles = append(handles, out.Hold())
			return nil
		})).Shuffle("in")
		s.produce("in", 0, numbers(0, 5)...)
		r := s.start(top)
		s.until("all are held", func() bool { return c.total() == 5 })
		r.stop()
		if err := r.wait(); err == nil {
			s.Error("a clean end, with held tuples")
		}
		if got := r.metric("killick_dropped_total", "reason=abandoned"); got != 5 {
			s.Errorf("%v are counted as dropped, want 5", got)
		}
		if lines := s.logs.lines("they are not run again"); len(lines) != 1 {
			s.Errorf("said: %v", lines)
		}
		for _, h := range handles {
			h.Ack()
		}
		var again tally
		r = s.start(once(&again, 10, nil))
		s.produce("in", 0, "new")
		s.until("the new one has run", func() bool { return again.of("new") == 1 })
		r.end()
		again.once(s, "new")
	}, embedded.Topic("in", 1))
}

// Where a "latest" start lies is decided once, and a bounded run ends.
func TestAtMostOnceStartAndUntil(t *testing.T) {
	tell(t, func(s *story) {
		s.produce("in", 0, numbers(0, 10)...)
		var c tally
		run := func(src spout.KafkaSource) *running {
			top := killick.New("t").Guarantee(killick.AtMostOnce)
			top.Spout("in", src)
			top.Bolt("count", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
				c.add(string(in.Bytes()))
				return nil
			})).Shuffle("in")
			return s.start(top)
		}
		r := run(spout.KafkaSource{Topics: []string{"in"}, Start: spout.Latest()})
		s.drained("in")
		r.kill()
		s.produce("in", 0, numbers(10, 40)...)
		r = run(spout.KafkaSource{Topics: []string{"in"}, Start: spout.Latest(), Until: spout.Latest()})
		if err := r.wait(); err != nil {
			s.Error(err)
		}
		c.once(s, numbers(10, 40)...)
		if got := s.committed("in")[0]; got != 40 {
			s.Errorf("committed %d", got)
		}
	}, embedded.Topic("in", 1))
}

// A topology that was at least once before: what had ended then does not run again.
func TestAtMostOnceAfterAtLeastOnce(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		s.produce("in", 0, numbers(0, 30)...)
		r := s.start(counting(&c, spout.Kafka("in"), func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if o, _ := in.Origin(); o.Offset%10 == 3 {
				return killick.RetryAfter(time.Hour, errors.New("not yet"))
			}
			return nil
		}))
		s.until("the others have ended", func() bool { return s.committed("in")[0] == 3 && c.total() == 30 })
		s.pass(5 * time.Second)
		r.kill()
		c.clear()
		r = s.start(once(&c, 2, nil))
		s.drained("in")
		s.until("all have run", func() bool { return c.total() >= 3 })
		s.pass(time.Second)
		r.end()
		if got := slices.Sorted(slices.Values(c.order)); !slices.Equal(got, []string{"13", "23", "3"}) {
			s.Errorf("%v ran", got)
		}
	}, embedded.Topic("in", 1))
}
