package killick

import (
	"context"
	"errors"
	"time"

	"github.com/killick-io/killick/internal/core"
)

// Emitter takes the outputs of one execution, anchored to its input. They leave when
// Execute returns nil, and are dropped when it returns an error. An Emitter belongs to
// the goroutine that Execute runs on and is good until Execute returns: later uses are
// dropped and counted. Outputs of one execution are limited to 10,000 messages and 8 MiB of
// keys, bytes, text and headers (other Values are not weighed); more fails the input
// permanently.
type Emitter core.Emitter[Message]

// Emit emits m on the default stream.
func (e Emitter) Emit(m Message) { core.Emitter[Message](e).Emit("", &m, m.size(), false) }

// EmitTo emits m on a stream that the component declares; another name fails the input
// permanently.
func (e Emitter) EmitTo(stream string, m Message) {
	core.Emitter[Message](e).Emit(stream, &m, m.size(), false)
}

// EmitUntracked emits m anchored to nothing: whether it is processed has no bearing on
// the input. It leaves, and is dropped, with the other emits.
func (e Emitter) EmitUntracked(stream string, m Message) {
	core.Emitter[Message](e).Emit(stream, &m, m.size(), true)
}

// Hold takes over the input's fate: returning nil no longer acks it, the handle does.
// Called again it gives the same handle. What was emitted before goes over to the
// handle, and an error returned after Hold counts as its Fail. The tuple's clock runs
// on until the verdict.
func (e Emitter) Hold() *Held {
	h := core.Emitter[Message](e).Hold()
	return (*Held)(core.NewHeld(h))
}

// Untracked takes messages that are anchored to nothing. An [Emitter] is one.
type Untracked interface {
	EmitUntracked(stream string, m Message)
}

// ErrFinished says that a held tuple has its verdict already: acked, failed, timed out,
// or given up with its partition. The emit changed nothing.
var ErrFinished = errors.New("killick: the held tuple has its verdict")

// Held is an input whose bolt decides later, from any goroutine. The first verdict
// counts; later ones return false and are counted. A Held and its tuple are never
// reused. Its methods may be called concurrently and do not block on other tuples.
type Held core.Held

func (h *Held) holder() core.Holder {
	if h == nil {
		return nil
	}
	return (*core.Held)(h).Holder()
}

// Tuple returns the input, valid for ever. It is nil for a handle asked for after
// Execute had returned.
func (h *Held) Tuple() *Tuple {
	if x := h.holder(); x != nil {
		return (*Tuple)(x.Tuple())
	}
	return nil
}

// Context ends at the time-out, the verdict or a hard shutdown.
func (h *Held) Context() context.Context {
	if x := h.holder(); x != nil {
		return x.Context()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrFinished)
	return ctx
}

// Emit emits m on the default stream, anchored to h and to all of with at once. It
// leaves at h's Ack. It returns ErrFinished if one of them has its verdict. Any other error
// (a stream that is not declared, more than the limits of [Emitter]) is the bolt's mistake:
// an Ack of h will fail the tuple permanently. If h fails later, those of with that have
// acked by then are replayed from their roots, since what they were joined to is lost.
func (h *Held) Emit(m Message, with ...*Held) error { return h.EmitTo("", m, with...) }

// EmitTo is Emit on a declared stream.
func (h *Held) EmitTo(stream string, m Message, with ...*Held) error {
	x := h.holder()
	if x == nil {
		return ErrFinished
	}
	var hs []core.Holder
	for _, w := range with {
		y := w.holder()
		if y == nil {
			return ErrFinished
		}
		hs = append(hs, y)
	}
	return x.Emit(stream, &m, hs)
}

// Ack ends the tuple well; its emits leave. false: it had its verdict and nothing changed, or
// what it emitted cannot leave (an Emit returned an error, a tuple that it was joined with has
// failed) and the try has failed. true is no promise that the tree goes on well: an emit that
// a codec, a grouping or Kafka refuses then fails the try, too. Ack may wait for room in the
// queues of the components that its emits go to.
func (h *Held) Ack() bool {
	x := h.holder()
	return x != nil && x.Ack()
}

// Fail fails the try, as if Execute had returned err; a nil err fails it too. false: it
// had its verdict, nothing changed.
func (h *Held) Fail(err error) bool {
	x := h.holder()
	return x != nil && x.Fail(err)
}

// Settle acks h if err is nil and fails it otherwise, unless it has its verdict already: that
// is not counted as misuse. It is for code that lets others decide first, such as bolt.Batch.
func (h *Held) Settle(err error) {
	x := h.holder()
	switch {
	case x == nil || x.Decided():
	case err == nil:
		x.Ack()
	default:
		x.Fail(err)
	}
}

// Extend gives the tuple d more, from now. false: it has its verdict.
func (h *Held) Extend(d time.Duration) bool {
	x := h.holder()
	return x != nil && x.Extend(d)
}
