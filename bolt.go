package killick

import (
	"context"
	"reflect"
	"time"
)

// Bolt is one step. Execute processes one tuple: nil acks it, an error fails this try
// and drops what was emitted. in is valid until Execute returns. ctx ends when the
// tuple's time-out has passed or the worker stops hard; a bolt that obeys it keeps its
// task going. A struct bolt is made once per task and called on one goroutine, unless
// its component says InFlight. A panic in Execute is a failed try; one in a goroutine that the
// bolt has started ends the process, which Go lets nobody prevent: catch it there, and fail
// the held tuple.
type Bolt interface {
	Execute(ctx context.Context, in *Tuple, out Emitter) error
}

// BoltFactory makes the bolt of one task. It is called once when a topology is
// validated, too: construct cheaply, connect in Prepare.
type BoltFactory func() Bolt

// Task says which task a component instance is.
type Task struct {
	Topology  string
	Component string
	Index     int // from 0
	Count     int
}

// Preparer is an optional interface of bolts and spouts. Tuples wait for Prepare; an
// error is tried again by the component's retry policy (a spout has none: 5 tries with the
// default back-off), then stops the worker; a [Permanent] one does at once.
type Preparer interface {
	Prepare(ctx context.Context, t Task) error
}

// Cleaner is an optional interface of bolts and spouts: Cleanup is called when the task
// stops, after its last tuple. ctx ends after 5 seconds.
type Cleaner interface {
	Cleanup(ctx context.Context) error
}

// Flusher is an optional interface of bolts that keep tuples: Flush is called when the
// worker drains, or a bounded run ends, and the task has nothing left to execute; and again
// and again while a partition is given to another worker, whose tuples may be among them. It
// should bring all held tuples to a verdict soon. Its error is reported; the tuples keep
// their verdicts.
type Flusher interface {
	Flush(ctx context.Context) error
}

// Ticker is an optional interface of bolts. Tick is called on the task's goroutine at the
// component's interval ([BoltDecl.Tick] or [BoltInfo]). To emit anchored tuples, keep a
// Held and emit by it. An error, or a panic, is reported and drops what this call emitted;
// the next interval calls again.
type Ticker interface {
	Tick(ctx context.Context, out Untracked) error
}

// Informer is an optional interface of bolts: what a bolt knows of itself. It is asked when
// a topology is validated; an error is a mistake of the topology. What the builder says wins.
type Informer interface {
	BoltInfo() (BoltInfo, error)
}

// BoltInfo is what a bolt knows of itself.
type BoltInfo struct {
	In       reflect.Type  // of Tuple.Value; nil: any. A sink takes raw bytes as well
	Raw      bool          // it takes Tuple.Bytes: of values other than text, the stream's codec makes them
	Out      reflect.Type  // of the default stream's values; nil: any
	InFlight int           // executions at a time; 0: 1
	Tick     time.Duration // interval of Tick; 0: the builder must say
	Keeps    time.Duration // it may hold a tuple that long by design; the time-out must be longer
	Sink     *SinkInfo     // the bolt writes to Kafka
}

// SinkInfo says that what the component emits on its default stream goes to Kafka. The
// input is acked when all of it is durable; a record-level error is a failed try.
type SinkInfo struct {
	Topic   string                 // where all of it goes,
	TopicOf func(in *Tuple) string // or where each input's goes; "" is a permanent failure
	Codec   Codec                  // nil: the input stream's
}
