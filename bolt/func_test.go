package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/testenv"
	"github.com/killick-io/killick/testenv/bubble"
)

func numbers(n int) []killick.Message {
	ms := make([]killick.Message, n)
	for i := range ms {
		ms[i] = killick.Message{Key: fmt.Append(nil, i), Bytes: fmt.Append(nil, i)}
	}
	return ms
}

func TestFunc(t *testing.T) {
	boom := errors.New("boom")
	f := bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
		out.EmitTo("s", in.Message())
		if len(in.Key()) == 0 {
			return boom
		}
		return nil
	})
	r, err := testenv.Execute(t.Context(), f(), killick.Message{Key: []byte("k")})
	if err != nil || len(r.Emitted("s")) != 1 {
		t.Errorf("%v, %v", r.Emitted("s"), err)
	}
	if _, err := testenv.Execute(t.Context(), f(), killick.Message{}); !errors.Is(err, boom) {
		t.Errorf("%v", err)
	}
}

// Executions of Async overlap, up to n at a time: 100 of a second each take 10 seconds at 10.
func TestAsyncOverlaps(t *testing.T) {
	for _, c := range []struct {
		n, builder int
		want       time.Duration
	}{{10, 0, 10 * time.Second}, {1, 0, 100 * time.Second}, {10, 50, 2 * time.Second}} {
		bubble.Test(t, func(t *testing.T) {
			var now, most atomic.Int64
			wait := func(ctx context.Context, in *killick.Tuple, out killick.Emitter) error {
				n := now.Add(1)
				defer now.Add(-1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					return ctx.Err()
				}
				out.Emit(in.Message())
				return nil
			}
			top, d := line(bolt.Async(c.n, wait), nil, nil)
			if c.builder > 0 {
				d.InFlight(c.builder) // what the builder says wins
			}
			start := time.Now()
			r := testenv.RunReal(t, top, testenv.Feed("in", numbers(100)...))
			took := time.Since(start)
			if r.Acked("in") != 100 || len(r.Written("out")) != 100 || r.Err() != nil {
				t.Errorf("%+v: acked %d, err %v", c, r.Acked("in"), r.Err())
			}
			if took < c.want || took > c.want+time.Second {
				t.Errorf("%+v: took %v", c, took)
			}
			if want := int64(max(c.n, c.builder)); most.Load() != want {
				t.Errorf("%+v: %d executions at a time", c, most.Load())
			}
		})
	}
}

func TestAsyncInfo(t *testing.T) {
	info, err := bolt.Async(7, noop)().(killick.Informer).BoltInfo()
	if err != nil || info.InFlight != 7 {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := bolt.Async(0, noop)().(killick.Informer).BoltInfo(); err == nil {
		t.Error("no execution at a time was accepted")
	}
}
