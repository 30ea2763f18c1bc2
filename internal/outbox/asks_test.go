package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/internal/partition"
	"github.com/killick-io/killick/offsets"
	"github.com/killick-io/killick/testenv/bubble"
	"github.com/killick-io/killick/testenv/embedded"
)

// desk is a writer of dead letters on a broker.
type desk struct {
	*testing.T
	b    *embedded.Broker
	w    *DeadLetters
	feed *partition.Feed
	stop context.CancelFunc
	done chan struct{}
	dead []partition.Dead // put by put only
	next map[string]int64
}

func newDesk(t *testing.T, cfg DeadLetterConfig, opts ...embedded.Option) *desk {
	d := &desk{T: t, b: embedded.StartVirtual(t, opts...), done: make(chan struct{}), next: map[string]int64{}}
	cl, err := kgo.NewClient(d.b.ClientOpts(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedBytes(4<<20))...)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Client, cfg.Topology, cfg.Timeout = cl, "t", 10*time.Second
	d.w = NewDeadLetters(cfg)
	d.feed = partition.NewFeed("in", 10_000, 1<<20, partition.Hooks{Dead: func(x partition.Dead) { d.dead = append(d.dead, x) }})
	ctx, cancel := context.WithCancel(t.Context())
	d.stop = cancel
	go func() { defer close(d.done); d.w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-d.done; cl.Close() })
	return d
}

// put has n roots of a topic fail.
func (d *desk) put(topic string, n, size int) *partition.Partition {
	d.Helper()
	p := d.feed.Open(topic, 0, d.next[topic], offsets.Map{}, false)
	for range n {
		if _, err := p.Deliver([]*kgo.Record{{Topic: topic, Offset: d.next[topic], Value: make([]byte, size)}}); err != nil {
			d.Fatal(err)
		}
		d.next[topic]++
		var run engine.Run
		if err := d.feed.Next(d.Context(), &run); err != nil {
			d.Fatal(err)
		}
		run.Chunk.End(run.From, &ack.Cause{Outcome: ack.Dead, Policy: ack.DeadLetter, Reason: "error"})
	}
	for _, x := range d.dead {
		d.w.Put(x)
	}
	d.dead = nil
	return p
}

// within waits for a partition's roots to have ended.
func (d *desk) within(limit time.Duration, p *partition.Partition) {
	d.Helper()
	for start := time.Now(); p.Started() > 0; <-time.After(10 * time.Millisecond) {
		if time.Since(start) > limit {
			d.Fatalf("after %v %d of %s are not durable", limit, p.Started(), p.Topic)
		}
	}
}

// A dead-letter topic of which the cluster says nothing for long holds up the letters of no other.
func TestSlowAnswersHoldUpNobody(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		var mu sync.Mutex
		asked := map[string]int{}
		d := newDesk(t, DeadLetterConfig{Partitions: func(ctx context.Context, source string, _ bool) (int, error) {
			mu.Lock()
			asked[source]++
			mu.Unlock()
			if source != "slow" {
				return 1, nil
			}
			select {
			case <-answer:
				return 1, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}}, embedded.Topic("slow.t.dlq", 1), embedded.Topic("fast.t.dlq", 1))
		slow := d.put("slow", 5, 10)
		for range 3 {
			d.within(time.Second, d.put("fast", 20, 10))
		}
		if n := slow.Started(); n != 5 || d.w.Stats().Waiting != 5 {
			t.Errorf("%d of the slow topic are open, %+v", n, d.w.Stats())
		}
		close(answer)
		d.within(time.Second, slow)
		if s := d.w.Stats(); s.Waiting != 0 || s.Written != 65 {
			t.Errorf("%+v", s)
		}
		mu.Lock()
		defer mu.Unlock()
		if asked["slow"] != 1 {
			t.Errorf("%d questions for five letters of one topic at the same time", asked["slow"])
		}
	})
}

// Questions are asked few at a time, and Run waits for them.
func TestQuestionsAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		under, most, all := 0, 0, 0
		d := newDesk(t, DeadLetterConfig{Partitions: func(ctx context.Context, source string, _ bool) (int, error) {
			mu.Lock()
			under++
			all++
			most = max(most, under)
			mu.Unlock()
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				<-time.After(time.Second) // it takes a while to notice
			}
			mu.Lock()
			under--
			mu.Unlock()
			return 0, errors.New("no")
		}}, embedded.Topic("in", 1))
		for i := range 5 * maxAsks {
			d.put(fmt.Sprint("topic-", i), 1, 10)
		}
		<-time.After(3500 * time.Millisecond)
		mu.Lock()
		if most != maxAsks || all < 3*maxAsks {
			t.Errorf("%d questions at a time and %d in all, want %d at a time", most, all, maxAsks)
		}
		mu.Unlock()
		d.stop()
		<-d.done
		mu.Lock()
		defer mu.Unlock()
		if under != 0 {
			t.Errorf("Run has ended with %d questions under way", under)
		}
	})
}

// What is known is not asked for, but after a write that has failed.
func TestKnownTopicsAreNotAskedFor(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var asked []bool
		d := newDesk(t, DeadLetterConfig{Known: func(string) (int, bool) { return 1, true },
			Partitions: func(_ context.Context, _ string, again bool) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, again)
				return 1, nil
			}}, embedded.Topic("in.t.dlq", 1))
		d.within(time.Second, d.put("in", 20, 10))
		if len(asked) > 0 {
			t.Fatalf("asked %d times", len(asked))
		}
		d.b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "in.t.dlq", Err: kerr.InvalidRecord, Count: 1})
		d.within(time.Minute, d.put("in", 1, 10))
		mu.Lock()
		defer mu.Unlock()
		if len(asked) != 1 || !asked[0] {
			t.Errorf("asked %v", asked)
		}
	})
}

// A letter that was too large in a batch is written alone: for that nobody waits but the letters of its own
// topic, and those of others are not waited for.
func TestAloneHoldsUpNobody(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newDesk(t, DeadLetterConfig{Partitions: func(context.Context, string, bool) (int, error) { return 1, nil }},
			embedded.Topic("away.t.dlq", 1), embedded.Topic("large.t.dlq", 1), embedded.Topic("fast.t.dlq", 1))
		// A client tries that again until the letter's time is over.
		fault := d.b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "away.t.dlq", Err: kerr.NotEnoughReplicas, Count: -1})
		away := d.put("away", 3, 10)
		<-time.After(100 * time.Millisecond)
		large := d.put("large", 3, 2_000_000) // more than the topic takes
		fast := d.put("fast", 20, 10)
		d.within(time.Second, fast)
		d.within(5*time.Second, large)
		if n := away.Started(); n != 3 {
			t.Errorf("%d of the topic that is away are open", n)
		}
		fault.Remove()
		d.within(time.Minute, away)
		rs, err := d.b.ReadAll(t.Context(), "large.t.dlq")
		if err != nil || len(rs) != 3 {
			t.Fatalf("%d dead letters, %v", len(rs), err)
		}
		for _, r := range rs {
			if len(r.Value) > 0 {
				t.Errorf("a dead letter of %d bytes", len(r.Value))
			}
		}
	})
}

// Letters of a topic that cannot be written to do not fill the client, which would hold up all others: once a
// write has failed, one letter at a time finds out whether it can.
func TestFailingTopicDoesNotFillTheClient(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newDesk(t, DeadLetterConfig{Partitions: func(context.Context, string, bool) (int, error) { return 1, nil }},
			embedded.Topic("away.t.dlq", 1), embedded.Topic("fast.t.dlq", 1))
		fault := d.b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "away.t.dlq", Err: kerr.NotEnoughReplicas, Count: -1})
		away := d.put("away", 40, 500_000)
		<-time.After(15 * time.Second)
		for range 20 {
			d.within(time.Second, d.put("fast", 1, 10))
			<-time.After(3 * time.Second)
		}
		if s := d.w.Stats(); s.Waiting != 40 || s.Since.IsZero() {
			t.Errorf("%+v", s)
		}
		fault.Remove()
		d.within(15*time.Second, away)
	})
}
