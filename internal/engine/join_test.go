package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
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
