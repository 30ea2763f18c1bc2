package engine

import (
	"fmt"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/core"
)

// item is one delivery on its way to a task: a view of a source record, or an emitted
// message. Items live in batches, which are reused; whatever outlives its batch (a retry, a
// held tuple) gets a copy of its own that is never reused. Its size matters: three cache lines.
type item struct {
	rec core.Record // a source record; nil: the message below

	key     []byte
	bytes   []byte
	headers []killick.Header
	val     any
	ms      int64 // timestamp

	port  *port
	chunk Chunk // nil: no origin

	// anchors are the trees that the tuple stands on. None, and edge false: the tree is the
	// frame's, made when it is needed.
	anchors ack.Anchors
	path    core.Path

	i       int32
	tries   int32 // executions of the tuple in this attempt of its root, this one included
	replays int32 // attempts of the root before this one
	typed   bool  // val counts, bytes are made of it when asked
	loose   bool  // anchored to nothing
	edge    bool  // an edge of anchors is open for this item, and its holder must end it
	last    bool  // its retry came during a stop: another failure leaves it where it is
}

// Key, Bytes, Headers and Time make an emitted message a core.Record.
func (it *item) Key() []byte { return it.key }

func (it *item) Bytes() []byte {
	if !it.typed || it.bytes != nil {
		return it.bytes
	}
	b, err := it.port.encode(it.val)
	if err != nil {
		panic(encodeError{err})
	}
	return b
}

func (it *item) Headers() []core.Header { return core.Headers[core.Header](it.headers) }

func (it *item) Time() time.Time { return time.UnixMilli(it.ms) }

// Origin makes an item a core.Place: its chunk's.
func (it *item) Origin(i int) core.Origin { return it.chunk.Origin(i) }

// record returns the message below.
func (it *item) record() core.Record {
	if it.rec != nil {
		return it.rec
	}
	return it
}

// millis returns the timestamp.
func (it *item) millis() int64 {
	if it.rec != nil {
		return it.rec.Time().UnixMilli()
	}
	return it.ms
}

// attempt is the number of this execution of the tuple, over all attempts of its root.
func (it *item) attempt() int { return int(it.tries + it.replays) }

// fill makes t a view of it.
func (it *item) fill(t *core.Tuple) {
	var place core.Place
	if it.chunk != nil {
		place = it
	}
	var path *core.Path
	if !it.path.Empty() {
		path = &it.path
	}
	t.Fill(it.record(), &it.port.Port, place, int(it.i), path, it.attempt())
	if it.typed {
		t.SetValue(it.val)
	}
	if it.loose {
		t.SetLoose()
	}
	if it.anchors.Joined() {
		t.SetJoined()
	}
}

// own makes it independent of the record slab, the batch and the parent that it came from.
func (it *item) own() {
	if it.path.Up() != nil {
		var slab []core.Path
		it.path = it.path.Own(&slab)
	}
	if it.rec == nil {
		return
	}
	r := it.rec
	it.rec = nil
	it.key, it.ms = r.Key(), r.Time().UnixMilli()
	// A decoded record keeps its raw bytes over a retry; a value that was emitted never had any,
	// and is encoded when asked.
	if sr, ok := r.(*spoutRecord); !it.typed || !ok || sr.m.Value == nil {
		it.bytes = r.Bytes()
	}
	it.headers = core.Headers[killick.Header](r.Headers())
}

type encodeError struct{ err error }

func (e encodeError) Error() string {
	return fmt.Sprintf("killick: the stream's codec cannot encode the value: %v", e.err)
}
func (e encodeError) Unwrap() error { return e.err }

// safeBytes returns the value for a dead letter's headers; nil if the codec cannot make it.
func (it *item) safeBytes() (b []byte) {
	defer func() {
		if recover() != nil {
			b = nil
		}
	}()
	return it.record().Bytes()
}

// id returns the tuple's ID.
func (it *item) id() string {
	var t core.Tuple
	it.fill(&t)
	return t.ID()
}

// batchSize is how many items tasks hand over at once.
const batchSize = 256

// batch is a hand-over between tasks. Batches are reused, see Engine.get and put. They start
// small: a slow task hands over one item at a time, and has several of them queued.
type batch struct {
	items []item // what is behind the length is zero
}

// add returns the next item, zeroed. It may move the others.
func (b *batch) add() *item {
	n := len(b.items)
	if n == cap(b.items) {
		b.items = append(make([]item, 0, max(8, min(2*n, batchSize))), b.items...)
	}
	b.items = b.items[:n+1]
	return &b.items[n]
}

func (b *batch) full() bool { return len(b.items) >= batchSize }

// reset drops what b refers to.
func (b *batch) reset() {
	clear(b.items)
	b.items = b.items[:0]
}
