package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// stuckTop makes a topology whose bolt has "stuck" until block is closed, whatever its context says.
func stuckTop(c *tally, block chan struct{}) *killick.Topology {
	top := killick.New("t")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("x", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		if string(in.Bytes()) == "stuck" {
			<-block
		}
		c.add(string(in.Bytes()))
		return nil
	})).Shuffle("in").Tasks(4).Timeout(time.Second)
	return top
}

// User code that does not come back turns readiness red at twice its time-out, and ends the worker
// with a code of its own at ten times; what others have done is committed, and its record is not.
func TestStuckTask(t *testing.T) {
	tell(t, func(s *story) {
		block := make(chan struct{})
		defer close(block)
		var c tally
		r := s.start(stuckTop(&c, block), func(c *worker.Config) { c.Drain = 5 * time.Second })
		s.drained("in")
		s.produce("in", 0, "a", "stuck")
		s.produce("in", 1, "b", "c")
		start := time.Now()
		s.until("readiness is red", func() bool { ok, _ := r.ready("tasks"); return !ok })
		if _, text := r.ready("tasks"); !contains(text, `component "x", task `, "a tuple of in/0, offset 1 for ", "at worker_test.", "stuck_story_test.go:", "its time-out is 1s") || r.redLines() != "tasks" {
			t.Errorf("readiness: %s: %s", r.redLines(), text)
		}
		if d := time.Since(start); d < 2*time.Second || d > 4*time.Second {
			t.Errorf("red after %v", d)
		}
		if l := s.logs.lines("more than twice its time-out"); len(l) != 1 || !contains(l[0]["stack"].(string), "stuckTop") || l[0]["tuple"] != "in/0/1" {
			t.Errorf("the log: %v", l)
		}
		err := r.wait()
		if !errors.Is(err, worker.ErrStuck) || worker.ExitCode(err) != 6 || !contains(err.Error(), `component "x"`, "in/0, offset 1") {
			t.Errorf("exit code %d: %v", worker.ExitCode(err), err)
		}
		// Ten time-outs, the drain limit, the grace of what ignores its context.
		if d := time.Since(start); d < 10*time.Second || d > 25*time.Second {
			t.Errorf("it ended after %v", d)
		}
		if got := s.committed("in"); got[0] != 1 || got[1] != 2 {
			t.Errorf("committed %v, want 1 and 2", got)
		}
	}, embedded.Topic("in", 2))
}

// User code that comes back late is forgotten.
func TestStuckTaskComesBack(t *testing.T) {
	tell(t, func(s *story) {
		block := make(chan struct{})
		var c tally
		r := s.start(stuckTop(&c, block))
		s.drained("in")
		s.produce("in", 0, "stuck")
		s.until("readiness is red", func() bool { ok, _ := r.ready("tasks"); return !ok })
		s.pass(5 * time.Second)
		close(block)
		s.until("readiness is green", func() bool { ok, _ := r.Ready(); return ok })
		s.drained("in")
		s.pass(time.Minute)
		if ok, text := r.ready("tasks"); !ok {
			t.Errorf("readiness: %s", text)
		}
		r.end()
	}, embedded.Topic("in", 1))
}
