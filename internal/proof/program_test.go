//go:build unix && killick_crash

package proof

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/faults"
	"github.com/killick-io/killick/testenv/verify"
	"github.com/killick-io/killick/worker"
)

// Variables of the program that tests kill, beside those of killick's own configuration.
const (
	inVar      = "PROOF_IN"
	outVar     = "PROOF_OUT"
	pendingVar = "PROOF_PENDING"
	placedVar  = "PROOF_PLACED" // each process has a place: its name
	topology   = "copy"
)

// poison records become dead letters.
func poison(offset int64) bool { return offset%997 == 500 }

// latency of a record's execution: none for most, up to 8 ms for some.
func latency(value []byte) time.Duration {
	h := fnv.New32a()
	h.Write(value)
	if n := h.Sum32(); n%8 == 0 {
		return time.Duration(n>>8%8000) * time.Microsecond
	}
	return 0
}

// programMain copies records from a topic to another, and notes each as an effect.
func programMain() int {
	log, err := faults.OpenLog()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	pending, err := strconv.Atoi(os.Getenv(pendingVar))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	top := killick.New(topology)
	top.Spout("in", spout.Kafka(os.Getenv(inVar))).Pending(pending, 16<<20)
	top.Bolt("work", bolt.Async(pending, func(ctx context.Context, in *killick.Tuple, out killick.Emitter) error {
		o, _ := in.Origin()
		if poison(o.Offset) {
			return killick.Permanent(errors.New("poison"))
		}
		if d := latency(in.Bytes()); d > 0 {
			select {
			case <-time.After(d):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		out.Emit(in.Message())
		return log.Effect(faults.Record{Topic: o.Topic, Partition: o.Partition, Offset: o.Offset, ID: string(in.Bytes()), Attempt: in.Attempt()})
	})).Shuffle("in")
	top.Bolt("out", bolt.Kafka(os.Getenv(outVar))).Local("work")
	// The tests' own variable is none of killick's, which would refuse it.
	environ := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KILLICK_FULL=") })
	code := worker.Command(top, []string{"run"}, environ, os.Stdout, os.Stderr, func(c *worker.Config) {
		c.HTTP = "off"
		c.Kafka = append(c.Kafka, kgo.Dialer(log.Dialer(nil)))
		if os.Getenv(placedVar) != "" {
			c.Place = log.Proc()
		}
	})
	if err := log.End(code); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	return code
}

// program says how the processes of a test run.
type program struct {
	pending    int
	placed     bool
	partitions int
	rate       int // records a second, written while the test goes on
	session    time.Duration
	commit     time.Duration
	via        []string // bootstrap addresses; default: the cluster's
}

func (p program) withDefaults() program {
	if p.pending == 0 {
		p.pending = 256
	}
	if p.partitions == 0 {
		p.partitions = 4
	}
	if p.rate == 0 {
		p.rate = 2000
	}
	if p.session == 0 {
		p.session = 10 * time.Second
	}
	if p.commit == 0 {
		p.commit = time.Second
	}
	return p
}

// fleet is processes that copy a topic, the load on it, and the watcher of both.
type fleet struct {
	*world
	program
	names   []string
	in, out string
	ps      *faults.Processes
	load    *load
	watch   *verify.Watcher
}

// launch starts processes under load and waits until they work.
func (w *world) launch(p program, names ...string) *fleet {
	w.Helper()
	p = p.withDefaults()
	if p.via == nil {
		p.via = w.k.Addrs()
	}
	f := &fleet{world: w, program: p, names: names, in: w.topic("in", p.partitions), out: w.topic("out", p.partitions)}
	w.topic("in."+topology+".dlq", p.partitions) // before somebody asks for it, and remembers that it was not there
	cl, err := kgo.NewClient(w.k.ClientOpts()...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(cl.Close)
	f.watch, err = verify.Watch(cl, verify.Target{Group: w.name, Inputs: []string{f.in}, Outputs: []string{f.out}, DeadLetters: []string{f.in + "." + topology + ".dlq"}}, verify.WatchConfig{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { f.watch.Close() })
	env := []string{inVar + "=" + f.in, outVar + "=" + f.out, fmt.Sprintf("%s=%d", pendingVar, p.pending),
		"KILLICK_KAFKA__BOOTSTRAP_SERVERS=" + strings.Join(p.via, ","), "KILLICK_GROUP=" + w.name, "KILLICK_LOG__LEVEL=info",
		"KILLICK_KAFKA__SESSION_TIMEOUT=" + p.session.String(), "KILLICK_COMMIT_INTERVAL=" + p.commit.String()}
	if p.placed {
		env = append(env, placedVar+"=1")
	}
	f.ps = faults.StartProcesses(w.T, faults.ProcessesConfig{Env: env, Limit: limit}, names...)
	f.load = w.load(f.in, p.partitions, p.rate)
	f.working()
	return f
}

// working waits until all partitions have a position that is committed now.
func (f *fleet) working() {
	f.Helper()
	from := f.load.written.Load()
	ends := f.ends(f.in)
	f.until("the processes work on what is written", func() bool {
		must(f, f.ps.Err())
		if f.load.written.Load() < from+int64(f.rate)/10 {
			return false
		}
		for p, at := range f.committed(f.in) {
			if at >= ends[p] {
				delete(ends, p)
			}
		}
		return len(ends) == 0
	})
}

// finish ends the load, lets the processes come to the end, ends them, and judges the run.
func (f *fleet) finish(rules verify.Rules) *verify.Report {
	f.Helper()
	f.load.stop()
	f.drained(f.in)
	must(f, f.ps.Err())
	for _, name := range f.names {
		p := f.ps.Process(name)
		must(f, p.Term())
		e, err := p.Wait(f.ctx())
		must(f, err)
		if e.Code != 0 {
			f.Errorf("%v; its output is %s", e, e.Output)
		}
	}
	must(f, f.ps.Close())
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
	defer cancel()
	h, err := f.watch.Stop(ctx)
	if err != nil {
		f.Fatal(err)
	}
	if h.Events, err = verify.EventDir(f.ps.Dir()); err != nil {
		f.Fatal(err)
	}
	rules.ID = func(in *kgo.Record) string { return string(in.Value) }
	rules.Want = func(in *kgo.Record) verify.Want {
		if poison(in.Offset) {
			return verify.Want{Dead: true}
		}
		return verify.Want{Effect: true, Outputs: []verify.Output{{Topic: f.out, Key: in.Key, Value: in.Value}}}
	}
	rep, err := verify.Check(rules, h)
	if err != nil {
		f.Fatal(err)
	}
	rep.Fatal(f.T)
	if int64(f.load.written.Load()) != rep.Totals.Inputs {
		f.Errorf("%d records were written, %d are there", f.load.written.Load(), rep.Totals.Inputs)
	}
	return rep
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
