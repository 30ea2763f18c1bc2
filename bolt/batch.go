package bolt

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/killick-io/killick"
)

// Batch makes bolts that collect tuples and give them to f together: when max have come, when
// the first has waited for about wait (to a tenth of it), and when the worker drains or gives a
// partition away. f may give each its verdict; those without one are acked when f returns nil, else
// failed with its error. Batches of one task do not overlap, unless the component says InFlight(n): then up to n calls
// of f run at a time. The time-out of the component must be longer than wait and f together,
// since a tuple's clock runs while it is collected. A panic of f fails those without a verdict.
func Batch(max int, wait time.Duration, f func(ctx context.Context, in []*killick.Held) error) killick.BoltFactory {
	if f == nil {
		return nil
	}
	return func() killick.Bolt { return &batch{max: max, wait: wait, f: f} }
}

type batch struct {
	max  int
	wait time.Duration
	f    func(ctx context.Context, in []*killick.Held) error

	mu    sync.Mutex // executions may be several (InFlight); f runs without it
	in    []*killick.Held
	first time.Time // when the oldest of in came
}

func (b *batch) BoltInfo() (killick.BoltInfo, error) {
	var errs []error
	if b.max < 1 {
		errs = append(errs, errCount("bolt.Batch", "max", b.max))
	}
	if b.wait <= 0 {
		errs = append(errs, fmt.Errorf("bolt.Batch: wait is %v; it must be positive", b.wait))
	}
	tick := max(b.wait/10, time.Millisecond)
	keeps := max(b.wait, 0)
	keeps += min(tick, math.MaxInt64-keeps) // a wait without end must not overflow
	return killick.BoltInfo{Tick: tick, Keeps: keeps}, errors.Join(errs...)
}

func (b *batch) Execute(ctx context.Context, _ *killick.Tuple, out killick.Emitter) error {
	h := out.Hold()
	b.mu.Lock()
	if len(b.in) == 0 {
		b.first = time.Now()
	}
	b.in = append(b.in, h)
	in := b.takeLocked(len(b.in) >= b.max)
	b.mu.Unlock()
	b.run(ctx, in)
	return nil
}

// Tick runs what has waited long enough.
func (b *batch) Tick(ctx context.Context, _ killick.Untracked) error {
	b.mu.Lock()
	in := b.takeLocked(time.Since(b.first) >= b.wait)
	b.mu.Unlock()
	b.run(ctx, in)
	return nil
}

// Flush runs what waits.
func (b *batch) Flush(ctx context.Context) error {
	b.mu.Lock()
	in := b.takeLocked(true)
	b.mu.Unlock()
	b.run(ctx, in)
	return nil
}

// takeLocked takes what has been collected, if it is due.
func (b *batch) takeLocked(due bool) (in []*killick.Held) {
	if due {
		in, b.in = b.in, nil
	}
	return in
}

func (b *batch) run(ctx context.Context, in []*killick.Held) {
	if len(in) == 0 {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			settle(in, fmt.Errorf("bolt: the batch function panicked: %v", p))
			panic(p) // for the engine to report, with the stack
		}
	}()
	settle(in, b.f(ctx, in))
}

// settle gives err as the verdict to those that have none.
func settle(in []*killick.Held, err error) {
	for _, h := range in {
		h.Settle(err)
	}
}
