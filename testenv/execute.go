package testenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime/debug"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/core"
)

// Execute runs b once on m and returns what became of it, with the error that Execute returned.
// A panic of b is an error, with the stack: a failed try. Call it again for the next input: the
// bolt keeps its state, and what it holds. Prepare, Tick, Flush and Cleanup are the test's to
// call; a [Recorder] is a [killick.Untracked] for Tick.
//
// There is no topology around: every stream is taken to be declared and without a codec, one
// try is all there is, and no time-out is simulated: a held tuple waits for its verdict for
// ever, and Extend changes nothing. Use [Run] for those.
func Execute(ctx context.Context, b killick.Bolt, m killick.Message) (*Recorder, error) {
	r := &Recorder{ended: make(chan struct{})}
	t, err := view(m)
	if err != nil {
		r.end(err)
		return r, err
	}
	x := &execution{r: r, in: t, ctx: ctx}
	x.ex.Any, x.ex.Hook = true, x
	x.ex.Streams = []string{""}
	in := new(core.Tuple)
	fill(in, t)
	err = x.call(ctx, b, in)
	x.ex.End()
	in.Poison() // a bolt that kept it is found
	if err == nil && x.ex.Bad != nil {
		err = killick.Permanent(x.ex.Bad)
	}
	for i := range x.ex.Out {
		if err == nil {
			err = check(&x.ex.Out[i].M)
		}
	}
	switch h := x.held; {
	case h == nil && err == nil:
		r.leave(x.outputs())
		r.end(nil)
	case h == nil:
		r.end(err)
	case err != nil:
		h.Fail(err)
	default:
		h.loosen(x.outputs()) // what is here after Hold is untracked
	}
	return r, err
}

// execution is one call of a bolt; it is the hook of its emitter.
type execution struct {
	r    *Recorder
	in   *record
	ctx  context.Context
	ex   core.Execution[killick.Message]
	held *held
}

func (x *execution) call(ctx context.Context, b killick.Bolt, in *core.Tuple) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return b.Execute(ctx, (*killick.Tuple)(in), killick.Emitter(x.ex.Begin()))
}

func (x *execution) outputs() []output {
	var out []output
	for _, em := range x.ex.Out {
		out = append(out, output{x.ex.Streams[em.Stream], em.M})
	}
	return out
}

// Hold implements core.Hook.
func (x *execution) Hold() core.Holder {
	if x.held != nil {
		return x.held
	}
	h := &held{r: x.r}
	fill(&h.tuple, x.in)
	h.ctx, h.cancel = context.WithCancelCause(x.ctx)
	keep := x.ex.Out[:0]
	for _, em := range x.ex.Out {
		if em.Loose {
			keep = append(keep, em)
			continue
		}
		h.outs = append(h.outs, heldOutput{output: output{x.ex.Streams[em.Stream], em.M}})
	}
	x.ex.Out, x.ex.Held = keep, true
	x.held = h
	return h
}

// HeldEmit implements core.Hook. After the verdict the emit is dropped and counted.
func (x *execution) HeldEmit(stream string, m killick.Message) { _ = x.held.Emit(stream, &m, nil) }

// Misused implements core.Hook.
func (x *execution) Misused(string, bool) { x.r.misused() }

// UnknownStream implements core.Hook; it is not called, since every stream is known.
func (x *execution) UnknownStream(stream string) error {
	return fmt.Errorf("testenv: no stream %q", stream)
}

// TooMuch implements core.Hook.
func (x *execution) TooMuch(emits, bytes int) error {
	return fmt.Errorf("testenv: one execution emitted more than %d messages or %d bytes (%d messages, %d bytes)",
		core.MaxEmits, core.MaxBytes, emits, bytes)
}

// Tuple makes a tuple of m, for key, grouping and topic functions. Its Value is m's; of raw
// bytes it is those. A zero Time is the present. Its origin is the topic "testenv", with an
// offset that is made of the message: equal messages (but for their time) have equal IDs, as
// replays have. It panics if m has both Bytes and a Value.
func Tuple(m killick.Message) *killick.Tuple {
	r, err := view(m)
	if err != nil {
		panic(err)
	}
	t := new(core.Tuple)
	fill(t, r)
	return (*killick.Tuple)(t)
}

// check refuses what the engine would refuse on any stream.
func check(m *killick.Message) error {
	if m.Bytes != nil && m.Value != nil {
		return killick.Permanent(errBoth)
	}
	return nil
}

var errBoth = errors.New("testenv: the message has both Bytes and a Value; set one of them")

// view makes m a record, with its value beside it.
func view(m killick.Message) (*record, error) {
	if m.Bytes != nil && m.Value != nil {
		return nil, errBoth
	}
	if b, ok := m.Value.([]byte); ok {
		m.Bytes, m.Value = b, nil
	}
	if m.Time.IsZero() {
		m.Time = time.Now()
	}
	return &record{m}, nil
}

func fill(t *core.Tuple, r *record) {
	t.Fill(r, &core.Port{Component: "testenv"}, r, 0, nil, 1)
	if r.m.Value != nil {
		t.SetValue(r.m.Value)
	}
}

// Origin implements core.Place.
func (r *record) Origin(int) core.Origin {
	v, err := json.Marshal(r.m.Value)
	if err != nil {
		v = fmt.Appendf(nil, "%#v", r.m.Value)
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%t %q %t %q %q %q", r.m.Key == nil, r.m.Key, r.m.Bytes == nil, r.m.Bytes, v, r.m.Headers)
	return core.Origin{Topic: "testenv", Offset: int64(h.Sum64() >> 1)}
}
