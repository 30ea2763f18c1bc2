package engine_test

import (
	"testing"

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
