//go:build unix && killick_crash

package proof

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/kafkaenv"
)

// load writes numbers to all partitions of a topic until it is stopped, about so many a second.
type load struct {
	w       *world
	stop    func()
	written atomic.Int64
	failed  atomic.Int64
	acked   []atomic.Bool // by number
}

// write begins to write. Only what a broker has acknowledged must not be lost.
func (w *world) load(topic string, partitions int, perSecond int) *load {
	w.Helper()
	l := &load{w: w, acked: make([]atomic.Bool, 1<<20)}
	cl, err := kgo.NewClient(w.k.ClientOpts(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordDeliveryTimeout(time.Minute))...)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cl.Close()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for n := 0; n < len(l.acked)-1000; {
			for range max(1, perSecond/100) {
				id := n
				cl.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: int32(n % partitions), Value: []byte(fmt.Sprint(n))},
					func(_ *kgo.Record, err error) {
						if err != nil {
							l.failed.Add(1)
							return
						}
						l.acked[id].Store(true)
						l.written.Add(1)
					})
				n++
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				flush, cancel := context.WithTimeout(context.Background(), limit)
				defer cancel()
				if err := cl.Flush(flush); err != nil {
					w.Errorf("records that were written are not acknowledged: %v", err)
				}
				return
			}
		}
	}()
	var once sync.Once
	l.stop = func() { once.Do(func() { cancel(); <-done }) }
	w.Cleanup(l.stop)
	return l
}

// check compares what ran with what was acknowledged: nothing is missing; it returns how many ran
// more than once.
func (l *load) check(c *tally) (twice int) {
	l.w.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	lost := 0
	for id := range l.acked {
		if l.acked[id].Load() && c.n[fmt.Sprint(id)] == 0 {
			if lost++; lost <= 5 {
				l.w.Errorf("record %d was acknowledged and never ran", id)
			}
		}
	}
	if lost > 0 {
		l.w.Errorf("%d of %d lost", lost, l.written.Load())
	}
	for _, k := range c.n {
		if k > 1 {
			twice++
		}
	}
	return twice
}

// watchCommits samples the group's positions and fails the test if one goes back.
func (w *world) watchCommits(topic string) {
	w.Helper()
	cl, err := kgo.NewClient(w.k.ClientOpts()...)
	if err != nil {
		w.Fatal(err)
	}
	watch := &world{T: w.T, k: w.k, adm: kadm.NewClient(cl), name: w.name}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cl.Close()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		last := map[int32]int64{}
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			now, err := watch.positions(ctx, topic)
			if err != nil {
				continue // the brokers may be away
			}
			for p, at := range now {
				if at < last[p] {
					w.Errorf("the committed position of %s/%d went back from %d to %d", topic, p, last[p], at)
				}
				last[p] = at
			}
		}
	}()
	w.Cleanup(func() { cancel(); <-done })
}

// copying is a topology that counts each record and copies it to a topic.
func copying(c *tally, in, out string) *killick.Topology {
	top := killick.New("copy")
	top.Spout("in", spout.Kafka(in))
	top.Bolt("work", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
		c.add(string(in.Bytes()))
		out.Emit(in.Message())
		return nil
	})).Shuffle("in")
	top.Bolt("out", bolt.Kafka(out)).Shuffle("work")
	return top
}

// await waits until so many more records have run: it goes on.
func (w *world) flowing(c *tally, n int) {
	w.Helper()
	before := c.total()
	w.until(fmt.Sprintf("%d more records run", n), func() bool { return c.total() >= before+n })
}

// underLoad runs a copying worker under load while f does what it wants to the brokers, and
// expects everything to come through.
func underLoad(t *testing.T, k *kafkaenv.Cluster, f func(w *world, c *tally, in string)) {
	w := newWorld(t, k)
	in, out := w.topic("in", 6), w.topic("out", 6)
	var c tally
	l := w.load(in, 6, 1000)
	w.watchCommits(in)
	r := w.start(copying(&c, in, out))
	w.flowing(&c, 500)
	f(w, &c, in)
	w.flowing(&c, 500)
	l.stop()
	w.drained(in)
	r.end()
	twice := l.check(&c)
	var copies tally
	for _, r := range w.read(out) {
		copies.add(string(r.Value))
	}
	again := l.check(&copies)
	t.Logf("%d records, %d not acknowledged, %d ran twice, %d are twice in the output", l.written.Load(), l.failed.Load(), twice, again)
	if twice > 0 {
		t.Errorf("%d ran twice, and no worker died", twice)
	}
}

// TestOnlyBrokerKilled (row 15): the only broker is killed and comes back.
func TestOnlyBrokerKilled(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	underLoad(t, k, func(w *world, c *tally, in string) {
		for range rounds(2, 10) {
			b := k.Brokers()[0]
			if err := b.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := b.Start(w.ctx()); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			w.flowing(c, 200)
			t.Logf("records run %v after the broker was back", time.Since(start).Round(10*time.Millisecond))
		}
	})
}

// TestBrokerOfThree (rows 15 and 16, at-least-once): the leader of a partition is killed, the
// group's coordinator is killed, a broker is paused, and all are bounced one after the other.
func TestBrokerOfThree(t *testing.T) {
	t.Parallel()
	k := cluster(t, kafkaenv.Brokers(3))
	back := func(w *world, b *kafkaenv.Broker) {
		if err := b.Start(w.ctx()); err != nil {
			t.Fatal(err)
		}
		if err := k.PreferLeaders(w.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	underLoad(t, k, func(w *world, c *tally, in string) {
		leader, err := k.Leader(w.ctx(), in, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := leader.Kill(); err != nil {
			t.Fatal(err)
		}
		w.flowing(c, 2000) // other partitions' records alone would not last
		back(w, leader)

		coordinator, err := k.Coordinator(w.ctx(), w.name)
		if err != nil {
			t.Fatal(err)
		}
		if err := coordinator.Kill(); err != nil {
			t.Fatal(err)
		}
		w.flowing(c, 2000)
		back(w, coordinator)

		paused := k.Brokers()[0]
		if err := paused.Pause(); err != nil {
			t.Fatal(err)
		}
		w.flowing(c, 2000)
		if err := paused.Resume(); err != nil {
			t.Fatal(err)
		}
		for range rounds(0, 3) {
			for _, b := range k.Brokers() {
				if err := b.Stop(w.ctx()); err != nil {
					t.Fatal(err)
				}
				w.flowing(c, 500)
				back(w, b)
			}
		}
	})
}

// rounds is how often a test does something: short, or in full.
func rounds(short, long int) int {
	if full {
		return long
	}
	return short
}
