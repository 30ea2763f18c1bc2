//go:build unix && killick_crash

package proof

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/testenv/faults"
	"github.com/killick-io/killick/testenv/kafkaenv"
	"github.com/killick-io/killick/worker"
)

// kafka is the broker of all tests that do not break it.
var kafka = kafkaenv.NewShared(release()...)

// release is the Kafka that KILLICK_TEST_KAFKA names: a version, or tv1 for the latest one with the
// protocol for transactions before KIP-890. Default: the latest one as it is.
func release() []kafkaenv.Option {
	switch v := os.Getenv("KILLICK_TEST_KAFKA"); v {
	case "":
		return nil
	case "tv1":
		return []kafkaenv.Option{kafkaenv.TransactionVersion(1)}
	default:
		return []kafkaenv.Option{kafkaenv.Version(v)}
	}
}

// cluster is a cluster for one test alone.
func cluster(t *testing.T, opts ...kafkaenv.Option) *kafkaenv.Cluster {
	t.Helper()
	return kafkaenv.Start(t, append(release(), opts...)...)
}

func TestMain(m *testing.M) {
	if faults.Role() != "" {
		os.Exit(programMain())
	}
	os.Exit(kafka.Main(m.Run))
}

// full says that tests take their full number of rounds.
var full = os.Getenv("KILLICK_FULL") == "1"

// limit is how long a test waits for anything: on a busy machine seconds become many.
const limit = 90 * time.Second

// world is what a test sees: a cluster, topics and a group of its own.
type world struct {
	*testing.T
	k    *kafkaenv.Cluster
	cl   *kgo.Client // writes to the partition that a record names
	adm  *kadm.Client
	name string // of this test: its topics and its group begin with it
	logs *logs
}

func newWorld(t *testing.T, k *kafkaenv.Cluster) *world {
	t.Helper()
	w := &world{T: t, k: k, name: strings.ToLower(strings.NewReplacer("/", ".", " ", "-").Replace(t.Name())), logs: new(logs)}
	w.connect()
	t.Cleanup(func() {
		if t.Failed() {
			lines := strings.SplitAfter(w.logs.text(), "\n")
			t.Logf("the log's last of %d lines:\n%s", len(lines), strings.Join(lines[max(0, len(lines)-40):], ""))
		}
	})
	return w
}

// connect makes new clients, which have seen nothing yet.
func (w *world) connect() {
	w.Helper()
	cl, err := kgo.NewClient(w.k.ClientOpts(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(cl.Close)
	w.cl, w.adm = cl, kadm.NewClient(cl)
}

// ctx ends with the test, or after the limit.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), limit)
	w.Cleanup(cancel)
	return ctx
}

// topic makes a topic of this test and returns its name.
func (w *world) topic(name string, partitions int, configs ...string) string {
	w.Helper()
	set := map[string]string{}
	for pair := range slices.Chunk(configs, 2) {
		set[pair[0]] = pair[1]
	}
	name = w.name + "." + name
	if err := w.k.CreateTopic(w.ctx(), name, partitions, set); err != nil {
		w.Fatal(err)
	}
	return name
}

// write writes values to a partition, in order.
func (w *world) write(topic string, p int32, values ...string) {
	w.Helper()
	rs := make([]*kgo.Record, len(values))
	for i, v := range values {
		rs[i] = &kgo.Record{Topic: topic, Partition: p, Value: []byte(v)}
	}
	if err := w.cl.ProduceSync(w.ctx(), rs...).FirstErr(); err != nil {
		w.Fatal(err)
	}
}

// config is that of a worker of this test.
func (w *world) config(change ...func(*worker.Config)) worker.Config {
	log := zerolog.New(w.logs).With().Timestamp().Logger()
	c := worker.Config{Bootstrap: w.k.Addrs(), Group: w.name, HTTP: "off", Logger: &log, CommitInterval: 100 * time.Millisecond}
	for _, f := range change {
		f(&c)
	}
	return c
}

// running is a worker in this process.
type running struct {
	*worker.Worker
	w    *world
	stop context.CancelFunc
	done chan struct{}
	err  error // once done is closed
}

func (w *world) start(top *killick.Topology, change ...func(*worker.Config)) *running {
	w.Helper()
	wk, err := worker.New(top, w.config(change...))
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Worker: wk, w: w, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = wk.Run(ctx)
	}()
	w.Cleanup(func() { r.stop(); <-r.done })
	return r
}

func (r *running) wait() error {
	r.w.Helper()
	select {
	case <-r.done:
		return r.err
	case <-time.After(limit):
		r.w.Fatal("the worker does not end")
		return nil
	}
}

// end stops the worker softly and expects a clean end.
func (r *running) end() {
	r.w.Helper()
	r.stop()
	if err := r.wait(); err != nil {
		r.w.Errorf("the worker ended with: %v", err)
	}
}

// until waits for a condition, within the limit.
func (w *world) until(what string, ok func() bool) {
	w.Helper()
	w.within(limit, what, ok)
}

func (w *world) within(d time.Duration, what string, ok func() bool) {
	w.Helper()
	over := time.NewTimer(d)
	defer over.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-over.C:
			w.Fatalf("not within %v: %s", d, what)
		}
	}
}

// committed is the group's position in each partition of a topic that it has committed.
func (w *world) committed(topic string) map[int32]int64 {
	w.Helper()
	var at map[int32]int64
	w.until("the group's positions are told", func() bool { // the coordinator may be away for a moment
		var err error
		at, err = w.positions(w.ctx(), topic)
		return err == nil
	})
	return at
}

func (w *world) positions(ctx context.Context, topic string) (map[int32]int64, error) {
	got, err := w.adm.FetchOffsetsForTopics(ctx, w.name, topic)
	if err != nil {
		return nil, err
	}
	at := map[int32]int64{}
	got.Each(func(o kadm.OffsetResponse) {
		if o.Err == nil && o.At >= 0 {
			at[o.Partition] = o.At
		}
	})
	return at, nil
}

// ends is where each partition of a topic ends: the last stable offset.
func (w *world) ends(topic string) map[int32]int64 {
	w.Helper()
	var got kadm.ListedOffsets
	w.until("the ends of "+topic+" are told", func() bool { // a leader may be missing for a moment
		var err error
		got, err = w.adm.ListCommittedOffsets(w.ctx(), topic)
		return err == nil && got.Error() == nil
	})
	at := map[int32]int64{}
	got.Each(func(o kadm.ListedOffset) { at[o.Partition] = o.Offset })
	return at
}

func (w *world) atEnd(topic string) bool { return maps.Equal(w.committed(topic), w.ends(topic)) }

// drained waits until the group has committed the end of each partition.
func (w *world) drained(topic string) {
	w.Helper()
	w.until("all is committed", func() bool { return w.atEnd(topic) })
}

// read reads what is committed of a topic, from its beginning to its end. Where the end has been
// compacted away no fetch shows it: then two seconds without anything is taken for it.
func (w *world) read(topic string) (all []*kgo.Record) {
	w.Helper()
	ends := w.ends(topic)
	starts, err := w.adm.ListStartOffsets(w.ctx(), topic)
	if err != nil {
		w.Fatal(err)
	}
	starts.Each(func(o kadm.ListedOffset) {
		if ends[o.Partition] <= o.Offset {
			delete(ends, o.Partition)
		}
	})
	cl, err := kgo.NewClient(w.k.ClientOpts(kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond))...)
	if err != nil {
		w.Fatal(err)
	}
	defer cl.Close()
	for len(ends) > 0 {
		quiet, cancel := context.WithTimeout(w.ctx(), 2*time.Second)
		f := cl.PollFetches(quiet)
		over := quiet.Err() != nil
		cancel()
		if over {
			break
		}
		if err := f.Err(); err != nil {
			w.Fatal(err)
		}
		f.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				all = append(all, r)
			}
			if r.Offset+1 >= ends[r.Partition] {
				delete(ends, r.Partition)
			}
		})
	}
	return all
}

// tally counts values.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(v string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[v]++
}

func (c *tally) total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.n {
		n += k
	}
	return n
}

// once checks that each of the values ran exactly once, and nothing else.
func (c *tally) once(t testing.TB, values ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range values {
		if c.n[v] != 1 {
			t.Errorf("%q ran %d times", v, c.n[v])
		}
	}
	if len(c.n) != len(values) {
		t.Errorf("%d different values ran, want %d: %.200q", len(c.n), len(values), slices.Sorted(maps.Keys(c.n)))
	}
}

func numbers(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// count is a bolt that counts what it executes.
func (c *tally) count() killick.BoltFactory {
	return bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		c.add(string(in.Bytes()))
		return nil
	})
}

// countTopics is count with the topic before the value.
func (c *tally) countTopics() killick.BoltFactory {
	return bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		o, _ := in.Origin()
		c.add(o.Topic + " " + string(in.Bytes()))
		return nil
	})
}

func (c *tally) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n = nil
}

// logs keeps what is written.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// says reports whether the error has all parts.
func says(err error, parts ...string) bool {
	return err != nil && !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(err.Error(), p) })
}

var errNo = errors.New("no")
