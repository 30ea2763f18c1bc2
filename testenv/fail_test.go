package testenv_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv"
	"github.com/killick-io/killick/testenv/bubble"
)

// failing stands in for the test that a run fails: it keeps what Fatal says.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}
func (f *failing) Fatal(args ...any) {
	f.said = fmt.Sprint(args...)
	runtime.Goexit()
}

// fails runs top and returns what the test is told.
func fails(top *killick.Topology, in ...testenv.Input) string {
	f := &failing{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		testenv.RunReal(f, top, in...)
	}()
	<-done
	return f.said
}

func idle(context.Context, *killick.Tuple, killick.Emitter) error { return nil }

func TestRunFails(t *testing.T) {
	valid := func() *killick.Topology {
		top := killick.New("valid")
		top.Spout("in", spout.KafkaSource{Topics: []string{"in"}, Codec: killick.JSON[int]()})
		top.Spout("raw", spout.Kafka("raw"))
		top.Spout("own", spout.Slice())
		top.Bolt("b", bolt.Func(idle)).Shuffle("in").Shuffle("raw").Shuffle("own")
		return top
	}
	invalid := killick.New("invalid")
	invalid.Spout("in", spout.Kafka("in")).Tasks(3)
	for _, c := range []struct {
		name string
		top  *killick.Topology
		in   []testenv.Input
		want []string
	}{
		{"invalid topology", invalid, nil, []string{"fail_test.go:", `component "in"`, "remove Tasks", "the topology has no bolt"}},
		{"unknown spout", valid(), []testenv.Input{testenv.Feed("inn"), testenv.Feed("b")},
			[]string{`Feed("inn")`, `Feed("b")`, `topology "valid" has no such spout; its Kafka spouts: "in", "raw"`}},
		{"a spout with its own source", valid(), []testenv.Input{testenv.Feed("own")}, []string{`Feed("own"): the spout has its own source`}},
		{"another type", valid(), []testenv.Input{testenv.Feed("in", killick.Message{Value: 1}, killick.Message{Value: "x"})},
			[]string{`Feed("in"): message 1: killick: the codec encodes int, not string`}},
		{"a value without a codec", valid(), []testenv.Input{testenv.Feed("raw", killick.Message{Value: 1})},
			[]string{`Feed("raw"): message 0: a int as Value, but the spout has no codec; set Bytes`}},
		{"both", valid(), []testenv.Input{testenv.Feed("raw", killick.Message{Value: "x", Bytes: []byte("y")})}, []string{"both Bytes and a Value"}},
	} {
		said := fails(c.top, c.in...)
		for _, want := range c.want {
			if !strings.Contains(said, want) {
				t.Errorf("%s: %q lacks %q", c.name, said, want)
			}
		}
	}
}

// A bolt that never returns would let virtual time go on for ever; one that returns late is tried
// again, however late it is.
func TestRunEndsWhenStuck(t *testing.T) {
	topology := func(f bolt.ExecuteFunc) *killick.Topology {
		top := killick.New("stuck")
		top.Timeout(time.Second)
		top.Spout("in", spout.Kafka("in"))
		top.Bolt("slow", bolt.Func(f)).Shuffle("in").Tasks(2) // tasks with goroutines of their own
		return top
	}
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		start := time.Now()
		said := fails(topology(func(context.Context, *killick.Tuple, killick.Emitter) error { <-release; return nil }),
			testenv.Feed("in", killick.Message{}))
		close(release)
		for _, want := range []string{`component "slow", task `, "its time-out is 1s", "TestRunEndsWhenStuck"} {
			if !strings.Contains(said, want) {
				t.Errorf("%q lacks %q", said, want)
			}
		}
		if took := time.Since(start); took < 10*time.Second || took > 2*time.Minute {
			t.Errorf("given up after %v", took)
		}
	})
	late := func(d time.Duration) bolt.ExecuteFunc {
		return func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if in.Attempt() == 1 {
				<-time.After(d) // virtual time, deaf to the context
			}
			return nil
		}
	}
	r := testenv.Run(t, topology(late(9*time.Second)), testenv.Feed("in", killick.Message{}))
	if got := r.Attempts("slow")["in/0/0"]; got != 2 || r.Acked("in") != 1 || r.Err() != nil {
		t.Errorf("%d tries, acked %d, %v", got, r.Acked("in"), r.Err())
	}
	// As long as other things happen nobody gives up.
	top := topology(late(30 * time.Second))
	top.Bolt("busy", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		if in.Attempt() < 40 {
			return killick.RetryAfter(time.Second, errors.New("again"))
		}
		return nil
	})).Shuffle("in").Retry(killick.Retry{Attempts: 50})
	r = testenv.Run(t, top, testenv.Feed("in", killick.Message{}))
	if got := r.Attempts("slow")["in/0/0"]; got != 2 || r.Acked("in") != 1 || r.Err() != nil {
		t.Errorf("%d tries, acked %d, %v", got, r.Acked("in"), r.Err())
	}
}

// Run does as RunReal, with a real test that fails: in a process of its own.
func TestRunFailsTheTest(t *testing.T) {
	const env = "KILLICK_TEST_FAILING_RUN"
	if os.Getenv(env) != "" {
		testenv.Run(t, killick.New("empty"))
		t.Log("not reached")
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestRunFailsTheTest$", "-test.v")
	cmd.Env = append(os.Environ(), env+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(string(out), "the topology has no spout") || strings.Contains(string(out), "not reached") || strings.Contains(string(out), "panic") {
		t.Errorf("%v\n%s", err, out)
	}
}
