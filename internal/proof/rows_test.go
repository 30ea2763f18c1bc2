//go:build unix && killick_crash

package proof

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/faults"
	"github.com/killick-io/killick/testenv/kafkaenv"
	"github.com/killick-io/killick/testenv/verify"
	"github.com/killick-io/killick/worker"
)

// TestKilledAtEachPoint (rows 1, 2, 3, 17, 18, 57, 73): the process dies at each named place in
// killick's code, and another life goes on. The verifier counts.
func TestKilledAtEachPoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafka.Use(t))
	points := faults.CrashPoints()
	if !full {
		// Those between an outcome and what is said of it; all others in make faults.
		points = []string{"executed", "sink-written", "letter-written", "before-commit", "after-commit", "release-ended", "release-closed"}
	}
	// Those that load alone brings a process to, and how often it passes them at most before it dies.
	often := map[string]int{"fetched": 20, "delivered": 20, "executed": 100, "outputs-sent": 100, "sink-queued": 100, "sink-written": 100,
		"letter-written": 1, "before-commit": 5, "after-commit": 5, "starting": 1, "renewed": 1, "opened": 1}
	f := w.launch(program{rate: 1000, commit: 200 * time.Millisecond, session: 2 * time.Second}, "a", "b")
	died := 0
	for _, point := range points {
		n := 1
		if often[point] > 0 {
			n += rand.IntN(often[point])
		}
		p := f.ps.Process("a")
		must(t, p.Term())
		_, err := p.Wait(f.ctx())
		must(t, err)
		must(t, p.Crash(fmt.Sprintf("%s:%d:kill", point, n)))
		must(t, p.Start())
		switch released := strings.HasPrefix(point, "release-"); {
		case released: // to b when that comes back
			b := f.ps.Process("b")
			must(t, b.Term())
			_, err := b.Wait(f.ctx())
			must(t, err)
			f.working()
			must(t, b.Start())
		case often[point] == 0:
			f.working()
			must(t, p.Term()) // others it passes when it is asked to end, or perhaps not at all
		}
		e, err := p.Wait(f.ctx())
		must(t, err)
		if e.Signal == syscall.SIGKILL {
			died++
		} else if !full {
			t.Errorf("the process did not pass %s: %v", point, e)
		}
		must(t, p.Start())
		f.working()
	}
	bound := int64(f.partitions*f.pending) + int64(f.commit.Seconds()*float64(f.rate))*2
	rep := f.finish(verify.Rules{Duplicates: verify.Duplicates{PerCrash: bound, Outputs: -1, DeadLetters: -1}})
	t.Logf("%d points, died at %d; %d records, %d ran twice", len(points), died, rep.Totals.Inputs, rep.Totals.Repeated)
}

// TestOneDuplicate (row 2): a kill after the output is durable and before its tree has heard of it: with
// one record at a time, exactly that one runs twice.
func TestOneDuplicate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafka.Use(t))
	f := w.launch(program{placed: true, rate: 50, pending: 1, partitions: 1, commit: 100 * time.Millisecond}, "a")
	p := f.ps.Process("a")
	for range rounds(2, 10) {
		must(t, p.Term())
		_, err := p.Wait(f.ctx())
		must(t, err)
		must(t, p.Crash(fmt.Sprintf("sink-written:%d:kill", 5+rand.IntN(10))))
		must(t, p.Start())
		_, err = p.Wait(f.ctx())
		must(t, err)
		must(t, p.Start())
		f.working()
	}
	// What was committed last is at most one interval old: one record a tree, and those since the commit.
	since := int64(f.commit.Seconds()*float64(f.rate)) + 10
	rep := f.finish(verify.Rules{Duplicates: verify.Duplicates{PerCrash: 1 + since, Outputs: -1}})
	t.Logf("%d records, %d ran twice", rep.Totals.Inputs, rep.Totals.Repeated)
}

// proxied starts processes whose way to Kafka is a proxy.
func proxied(t *testing.T, p program, names ...string) (*fleet, *faults.Proxy) {
	w := newWorld(t, kafka.Use(t))
	proxy := faults.StartProxy(t, w.k.Addrs()...)
	p.via = proxy.Addrs()
	return w.launch(p, names...), proxy
}

// TestKilledBetweenCommitAndAnswer (row 3): the broker has the commit and the worker does not know.
func TestKilledBetweenCommitAndAnswer(t *testing.T) {
	t.Parallel()
	f, proxy := proxied(t, program{placed: true, commit: 200 * time.Millisecond}, "a")
	for range rounds(2, 20) {
		held := faults.Inject(t, proxy, faults.Rule{Do: faults.HoldAnswer, Keys: []kmsg.Key{kmsg.OffsetCommit}})
		must(t, held.Wait(f.ctx(), 1))
		must(t, f.ps.Process("a").Kill())
		held.Remove()
		must(t, f.ps.Process("a").Start())
		f.working()
	}
	bound := int64(f.partitions*f.pending) + int64(f.commit.Seconds()*float64(f.rate))*2
	f.finish(verify.Rules{Duplicates: verify.Duplicates{PerCrash: bound, Outputs: -1, DeadLetters: -1}})
}

// TestCommitsGoUnanswered (row 5): commits, then their answers, vanish for a while. The worker goes on, tries
// without haste, loses nothing and repeats nothing.
func TestCommitsGoUnanswered(t *testing.T) {
	t.Parallel()
	f, proxy := proxied(t, program{commit: 200 * time.Millisecond}, "a")
	for _, do := range []faults.Action{faults.DropAnswer, faults.DropRequest} {
		start := time.Now()
		lost := faults.Inject(t, proxy, faults.Rule{Do: do, Keys: []kmsg.Key{kmsg.OffsetCommit}, Count: 2})
		must(t, lost.Wait(f.ctx(), 2))
		took := time.Since(start)
		lost.Remove()
		if took < 500*time.Millisecond {
			t.Errorf("%v: two commits within %v: a busy loop", do, took)
		}
		f.working()
	}
	rep := f.finish(verify.Rules{})
	t.Logf("%d records, %d commits without an answer", rep.Totals.Inputs, rep.Totals.CommitsUnknown)
}

// TestRecordsDeletedBelowTheCommit (row 8): records that were not read are gone. The worker says
// which, and goes on only if it was told to.
func TestRecordsDeletedBelowTheCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafka.Use(t))
	in := w.topic("in", 1)
	w.write(in, 0, numbers(0, 100)...)
	if _, err := w.adm.CommitOffsets(w.ctx(), w.name, kadm.Offsets{in: {0: {Topic: in, At: 10}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.adm.DeleteRecords(w.ctx(), kadm.Offsets{in: {0: {Topic: in, At: 60}}}); err != nil {
		t.Fatal(err)
	}
	var c tally
	top := func(lost spout.Position) *killick.Topology {
		top := killick.New("lost")
		top.Spout("in", spout.KafkaSource{Topics: []string{in}, Lost: lost})
		top.Bolt("count", c.count()).Shuffle("in")
		return top
	}
	r := w.start(top(spout.Position{}), func(c *worker.Config) { c.HTTP = "127.0.0.1:0" })
	w.until("it says what is lost", func() bool { return strings.Contains(w.logs.text(), "10") && strings.Contains(w.logs.text(), "60") })
	w.until("it is not ready, and says why", func() bool {
		ok, checks := r.Ready()
		return !ok && strings.Contains(fmt.Sprint(checks), in+"/0")
	})
	if c.total() > 0 || w.committed(in)[0] != 10 {
		t.Errorf("%d ran, committed %v", c.total(), w.committed(in))
	}
	r.stop()
	_ = r.wait()
	r = w.start(top(spout.Earliest()))
	w.drained(in)
	r.end()
	c.once(t, numbers(60, 100)...)
}

// TestTopicIsMadeAnew (row 12): the topic is deleted and made again. Nothing is committed onto the new one
// from the old.
func TestTopicIsMadeAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafka.Use(t))
	in := w.topic("in", 1)
	w.write(in, 0, numbers(0, 50)...)
	var c tally
	top := killick.New("anew")
	top.Spout("in", spout.Kafka(in))
	top.Bolt("count", c.count()).Shuffle("in")
	r := w.start(top, func(c *worker.Config) { c.MetadataMaxAge = time.Second })
	w.drained(in)
	if _, err := w.adm.DeleteTopics(w.ctx(), in); err != nil {
		t.Fatal(err)
	}
	w.until("the topic is gone, and it is told", func() bool {
		ok, checks := r.Ready()
		return !ok && strings.Contains(fmt.Sprint(checks), in)
	})
	must(t, w.k.CreateTopic(w.ctx(), in, 1, nil))
	w.connect() // as a writer that never knew the old one
	w.write(in, 0, numbers(100, 110)...)
	r.stop()
	t.Log(r.wait())
	if at := w.committed(in)[0]; at > 10 && at != 50 {
		t.Errorf("committed %d on the new topic, which ends at 10", at)
	}
}

// TestPartitionsAreAdded (row 13).
func TestPartitionsAreAdded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafka.Use(t))
	in := w.topic("in", 1)
	var c tally
	top := killick.New("grow")
	top.Spout("in", spout.Kafka(in))
	top.Bolt("count", c.count()).Shuffle("in")
	r := w.start(top, func(c *worker.Config) { c.MetadataMaxAge = time.Second })
	w.write(in, 0, numbers(0, 10)...)
	w.drained(in)
	if _, err := w.adm.UpdatePartitions(w.ctx(), 3, in); err != nil {
		t.Fatal(err)
	}
	w.until("the writer knows of them", func() bool {
		got, err := w.adm.ListEndOffsets(w.ctx(), in)
		return err == nil && len(got[in]) == 3
	})
	w.connect()
	w.write(in, 1, numbers(10, 20)...)
	w.write(in, 2, numbers(20, 30)...)
	start := time.Now()
	w.drained(in)
	t.Logf("all is committed %v after it was written to new partitions", time.Since(start).Round(10*time.Millisecond))
	r.end()
	c.once(t, numbers(0, 30)...)
}

// TestUncleanElection (row 9): a leader that lacks records takes over. The partition stops and names it;
// nothing is committed past its end.
func TestUncleanElection(t *testing.T) {
	t.Parallel()
	k := cluster(t, kafkaenv.Brokers(2), kafkaenv.Property("min.insync.replicas", "1"), kafkaenv.Property("unclean.leader.election.enable", "true"))
	w := newWorld(t, k)
	in := w.topic("in", 1)
	w.write(in, 0, numbers(0, 100)...)
	var c tally
	top := killick.New("unclean")
	top.Spout("in", spout.Kafka(in))
	top.Bolt("count", c.count()).Shuffle("in")
	r := w.start(top, func(c *worker.Config) { c.MetadataMaxAge = time.Second })
	w.drained(in)
	leader, err := k.Leader(w.ctx(), in, 0)
	must(t, err)
	follower := k.Brokers()[2-leader.ID()]
	must(t, follower.Kill())
	w.write(in, 0, numbers(100, 150)...) // the leader alone has them
	w.drained(in)
	must(t, leader.Kill())
	must(t, follower.Start(w.ctx()))
	w.until("the follower leads without them", func() bool {
		now, err := k.Leader(w.ctx(), in, 0)
		if err != nil || now != follower {
			return false
		}
		got, err := w.adm.ListEndOffsets(w.ctx(), in)
		return err == nil && got[in][0].Err == nil && got[in][0].Offset == 100
	})
	w.until("the partition has stopped, and it is told", func() bool {
		ok, checks := r.Ready()
		return !ok && strings.Contains(fmt.Sprint(checks), in+"/0") && strings.Contains(w.logs.text(), "truncated")
	})
	w.write(in, 0, numbers(200, 210)...)
	must(t, leader.Start(w.ctx())) // the group's coordinator may have been there
	// The log of the group's positions may have lost its last ones by the same election.
	if at := w.committed(in)[0]; at != 150 && at != 100 {
		t.Errorf("committed %d, was 150", at)
	}
	r.stop()
	t.Log(r.wait())
	c.once(t, numbers(0, 150)...) // and none of what the new leader has in place of what was lost
}

// TestReleaseLimit (row 18): a bolt that is slower than a release may be. The rest is dropped and named, and
// runs elsewhere.
func TestReleaseLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafka.Use(t))
	in := w.topic("in", 2)
	w.write(in, 0, "slow")
	w.write(in, 1, "slow too")
	gate := make(chan struct{})
	begun := make(chan string, 10)
	top := func(c *tally, wait bool) *killick.Topology {
		top := killick.New("slow")
		top.Spout("in", spout.Kafka(in))
		top.Bolt("work", bolt.Async(8, func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if wait {
				begun <- string(in.Bytes())
				<-gate
			}
			c.add(string(in.Bytes()))
			return nil
		})).Shuffle("in").Timeout(time.Minute)
		return top
	}
	var first, second tally
	r := w.start(top(&first, true), func(c *worker.Config) { c.Drain = time.Second })
	<-begun
	<-begun
	other := w.start(top(&second, false))
	w.until("the other runs what was not released in time", func() bool { return second.total() == 1 })
	w.until("the first says what it has dropped", func() bool { return strings.Contains(w.logs.text(), "went away with open records") })
	close(gate)
	w.drained(in)
	r.end()
	other.end()
}

// TestStopTwice (row 58): a second SIGTERM, and one during the start, end the process soon.
func TestStopTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafka.Use(t))
	f := w.launch(program{}, "a")
	p := f.ps.Process("a")
	must(t, p.Term())
	must(t, p.Term())
	start := time.Now()
	_, err := p.Wait(w.ctx())
	must(t, err)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	must(t, p.Crash("starting:1:sleep(1s)"))
	must(t, p.Start())
	must(t, p.WaitOutput(w.ctx(), "crash point starting"))
	must(t, p.Term())
	start = time.Now()
	e, err := p.Wait(w.ctx())
	must(t, err)
	if took := time.Since(start); took > 5*time.Second || e.Code != 0 {
		t.Errorf("%v after %v", e, took)
	}
	must(t, p.Start())
	bound := int64(f.partitions*f.pending) + int64(f.commit.Seconds()*float64(f.rate))*2
	f.finish(verify.Rules{Duplicates: verify.Duplicates{PerCrash: bound, Other: bound, Outputs: -1, DeadLetters: -1}})
}
