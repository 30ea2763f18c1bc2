package core

// Emit is one message that an execution has emitted and that has not left yet.
type Emit[M any] struct {
	Stream int  // index of the component's declared streams
	Loose  bool // anchored to nothing
	M      M
}

// Execution is what an emitter writes to: the outputs of the execution in progress.
// It belongs to the goroutine that executes; its owner resets it between executions.
type Execution[M any] struct {
	// word is the number of the execution in progress. An Emitter with another one is
	// of an execution that has returned, and its use changes nothing.
	word    uint64
	Streams []string // declared streams; index 0 is the default stream if declared
	Any     bool     // any stream is taken, and noted in Streams: for tests of one bolt
	Out     []Emit[M]
	top     int   // what is behind Out and below it has not been cleared
	Bytes   int   // of Out
	Bad     error // the first misuse that fails the input
	Held    bool  // Hold was called in the execution in progress
	Hook    Hook[M]
}

// Hook is what an execution asks of the engine.
type Hook[M any] interface {
	Hold() Holder                    // of the execution in progress
	HeldEmit(stream string, m M)     // after Hold: the emit goes over to the handle
	Misused(kind string, stale bool) // kind: emit, hold; stale: after return
	UnknownStream(stream string) error
	TooMuch(emits, bytes int) error
}

// Limits of one execution's outputs, before they leave.
const (
	MaxEmits = 10_000
	MaxBytes = 8 << 20
)

// Begin starts the next execution and returns its emitter.
func (x *Execution[M]) Begin() Emitter[M] {
	x.word++
	return Emitter[M]{x: x, word: x.word}
}

// Current returns the emitter of the execution in progress.
func (x *Execution[M]) Current() Emitter[M] { return Emitter[M]{x: x, word: x.word} }

// End ends the execution in progress: later uses of its emitter are misuse.
func (x *Execution[M]) End() { x.word++ }

// Reset drops the outputs. They stay in memory till others overwrite them, or Clear.
func (x *Execution[M]) Reset() {
	x.top = max(x.top, len(x.Out))
	x.Out, x.Bytes, x.Bad, x.Held = x.Out[:0], 0, nil, false
}

// Clear lets go of what Reset has dropped. It is called once for many executions.
func (x *Execution[M]) Clear() {
	clear(x.Out[:x.top])
	x.top = 0
}

// Emitter is the body of killick.Emitter: a value with a check word.
type Emitter[M any] struct {
	x    *Execution[M]
	word uint64
}

// Emit adds a copy of m, an output of size bytes, on the named stream. It takes a pointer
// only to save a copy: messages are large.
func (e Emitter[M]) Emit(stream string, m *M, size int, loose bool) {
	x := e.x
	if x == nil || e.word != x.word {
		if x != nil {
			x.Hook.Misused("emit", true)
		}
		return
	}
	i := 0
	if len(x.Streams) == 0 || x.Streams[0] != stream {
		i = x.find(stream)
		switch {
		case i >= 0:
		case x.Any:
			i = len(x.Streams)
			x.Streams = append(x.Streams, stream)
		default:
			if x.Bad == nil {
				x.Bad = x.Hook.UnknownStream(stream)
			}
			return
		}
	}
	if x.Held && !loose {
		x.Hook.HeldEmit(stream, *m)
		return
	}
	if len(x.Out) >= MaxEmits || x.Bytes+size > MaxBytes {
		if x.Bad == nil {
			x.Bad = x.Hook.TooMuch(len(x.Out)+1, x.Bytes+size)
		}
		return
	}
	x.Bytes += size
	n := len(x.Out)
	if n == cap(x.Out) {
		x.Out = append(x.Out, Emit[M]{})
	} else {
		x.Out = x.Out[:n+1]
	}
	out := &x.Out[n]
	out.Stream, out.Loose, out.M = i, loose, *m
}

// Hold takes over the input's fate. After return it is nil.
func (e Emitter[M]) Hold() Holder {
	if e.x == nil || e.word != e.x.word {
		if e.x != nil {
			e.x.Hook.Misused("hold", true)
		}
		return nil
	}
	return e.x.Hook.Hold()
}

func (x *Execution[M]) find(stream string) int {
	for i, s := range x.Streams {
		if s == stream {
			return i
		}
	}
	return -1
}
