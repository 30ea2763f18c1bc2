package killick_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
)

// members waits until the group has n members, and nothing moves any more.
func (w *world) members(n int) {
	w.Helper()
	if _, err := w.b.Cluster().WaitGroupStable(w.ctx(), "g", n); err != nil {
		w.Fatal(err)
	}
}

// owners returns, for each partition of in, the member that the newest assignment gives it to.
func (w *world) owners() map[int32]string {
	w.Helper()
	out := map[int32]string{}
	var newest int32
	all := w.b.Assignments()
	for _, a := range all {
		newest = max(newest, a.Generation)
	}
	for _, a := range all {
		for _, p := range a.Partitions["in"] {
			if a.Generation == newest {
				out[p] = a.Member
			}
		}
	}
	return out
}

// ---- G7: one owner ----

// TestG7MovesAreReleased: a partition moves when its trees have ended and are committed, so a replica
// that comes or goes makes no record run twice; and what stays goes on meanwhile.
// FC-14: PostHog/posthog PR #80897.
func TestG7MovesAreReleased(t *testing.T) {
	inWorld(t, func(w *world) {
		const partitions, records = 4, 60
		var c tally
		work := func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			c.add(in.ID())
			h := out.Hold()
			time.AfterFunc(time.Duration(300+dice(700, in.ID()))*time.Millisecond, func() { h.Ack() })
			return nil
		}
		a := w.start(one(work))
		w.members(1)
		stop, fed := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(fed)
			for {
				for p := range int32(partitions) {
					if err := w.send("in", p, 1); err != nil {
						w.Error(err)
						return
					}
				}
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		}()
		w.until("some are under way", func() bool { return c.names() > records })
		for range 3 {
			b := w.start(one(work))
			w.until("the partitions are shared out", func() bool {
				by := map[string]int{}
				for _, m := range w.owners() {
					by[m]++
				}
				return len(by) == 2 && slices.Min(slices.Collect(maps.Values(by))) == partitions/2
			})
			w.pass(2 * time.Second)
			b.end()
			w.members(1)
			w.pass(2 * time.Second)
		}
		close(stop)
		<-fed
		w.finished("in")
		a.end()
		w.each(&c, "in", once)
		if bad := w.b.CommitsByNonOwners(); len(bad) > 0 {
			w.Errorf("commits by who did not own the partition: %+v", bad)
		}
	}, embedded.Topic("in", 4))
}

// TestG7NoCommitAfterLoss: a worker that freezes loses its partitions. What it commits when it thaws,
// of positions from before, does not touch what others have done since.
func TestG7NoCommitAfterLoss(t *testing.T) {
	inWorld(t, func(w *world) {
		var c tally
		a := w.start(one(counting(&c)))
		w.members(1)
		b := w.start(one(counting(&c)))
		w.until("the partitions are shared out", func() bool { o := w.owners(); return len(o) == 2 && o[0] != o[1] })
		w.members(2)
		w.finished("in")
		frozen := w.owners()[0]
		thaw := make(chan struct{})
		held := w.b.Hold(kmsg.OffsetCommit, thaw, func(r kmsg.Request) bool { return r.(*kmsg.OffsetCommitRequest).MemberID == frozen })
		w.b.Hold(kmsg.Heartbeat, thaw, func(r kmsg.Request) bool { return r.(*kmsg.HeartbeatRequest).MemberID == frozen })
		w.produce("in", 0, 3)
		if err := held.Wait(w.ctx(), 1); err != nil {
			w.Fatal(err)
		}
		w.until("the other worker has taken over", func() bool { return w.owners()[0] != frozen && w.committed("in", 0) == 3 })
		w.produce("in", 0, 2)
		w.finished("in")
		close(thaw)
		w.until("it is back", func() bool { o := w.owners(); return o[0] != o[1] })
		w.pass(20 * time.Second)
		if got := w.committed("in", 0); got != 5 {
			w.Errorf("partition 0 is committed up to %d, and was up to 5", got)
		}
		w.produce("in", 0, 2)
		w.produce("in", 1, 2)
		w.finished("in")
		a.end()
		b.end()
		if bad := w.b.CommitsByNonOwners(); len(bad) > 0 {
			w.Errorf("commits by who did not own the partition: %+v", bad)
		}
	}, embedded.Topic("in", 2))
}

// ---- G9: one meaning ----

// outcome is what a run of a topology has left behind, but for the times, in an order of its own.
func (w *world) outcome(topics ...string) (out []string) {
	w.Helper()
	for _, t := range topics {
		rs, err := w.b.ReadAll(w.ctx(), t)
		if err != nil {
			w.Fatal(err)
		}
		for _, r := range rs {
			var headers []string
			for _, h := range r.Headers {
				if strings.HasSuffix(h.Key, "-ms") {
					continue // when it was
				}
				headers = append(headers, fmt.Sprintf("%s=%s", h.Key, h.Value))
			}
			slices.Sort(headers)
			out = append(out, fmt.Sprintf("%s %s=%s %v", t, r.Key, r.Value, headers))
		}
	}
	slices.Sort(out)
	return out
}

// through runs so many replicas of a topology over n records in each partition of in.
func (w *world) through(replicas int, top func() *killick.Topology, partitions int32, n int) {
	w.Helper()
	var all []*run
	for range replicas {
		all = append(all, w.start(top()))
	}
	w.members(replicas)
	for p := range partitions {
		w.produce("in", p, n)
	}
	w.finished("in")
	for _, r := range all {
		r.end()
	}
}

// TestG9Replicas: outputs, dead letters with their headers, and tries per tuple are the same for one
// worker and for three.
func TestG9Replicas(t *testing.T) {
	workers := func(replicas int) (out []string) {
		inWorld(t, func(w *world) {
			var mu sync.Mutex
			tries := map[string]int{}
			top := func() *killick.Topology {
				top := killick.New("t")
				top.Retry(quick)
				top.Spout("in", spout.Kafka("in"))
				top.Bolt("work", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
					mu.Lock()
					tries[in.ID()]++
					mu.Unlock()
					o := origin(in)
					switch n := o.Offset*7 + int64(o.Partition); {
					case n%101 == 0:
						return killick.Permanent(errors.New("never"))
					case n%29 == 0 && in.Attempt() < 3:
						return errors.New("not yet")
					case n%31 == 0:
						panic("again and again")
					}
					for i := range int(o.Offset % 3) {
						m := in.Message()
						m.Bytes = fmt.Appendf(nil, "%s %d", in.ID(), i)
						out.Emit(m)
					}
					return nil
				})).Shuffle("in")
				top.Bolt("out", bolt.Kafka("out")).Shuffle("work")
				return top
			}
			w.through(replicas, top, 6, 200)
			out = w.outcome("out", "in.t.dlq")
			for _, id := range slices.Sorted(maps.Keys(tries)) {
				out = append(out, fmt.Sprintf("%s was tried %d times", id, tries[id]))
			}
		}, embedded.Topic("in", 6), embedded.Topic("out", 2))
		return out
	}
	one, three := workers(1), workers(3)
	if len(one) < 6*200 {
		t.Fatalf("%d lines of outcome", len(one))
	}
	differ(t, one, three)
}

func differ(t *testing.T, one, other []string) {
	t.Helper()
	n := 0
	for i := range max(len(one), len(other)) {
		var a, b string
		if i < len(one) {
			a = one[i]
		}
		if i < len(other) {
			b = other[i]
		}
		if a != b && n < 5 {
			t.Errorf("with one worker: %s\nwith several:    %s", a, b)
			n++
		}
	}
	if len(one) != len(other) {
		t.Errorf("%d lines of outcome with one worker, %d with several", len(one), len(other))
	}
}

// TestG9KeysMeetOneTask: where tuples are grouped by key, all of a key meet one task, however many
// replicas there are: those that would have tasks of their own stand by.
func TestG9KeysMeetOneTask(t *testing.T) {
	count := func(replicas int) (out []string) {
		inWorld(t, func(w *world) {
			top := func() *killick.Topology {
				top := killick.New("t")
				top.Spout("in", spout.Kafka("in"))
				top.Bolt("count", func() killick.Bolt { return &keyCount{n: map[string]int{}} }).Fields("in", nil).Tasks(3)
				top.Bolt("out", bolt.Kafka("out")).Shuffle("count")
				return top
			}
			w.through(replicas, top, 4, 100)
			out = w.outcome("out")
		}, embedded.Topic("in", 4), embedded.Topic("out", 1))
		return out
	}
	one, two := count(1), count(2)
	if len(one) != 400 {
		t.Fatalf("%d outputs", len(one))
	}
	differ(t, one, two)
}

// keyCount emits how often it has seen a key.
type keyCount struct{ n map[string]int }

func (k *keyCount) Execute(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
	k.n[string(in.Key())]++
	out.Emit(killick.Message{Key: in.Key(), Bytes: fmt.Appendf(nil, "%d", k.n[string(in.Key())])})
	return nil
}
