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
// held tuple) gets a copy of its own that is never reused.
type item struct {
	rec core.Record // a source record; nil: the message below

	key     []byte
	bytes   []byte
	headers []killick.Header
	ms      int64 // timestamp
	val     any
	typed   bool // val counts, bytes are made of it when asked

	port    *port
	chunk   Chunk // nil: no single origin
	i       int
	path    core.Path
	attempt int
	loose   bool // anchored to nothing

	// anchors are the trees that the tuple stands on. None with a chunk, and edge false: the
	// tree is the frame's, made when it is needed.
	anchors ack.Anchors
	edge    bool // an edge of anchors is open for this item, and its holder must end it
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

func (it *item) Headers() []core.Header {
	if it.headers == nil {
		return nil
	}
	out := make([]core.Header, len(it.headers))
	for i, h := range it.headers {
		out[i] = core.Header(h)
	}
	return out
}

func (it *item) Time() time.Time { return time.UnixMilli(it.ms) }

// record returns the message below.
func (it *item) record() core.Record {
	if it.rec != nil {
		return it.rec
	}
	return it
}

// fill makes t a view of it.
func (it *item) fill(t *core.Tuple) {
	var place core.Place
	if it.chunk != nil {
		place = it.chunk
	}
	var path *core.Path
	if it.rec == nil {
		path = &it.path
	}
	t.Fill(it.record(), &it.port.Port, place, it.i, path, it.attempt)
	if it.typed {
		t.SetValue(it.val)
	}
	if it.loose {
		t.SetLoose()
	}
}

// own makes it independent of the record slab and the batch that it came from.
func (it *item) own() {
	if it.rec == nil {
		return
	}
	r := it.rec
	it.key, it.bytes, it.ms = r.Key(), r.Bytes(), r.Time().UnixMilli()
	if hs := r.Headers(); hs != nil {
		it.headers = make([]killick.Header, len(hs))
		for i, h := range hs {
			it.headers[i] = killick.Header(h)
		}
	}
	it.rec, it.path = nil, core.Path{}
}

type encodeError struct{ err error }

func (e encodeError) Error() string {
	return fmt.Sprintf("killick: the stream's codec cannot encode the value: %v", e.err)
}
func (e encodeError) Unwrap() error { return e.err }

// batchSize is how many items tasks hand over at once.
const batchSize = 256

// batch is a hand-over between tasks. Batches are reused, see Engine.get and put.
type batch struct {
	items [batchSize]item
	n     int
}

// add returns the next free item, zeroed.
func (b *batch) add() *item {
	it := &b.items[b.n]
	b.n++
	return it
}

// reset drops what b refers to.
func (b *batch) reset() {
	clear(b.items[:b.n])
	b.n = 0
}

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
