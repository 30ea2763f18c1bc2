package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/spout"
)

// TestOnEnd: each root's end is told once, with what it ended of: roots without a tree, with one, held
// ones, retried ones, replayed ones, dead and skipped ones. A panic of the hook is reported only.
func TestOnEnd(t *testing.T) {
	const n = 700 // more than a run has
	var mu sync.Mutex
	ends := map[int64][]error{}
	top := killick.New("t")
	top.Retry(killick.Retry{Attempts: 3, Min: time.Millisecond, Max: time.Millisecond})
	var ms []killick.Message
	for i := range n {
		ms = append(ms, killick.Message{Bytes: fmt.Append(nil, i)})
	}
	top.Spout("in", spout.Kafka("in")).OnEnd(func(o killick.Origin, err error) {
		mu.Lock()
		defer mu.Unlock()
		ends[o.Offset] = append(ends[o.Offset], err)
		if o.Offset == 13 {
			panic("a hook")
		}
	})
	top.Bolt("a", fn(func(in *killick.Tuple, out killick.Emitter) error {
		o, _ := in.Origin()
		switch o.Offset % 10 {
		case 1:
			out.Emit(in.Message())
		case 2:
			h := out.Hold()
			time.AfterFunc(time.Duration(o.Offset)*time.Millisecond, func() { h.Ack() })
		case 3:
			if in.Attempt() < 3 {
				return errNo
			}
		case 4:
			return errNo
		case 5:
			return killick.Permanent(errors.New("hopeless"))
		case 6:
			if in.Attempt() < 2 && o.Offset%20 == 6 {
				return killick.FailTree(errNo)
			}
		}
		return nil
	})).Shuffle("in")
	top.Bolt("leaf", fn(null)).Shuffle("a")
	e := run(t, top, records("in", ms...))
	for i := range int64(n) {
		switch got := ends[i]; {
		case len(got) != 1:
			t.Errorf("the end of root %d was told %d times", i, len(got))
		case i%10 == 4 && (!errors.Is(got[0], errNo) || !strings.HasPrefix(got[0].Error(), "a: ")),
			i%10 == 5 && (got[0] == nil || !strings.Contains(got[0].Error(), "hopeless")),
			i%10 != 4 && i%10 != 5 && i%20 != 6 && got[0] != nil:
			t.Errorf("root %d ended with: %v", i, got[0])
		}
	}
	ends = map[int64][]error{}
	cause := &ack.Cause{Outcome: ack.Dead, Component: "in", Reason: "worker-death", Err: errNo}
	e.TellEnd("in", core.Origin{Topic: "in", Offset: 7}, cause)
	e.TellEnd("another", core.Origin{Topic: "in", Offset: 8}, cause)
	if len(ends) != 1 || len(ends[7]) != 1 || !errors.Is(ends[7][0], errNo) || !strings.HasPrefix(ends[7][0].Error(), "in: worker-death: ") {
		t.Errorf("a root without a tree: %v", ends)
	}
	if got := e.of(engine.HookFailed); len(got) != 1 || got[0].Reason != "OnEnd" {
		t.Errorf("a panic of the hook: %v", got)
	}
}
