package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/bubble"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// story is a broker and the workers that run on it, in virtual time.
type story struct {
	*testing.T
	b    *embedded.Broker
	logs *logs
	cfg  worker.Config
}

// limit is how long, in virtual time, a story waits for anything.
const limit = 10 * time.Minute

// tell runs a story inside a bubble.
func tell(t *testing.T, f func(s *story), opts ...embedded.Option) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) { f(newStory(t, embedded.StartVirtual(t, opts...))) })
}

func newStory(t *testing.T, b *embedded.Broker) *story {
	s := &story{T: t, b: b, logs: new(logs)}
	log := zerolog.New(s.logs).With().Timestamp().Logger()
	s.cfg = worker.Config{Bootstrap: b.Addrs(), Group: "g", HTTP: "off", Logger: &log, MetadataMaxAge: 2 * time.Second,
		FetchMaxWait: 500 * time.Millisecond, // an idle worker polls less often; records end the wait
		Kafka: []kgo.Opt{kgo.Dialer(b.Dialer()), kgo.MetadataMinAge(100 * time.Millisecond), kgo.DisableClientMetrics(),
			kgo.RetryBackoffFn(func(n int) time.Duration { return min(time.Duration(n)*10*time.Millisecond, 100*time.Millisecond) })}}
	t.Cleanup(func() {
		for _, c := range b.CommitsByNonOwners() {
			if c.Member != "" || c.Generation >= 0 { // else the test's own, as a tool
				t.Errorf("a commit of a partition that was not the sender's: %+v", c)
			}
		}
		if b.Dropped() > 0 {
			t.Error("the record of commits is not whole")
		}
		if t.Failed() {
			lines := strings.SplitAfter(s.logs.text(), "\n")
			t.Logf("the log's last of %d lines:\n%s", len(lines), strings.Join(lines[max(0, len(lines)-40):], ""))
		}
	})
	return s
}

// running is a worker that runs.
type running struct {
	*worker.Worker
	s    *story
	stop context.CancelFunc
	done chan struct{}
	err  error // once done is closed
}

// start runs a topology.
func (s *story) start(top *killick.Topology, change ...func(*worker.Config)) *running {
	s.Helper()
	cfg := s.cfg
	cfg.Kafka = slices.Clone(cfg.Kafka)
	for _, f := range change {
		f(&cfg)
	}
	w, err := worker.New(top, cfg)
	if err != nil {
		s.Fatal(err)
	}
	return s.run(w)
}

// run runs a worker. The test's end stops it, if nobody has.
func (s *story) run(w *worker.Worker) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Worker: w, s: s, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = w.Run(ctx)
	}()
	s.Cleanup(func() { r.stop(); <-r.done })
	return r
}

// wait returns what Run returns.
func (r *running) wait() error {
	r.s.Helper()
	select {
	case <-r.done:
		return r.err
	case <-time.After(limit):
		r.s.Fatal("the worker does not end")
		return nil
	}
}

// end stops the worker softly and expects a clean end.
func (r *running) end() {
	r.s.Helper()
	r.stop()
	if err := r.wait(); err != nil {
		r.s.Errorf("the worker ended with: %v", err)
	}
}

// kill ends the worker as hard as it goes inside a process: it can reach no broker any more, so
// that nothing is committed, and nothing that it does counts.
func (r *running) kill() {
	r.s.Helper()
	r.s.b.Down()
	r.stop()
	<-r.done
	if err := r.s.b.Up(); err != nil {
		r.s.Fatal(err)
	}
}

// until waits for a condition. It looks every 20 ms at first, and the longer it takes the less often:
// virtual time costs real processor time.
func (s *story) until(what string, ok func() bool) {
	s.Helper()
	const first, coarsest = 20 * time.Millisecond, 250 * time.Millisecond
	start := time.Now()
	t := time.NewTimer(first)
	defer t.Stop()
	for !ok() {
		took := time.Since(start)
		if took > limit {
			s.Fatalf("not within %v: %s", limit, what)
		}
		t.Reset(min(max(first, took/16), coarsest))
		<-t.C
	}
}

// silence keeps what shows that members live, heartbeats and commits, from the broker until the gate is
// closed; the function that it returns ends that for good.
func (s *story) silence(gate <-chan struct{}) (end func()) {
	beats, commits := s.b.Hold(kmsg.Heartbeat, gate), s.b.Hold(kmsg.OffsetCommit, gate)
	return func() { beats.Remove(); commits.Remove() }
}

// pass lets time go by.
func (s *story) pass(d time.Duration) { <-time.After(d) }

func (s *story) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	s.Cleanup(cancel)
	return ctx
}

// produce writes values into a partition. From another goroutine than the test's: send.
func (s *story) produce(topic string, p int32, values ...string) {
	s.Helper()
	if err := s.send(topic, p, values...); err != nil {
		s.Fatal(err)
	}
}

// send is produce without a verdict: Fatal ends the goroutine that it is called in, not the test.
func (s *story) send(topic string, p int32, values ...string) error {
	var rs []*kgo.Record
	for _, v := range values {
		rs = append(rs, &kgo.Record{Topic: topic, Partition: p, Key: []byte("k"), Value: []byte(v)})
	}
	return s.b.Produce(s.ctx(), rs...)
}

// produceAnew is produce with a client that has not seen the topic before: it grew, or was made anew.
func (s *story) produceAnew(topic string, p int32, values ...string) {
	s.Helper()
	cl, err := kgo.NewClient(s.b.ClientOpts(kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		s.Fatal(err)
	}
	defer cl.Close()
	for _, v := range values {
		if err := cl.ProduceSync(s.ctx(), &kgo.Record{Topic: topic, Partition: p, Value: []byte(v)}).FirstErr(); err != nil {
			s.Fatal(err)
		}
	}
}

// numbers are the values from..to-1.
func numbers(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, strconv.Itoa(i))
	}
	return out
}

// committed is what the group has committed; partitions without a commit are absent.
func (s *story) committed(topic string) map[int32]int64 {
	s.Helper()
	got, err := s.b.Committed(s.ctx(), "g", topic)
	if err != nil {
		s.Fatal(err)
	}
	out := map[int32]int64{}
	for p, o := range got {
		out[p] = o.Offset
	}
	return out
}

// drained waits until the committed offsets are the ends of the logs.
func (s *story) drained(topic string) {
	s.Helper()
	s.until("all of "+topic+" is committed", func() bool { return s.atEnd(topic) })
}

func (s *story) atEnd(topic string) bool {
	s.Helper()
	got := s.committed(topic)
	infos := s.b.Cluster().PartitionInfos(topic) // the broker's own: a client may not know all partitions yet
	for _, p := range infos {
		if o, ok := got[p.Partition]; !ok || o != p.HighWatermark {
			return false
		}
	}
	return len(infos) > 0
}

// read returns what a reader sees of a topic.
func (s *story) read(topic string) []*kgo.Record {
	s.Helper()
	rs, err := s.b.ReadAll(s.ctx(), topic)
	if err != nil {
		s.Fatal(err)
	}
	return rs
}

// ready looks at one line of readiness.
func (r *running) ready(name string) (ok bool, text string) {
	_, checks := r.Ready()
	for _, c := range checks {
		if c.Name == name {
			return c.OK, c.Text
		}
	}
	return false, "no such check"
}

// lag is the consumer lag of a partition of in, -1 if it is not known.
func (r *running) lag(topic string, p int) float64 {
	r.s.Helper()
	labels := []string{"topic=" + topic, fmt.Sprintf("partition=%d", p)}
	if r.count("killick_consumer_lag", labels...) == 0 {
		return -1
	}
	return r.metric("killick_consumer_lag", labels...)
}

// count is how many series a metric has.
func (r *running) count(name string, labels ...string) int {
	r.s.Helper()
	return len(r.series(name, labels...))
}

// metric adds up the values of a metric, over its labels; of those given, as "name=value", only.
func (r *running) metric(name string, labels ...string) (sum float64) {
	r.s.Helper()
	for _, m := range r.series(name, labels...) {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum
}

func (r *running) series(name string, labels ...string) (out []*dto.Metric) {
	r.s.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(r.Collector())
	all, err := reg.Gather()
	if err != nil {
		r.s.Error(err) // bolts look at metrics, too: Fatal would end their goroutine
		return nil
	}
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			have := map[string]bool{}
			for _, l := range m.GetLabel() {
				have[l.GetName()+"="+l.GetValue()] = true
			}
			if !slices.ContainsFunc(labels, func(l string) bool { return !have[l] }) {
				out = append(out, m)
			}
		}
	}
	return out
}

// tally counts executions by value, and keeps their order.
type tally struct {
	mu    sync.Mutex
	n     map[string]int
	order []string
}

func (c *tally) add(v string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[v]++
	c.order = append(c.order, v)
	return c.n[v]
}

func (c *tally) of(v string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[v]
}

func (c *tally) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.order)
}

func (c *tally) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n, c.order = nil, nil
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
		t.Errorf("%d different values ran, want %d: %v", len(c.n), len(values), slices.Sorted(maps.Keys(c.n)))
	}
}

// counting makes a topology of one bolt that counts; f, if not nil, then does the rest.
func counting(c *tally, src spout.KafkaSource, f bolt.ExecuteFunc) *killick.Topology {
	top := killick.New("t")
	top.Spout("in", src)
	top.Bolt("count", bolt.Func(func(ctx context.Context, in *killick.Tuple, out killick.Emitter) error {
		c.add(string(in.Bytes()))
		if f != nil {
			return f(ctx, in, out)
		}
		return nil
	})).Shuffle("in")
	return top
}

// logs keeps log lines.
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

// lines returns the lines with a message.
func (l *logs) lines(message string) (out []map[string]any) {
	for line := range strings.Lines(l.text()) {
		m := map[string]any{}
		if json.Unmarshal([]byte(line), &m) == nil && strings.Contains(fmt.Sprint(m["message"]), message) {
			out = append(out, m)
		}
	}
	return out
}

// contains reports whether all parts are in text.
func contains(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}
