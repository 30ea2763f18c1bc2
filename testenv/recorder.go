package testenv

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/core"
)

// Recorder is what one [Execute] did. Its methods may be called from any goroutine, also while
// others decide about what the bolt holds. The zero value records untracked emits, for Tick.
type Recorder struct {
	mu      sync.Mutex
	emitted map[string][]killick.Message
	isEnd   bool
	err     error
	misuse  int
	ended   chan struct{} // closed at the verdict; nil in a zero Recorder
}

type output struct {
	stream string
	m      killick.Message
}

// Emitted returns what has left on a stream, "" for the default one, in the order of the emits:
// after Execute has returned nil, or after the Ack of a held tuple. What it emitted untracked
// is here, too.
func (r *Recorder) Emitted(stream string) []killick.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.emitted[stream])
}

// Verdict returns how the input has ended: err nil is acked. ended is false while the bolt holds
// it.
func (r *Recorder) Verdict() (ended bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isEnd, r.err
}

// Done is closed at the verdict, for tests of bolts that decide on other goroutines. It is nil
// for a Recorder that [Execute] did not make.
func (r *Recorder) Done() <-chan struct{} { return r.ended }

// Misuse returns how often the emitter was used after Execute had returned, or a held tuple
// after its verdict: an emit, or a second verdict. Nothing else came of it.
func (r *Recorder) Misuse() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.misuse
}

// EmitUntracked implements [killick.Untracked].
func (r *Recorder) EmitUntracked(stream string, m killick.Message) {
	r.leave([]output{{stream, m}})
}

func (r *Recorder) leave(outs []output) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range outs {
		if r.emitted == nil {
			r.emitted = map[string][]killick.Message{}
		}
		r.emitted[o.stream] = append(r.emitted[o.stream], o.m)
	}
}

func (r *Recorder) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isEnd, r.err = true, err
	close(r.ended)
}

func (r *Recorder) misused() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.misuse++
}

// held implements core.Holder without an engine: its verdict goes to the recorder.
type held struct {
	r      *Recorder
	tuple  core.Tuple
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	decided bool
	acked   bool
	lost    bool // what it was joined with has failed: an ack counts as a failure
	outs    []heldOutput
	loose   []output
}

type heldOutput struct {
	output
	with []*held // the others that it is anchored to
}

var (
	errJoin = errors.New("testenv: a tuple that this one was joined with has failed")
	errNil  = errors.New("testenv: failed without a reason")
)

func (h *held) Tuple() *core.Tuple       { return &h.tuple }
func (h *held) Context() context.Context { return h.ctx }

func (h *held) Decided() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.decided
}

func (h *held) Emit(stream string, m any, with []core.Holder) error {
	out := heldOutput{output: output{stream, *m.(*killick.Message)}}
	for _, w := range with {
		o, ok := w.(*held)
		if !ok {
			return errors.New("testenv: a tuple held in Execute cannot be joined with one of another run")
		}
		if o == h {
			continue
		}
		if o.Decided() {
			h.r.misused()
			return killick.ErrFinished
		}
		out.with = append(out.with, o)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.decided {
		h.r.misused()
		return killick.ErrFinished
	}
	h.outs = append(h.outs, out)
	return nil
}

// decide takes the verdict if it is the first; a later one is counted.
func (h *held) decide(err error) bool {
	h.mu.Lock()
	if h.decided {
		h.mu.Unlock()
		h.r.misused()
		return false
	}
	acks := err == nil
	if acks && h.lost {
		err = errJoin
	}
	for i := range h.outs {
		if err == nil {
			err = check(&h.outs[i].m)
		}
	}
	h.decided, h.acked = true, err == nil
	outs, loose := h.outs, h.loose
	h.outs, h.loose = nil, nil
	h.mu.Unlock()
	h.cancel(killick.ErrFinished)
	if err == nil {
		for _, o := range outs {
			h.r.leave([]output{o.output})
		}
		h.r.leave(loose)
	} else {
		for _, o := range outs {
			for _, w := range o.with {
				w.lose()
			}
		}
	}
	h.r.end(err)
	return !acks || err == nil
}

// lose says that an output that h was an anchor of will not leave. Where h has acked the engine
// would replay its root; there is none here.
func (h *held) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = true
}

func (h *held) Ack() bool { return h.decide(nil) }

func (h *held) Fail(err error) bool {
	if err == nil {
		err = errNil
	}
	return h.decide(err)
}

func (h *held) Extend(time.Duration) bool { return !h.Decided() }

// loosen adds untracked emits of the execution: they leave with the others.
func (h *held) loosen(outs []output) {
	h.mu.Lock()
	late := h.acked
	if !h.decided {
		h.loose = outs
	}
	h.mu.Unlock()
	if late {
		h.r.leave(outs)
	}
}
