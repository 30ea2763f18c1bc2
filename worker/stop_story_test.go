package worker_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// A soft stop lets what has started end, commits it, and leaves: nothing runs again.
func TestStopDrainsAndCommits(t *testing.T) {
	tell(t, func(s *story) {
		s.produce("in", 0, numbers(0, 1000)...)
		var c tally
		slow := func(ctx context.Context, _ *killick.Tuple, _ killick.Emitter) error {
			select {
			case <-time.After(20 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		for range 3 {
			before := c.total()
			r := s.start(windowed(&c, 50, slow))
			s.until("some have run", func() bool { return c.total() > before+100 })
			r.end()
			if got := s.committed("in")[0]; got != int64(c.total()) {
				t.Errorf("%d ran, %d are committed", c.total(), got)
			}
			if ok, _ := r.Ready(); ok {
				t.Error("a stopped worker is ready")
			}
		}
		r := s.start(counting(&c, spout.Kafka("in"), nil))
		s.drained("in")
		r.end()
		c.once(t, numbers(0, 1000)...)
	}, embedded.Topic("in", 1))
}

// What has not ended within the drain limit stays uncommitted, the rest below it is committed, and
// the error says how much is left.
// FC-48: PostHog/posthog PR #55757, fyndiq/confluent_kafka_helpers PR #94.
func TestStopAtTheDrainLimit(t *testing.T) {
	tell(t, func(s *story) {
		s.produce("in", 0, numbers(0, 100)...)
		var c tally
		r := s.start(counting(&c, spout.Kafka("in"), func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if string(in.Bytes()) == "60" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}), func(c *worker.Config) { c.Drain = 3 * time.Second })
		s.until("60 runs", func() bool { return c.of("60") == 1 })
		start := time.Now()
		r.stop()
		err := r.wait()
		if !errors.Is(err, worker.ErrDrain) || worker.ExitCode(err) != 3 {
			t.Errorf("the worker ended with %v, exit code %d", err, worker.ExitCode(err))
		}
		if d := time.Since(start); d < 3*time.Second || d > 9*time.Second {
			t.Errorf("it took %v", d)
		}
		if got := s.committed("in")[0]; got != 60 {
			t.Errorf("committed %d, want 60", got)
		}
		c.clear()
		r = s.start(counting(&c, spout.Kafka("in"), nil))
		s.drained("in")
		r.end()
		c.once(t, numbers(60, 100)...)
	}, embedded.Topic("in", 1))
}

// A retry that waits runs at once, once, when the worker stops: if it succeeds all is well, if not
// its record stays for the next start.
func TestStopRunsWaitingRetriesOnce(t *testing.T) {
	for name, again := range map[string]bool{"succeeds": false, "fails again": true} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				s.produce("in", 0, numbers(0, 10)...)
				var c tally
				top := counting(&c, spout.Kafka("in"), func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
					if v := string(in.Bytes()); v == "4" && (c.of(v) == 1 || again) {
						return killick.RetryAfter(time.Hour, errTry)
					}
					return nil
				})
				r := s.start(top)
				s.until("4 has failed", func() bool { return c.total() == 10 })
				start := time.Now()
				r.stop()
				err := r.wait()
				if d := time.Since(start); d > 5*time.Second {
					t.Errorf("it took %v", d)
				}
				want := int64(10)
				if again {
					want = 4
				}
				if got := s.committed("in")[0]; (err != nil) != again || again && !errors.Is(err, worker.ErrDrain) || got != want || c.of("4") != 2 {
					t.Errorf("%v; committed %d, 4 ran %d times", err, got, c.of("4"))
				}
			}, embedded.Topic("in", 1))
		})
	}
}

// A stop while the broker is away waits for it within its limits, and says what is not stored.
func TestStopWithoutABroker(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		r := s.start(counting(&c, spout.Kafka("in"), nil))
		s.drained("in")
		fault := s.b.Drop(kmsg.OffsetCommit, -1)
		s.produce("in", 0, numbers(0, 10)...)
		s.until("all have run", func() bool { return c.total() == 10 })
		start := time.Now()
		r.stop()
		err := r.wait()
		if !errors.Is(err, worker.ErrDrain) || !contains(err.Error(), "1 partitions was not stored") {
			t.Errorf("it ended with: %v", err)
		}
		if d := time.Since(start); d > 45*time.Second {
			t.Errorf("it took %v", d)
		}
		fault.Remove()
	}, embedded.Topic("in", 1))
}

// A second worker with the same place takes over; the first one ends, with its own exit code, and
// commits nothing any more.
func TestFencedPlace(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		s.cfg.Place = "slot-1"
		one := s.start(counting(&c, spout.Kafka("in"), nil))
		s.drained("in")
		two := s.start(counting(&c, spout.Kafka("in"), nil))
		err := one.wait()
		if !errors.Is(err, worker.ErrFenced) || worker.ExitCode(err) != 4 || !contains(err.Error(), `"slot-1"`) {
			t.Errorf("the first worker ended with %v, exit code %d", err, worker.ExitCode(err))
		}
		s.produce("in", 0, numbers(0, 10)...)
		s.drained("in")
		two.end()
		c.once(t, numbers(0, 10)...)
	}, embedded.Topic("in", 1))
}

// A component that stops the worker ends it: the trees of others end and are committed, its own
// record stays.
func TestComponentStopsTheWorker(t *testing.T) {
	tell(t, func(s *story) {
		s.produce("in", 0, numbers(0, 10)...)
		var c tally
		top := killick.New("t")
		top.Spout("in", spout.Kafka("in"))
		top.Bolt("count", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if v := string(in.Bytes()); c.add(v) > 0 && v == "5" {
				return killick.Permanent(errors.New("the books do not balance"))
			}
			return nil
		})).Shuffle("in").Retry(killick.Retry{After: killick.Stop()})
		err := s.start(top).wait()
		if err == nil || !contains(err.Error(), `"count"`, "the books do not balance") || worker.ExitCode(err) != 1 {
			t.Errorf("it ended with %v, exit code %d", err, worker.ExitCode(err))
		}
		if got := s.committed("in")[0]; got != 5 {
			t.Errorf("committed %d", got)
		}
	}, embedded.Topic("in", 1))
}

// A stop before the start has ended is a clean end, too.
func TestStopDuringTheStart(t *testing.T) {
	tell(t, func(s *story) {
		gate := make(chan struct{})
		held := s.b.Hold(kmsg.Metadata, gate)
		r := s.start(counting(new(tally), spout.Kafka("in"), nil))
		if err := held.Wait(s.ctx(), 1); err != nil {
			t.Fatal(err)
		}
		r.stop()
		if err := r.wait(); err != nil {
			t.Errorf("it ended with: %v", err)
		}
		close(gate)
		held.Remove()
	}, embedded.Topic("in", 1))
}

// A stop while the group waits for a member that does not come has a deadline, too.
func TestStopDuringAJoinThatDoesNotEnd(t *testing.T) {
	tell(t, func(s *story) {
		other, err := kgo.NewClient(s.b.ClientOpts(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("in"), kgo.BlockRebalanceOnPoll(),
			kgo.Balancers(renamed{kgo.CooperativeStickyBalancer()}), kgo.DisableAutoCommit(), kgo.SessionTimeout(5*time.Minute), kgo.RebalanceTimeout(5*time.Minute))...)
		if err != nil {
			t.Fatal(err)
		}
		s.Cleanup(other.CloseAllowingRebalance)
		s.produce("in", 0, "a")
		if fs := other.PollFetches(s.ctx()); fs.NumRecords() != 1 { // and lets no rebalance happen from here on
			t.Fatal(fs.Err())
		}
		r := s.start(counting(new(tally), spout.Kafka("in"), nil))
		joins := s.b.Hold(kmsg.SyncGroup, make(chan struct{})) // counts; none comes
		s.pass(5 * time.Second)
		if ok, _ := r.ready("group"); ok || joins.Hits() > 0 {
			t.Fatal("it has joined")
		}
		start := time.Now()
		r.end()
		if d := time.Since(start); d > 15*time.Second {
			t.Errorf("the stop took %v", d)
		}
		joins.Remove()
	}, embedded.Topic("in", 1))
}

// renamed is a balancer under the name of killick's: to the broker its members are of the group's kind.
type renamed struct{ kgo.GroupBalancer }

func (renamed) ProtocolName() string { return "killick" }

// child runs this test binary as a worker; see TestMain.
type child struct {
	*exec.Cmd
	out   *syncBuffer
	lines chan string // of its standard output
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// spawn starts a child with a topology of TestMain's and arguments for worker.Command.
func spawn(t *testing.T, b *embedded.Broker, topology string, args ...string) *child {
	t.Helper()
	return spawnAs(t, b, topology, func(*child) {}, args...)
}

// spawnAs is spawn of a child that change has changed before it starts.
func spawnAs(t *testing.T, b *embedded.Broker, topology string, change func(*child), args ...string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command(os.Args[0], args...), out: new(syncBuffer), lines: make(chan string, 1000)}
	c.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KILLICK_FULL=") }), childVar+"="+topology, "KILLICK_KAFKA__BOOTSTRAP_SERVERS="+strings.Join(b.Addrs(), ","),
		"KILLICK_LOG__FORMAT=json", "KILLICK_GROUP=g")
	c.Stderr = c.out
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout = w
	change(c)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	go func() {
		defer close(c.lines)
		defer r.Close()
		for sc := bufio.NewScanner(r); sc.Scan(); {
			c.lines <- sc.Text()
		}
	}()
	t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
		if t.Failed() {
			t.Logf("the child's log:\n%s", c.out)
		}
	})
	return c
}

// says waits for a line of the child's output.
func (c *child) says(t *testing.T, want string) {
	t.Helper()
	end := time.After(20 * time.Second)
	for {
		select {
		case l, ok := <-c.lines:
			if !ok {
				t.Fatalf("the child ended before it said %q", want)
			}
			if l == want {
				return
			}
		case <-end:
			t.Fatalf("the child does not say %q", want)
		}
	}
}

// code waits for the child's end.
func (c *child) code(t *testing.T) int {
	t.Helper()
	kill := time.AfterFunc(40*time.Second, func() { _ = c.Process.Kill() })
	defer kill.Stop()
	_ = c.Wait()
	return c.ProcessState.ExitCode()
}

const childVar = "KILLICK_TEST_CHILD"

// childMain is what a child does instead of tests.
func childMain(topology string) int {
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	execute := func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		say("ran %s", in.Bytes())
		return nil
	}
	src := spout.Kafka("in")
	if at, ok := strings.CutPrefix(topology, "explosive "); ok {
		return explosiveMain(at)
	}
	switch topology {
	case "moves":
		return movesMain(say)
	case "killer":
		return killerMain(say)
	case "hungry":
		return hungryMain(say)
	case "no files":
		return fewFilesMain(-1, say)
	case "some files":
		return fewFilesMain(60, say)
	case "blocked", "obedient":
		return stuckMain(say, topology == "obedient")
	case "bounded":
		src.Until = spout.Latest()
	case "stuck":
		execute = func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
			say("ran %s", in.Bytes())
			<-ctx.Done()
			return ctx.Err()
		}
	}
	top := killick.New("t")
	top.Spout("in", src)
	top.Bolt("print", bolt.Func(execute)).Shuffle("in").Timeout(time.Hour)
	return worker.Command(top, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
}

// The exit codes of a program, as its environment sees them, and what it says.
// FC-48: PostHog/posthog PR #55757.
func TestExitCodes(t *testing.T) {
	b := embedded.Start(t, embedded.Topic("in", 1))
	s := newStory(t, b)
	s.produce("in", 0, "a")
	t.Run("a bounded run that came to its end", func(t *testing.T) {
		c := spawn(t, b, "bounded", "--http=off")
		c.says(t, "ran a")
		if code := c.code(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run("a clean stop by "+sig.String(), func(t *testing.T) {
			s.produce("in", 0, sig.String())
			c := spawn(t, b, "endless")
			c.says(t, "ran "+sig.String())
			if err := c.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if code := c.code(t); code != 0 || !s.atEnd("in") {
				t.Errorf("exit code %d, committed %v", code, s.committed("in"))
			}
		})
	}
	t.Run("the drain limit", func(t *testing.T) {
		s.produce("in", 0, "stuck")
		c := spawn(t, b, "stuck", "--drain=300ms")
		c.says(t, "ran stuck")
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := c.code(t); code != 3 || !contains(c.out.String(), "drain limit") {
			t.Errorf("exit code %d", code)
		}
	})
	t.Run("a second signal", func(t *testing.T) {
		c := spawn(t, b, "stuck", "--drain=1m")
		c.says(t, "ran stuck")
		start := time.Now()
		_ = c.Process.Signal(syscall.SIGTERM)
		for !strings.Contains(c.out.String(), "stopping: fetching ends") { // the first one has arrived
			if time.Since(start) > 20*time.Second {
				t.Fatal("it does not stop")
			}
			<-time.After(5 * time.Millisecond)
		}
		_ = c.Process.Signal(syscall.SIGTERM) // an echo of the first, which does not count
		<-time.After(300 * time.Millisecond)  // real time is what an echo is told by
		if contains(c.out.String(), "second terminated") {
			t.Error("an echo of the first signal counted as the second")
		}
		_ = c.Process.Signal(syscall.SIGTERM)
		if code := c.code(t); code != 3 || time.Since(start) > 20*time.Second || !contains(c.out.String(), "second terminated") {
			t.Errorf("exit code %d after %v", code, time.Since(start))
		}
	})
	t.Run("bad usage", func(t *testing.T) {
		for _, args := range [][]string{{"fly"}, {"run", "--no-such-flag"}, {"--drain=soon"}, {"run", "--http=nowhere"}} {
			if c := spawn(t, b, "endless", args...); c.code(t) != 2 {
				t.Errorf("%q: exit code %d", args, c.ProcessState.ExitCode())
			}
		}
	})
	t.Run("help and validate", func(t *testing.T) {
		for _, args := range [][]string{{"help"}, {"--help"}, {"validate"}} {
			if c := spawn(t, b, "endless", args...); c.code(t) != 0 {
				t.Errorf("%q: exit code %d", args, c.ProcessState.ExitCode())
			}
		}
	})
}

// TestExitCodeWithoutABroker: nobody listens at the address, which is said, and soon.
// FC-47: IBM/sarama #3037.
func TestExitCodeWithoutABroker(t *testing.T) {
	t.Parallel()
	start := time.Now()
	c := spawn(t, embedded.Start(t), "endless", "--bootstrap=127.0.0.1:1")
	if code := c.code(t); code != 5 || time.Since(start) > 15*time.Second || !contains(c.out.String(), "127.0.0.1:1", "nothing listens there") {
		t.Errorf("exit code %d after %v", code, time.Since(start))
	}
}
