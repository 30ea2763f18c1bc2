package engine

import (
	"context"
	"time"

	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/core"
)

// Chunk is a batch of delivered roots of one partition in one epoch.
type Chunk interface {
	core.Place // Origin of the i-th

	// Record returns the i-th record. It stays valid until the root has ended.
	Record(i int) core.Record

	// Partition is what ByPartition groups by.
	Partition() int32

	// Epoch is the assignment that the roots belong to.
	Epoch() *ack.Epoch

	// EndRun says that the roots [from, to) have all ended well.
	EndRun(from, to int)

	// End says how the tree of one root has ended: c nil is acked, else it is dead and the
	// owner acts by c.Policy. Called once per root, from any goroutine; it must not block.
	End(i int, c *ack.Cause)
}

// Run is a piece of a chunk whose roots are to start now.
type Run struct {
	Chunk    Chunk
	From, To int
}

// Feed is where a spout's roots come from. It hands out roots up to its pending limits.
type Feed interface {
	// Next blocks until roots may start, and fills r; an empty r means that Wake was called.
	// io.EOF: no root will come any more.
	Next(ctx context.Context, r *Run) error

	// Wake makes a waiting Next return.
	Wake()

	// Stop ends intake: Next returns io.EOF from now on.
	Stop()

	// Pending is the number of roots that were handed out and have not ended; those whose
	// dead letter is being written count.
	Pending() int
}

// Output is one record for an outbox.
type Output struct {
	Topic   string
	Key     []byte
	Value   []byte
	Headers []core.Header
	Time    time.Time
	// Done is called once, when the record is durable or has failed. It must not block.
	Done func(err error)
}

// Outbox writes what leaves the process: an edge that is done when it is durable.
type Outbox interface {
	// Put takes o over. It may block for room until ctx ends, and returns an error only when
	// Done will not be called.
	Put(ctx context.Context, o *Output) error
}
