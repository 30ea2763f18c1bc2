package bolt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/killick-io/killick"
)

// Batch makes bolts that collect tuples and give them to f together: when max have come, when
// the first has waited for about wait (to a tenth of it), and when the worker drains. f may give
// each its verdict; those without one are acked when f returns nil, else failed with its error.
// f runs on the task's goroutine, so that batches of one task do not overlap. The time-out of
// the component must be longer than wait and f together, since a tuple's clock runs while it is
// collected.
func Batch(max int, wait time.Duration, f func(ctx context.Context, in []*killick.Held) error) killick.BoltFactory {
	if f == nil {
		return nil
	}
	return func() killick.Bolt { return &batch{max: max, wait: wait, f: f} }
}

type batch struct {
	max   int
	wait  time.Duration
	f     func(ctx context.Context, in []*killick.Held) error
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
	return killick.BoltInfo{Tick: max(b.wait/10, time.Millisecond)}, errors.Join(errs...)
}

func (b *batch) Execute(ctx context.Context, _ *killick.Tuple, out killick.Emitter) error {
	if len(b.in) == 0 {
		b.first = time.Now()
	}
	b.in = append(b.in, out.Hold())
	if len(b.in) >= b.max {
		b.run(ctx)
	}
	return nil
}

// Tick runs what has waited long enough.
func (b *batch) Tick(ctx context.Context, _ killick.Untracked) error {
	if len(b.in) > 0 && time.Since(b.first) >= b.wait {
		b.run(ctx)
	}
	return nil
}

// Flush runs what waits.
func (b *batch) Flush(ctx context.Context) error {
	b.run(ctx)
	return nil
}

func (b *batch) run(ctx context.Context) {
	if len(b.in) == 0 {
		return
	}
	in := b.in
	b.in = nil
	err := errPanic
	defer func() {
		// A panic of f fails the tuples, and is then the engine's to report.
		for _, h := range in {
			h.Settle(err)
		}
	}()
	err = b.f(ctx, in)
}

var errPanic = errors.New("bolt: the batch function panicked")
