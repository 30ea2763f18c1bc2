package engine_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/engine"
)

// tickSink is a sink that emits from Tick and, by its kept emitter, after the ack of a held tuple.
type tickSink struct{ life }

func (*tickSink) BoltInfo() (killick.BoltInfo, error) {
	return killick.BoltInfo{Sink: &killick.SinkInfo{Topic: "t"}}, nil
}

// TestUntrackedOfSinks: what a sink emits untracked is written too, wherever it comes from; what
// cannot be written is told of, and tried no more.
func TestUntrackedOfSinks(t *testing.T) {
	top := topology()
	top.Bolt("out", func() killick.Bolt {
		return &tickSink{life{execute: func(in *killick.Tuple, out killick.Emitter) error {
			h := out.Hold()
			out.EmitUntracked("", killick.Message{Bytes: []byte("before " + string(in.Bytes()))})
			h.Ack()
			out.EmitUntracked("", killick.Message{Bytes: []byte("after " + string(in.Bytes()))})
			<-time.After(3 * time.Second / 2) // of the bubble
			return nil
		}, tick: func(out killick.Untracked) error {
			out.EmitUntracked("", killick.Message{Bytes: []byte("tick")})
			out.EmitUntracked("", killick.Message{Bytes: []byte("refused")})
			return nil
		}}}
	}).Tick(time.Second).Shuffle("in")
	var mu sync.Mutex
	got := map[string]int{}
	e := run(t, top, records("in", messages(2)...), with(func(c *config) {
		c.Outbox = outboxFunc(func(o *engine.Output) error {
			mu.Lock()
			got[string(o.Value)]++
			mu.Unlock()
			if string(o.Value) == "refused" {
				o.Done(errNo)
			} else {
				o.Done(nil)
			}
			return nil
		})
	}))
	e.wantEnds(2, 0)
	ticks := got["tick"]
	if ticks == 0 || got["refused"] != ticks || got["after 0"] != 1 || got["after 1"] != 1 || got["before 0"] != 1 || got["before 1"] != 1 {
		t.Errorf("written: %v", got)
	}
	if n := e.stats("out").Emitted[""]; n != int64(4+2*ticks) {
		t.Errorf("%d emitted, %d ticks", n, ticks)
	}
	evs := e.of(engine.LooseDropped)
	if len(evs) != ticks || ticks > 0 && (evs[0].Component != "out" || evs[0].Reason != "produce" || !errors.Is(evs[0].Err, errNo)) {
		t.Errorf("%d told of, %d ticks", len(evs), ticks)
	}
}
