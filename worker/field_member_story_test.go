package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// TestVerdictsAfterAMove: half the partitions move with their records open; then these are acked, or
// failed, where they were. That commits nothing and runs nothing there, and harms nobody.
// FC-02: redpanda-data/connect PR #4477. FC-12: STORM-2104, wvanbergen/kafka #77.
func TestVerdictsAfterAMove(t *testing.T) {
	const partitions, each = 4, 50
	tell(t, func(s *story) {
		s.cfg.Drain = 2 * time.Second
		name := func(p, i int) string { return fmt.Sprintf("hold %d %d", p, i) }
		var old, next hands
		a := s.start(old.topology(time.Hour))
		s.share(map[*running]int{a: partitions})
		for p := range partitions {
			for i := range each {
				s.produce("in", int32(p), name(p, i))
			}
		}
		s.until("all are held", func() bool { return old.c.total() == partitions*each })
		b := s.start(next.topology(time.Hour))
		s.share(map[*running]int{a: partitions / 2, b: partitions / 2})
		s.until("what has moved runs there", func() bool { return next.c.total() == partitions/2*each })
		stayed, moved := a.parts("in"), b.parts("in")
		for _, p := range moved {
			for i := range each {
				if h := old.of(name(p, i)); i%2 == 0 && h.Ack() || i%2 == 1 && h.Fail(errTry) {
					s.Errorf("a verdict on %s was taken where it is no more", name(p, i))
				}
			}
		}
		s.pass(10 * time.Second)
		if got := old.c.total(); got != partitions*each {
			s.Errorf("%d executions at the worker that has lost the partitions", got-partitions*each)
		}
		if got := a.metric("killick_ignored_acks_total", "reason=lost_partition"); got != partitions/2*each {
			s.Errorf("%v verdicts were ignored", got)
		}
		for _, p := range moved {
			if got := s.committed("in")[int32(p)]; got != 0 {
				s.Errorf("partition %d is committed up to %d", p, got)
			}
		}
		for i := range each {
			for _, p := range stayed {
				old.of(name(p, i)).Ack()
			}
			for _, p := range moved {
				next.of(name(p, i)).Ack()
			}
		}
		s.drained("in")
		a.end()
		b.end()
		s.falls() // and newStory looks for commits by who was not the owner
	}, embedded.Topic("in", partitions))
}

// TestQueuedTuplesOfALostPartition: what waits in queues when a partition is lost does not run any more,
// and when the partition is back it is read anew, in order.
// FC-15: segmentio/kafka-go #1398, tulios/kafkajs #1046.
func TestQueuedTuplesOfALostPartition(t *testing.T) {
	tell(t, func(s *story) {
		const n = 400
		var c tally
		top := killick.New("t")
		top.Spout("in", spout.Kafka("in"))
		top.Bolt("pass", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			out.Emit(in.Message())
			return nil
		})).Tasks(2).ByPartition("in") // tasks of their own, with queues
		top.Bolt("slow", bolt.Func(func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
			c.add(string(in.Bytes()))
			return sleep(ctx, 50*time.Millisecond)
		})).Tasks(2).ByPartition("pass")
		s.produce("in", 0, numbers(0, n)...)
		r := s.start(top)
		s.until("some have run", func() bool { return c.total() > 100 })
		if got := r.metric("killick_trees_pending"); got < n/2 {
			s.Fatalf("%v trees are under way: nothing is queued", got)
		}
		gate := make(chan struct{})
		joins := s.b.Hold(kmsg.JoinGroup, gate)
		fault := s.b.Fail(kmsg.Heartbeat, kerr.UnknownMemberID, 1)
		if err := fault.Wait(s.ctx(), 1); err != nil {
			s.Fatal(err)
		}
		s.until("the partition is lost", func() bool { return len(r.parts("in")) == 0 })
		before, committed := c.total(), s.committed("in")[0]
		s.pass(20 * time.Second)
		if got := c.total() - before; got > 1 {
			s.Errorf("%d records ran after their partition was lost", got)
		}
		at := c.total()
		close(gate)
		joins.Remove()
		s.drained("in")
		r.end()
		// From the committed offset on, but for what the commit's map knows.
		c.mu.Lock()
		defer c.mu.Unlock()
		var ids []int
		for _, v := range c.order[at:] {
			var id int
			fmt.Sscan(v, &id)
			ids = append(ids, id)
		}
		if len(ids) == 0 || int64(ids[0]) < committed || !slices.IsSorted(ids) || ids[len(ids)-1] != n-1 {
			s.Errorf("after the partition came back, and committed was %d, %v ran", committed, ids)
		}
		for _, v := range numbers(0, n) {
			if c.n[v] == 0 {
				s.Errorf("%s was lost", v)
			}
		}
	}, embedded.Topic("in", 1))
}

// TestStopDuringARelease: user code that does not come back holds up a move, and a stop in the middle of
// it, for the drain limit and no longer, in all workers.
// FC-16: twmb/franz-go #187 and #1200, confluentinc/confluent-kafka-go #767.
func TestStopDuringARelease(t *testing.T) {
	tell(t, func(s *story) {
		s.cfg.Drain = 5 * time.Second
		free := make(chan struct{})
		defer close(free)
		var c tally
		top := func() *killick.Topology {
			return waited(&c, 8, func(context.Context, *killick.Tuple, killick.Emitter) error {
				<-free // whatever the context says
				return nil
			})
		}
		for p := range int32(4) {
			s.produce("in", p, fmt.Sprint(p))
		}
		a := s.start(top())
		s.until("all run", func() bool { return c.total() == 4 })
		b := s.start(top())
		s.until("a partition is asked for", func() bool { return len(s.logs.lines("releasing the partition")) > 0 })
		s.pass(time.Second)
		for name, r := range map[string]*running{"the first": a, "the second": b} {
			begin := time.Now()
			r.stop()
			err := r.wait()
			if d := time.Since(begin); d > s.cfg.Drain+10*time.Second {
				s.Errorf("%s worker took %v to stop", name, d)
			}
			if err != nil && !errors.Is(err, worker.ErrDrain) {
				s.Errorf("%s worker ended with: %v", name, err)
			}
		}
		for p, o := range s.committed("in") {
			if o > 0 {
				s.Errorf("partition %d is committed up to %d", p, o)
			}
		}
	}, embedded.Topic("in", 4))
}

// TestTwoSpoutsAfterACrash: two spouts of a topology, each with a topic of its own, are one member of one
// group. After a crash both are read on, and no try fails that has not run.
// FC-17: STORM-2426.
func TestTwoSpoutsAfterACrash(t *testing.T) {
	tell(t, func(s *story) {
		const n = 300
		var c tally
		top := func() *killick.Topology {
			top := killick.New("t").Pending(20, 1<<20)
			top.Spout("one", spout.Kafka("a"))
			top.Spout("two", spout.Kafka("b"))
			top.Bolt("work", bolt.Async(16, func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
				c.add(string(in.Bytes()))
				return sleep(ctx, 100*time.Millisecond)
			})).Shuffle("one").Shuffle("two")
			return top
		}
		s.produce("a", 0, numbers(0, n)...)
		s.produce("b", 0, numbers(n, 2*n)...)
		r := s.start(top())
		s.until("some have run", func() bool { return c.total() > n/2 })
		r.kill()
		ran := c.total()
		r = s.start(top())
		s.drained("a")
		s.drained("b")
		for _, result := range []string{"result=fail", "result=dead"} {
			if got := r.metric("killick_tuples_executed_total", result); got != 0 {
				s.Errorf("%v with %s", got, result)
			}
		}
		if got := r.metric("killick_timeouts_total") + r.metric("killick_retries_total"); got != 0 {
			s.Errorf("%v time-outs and retries", got)
		}
		if got := r.metric("killick_tuples_executed_total", "component=work"); int(got) != c.total()-ran {
			s.Errorf("%v executions are counted, of %d", got, c.total()-ran)
		}
		r.end()
		for _, v := range numbers(0, 2*n) {
			if c.of(v) == 0 {
				s.Errorf("%s was lost", v)
			}
		}
	}, embedded.Topic("a", 1), embedded.Topic("b", 1))
}

// cable is a worker's way to the brokers; once it is cut nothing comes through.
type cable struct {
	mu    sync.Mutex
	conns []net.Conn
	gone  bool
}

// over makes a worker's clients use the cable.
func (c *cable) over(s *story) func(*worker.Config) {
	dial := s.b.Dialer()
	return func(cfg *worker.Config) {
		cfg.Kafka[0] = kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.gone {
				return nil, errors.New("the cable is cut")
			}
			conn, err := dial(ctx, network, addr)
			if err == nil {
				c.conns = append(c.conns, conn)
			}
			return conn, err
		})
	}
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	for _, conn := range c.conns {
		conn.Close()
	}
}

// TestMoreMembersThanPartitions: those that have nothing to do are well, and quiet, and one of them takes
// over when the one that works is gone.
// FC-18: bsm/sarama-cluster #29.
func TestMoreMembersThanPartitions(t *testing.T) {
	tell(t, func(s *story) {
		joins := 0
		var mu sync.Mutex
		s.b.Fail(kmsg.JoinGroup, kerr.UnknownServerError, -1, func(kmsg.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			joins++
			return false // it only counts
		})
		count := func() int { mu.Lock(); defer mu.Unlock(); return joins }
		var c tally
		var all []*running
		cables := make([]cable, 3)
		for i := range cables {
			all = append(all, s.start(counting(&c, spout.Kafka("in"), nil), cables[i].over(s)))
		}
		s.until("all are well", func() bool {
			return !slices.ContainsFunc(all, func(r *running) bool { ok, _ := r.Ready(); return !ok })
		})
		s.pass(5 * time.Second)
		before, lines := count(), s.logs.text()
		s.pass(time.Minute)
		if got := count() - before; got > 0 {
			s.Errorf("%d joins in a minute in which nothing happened", got)
		}
		if more := strings.TrimPrefix(s.logs.text(), lines); strings.Contains(more, `"level":"warn"`) || strings.Contains(more, `"level":"error"`) {
			s.Errorf("what is said meanwhile: %s", more)
		}
		works := slices.IndexFunc(all, func(r *running) bool { return len(r.parts("in")) == 1 })
		for i, r := range all {
			if ok, _ := r.Ready(); !ok || len(r.parts("in")) > 0 != (i == works) {
				s.Errorf("worker %d: ready %v, partitions %v", i, ok, r.parts("in"))
			}
		}
		s.produce("in", 0, "before")
		s.drained("in")
		cables[works].cut()
		begin := time.Now()
		s.produce("in", 0, "after")
		s.drained("in")
		if d := time.Since(begin); d > 15*time.Second {
			s.Errorf("it took %v to take over; the session is 10 s", d)
		}
		for i, r := range all {
			if i != works {
				r.end()
			}
		}
		c.once(s, "before", "after")
	}, embedded.Topic("in", 1))
}

// TestPasswordChangesWhileItRuns: connections are authenticated again before the broker ends them, with
// the password that the file holds by then; the old one is worth nothing any more.
// FC-46: aio-libs/aiokafka #1080, knative-extensions/eventing-kafka #335, KAFKA-13848.
func TestPasswordChangesWhileItRuns(t *testing.T) {
	tell(t, func(s *story) {
		file := filepath.Join(s.TempDir(), "password")
		write := func(pw string) {
			if err := os.WriteFile(file, []byte(pw), 0o600); err != nil {
				s.Fatal(err)
			}
		}
		write("old")
		logins := 0
		var mu sync.Mutex
		s.b.Fail(kmsg.SASLAuthenticate, kerr.UnknownServerError, -1, func(kmsg.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			logins++
			return false
		})
		var c tally
		r := s.start(counting(&c, spout.Kafka("in"), nil), func(c *worker.Config) {
			c.SecurityProtocol, c.SASL = "sasl_plaintext", worker.SASL{Mechanism: "SCRAM-SHA-256", User: "u", PasswordFile: file}
		})
		for i := range 30 {
			if i == 12 {
				write("new")
				rs, err := s.admin().AlterUserSCRAMs(s.ctx(), nil, []kadm.UpsertSCRAM{{User: "u", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "new"}})
				if err != nil || rs.Error() != nil {
					s.Fatal(err, rs.Error())
				}
			}
			begin := time.Now()
			s.produce("in", 0, fmt.Sprint(i))
			s.drained("in")
			if d := time.Since(begin); d > 5*time.Second {
				s.Errorf("record %d took %v", i, d)
			}
			s.pass(time.Second)
		}
		r.end()
		c.once(s, numbers(0, 30)...)
		mu.Lock()
		defer mu.Unlock()
		if logins < 12 {
			s.Errorf("%d authentications: nothing was authenticated again", logins)
		}
	}, embedded.Topic("in", 1), embedded.SASL("PLAIN", "admin", "secret"),
		embedded.Kfake(kfake.Superuser("SCRAM-SHA-256", "u", "old"), kfake.BrokerConfigs(map[string]string{"connections.max.reauth.ms": "5000"})))
}

// explosive is a log that panics at a line, once, in whatever goroutine writes it.
type explosive struct {
	w    io.Writer
	at   string
	done atomic.Bool
}

func (e *explosive) Write(p []byte) (int, error) {
	if strings.Contains(string(p), e.at) && e.done.CompareAndSwap(false, true) {
		panic("broken inside: " + e.at)
	}
	return e.w.Write(p)
}

// explosiveMain is a worker that ends at a line of its log.
func explosiveMain(at string) int {
	top := killick.New("t")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("x", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		switch v := string(in.Bytes()); {
		case v == "dies":
			return killick.Permanent(errTry)
		case v == "fails once" && in.Attempt() == 1:
			return errTry
		}
		return nil
	})).Shuffle("in")
	return worker.Command(top, os.Args[1:], os.Environ(), os.Stdout, os.Stderr, func(c *worker.Config) {
		log := zerolog.New(&explosive{w: os.Stderr, at: at})
		c.Logger = &log
	})
}

// TestPanicInside: a panic in killick's own goroutines is a broken invariant. It ends the process at once,
// with the stack, and commits nothing more; only panics of user code are failed tries.
// FC-49: IBM/sarama #2257, ricardo-ch/go-kafka PR #7.
func TestPanicInside(t *testing.T) {
	for name, tt := range map[string]struct {
		at    string
		fault func(b *embedded.Broker)
	}{
		"the group":   {"assigned", nil},
		"the commits": {"commit not stored", func(b *embedded.Broker) { b.Fail(kmsg.OffsetCommit, kerr.TopicAuthorizationFailed, -1) }},
		"a task":      {"a try failed", nil},
		"dead letters": {"a dead letter could not be written", func(b *embedded.Broker) {
			b.Fail(kmsg.Produce, kerr.TopicAuthorizationFailed, -1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := embedded.Start(t, embedded.Topic("in", 1))
			s := newStory(t, b)
			s.produce("in", 0, "a", "fails once", "dies", "b")
			if tt.fault != nil {
				tt.fault(b)
			}
			c := spawn(t, b, "explosive "+tt.at, "--http=off")
			begin := time.Now()
			if code := c.code(t); code != 2 || !contains(c.out.String(), "broken inside: "+tt.at, "goroutine ", "explosive).Write") {
				t.Errorf("exit code %d after %v", code, time.Since(begin))
			}
			if d := time.Since(begin); d > 20*time.Second {
				t.Errorf("it took %v", d)
			}
			if got := s.committed("in")[0]; got > 2 { // "dies" is open
				t.Errorf("committed %d", got)
			}
		})
	}
}
