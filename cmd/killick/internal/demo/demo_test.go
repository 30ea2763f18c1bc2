package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/killick-io/killick/examples/orders/check"
	"github.com/killick-io/killick/testenv/embedded"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == fakeCommand {
		if err := runFake(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, "fake worker:", err)
			os.Exit(7)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// with are the options that run a fake worker.
func with(t *testing.T, mode string) (Options, *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s:\n%s", mode, log.String())
		}
	})
	return Options{Records: MinRecords, Log: &log, Worker: []string{self, fakeCommand, mode}, temp: t.TempDir()}, &log
}

// leftovers are what is in the folder for temporary files.
func leftovers(t *testing.T, o Options) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(o.temp, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestHonest: a worker that has nothing of killick passes, and the numbers are those of the run.
func TestHonest(t *testing.T) {
	t.Parallel()
	o, _ := with(t, honest)
	res, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !res.OK || !res.Report.OK || len(res.Report.Violations) > 0 {
		t.Errorf("violations %v, want none", res.Report.Violations)
	}
	if p := percent(res.Kill.Through, o.Records); p < earliest || p > latest+5 {
		t.Errorf("killed at %d %%, want about half way", p)
	}
	if res.Kill.PID == res.Successor || res.Kill.PID == 0 || res.Successor == 0 {
		t.Errorf("processes %d and %d", res.Kill.PID, res.Successor)
	}
	rep := res.Report
	if rep.Records != MinRecords || len(rep.Kills) != 1 || rep.Notifications+rep.DeadLetters != MinRecords+rep.Duplicates.Notifications {
		t.Errorf("report %+v", rep)
	}
	if rep.Kills[0].Open == 0 || rep.Samples < 2*partitions {
		t.Errorf("%d records to run after the kill, %d samples", rep.Kills[0].Open, rep.Samples)
	}
	if left := leftovers(t, o); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestEarly: a worker that commits what it has not done is caught, and what was seen is kept.
func TestEarly(t *testing.T) {
	t.Parallel()
	o, log := with(t, early)
	res, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	is := func(k check.Kind) bool {
		return slices.ContainsFunc(res.Report.Violations, func(v check.Violation) bool { return v.Kind == k })
	}
	if res.OK || !is(check.EarlyCommit) || !is(check.Loss) {
		t.Errorf("ok %t, violations %v; want early commits and losses", res.OK, res.Report.Violations)
	}
	left := leftovers(t, o)
	if len(left) != 1 || !strings.Contains(log.String(), left[0]) {
		t.Fatalf("left behind: %q, want one folder that the log names:\n%s", left, log)
	}
	for _, name := range []string{"worker-1.log", "worker-2.log", "payments.jsonl", "history.json", "result.json"} {
		if _, err := os.Stat(filepath.Join(left[0], name)); err != nil {
			t.Error(err)
		}
	}
	// The history that is kept is the one that was judged.
	b, err := os.ReadFile(filepath.Join(left[0], "history.json"))
	if err != nil {
		t.Fatal(err)
	}
	var h check.History
	if err := json.Unmarshal(b, &h); err != nil {
		t.Fatal(err)
	}
	again, err := check.Check(h)
	if err != nil || len(again.Violations) != len(res.Report.Violations) {
		t.Errorf("judged again: %v, %d violations, want %d", err, len(again.Violations), len(res.Report.Violations))
	}
}

// TestNoVerdict: what keeps the demo from a verdict is told with its reason.
func TestNoVerdict(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode string
		want []string
	}{
		{lazy, []string{"nothing is committed"}},
		{garbled, []string{"unreadable commit metadata of orders-", "gibberish"}},
		{quits, []string{"ended before it was killed", "exit status 7", "fake worker: I quit"}},
		{tires, []string{"did not come to the end", "exit status 7", "fake worker: I quit"}},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			t.Parallel()
			o, _ := with(t, tt.mode)
			res, err := Run(t.Context(), o)
			if err == nil || res != nil {
				t.Fatalf("result %+v, error %v; want an error", res, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if left := leftovers(t, o); len(left) != 1 {
				t.Errorf("left behind: %q, want the folder with the logs", left)
			}
		})
	}
}

// TestUsage: all mistakes at once, and nothing is started or made.
func TestUsage(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Run(t.Context(), Options{Records: 7, Keep: full, Kafka: "nowhere", Worker: []string{"/does/not/exist"}})
	if !errors.Is(err, ErrUsage) {
		t.Fatalf("error %v, want %v", err, ErrUsage)
	}
	for _, want := range []string{"7 records", "1000 to 6000", full, "nowhere"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %q", err, want)
		}
	}
}

// cancels is a log that ends the run when a line has come.
type cancels struct {
	bytes.Buffer
	at     string
	cancel func()
}

func (c *cancels) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(c.at)) {
		c.cancel()
	}
	return c.Buffer.Write(p)
}

// TestInterrupt: whoever ends the run early leaves nothing behind, neither process nor file.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"4 partitions of topic", "started", "killed with SIGKILL"} {
		o, _ := with(t, honest)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		o.Log = &cancels{at: at, cancel: cancel}
		res, err := Run(ctx, o)
		if !errors.Is(err, context.Canceled) || res != nil {
			t.Errorf("ended at %q: %+v, %v; want %v", at, res, err, context.Canceled)
		}
		if left := leftovers(t, o); len(left) > 0 {
			t.Errorf("ended at %q: left behind %q", at, left)
		}
	}
}

// TestKafka: on a Kafka that is not the demo's own, what it makes has names of its own and is gone at the end, whether
// the run was good or not.
func TestKafka(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{honest, tires} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := embedded.Start(t, embedded.Topic("orders", 1))
			if err := b.Produce(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("somebody else's")}); err != nil {
				t.Fatal(err)
			}
			o, log := with(t, mode)
			o.Kafka = b.Addrs()[0]
			res, err := Run(t.Context(), o)
			if good := mode == honest; good != (err == nil && res.OK) {
				t.Errorf("result %+v, error %v", res, err)
			}
			adm, err := kadm.NewOptClient(b.ClientOpts()...)
			if err != nil {
				t.Fatal(err)
			}
			defer adm.Close()
			topics, err := adm.ListTopics(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if names := topics.Names(); !slices.Equal(names, []string{"orders"}) {
				t.Errorf("topics %q, want somebody else's only", names)
			}
			groups, err := adm.ListGroups(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(groups) > 0 {
				t.Errorf("groups %v, want none", groups.Groups())
			}
			ends, err := b.End(t.Context(), "orders")
			if err != nil || ends[0].End != 1 {
				t.Errorf("somebody else's topic: %v, %v; want one record", ends, err)
			}
			if strings.Contains(log.String(), "could be deleted") {
				t.Errorf("log:\n%s", log)
			}
		})
	}
}

// TestBrokerGone: a broker that goes away half way ends the demo with the reason, and soon.
func TestBrokerGone(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t)
	o, _ := with(t, honest)
	o.Kafka = b.Addrs()[0]
	o.patience = 300 * time.Millisecond
	log := &cancels{at: "orders in 4 partitions", cancel: b.Down}
	o.Log = log
	if res, err := Run(t.Context(), o); err == nil || res != nil || errors.Is(err, ErrUsage) {
		t.Errorf("result %+v, error %v; want an error", res, err)
	}
	if !strings.Contains(log.String(), "begins with killick-demo-") {
		t.Errorf("the log does not say what is left:\n%s", log)
	}
}
