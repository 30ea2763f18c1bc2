package engine

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/core"
)

// hook calls Tick or Flush, which may emit untracked messages.
func (x *exec) hook(r *runner, name string, f func(context.Context) error) {
	prev := x.begin(nil, r)
	x.ex.Begin()
	err := guard(func() error { return f(x.ctx) })
	x.ex.End()
	if r.beat(x.e.watch.tick.Load()) {
		x.newContext()
	}
	if err == nil && x.ex.Bad != nil {
		err = x.ex.Bad
	}
	if err == nil && len(x.ex.Out) > 0 {
		in := item{tries: 1, loose: true, ms: time.Now().UnixMilli(), port: x.c.ports[0]}
		if x.c.sink != nil {
			err = x.c.write(&in, x.ex.Out, x, nil, true)
		} else {
			err = x.out.emit(x.c.ports, &in, x.ex.Out, 0, nil)
		}
	}
	x.ex.Reset()
	x.ex.Clear()
	r.leave(prev)
	x.out.flush()
	if err != nil && x.e.hard.Err() == nil {
		x.e.cfg.Observe(Event{Kind: HookFailed, Component: x.c.spec.Name, Task: x.t.index, Reason: name, Err: err})
	}
}

// untracked is what Tick emits to.
type untracked struct{ out killick.Emitter }

func (x *exec) untracked() killick.Untracked { return untracked{killick.Emitter(x.ex.Current())} }

func (u untracked) EmitUntracked(stream string, m killick.Message) { u.out.EmitUntracked(stream, m) }

// guard turns a panic of user code into an error.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w\n%s", panicError(p), debug.Stack())
		}
	}()
	return f()
}

// Hook of core.Execution.

// Hold implements core.Hook.
func (x *exec) Hold() core.Holder {
	if x.held == nil {
		x.held = x.hold()
	}
	return x.held
}

// HeldEmit implements core.Hook.
func (x *exec) HeldEmit(stream string, m killick.Message) { _ = x.held.Emit(stream, &m, nil) }

// UnknownStream implements core.Hook.
func (x *exec) UnknownStream(stream string) error { return x.spoil(x.c.unknownStream(stream)) }

// TooMuch implements core.Hook.
func (x *exec) TooMuch(emits, bytes int) error { return x.spoil(x.c.tooMuch(emits, bytes)) }

// spoil makes sure that an emit which was dropped fails the input also if its handle acks before
// Execute returns.
func (x *exec) spoil(err error) error {
	if h := x.held; h != nil {
		h.mu.Lock()
		h.bad = cmp.Or(h.bad, err)
		h.mu.Unlock()
	}
	return err
}

func (c *component) unknownStream(stream string) error {
	return fmt.Errorf("killick: component %q declares no stream %q; add .Stream(%q, codec) to it", c.spec.Name, stream, stream)
}

func (c *component) tooMuch(emits, bytes int) error {
	return fmt.Errorf("killick: one execution of component %q emitted more than %d messages or %d bytes (%d messages, %d bytes)", c.spec.Name, core.MaxEmits, core.MaxBytes, emits, bytes)
}
