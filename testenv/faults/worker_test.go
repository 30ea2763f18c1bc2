//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/testenv/verify"
	"github.com/killick-io/killick/worker"
)

// dies reports whether a record is one that the worker of these tests gives up.
func dies(offset int64) bool { return offset%50 == 7 }

// workerMain is a killick worker: an effect and an output for each record of in, dead letters for some.
func workerMain() int {
	log, err := OpenLog()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	top := killick.New("t")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("work", bolt.Func(func(ctx context.Context, in *killick.Tuple, out killick.Emitter) error {
		o, _ := in.Origin()
		if dies(o.Offset) {
			return killick.Permanent(errors.New("as it should"))
		}
		out.Emit(in.Message())
		return log.Effect(Record{Topic: o.Topic, Partition: o.Partition, Offset: o.Offset, ID: string(in.Bytes()), Attempt: in.Attempt()})
	})).Shuffle("in").Tasks(2)
	top.Bolt("out", bolt.Kafka("out")).Shuffle("work")
	code := worker.Command(top, os.Args[1:], os.Environ(), os.Stdout, os.Stderr, func(c *worker.Config) {
		c.Kafka = append(c.Kafka, kgo.Dialer(log.Dialer(nil)), kgo.MetadataMinAge(100*time.Millisecond))
	})
	if err := log.End(code); err != nil {
		fmt.Println(err)
		return 1
	}
	return code
}

// trial is a topic, workers that read it, and the judge.
type trial struct {
	testing.TB
	ctx context.Context
	b   *embedded.Broker
	cl  *kgo.Client
	ps  *Processes
	w   *verify.Watcher
	n   int // records so far
}

const trialPartitions = 4

// try starts a broker, and prepares workers that find it at addrs; nil: directly.
func try(t testing.TB, addrs func(b *embedded.Broker) []string) *trial {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	x := &trial{TB: t, ctx: ctx, b: embedded.Start(t, embedded.Topic("in", trialPartitions), embedded.Topic("out", 2), embedded.Topic("in.t.dlq", trialPartitions))}
	seeds := x.b.Addrs()
	if addrs != nil {
		seeds = addrs(x.b)
	}
	x.ps = StartProcesses(t, ProcessesConfig{Role: "killick", Args: []string{"--http=off", "--group=g", "--drain=10s",
		"--kafka.session_timeout=2s", "--kafka.heartbeat_interval=200ms", "--commit_interval=100ms", "--log.format=json"},
		Env: []string{"KILLICK_KAFKA__BOOTSTRAP_SERVERS=" + seeds[0]}})
	var err error
	if x.cl, err = kgo.NewClient(x.b.ClientOpts(kgo.RecordPartitioner(kgo.ManualPartitioner()))...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.cl.Close)
	x.w, err = verify.Watch(x.cl, verify.Target{Group: "g", Inputs: []string{"in"}, Outputs: []string{"out"}, DeadLetters: []string{"in.t.dlq"}}, verify.WatchConfig{})
	must(t, err)
	t.Cleanup(x.w.Close)
	return x
}

func (x *trial) produce(n int) {
	x.Helper()
	var rs []*kgo.Record
	for range n {
		rs = append(rs, &kgo.Record{Topic: "in", Partition: int32(x.n % trialPartitions), Value: fmt.Append(nil, x.n)})
		x.n++
	}
	must(x, x.cl.ProduceSync(x.ctx, rs...).FirstErr())
}

// drained waits until all that was produced is committed.
func (x *trial) drained() {
	x.Helper()
	for {
		sum := int64(0)
		got, err := x.b.Committed(x.ctx, "g", "in")
		for _, o := range got {
			sum += o.Offset
		}
		if err == nil && sum == int64(x.n) {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-x.ctx.Done():
			x.Fatalf("committed %v of %d records, %v; %v", got, x.n, err, x.ps.Err())
		}
	}
}

// judge ends the processes and judges what they did: perCrash duplicates of each crash are allowed.
func (x *trial) judge(perCrash int64) *verify.Report {
	x.Helper()
	must(x, x.ps.Close())
	h, err := x.w.Stop(x.ctx)
	must(x, err)
	h.Events, err = verify.EventDir(x.ps.Dir())
	must(x, err)
	rep, err := verify.Check(verify.Rules{
		ID: func(r *kgo.Record) string { return string(r.Value) },
		Want: func(r *kgo.Record) verify.Want {
			if dies(r.Offset) {
				return verify.Want{Dead: true}
			}
			return verify.Want{Effect: true, Outputs: []verify.Output{{Topic: "out", Value: r.Value}}}
		},
		Duplicates: verify.Duplicates{PerCrash: perCrash, Outputs: -1, DeadLetters: -1},
	}, h)
	must(x, err)
	rep.Fatal(x)
	return rep
}

// Three workers, killed, frozen and ended by a plan, under load: nothing is lost, no commit is early, and
// nothing runs again that a crash does not explain.
func TestWorkersByPlan(t *testing.T) {
	x := try(t, nil)
	procs := []string{"w1", "w2", "w3"}
	for _, p := range procs {
		must(t, x.ps.Process(p).Start())
	}
	_, err := x.b.Cluster().WaitGroupStable(x.ctx, "g", len(procs))
	must(t, err)
	plan, err := NewPlan(Seed(t), PlanConfig{Procs: procs, For: 3 * time.Second, Every: 500 * time.Millisecond, Kill: 2, Term: 1, Freeze: 1,
		Away: Span{Max: 300 * time.Millisecond}, Frozen: Span{Max: 3 * time.Second}, Up: 1})
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- x.ps.Run(x.ctx, plan) }()
	load := time.NewTicker(20 * time.Millisecond)
	defer load.Stop()
	for running := true; running; {
		select {
		case err = <-done:
			running = false
		case <-load.C:
			x.produce(40)
		}
	}
	must(t, err)
	x.drained()
	rep := x.judge(2000)
	t.Logf("%d records, %d effects, %d lives, %d crashes", x.n, rep.Totals.Effects, rep.Totals.Lives, len(rep.Crashes))
	if rep.Totals.Effects < int64(x.n)*9/10 || rep.Totals.Lives < 3 {
		t.Errorf("%+v", rep.Totals)
	}
}

// Behind a proxy that loses the answers to commits, and delivers one again much later.
func TestWorkerBehindProxy(t *testing.T) {
	var p *Proxy
	x := try(t, func(b *embedded.Broker) []string {
		p = StartProxy(t, b.Addrs()...)
		return p.Addrs()
	})
	lose := Inject(t, p, commitsOf("in", CutAfter, 3))
	again := Inject(t, p, commitsOf("in", DuplicateLater, 1))
	must(t, x.ps.Process("w").Start())
	for lose.Hits() < 3 {
		x.produce(40)
		x.drained()
	}
	again.Release()
	x.produce(40)
	x.drained()
	rep := x.judge(0)
	if again.Hits() != 1 || rep.Totals.Effects < int64(x.n)*9/10 {
		t.Errorf("%d hits, %+v", again.Hits(), rep.Totals)
	}
	noErrors(t, p)
}
