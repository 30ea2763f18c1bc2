//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/killick-io/killick/internal/bench/alo"
	"github.com/killick-io/killick/testenv/kafkaenv"
)

// kafkas is the broker of the tests here: it stands for one that somebody else runs.
var kafkas = kafkaenv.NewShared()

func TestMain(m *testing.M) {
	code := kafkas.Main(m.Run)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// limited is for what takes seconds on an idle machine.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// log is where a test's progress goes.
type log struct{ *testing.T }

func (l log) Write(b []byte) (int, error) {
	l.Logf("%s", strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}

// left are the topics and groups of benchmarks at the broker.
func left(t *testing.T, k *kafkaenv.Cluster) (all []string) {
	t.Helper()
	cl, err := kgo.NewClient(k.ClientOpts()...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	topics, err := adm.ListTopics(limited(t))
	groups, err2 := adm.ListGroups(limited(t))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(topics.Names(), groups.Groups()...) {
		if strings.HasPrefix(name, "killick-bench-") {
			all = append(all, name)
		}
	}
	return all
}

// TestALO: all arms on Apache Kafka, at its smallest: what is measured is checked there, and nothing is left behind.
func TestALO(t *testing.T) {
	k := kafkas.Use(t)
	was := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(was) })
	o := NewALO()
	o.Where = Where{Kafka: k.Addrs()[0], Log: log{t}}
	o.Run = func(ctx context.Context, j alo.Job) ([]alo.Result, error) { return j.Run(ctx) }
	o.Arms, o.Sizes, o.Records, o.Batch, o.Rounds, o.Ballast = ArmNames(), []int{100}, "4000", 100, 2, 0
	o.Profile = filepath.Join(t.TempDir(), "cpu.pprof")
	r, err := ALO(limited(t), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != len(arms) || !strings.Contains(r.Broker, k.Addrs()[0]) {
		t.Errorf("broker %q, %d rows; want one for each of %d arms", r.Broker, len(r.Rows), len(arms))
	}
	for _, x := range r.Rows {
		if x.Records != 4000 || x.Pairs != 1 || x.CPU.Median <= 0 || x.Rate.Median <= 0 || x.Own.CPU.Median <= 0 {
			t.Errorf("row %+v", x)
		}
	}
	for _, arm := range []string{"fused", "fused3", "hop", "sink", "defaults"} {
		if info, err := os.Stat(alo.ProfileName(o.Profile, arm, 100)); err != nil || info.Size() == 0 {
			t.Errorf("no profile: %v", err)
		}
	}
	if l := left(t, k); len(l) > 0 {
		t.Errorf("left behind: %q", l)
	}
}

// TestALOCleansUpAfterFailures: of a slice, and of who waits.
func TestALOCleansUpAfterFailures(t *testing.T) {
	k := kafkas.Use(t)
	for _, interrupted := range []bool{false, true} {
		ctx, cancel := context.WithCancel(limited(t))
		o := NewALO()
		o.Where = Where{Kafka: k.Addrs()[0], Log: log{t}}
		o.Sizes, o.Records, o.Batch = []int{100}, "800", 100
		o.Run = func(ctx context.Context, j alo.Job) ([]alo.Result, error) {
			if interrupted {
				cancel()
				return nil, context.Cause(ctx)
			}
			return nil, alo.ErrInvalid
		}
		_, err := ALO(ctx, o)
		if interrupted && !errors.Is(err, context.Canceled) || !interrupted && !errors.Is(err, alo.ErrInvalid) {
			t.Errorf("%v", err)
		}
		cancel()
		if l := left(t, k); len(l) > 0 {
			t.Errorf("left behind: %q", l)
		}
	}
}

// TestPause: all states come about, and in the state held no record of the busy partition is fetched.
func TestPause(t *testing.T) {
	k := kafkas.Use(t)
	o := NewPause()
	o.Where = Where{Kafka: k.Addrs()[0], Log: log{t}}
	o.Waits, o.Windows, o.For = []time.Duration{25 * time.Millisecond}, []int64{8 << 20, 256 << 10}, time.Second
	o.Records = 400_000
	r, err := Pause(limited(t), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Latency) != 3 || len(r.Drain) != 2 || len(r.Idle) != 1 || r.Idle[0].Fetches <= 0 || r.Idle[0].CPU <= 0 {
		t.Fatalf("%+v", r)
	}
	for i, x := range r.Latency {
		if want := string([]state{quiet, held, pulsing}[i]); x.State != want || x.Records == 0 || x.P50 <= 0 || x.P50 > x.P99 || x.P99 > x.Max {
			t.Errorf("row %+v, want one of %s", x, want)
		}
		if (x.Busy > 0) != (x.State == "pulsing") {
			t.Errorf("row %+v: records of the busy partition end while it pulses, and else not", x)
		}
	}
	for _, x := range r.Drain {
		if x.Rate <= 0 || x.Fetches <= 0 || x.Again < 1 {
			t.Errorf("row %+v", x)
		}
	}
	if l := left(t, k); len(l) > 0 {
		t.Errorf("left behind: %q", l)
	}
}
