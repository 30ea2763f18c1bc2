package ack

import (
	"sync/atomic"

	"github.com/killick-io/killick/internal/rules"
)

// Verdict is what was decided about one try of a tuple.
type Verdict uint32

// The verdicts of a try.
const (
	Open     Verdict = iota // none yet
	Ack                     // user code acked
	Failed                  // user code failed it
	TimedOut                // its time in user code was up
	Left                    // the worker gave it up: shutdown, or its partition was lost
)

// Word is the state word of one try. The zero value is open. The first Decide wins;
// whoever won, and nobody else, ends the edge or starts the next try.
type Word struct{ v atomic.Uint32 }

// Decide gives the verdict v. won is true for the first one; else was tells what had
// been decided before.
func (w *Word) Decide(v Verdict) (won bool, was Verdict) {
	if w.v.CompareAndSwap(uint32(Open), uint32(v)) || !rules.FirstVerdictWins {
		return true, Open
	}
	return false, Verdict(w.v.Load())
}

// Load returns the verdict so far.
func (w *Word) Load() Verdict { return Verdict(w.v.Load()) }

// Ignored counts verdicts that changed nothing, by kind. All fields may be added to
// from any goroutine.
type Ignored struct {
	Double atomic.Int64 // a second ack or fail of the same tuple
	Late   atomic.Int64 // after the try had timed out
	Lost   atomic.Int64 // after the tuple's partition was lost, or the worker stopped
}

// Count adds a verdict that came when was had been decided, or whose trees are gone.
func (g *Ignored) Count(was Verdict) {
	switch was {
	case TimedOut:
		g.Late.Add(1)
	case Left:
		g.Lost.Add(1)
	default:
		g.Double.Add(1)
	}
}
