package testenv

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/engine"
)

// feed gives records to a Kafka spout, up to its pending limit. It implements engine.Feed, and
// engine.Chunk: all its records are one chunk.
type feed struct {
	spec  *killick.SpoutSpec
	r     *Result
	topic string
	recs  []record
	epoch ack.Epoch

	mu      sync.Mutex
	next    int
	open    int
	stopped bool
	woken   bool
	signal  chan struct{}
}

func newFeed(s *killick.SpoutSpec, r *Result) *feed {
	f := &feed{spec: s, r: r, topic: s.Name, signal: make(chan struct{}, 1)}
	if len(s.Info.Topics) > 0 {
		f.topic = s.Info.Topics[0]
	}
	return f
}

func (f *feed) add(ms []killick.Message) {
	for _, m := range ms {
		if m.Time.IsZero() {
			m.Time = time.Now()
		}
		if m.Value != nil && m.Bytes == nil {
			if b, ok := m.Value.([]byte); ok {
				m.Bytes = b
			} else if c := f.spec.Info.Codec; c != nil {
				b, err := c.Encode(m.Value)
				if err != nil {
					panic("testenv: Feed: the spout's codec cannot encode the value: " + err.Error())
				}
				m.Bytes = b
			} else if s, ok := m.Value.(string); ok {
				m.Bytes = []byte(s)
			} else {
				panic("testenv: Feed: a Value for a spout without a codec; use Bytes")
			}
			m.Value = nil
		}
		f.recs = append(f.recs, record{m})
	}
}

// Next implements engine.Feed.
func (f *feed) Next(ctx context.Context, r *engine.Run) error {
	for {
		f.mu.Lock()
		if f.stopped || f.next == len(f.recs) {
			f.mu.Unlock()
			return io.EOF
		}
		if n := min(256, f.spec.Pending-f.open, len(f.recs)-f.next); n > 0 {
			*r = engine.Run{Chunk: f, From: f.next, To: f.next + n}
			f.next += n
			f.open += n
			f.mu.Unlock()
			return nil
		}
		if f.woken {
			f.woken = false
			f.mu.Unlock()
			return nil
		}
		f.mu.Unlock()
		select {
		case <-f.signal:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *feed) poke() {
	select {
	case f.signal <- struct{}{}:
	default:
	}
}

func (f *feed) Wake() {
	f.mu.Lock()
	f.woken = true
	f.mu.Unlock()
	f.poke()
}

func (f *feed) Stop() {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	f.poke()
}

func (f *feed) Pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

func (f *feed) Origin(i int) core.Origin {
	return core.Origin{Topic: f.topic, Partition: 0, Offset: int64(i)}
}
func (f *feed) Record(i int) core.Record { return &f.recs[i] }
func (f *feed) Partition() int32         { return 0 }
func (f *feed) Epoch() *ack.Epoch        { return &f.epoch }

func (f *feed) EndRun(from, to int) {
	f.mu.Lock()
	f.open -= to - from
	f.mu.Unlock()
	f.poke()
}

func (f *feed) End(i int, c *ack.Cause) {
	if c != nil && c.Policy == ack.DeadLetter {
		f.r.mu.Lock()
		f.r.dead = append(f.r.dead, DeadLetter{Message: f.recs[i].m, Origin: killick.Origin(f.Origin(i)),
			Component: c.Component, Reason: c.Reason, Attempts: c.Attempts, Err: c.Err})
		f.r.mu.Unlock()
	}
	f.EndRun(i, i+1)
}

// record is a message as a core.Record.
type record struct{ m killick.Message }

func (r *record) Key() []byte     { return r.m.Key }
func (r *record) Bytes() []byte   { return r.m.Bytes }
func (r *record) Time() time.Time { return r.m.Time }

func (r *record) Headers() []core.Header {
	if r.m.Headers == nil {
		return nil
	}
	out := make([]core.Header, len(r.m.Headers))
	for i, h := range r.m.Headers {
		out[i] = core.Header(h)
	}
	return out
}
