package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/offsets"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// Exit codes of killerMain's own.
const killed = 1

// killerMain is a worker whose bolt ends the process at id 500, as a fatal error would.
func killerMain(say func(string, ...any)) int {
	top := killick.New("t")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("work", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		if string(in.Bytes()) == "500" {
			os.Exit(killed)
		}
		say("ran %s", in.Bytes())
		return nil
	})).Shuffle("in").Tasks(4)
	return worker.Command(top, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
}

// stuckMain is a worker whose bolt never comes back from id 7, whatever its context says; that of
// "obedient" does when its context ends.
func stuckMain(say func(string, ...any), obedient bool) int {
	top := killick.New("t")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("work", bolt.Func(func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
		if string(in.Bytes()) == "7" {
			say("has 7")
			if !obedient {
				select {}
			}
			<-ctx.Done()
			return ctx.Err()
		}
		say("ran %s", in.Bytes())
		return nil
	})).ByPartition("in").Tasks(4).Timeout(time.Second).Retry(killick.Retry{Attempts: 3})
	return worker.Command(top, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
}

// lives runs a child under a place again and again, as a supervisor does, until ok holds. It returns the exit
// codes of those that ended by themselves, and how often each value was executed.
func (s *story) lives(topology string, within time.Duration, ok func() bool, args ...string) (codes []int, ran map[string]int) {
	s.Helper()
	ran = map[string]int{}
	end := time.After(within)
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		c := spawn(s.T, s.b, topology, append([]string{"--place=slot-1"}, args...)...)
		for alive := true; alive; {
			select {
			case line, more := <-c.lines:
				if alive = more; more {
					ran[strings.TrimPrefix(line, "ran ")]++
				}
			case <-look.C:
				if ok() {
					_ = c.Process.Kill()
					for line := range c.lines {
						ran[strings.TrimPrefix(line, "ran ")]++
					}
					_ = c.Wait()
					return codes, ran
				}
			case <-end:
				s.Fatalf("not within %v; exit codes so far: %v, committed %v", within, codes, s.committed("in"))
			}
		}
		codes = append(codes, c.code(s.T))
	}
}

// letters are the values of the dead letters, each with its reason.
func (s *story) letters() map[string]string {
	s.Helper()
	out := map[string]string{}
	for _, r := range s.read("in.t.dlq") {
		for _, h := range r.Headers {
			if h.Key == "killick-dlq-reason" {
				out[string(r.Value)] += string(h.Value)
			}
		}
	}
	return out
}

// TestRecordThatKillsTheProcess (S5): the bolt calls os.Exit at id 500, and something starts the worker
// again and again. At most 6 deaths later that record is a dead letter, and it is the only one.
func TestRecordThatKillsTheProcess(t *testing.T) {
	const partitions, ids = 8, 1000
	for name, prepare := range map[string]func(s *story){
		"all partitions alike": func(*story) {},
		// The others have seen two deaths, and that of the record, number 4, none.
		"where no death was seen": func(s *story) {
			for p := range int32(partitions) {
				held := offsets.State{TakenOver: true, Deaths: 2, Suspect: offsets.None, Until: ids / partitions}
				if p == 500%partitions {
					held = offsets.State{Suspect: offsets.None}
				}
				s.commit("in", p, 0, mustEncode(offsets.Map{Held: held}))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, embedded.Start(t, embedded.Topic("in", partitions)))
			var rs []*kgo.Record
			for i := range ids {
				rs = append(rs, &kgo.Record{Topic: "in", Partition: int32(i % partitions), Value: fmt.Appendf(nil, "%d", i)})
			}
			if err := s.b.Produce(s.ctx(), rs...); err != nil {
				t.Fatal(err)
			}
			prepare(s)
			start := time.Now()
			codes, ran := s.lives("killer", time.Minute, func() bool { return s.atEnd("in") }, "--http=off")
			t.Logf("%d deaths in %v", len(codes), time.Since(start).Round(time.Millisecond))
			if len(codes) == 0 || len(codes) > 6 {
				s.Errorf("%d deaths", len(codes))
			}
			for _, c := range codes {
				if c != killed {
					s.Errorf("exit codes %v", codes)
				}
			}
			if got := s.letters(); len(got) != 1 || got["500"] != "worker-death" {
				s.Errorf("dead letters: %v", got)
			}
			for i := range ids {
				if v := fmt.Sprint(i); ran[v] == 0 && i != 500 {
					s.Errorf("%s has not run", v)
				}
			}
		})
	}
}

// TestStuckTaskOfAProcess (S3): one Execute blocks for ever, with 500 tuples behind it. The long form of
// TestStuckTask and TestStuckRecordIsSetAside, which tell the same in virtual time.
func TestStuckTaskOfAProcess(t *testing.T) {
	if !full() {
		t.Skip("KILLICK_FULL=1 runs it: three lives of ten seconds and more")
	}
	s := newStory(t, embedded.Start(t, embedded.Topic("in", 4)))
	s.produce("in", 3, append([]string{"7"}, numbers(1000, 1500)...)...)
	for p := range int32(3) {
		s.produce("in", p, numbers(2000+1000*int(p), 2100+1000*int(p))...)
	}
	c := spawn(t, s.b, "blocked", "--place=slot-1", "--http=127.0.0.1:0")
	c.says(t, "has 7")
	start := time.Now()
	addr := c.httpAddr(t)
	var body string
	for ready := true; ready; {
		if time.Since(start) > 4*time.Second {
			t.Fatalf("readiness is not red after %v: %s", time.Since(start), body)
		}
		<-time.After(20 * time.Millisecond)
		ready, body = readyz(t, addr)
		ready = ready || !strings.Contains(body, "tasks\",\"ok\":false")
	}
	t.Logf("red after %v: %s", time.Since(start).Round(time.Millisecond), body)
	for _, want := range []string{`component \"work\"`, "task 3", "in/3, offset 0", "stuckMain", "careful_process_test.go:"} {
		if !strings.Contains(body, want) {
			t.Errorf("readiness does not say %q: %s", want, body)
		}
	}
	if code := c.code(t); code != 6 {
		t.Errorf("exit code %d", code)
	}
	if d := time.Since(start); d < 10*time.Second || d > 17*time.Second {
		t.Errorf("it ended after %v", d)
	}
	ran := map[string]int{}
	for line := range c.lines {
		ran[strings.TrimPrefix(line, "ran ")]++
	}
	if held := s.held("in", 3); held.Suspect != 0 {
		t.Errorf("committed %+v", held)
	}
	for p, at := range s.committed("in") {
		if p < 3 && at != 100 {
			t.Errorf("in/%d, which was not concerned, is at %d", p, at)
		}
	}
	codes, more := s.lives("blocked", time.Minute, func() bool { return s.atEnd("in") }, "--http=off")
	if len(codes) != 1 || codes[0] != 6 {
		t.Errorf("exit codes %v", codes)
	}
	if got := s.letters(); len(got) != 1 || got["7"] != "worker-death" {
		t.Errorf("dead letters: %v", got)
	}
	for i := 1000; i < 1500; i++ {
		if v := fmt.Sprint(i); more[v]+ran[v] == 0 {
			t.Errorf("%s has not run", v)
		}
	}
	// One that obeys its context is a failed try like any other.
	s.produce("in", 3, "7", "after")
	codes, more = s.lives("obedient", time.Minute, func() bool { return s.atEnd("in") }, "--http=off")
	if got := s.letters(); len(codes) != 0 || more["has 7"] != 3 || more["after"] != 1 || got["7"] != "worker-deathtimeout" {
		t.Errorf("exit codes %v, %d tries, dead letters %v", codes, more["has 7"], got)
	}
}

// held is what the commit of a partition says of its owner.
func (s *story) held(topic string, p int32) offsets.State {
	s.Helper()
	got, err := s.b.Committed(s.ctx(), "g", topic)
	if err != nil {
		s.Fatal(err)
	}
	m, err := offsets.Decode(got[p].Metadata, got[p].Offset)
	if err != nil {
		s.Fatal(err)
	}
	return m.Held
}

// httpAddr is where a child serves health.
func (c *child) httpAddr(t *testing.T) string {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
		for line := range strings.Lines(c.out.String()) {
			m := map[string]any{}
			if json.Unmarshal([]byte(line), &m) == nil && m["address"] != nil {
				return fmt.Sprint(m["address"])
			}
		}
	}
	t.Fatal("the child does not say where it serves health")
	return ""
}

func readyz(t *testing.T, addr string) (ok bool, body string) {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode == http.StatusOK, string(b)
}
