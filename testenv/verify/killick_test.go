package verify_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/testenv/faults"
	"github.com/killick-io/killick/testenv/verify"
	"github.com/killick-io/killick/worker"
)

// TestKillick judges killick: two replicas, one of which comes later, and one of which is stopped, with retries, dead
// letters, a sink and commits each 20 ms. Their event files are written by testenv/faults.
func TestKillick(t *testing.T) {
	const records, partitions = 4000, 4
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	b := embedded.Start(t, embedded.Topic("in", partitions), embedded.Topic("out", 3))
	dir := t.TempDir()
	cl, err := kgo.NewClient(b.ClientOpts()...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	w, err := verify.Watch(cl, verify.Target{Group: "killick.t", Inputs: []string{"in"}, Outputs: []string{"out"}, DeadLetters: []string{"in.t.dlq"}},
		verify.WatchConfig{Every: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()

	bad := func(offset int64) bool { return offset%101 == 50 }
	type replica struct {
		stop context.CancelFunc
		done chan error
		log  *faults.Log
	}
	start := func(name string) replica {
		log, err := faults.CreateLog(dir, name, 1)
		if err != nil {
			t.Fatal(err)
		}
		top := killick.New("t").Order(killick.PerKey)
		top.Spout("in", spout.Kafka("in"))
		top.Bolt("work", bolt.Async(50, func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			o, _ := in.Origin()
			if bad(o.Offset) {
				return killick.Permanent(errors.New("bad"))
			}
			if o.Offset%37 == 5 && in.Attempt() == 1 {
				return errors.New("try again")
			}
			out.Emit(killick.Message{Key: in.Key(), Bytes: fmt.Appendf(nil, "made of %s", in.Bytes())})
			return log.Effect(faults.Record{Topic: o.Topic, Partition: o.Partition, Offset: o.Offset, Key: in.Key(), ID: string(in.Bytes()), Attempt: in.Attempt()})
		})).Shuffle("in").Retry(killick.Retry{Attempts: 3, Min: time.Millisecond, Max: 5 * time.Millisecond})
		top.Bolt("out", bolt.Kafka("out")).Local("work")
		run, stop := context.WithCancel(ctx)
		r := replica{stop, make(chan error, 1), log}
		go func() {
			r.done <- worker.Run(run, top, worker.Config{Bootstrap: b.Addrs(), HTTP: "off", LogLevel: "off", CommitInterval: 20 * time.Millisecond,
				Kafka: []kgo.Opt{kgo.Dialer(log.Dialer(nil))}})
		}()
		return r
	}
	end := func(r replica) {
		t.Helper()
		r.stop()
		if err := <-r.done; err != nil {
			t.Error(err)
		}
		if err := r.log.End(0); err != nil {
			t.Error(err)
		}
	}
	feed := func(from, to int) {
		t.Helper()
		var rs []*kgo.Record
		for i := from; i < to; i++ {
			rs = append(rs, &kgo.Record{Topic: "in", Partition: int32(i % partitions), Key: fmt.Append(nil, i%97), Value: fmt.Append(nil, i)})
		}
		if err := b.Produce(ctx, rs...); err != nil {
			t.Fatal(err)
		}
	}
	caughtUp := func() {
		t.Helper()
		if err := w.Wait(ctx, func(s verify.Sample) bool { return s.Committed("in") }); err != nil {
			t.Fatal(err)
		}
	}
	feed(0, records/4)
	one := start("one")
	caughtUp()
	two := start("two")
	feed(records/4, records*3/4)
	caughtUp()
	feed(records*3/4, records)
	end(one)
	caughtUp()
	end(two)

	h, err := w.Stop(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if h.Events, err = verify.EventDir(dir); err != nil {
		t.Fatal(err)
	}
	rep, err := verify.Check(verify.Rules{
		ID:    func(in *kgo.Record) string { return string(in.Value) },
		Order: verify.PerKey,
		Want: func(in *kgo.Record) verify.Want {
			if bad(in.Offset) {
				return verify.Want{Dead: true}
			}
			return verify.Want{Effect: true, Outputs: []verify.Output{{Topic: "out", Key: in.Key, Value: fmt.Appendf(nil, "made of %s", in.Value)}}}
		},
	}, h)
	if err != nil {
		t.Fatal(err)
	}
	rep.Fatal(t)
	if got := rep.Totals; got.Inputs != records || got.Lives != 2 || got.DeadLetters == 0 || got.CommitsSent < 20 || got.Maps == 0 || got.Effects != got.Outputs {
		t.Errorf("%+v", got)
	}
	t.Log(rep)
}
