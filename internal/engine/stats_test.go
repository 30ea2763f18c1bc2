package engine_test

import (
	"testing"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/engine"
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

// TestLostIsNoAck: what returns after its partition was lost counts as ignored, and as nothing else.
func TestLostIsNoAck(t *testing.T) {
	for _, tasks := range []int{1, 2} { // fused, and through queues
		for _, fails := range []bool{false, true} {
			top := topology()
			lose := func() {}
			top.Bolt("a", fn(func(in *killick.Tuple, _ killick.Emitter) error {
				if o, _ := in.Origin(); o.Partition == 1 {
					return nil
				}
				lose()
				if fails {
					return errNo
				}
				return nil
			})).Tasks(tasks).ByPartition("in")
			e := run(t, top, partitions("in", 2, messages(2)...), func(e *env, _ *config) {
				lose = e.feeds["in"].chunks[0].lose
			})
			e.wantEnds(1, 0)
			_, spouts := e.Stats()
			if s := spouts[0]; s.Acked != 1 || s.Emitted != 2 || e.ignored() != [3]int64{0, 0, 1} {
				t.Errorf("%d tasks, fails %v: %+v, ignored %v", tasks, fails, s, e.ignored())
			}
			if len(e.of(engine.TryFailed)) != 0 {
				t.Error("a lost tuple is tried again")
			}
		}
	}
}
