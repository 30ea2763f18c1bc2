package killick_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/offsets"
	"github.com/killick-io/killick/testenv/bubble"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// world is an embedded broker, and the workers that a test runs on it. Most tests run in virtual
// time, where a minute costs nothing.
type world struct {
	*testing.T
	b   *embedded.Broker
	cfg worker.Config
}

// patience bounds every wait, in virtual time.
const patience = 2 * time.Minute

// inWorld runs f in virtual time.
func inWorld(t *testing.T, f func(w *world), opts ...embedded.Option) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) { f(newWorld(t, embedded.StartVirtual(t, opts...))) })
}

func newWorld(t *testing.T, b *embedded.Broker) *world {
	log := zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.ErrorLevel)
	return &world{t, b, worker.Config{Bootstrap: b.Addrs(), Group: "g", HTTP: "off", Logger: &log, CommitInterval: 10 * time.Millisecond, FetchMaxWait: 250 * time.Millisecond,
		Kafka: []kgo.Opt{kgo.Dialer(b.Dialer()), kgo.MetadataMinAge(100 * time.Millisecond), kgo.DisableClientMetrics(),
			kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond })}}}
}

// run is a worker under way.
type run struct {
	*worker.Worker
	w    *world
	stop context.CancelFunc
	done chan struct{}
	err  error // once done is closed
}

func (w *world) start(top *killick.Topology) *run {
	w.Helper()
	cfg := w.cfg
	cfg.Kafka = slices.Clone(cfg.Kafka)
	wk, err := worker.New(top, cfg)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &run{Worker: wk, w: w, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = wk.Run(ctx)
	}()
	w.Cleanup(func() { r.stop(); <-r.done })
	return r
}

// wait returns what the worker ended with.
func (r *run) wait() error {
	r.w.Helper()
	select {
	case <-r.done:
		return r.err
	case <-time.After(patience):
		r.w.Fatal("the worker does not end")
		return nil
	}
}

// end stops the worker softly, and expects that nothing is left.
func (r *run) end() {
	r.w.Helper()
	r.stop()
	if err := r.wait(); err != nil {
		r.w.Errorf("the worker ended with: %v", err)
	}
}

// kill cuts the worker off from the broker for good: from now on nothing that it does counts, as
// after kill -9.
func (r *run) kill() {
	r.w.Helper()
	r.w.b.Down()
	r.stop()
	<-r.done
	if err := r.w.b.Up(); err != nil {
		r.w.Fatal(err)
	}
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w.Cleanup(cancel)
	return ctx
}

// produce writes n numbered records into a partition. From another goroutine than the test's: send.
func (w *world) produce(topic string, p int32, n int) {
	w.Helper()
	if err := w.send(topic, p, n); err != nil {
		w.Fatal(err)
	}
}

// send is produce without a verdict: Fatal ends the goroutine that it is called in, not the test.
func (w *world) send(topic string, p int32, n int) error {
	var rs []*kgo.Record
	for i := range n {
		rs = append(rs, &kgo.Record{Topic: topic, Partition: p, Key: fmt.Appendf(nil, "k%d", i%17), Value: fmt.Appendf(nil, "%d", i)})
	}
	return w.b.Produce(w.ctx(), rs...)
}

// committed returns a partition's committed offset, -1 if there is none.
func (w *world) committed(topic string, p int32) int64 {
	w.Helper()
	got, err := w.b.Committed(w.ctx(), "g", topic)
	if err != nil {
		w.Fatal(err)
	}
	if o, ok := got[p]; ok {
		return o.Offset
	}
	return -1
}

// until waits for a condition. It looks every 10 ms at first, and the longer it takes the less often:
// virtual time costs real processor time.
func (w *world) until(what string, ok func() bool) {
	w.Helper()
	const first, coarsest = 10 * time.Millisecond, 250 * time.Millisecond
	start := time.Now()
	t := time.NewTimer(first)
	defer t.Stop()
	for !ok() {
		took := time.Since(start)
		if took > patience {
			w.Fatalf("not within %v: %s", patience, what)
		}
		t.Reset(min(max(first, took/16), coarsest))
		<-t.C
	}
}

// finished waits until the committed offsets of a topic are the ends of its log.
func (w *world) finished(topic string) {
	w.Helper()
	ends, err := w.b.End(w.ctx(), topic)
	if err != nil {
		w.Fatal(err)
	}
	for p, e := range ends {
		w.until(fmt.Sprintf("%s/%d is committed up to %d", topic, p, e.End), func() bool { return w.committed(topic, p) == e.End })
	}
}

// pass lets time go by.
func (w *world) pass(d time.Duration) { <-time.After(d) }

// commits calls f for each position of each commit that reaches the broker, before it acts on it,
// and for each offset above it that the commit's completion map calls finished. f must not block.
func (w *world) commits(f func(p int32, offset int64), finished func(p int32, offset int64)) {
	w.b.Fail(kmsg.OffsetCommit, kerr.UnknownServerError, -1, func(r kmsg.Request) bool {
		for _, t := range r.(*kmsg.OffsetCommitRequest).Topics {
			for _, p := range t.Partitions {
				f(p.Partition, p.Offset)
				if p.Metadata == nil {
					continue
				}
				m, err := offsets.Decode(*p.Metadata, p.Offset)
				if err != nil {
					w.Errorf("commit of %d at %d: %v", p.Partition, p.Offset, err)
				}
				for o := m.Base; o < m.Next; o++ {
					if m.Done(o) {
						finished(p.Partition, o)
					}
				}
			}
		}
		return false // it only looks
	})
}

// tally counts by name.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
	return c.n[name]
}

func (c *tally) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

// names returns how many different ones there are, and total how many in all.
func (c *tally) names() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.n)
}

func (c *tally) total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.n {
		n += k
	}
	return n
}

// dice is a number in [0, n) that depends on its arguments only: chance that every replay repeats.
func dice(n int, of ...any) int {
	h := fnv.New64a()
	fmt.Fprint(h, of...)
	return int(h.Sum64() >> 8 % uint64(n))
}
