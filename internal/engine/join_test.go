package engine_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/internal/engine"
)

// TestJoinWithUntracked: what an untracked tuple's handle emits with a tracked one is anchored to
// that one, in whichever order they are joined: its root ends after the output, and is replayed
// when the output is dropped.
func TestJoinWithUntracked(t *testing.T) {
	for name, first := range map[string]string{"the untracked one emits": "loose", "the tracked one emits": "tracked"} {
		for _, fails := range []bool{false, true} {
			t.Run(name+map[bool]string{false: "", true: " and fails"}[fails], func(t *testing.T) {
				top, join, end := topology(), newKeep(), newKeep()
				top.Bolt("split", fn(func(in *killick.Tuple, out killick.Emitter) error {
					if in.Attempt() == 1 {
						out.EmitUntracked("", in.Message())
					}
					out.Emit(in.Message())
					return nil
				})).Shuffle("in")
				top.Bolt("join", bolt.Func(join.execute)).Timeout(time.Hour).Shuffle("split")
				top.Bolt("end", bolt.Func(end.execute)).Timeout(time.Hour).Shuffle("join")
				e := during(t, top, func(e *env) {
					loose, tracked := <-join.held(), <-join.held()
					if loose.Tuple().ID() != "" || tracked.Tuple().ID() == "" {
						t.Fatal("the tuples came in another order")
					}
					a, b := loose, tracked
					if first == "tracked" {
						a, b = tracked, loose
					}
					if err := a.Emit(killick.Message{}, b); err != nil {
						t.Fatal(err)
					}
					b.Ack()
					if fails {
						a.Fail(killick.Permanent(errNo))
						if first == "loose" { // the tracked one has acked: its root runs again
							(<-join.held()).Ack()
						}
						return
					}
					a.Ack()
					h := <-end.held()
					synctest.Wait()
					if n := e.acked("in"); n != 0 {
						t.Errorf("%d roots acked with the joined tuple open", n)
					}
					if o, ok := h.Tuple().Origin(); !ok || o.Offset != 0 || h.Tuple().ID() != "in/0/0:split.1:join.0" {
						t.Errorf("origin %v %v, ID %q", o, ok, h.Tuple().ID())
					}
					h.Ack()
				}, records("in", messages(1)...))
				if fails && first == "tracked" {
					e.wantEnds(0, 1)
				} else {
					e.wantEnds(1, 0)
				}
			})
		}
	}
}

// TestWideJoin: an output may join a whole window. Its cost follows the number of tuples, not its
// square, since all of them are locked meanwhile; and its failure replays them all.
func TestWideJoin(t *testing.T) {
	const n = 5000
	top := killick.New("wide")
	top.Spout("in", kafka("in")).Pending(n, 1<<30)
	var hs []*killick.Held
	var grew uint64
	top.Bolt("join", fn(func(in *killick.Tuple, out killick.Emitter) error {
		if in.Attempt() == 2 {
			return nil
		}
		if hs = append(hs, out.Hold()); len(hs) < n {
			return nil
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := hs[0].Emit(killick.Message{}, append(hs, hs...)...); err != nil {
			t.Error(err)
		}
		for _, h := range hs[1:] {
			h.Ack()
		}
		hs[0].Fail(killick.FailTree(errNo))
		runtime.ReadMemStats(&after)
		grew = after.TotalAlloc - before.TotalAlloc
		return nil
	})).Timeout(time.Hour).Shuffle("in")
	top.Bolt("end", fn(null)).Shuffle("join")
	e := run(t, top, records("in", messages(n)...))
	e.wantEnds(n, 0)
	if e.total("join") != 2*n || e.total("end") != 0 || len(e.of(engine.RootReplayed)) != n {
		t.Errorf("%d executions, %d of the join's output, %d roots replayed", e.total("join"), e.total("end"), len(e.of(engine.RootReplayed)))
	}
	if most := uint64(n * 2000); grew > most {
		t.Errorf("the join and its failure took %d bytes, want at most %d", grew, most)
	}
}
