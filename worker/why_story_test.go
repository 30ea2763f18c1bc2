package worker_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// The offset that a stuck task is at is named wherever the tuple comes from: records that the
// dispatcher executes, batches, executions beside the task, a second bolt downstream.
func TestStuckOffsetIsNamed(t *testing.T) {
	for name, build := range map[string]func(top *killick.Topology, f bolt.ExecuteFunc) *killick.BoltDecl{
		"in line": func(top *killick.Topology, f bolt.ExecuteFunc) *killick.BoltDecl {
			return top.Bolt("x", bolt.Func(f)).Shuffle("in")
		},
		"a task of several": func(top *killick.Topology, f bolt.ExecuteFunc) *killick.BoltDecl {
			return top.Bolt("x", bolt.Func(f)).Shuffle("in").Tasks(3)
		},
		"in flight": func(top *killick.Topology, f bolt.ExecuteFunc) *killick.BoltDecl {
			return top.Bolt("x", bolt.Func(f)).Shuffle("in").InFlight(4)
		},
		"downstream": func(top *killick.Topology, f bolt.ExecuteFunc) *killick.BoltDecl {
			top.Bolt("pass", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
				out.Emit(in.Message())
				return nil
			})).Shuffle("in")
			return top.Bolt("x", bolt.Func(f)).Shuffle("pass")
		},
	} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				block := make(chan struct{})
				var once sync.Once
				free := func() { once.Do(func() { close(block) }) }
				defer free()
				top := killick.New("t")
				top.Spout("in", spout.Kafka("in"))
				build(top, func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
					if string(in.Bytes()) == "stuck" {
						<-block
					}
					return nil
				}).Timeout(time.Second)
				r := s.start(top)
				s.drained("in")
				s.produce("in", 1, append(numbers(0, 37), "stuck", "after")...)
				s.until("readiness is red", func() bool { ok, _ := r.ready("tasks"); return !ok })
				if _, text := r.ready("tasks"); !contains(text, `component "x", task `, "in/1, offset 37 for ", "why_story_test.go:") {
					s.Errorf("readiness: %s", text)
				}
				free()
				s.until("green", func() bool { ok, _ := r.Ready(); return ok })
				r.end()
			}, embedded.Topic("in", 2))
		})
	}
}

// What holds a floor for long is named, without turning readiness red; and a dump has it, too.
func TestWhatHoldsAFloor(t *testing.T) {
	tell(t, func(s *story) {
		var h *killick.Held
		top := killick.New("t")
		top.Spout("in", spout.Kafka("in"))
		top.Bolt("x", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			switch v := string(in.Bytes()); {
			case v == "held":
				h = out.Hold()
			case v == "later" && in.Attempt() == 1:
				return killick.RetryAfter(10*time.Minute, errTry)
			}
			return nil
		})).Shuffle("in").Timeout(time.Hour)
		top.Bolt("y", bolt.Async(2, func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if string(in.Bytes()) == "slow" {
				s.pass(5 * time.Minute)
			}
			return nil
		})).Shuffle("in").Timeout(time.Hour)
		r := s.start(top)
		s.drained("in")
		s.produce("in", 0, "a", "held")
		s.produce("in", 1, "later", "b")
		s.produce("in", 2, "slow")
		s.pass(30 * time.Second)
		if ok, text := r.ready("floors"); !ok || text != "" {
			s.Errorf("after half a minute: %q", text)
		}
		s.pass(time.Minute)
		ok, text := r.ready("floors")
		parts := strings.Split(text, "; ")
		for i, want := range [][]string{
			{"in/0 is held by offset 1 for 1m", `component "x", task 0 holds a tuple`},
			{"in/1 is held by offset 0 for 1m", "a tuple is tried again in 8m"},
			{"in/2 is held by offset 0 for 1m", `component "y", task 0 executes a tuple for 1m`},
		} {
			if !ok || len(parts) != 3 || !contains(parts[i], want...) {
				s.Fatalf("readiness: %q, want %q", text, want)
			}
		}
		r.Dump()
		for _, want := range []string{"dump: the worker", "dump: spout", "dump: bolt", "dump: group", "dump: open: component \"x\", task 0 holds", "dump: open: a tuple is tried again in 8m", "dump: open: component \"y\", task 0 executes"} {
			if len(s.logs.lines(want)) == 0 {
				s.Errorf("the dump has no %q", want)
			}
		}
		for _, l := range s.logs.lines("dump: partition") {
			if p := l["partition"].(float64); p < 2 && (l["oldest_open"] != 1-p || l["position"] != 2.0) {
				s.Errorf("the dump of a partition: %v", l)
			}
		}
		if lines := s.logs.lines("dump: partition"); len(lines) != 3 {
			s.Errorf("the dump has %d partitions", len(lines))
		}
		h.Ack()
		s.drained("in")
		if _, text := r.ready("floors"); text != "" {
			s.Errorf("at the end: %q", text)
		}
		r.end()
	}, embedded.Topic("in", 3))
}

// A dump of a worker that does not run yet has little to say.
func TestDumpBeforeTheStart(t *testing.T) {
	tell(t, func(s *story) {
		w, err := worker.New(counting(new(tally), spout.Kafka("in"), nil), s.cfg)
		if err != nil {
			s.Fatal(err)
		}
		w.Dump()
		if l := s.logs.lines("dump: the worker"); len(l) != 1 || l[0]["state"] != "new" {
			s.Errorf("%v", l)
		}
	})
}
