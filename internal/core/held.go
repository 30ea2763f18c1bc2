package core

import (
	"context"
	"time"
)

// Holder is the engine's side of a held tuple.
type Holder interface {
	Tuple() *Tuple
	Context() context.Context
	// Emit takes a *killick.Message as m, and the holders that it is anchored to beside this one.
	Emit(stream string, m any, with []Holder) error
	Ack() bool
	Decided() bool
	Fail(err error) bool
	Extend(d time.Duration) bool
}

// Held is the body of killick.Held. Nil H: a handle that was asked for after
// Execute had returned; every verdict on it is false.
type Held struct {
	_ noCopy
	h Holder
}

// NewHeld returns the handle of the engine's side, which is always the same one if that has it
// in place (Handle).
func NewHeld(h Holder) *Held {
	if in, ok := h.(interface{ Handle() *Held }); ok {
		return in.Handle()
	}
	return &Held{h: h}
}

// Set makes h, which is part of the engine's side, the handle of it.
func (h *Held) Set(x Holder) { h.h = x }

// Holder returns the engine's side, which may be nil.
func (h *Held) Holder() Holder { return h.h }
