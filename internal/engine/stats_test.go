package engine_test

import (
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/spout"
)

// TestExecutedCountsExecutions: what was skipped or refused has not executed.
func TestExecutedCountsExecutions(t *testing.T) {
	for _, tasks := range []int{1, 2} { // in line, and through queues
		top := killick.New("executed")
		top.Spout("in", spout.KafkaSource{Topics: []string{"in"}, Codec: killick.JSON[int]()})
		top.Bolt("split", fn(func(_ *killick.Tuple, out killick.Emitter) error {
			for range 10 {
				out.Emit(killick.Message{})
			}
			return nil
		})).Tasks(tasks).Shuffle("in")
		top.Bolt("leaf", fn(func(*killick.Tuple, killick.Emitter) error { return killick.Permanent(errNo) })).Shuffle("split")
		ms := messages(20)
		for i := range 5 {
			ms[4*i].Bytes = []byte("{")
		}
		e := run(t, top, records("in", ms...))
		e.wantEnds(0, 20)
		for c, want := range map[string]int{"split": 15, "leaf": 15} {
			if s := e.stats(c); s.Executed != int64(want) || e.total(c) != want {
				t.Errorf("%d tasks: %s: %d executed, %d by the stats", tasks, c, e.total(c), s.Executed)
			}
		}
		if s := e.stats("leaf"); s.Skipped != 135 {
			t.Errorf("%d tasks: %d skipped", tasks, s.Skipped)
		}
	}
}

// TestTimeIsTheBoltsOwn: what a bolt's outputs take downstream, in line or for want of room, is not
// its time, and does not make it a slow one.
func TestTimeIsTheBoltsOwn(t *testing.T) {
	for name, emits := range map[string]int{"full batches": 1, "fan-out": 600} {
		for _, tasks := range []int{1, 2} {
			top := topology()
			top.Bolt("first", fn(func(in *killick.Tuple, out killick.Emitter) error {
				for range emits {
					out.Emit(in.Message())
				}
				return nil
			})).Shuffle("in")
			top.Bolt("mid", fn(pass)).Shuffle("first")
			top.Bolt("slow", fn(func(*killick.Tuple, killick.Emitter) error { time.Sleep(time.Millisecond); return nil })).Tasks(tasks).Shuffle("mid")
			n := 3000 / emits
			e := run(t, top, records("in", messages(n)...))
			e.wantEnds(n, 0)
			for _, c := range []string{"first", "mid"} {
				if d := time.Duration(e.stats(c).Nanos); d != 0 {
					t.Errorf("%s, %d tasks: %s took %v", name, tasks, c, d)
				}
			}
			if d, want := time.Duration(e.stats("slow").Nanos), time.Duration(n*emits)*time.Millisecond; d != want {
				t.Errorf("%s, %d tasks: slow took %v, want %v", name, tasks, d, want)
			}
		}
	}
}
