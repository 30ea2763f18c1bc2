package core

import (
	"context"
	"io"
	"sync"
)

// Intake is the waiting part of a feed: Next waits on it, Wake and Stop end that. Make one with
// NewIntake. It has a lock of its own, which is never held while its owner's code runs.
type Intake struct {
	mu             sync.Mutex
	stopped, woken bool
	signal         chan struct{}
}

// NewIntake makes an intake.
func NewIntake() Intake { return Intake{signal: make(chan struct{}, 1)} }

// Poke makes Next look again.
func (in *Intake) Poke() {
	select {
	case in.signal <- struct{}{}:
	default:
	}
}

// Wake makes Next return, with nothing if there is nothing.
func (in *Intake) Wake() {
	in.mu.Lock()
	in.woken = true
	in.mu.Unlock()
	in.Poke()
}

// Stop says that nothing more is wanted.
func (in *Intake) Stop() {
	in.mu.Lock()
	in.stopped = true
	in.mu.Unlock()
	in.Poke()
}

// Next calls take, at once and after each Poke, until it has found something or says that nothing
// will come any more (io.EOF), until Wake was called, or until ctx ends (its error). take is told
// whether Stop was called.
func (in *Intake) Next(ctx context.Context, take func(stopped bool) (found, end bool)) error {
	for {
		in.mu.Lock()
		stopped, woken := in.stopped, in.woken
		in.woken = false
		in.mu.Unlock()
		switch found, end := take(stopped); {
		case end:
			return io.EOF
		case found, woken:
			return nil
		}
		select {
		case <-in.signal:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
