package testenv

import (
	"context"
	"fmt"
	"reflect"
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

	mu   sync.Mutex
	next int
	open int
	// With an order: lanes are the records' lanes, line keeps them.
	line  *core.Lanes[int]
	lanes []uint64

	core.Intake // Wake and Stop, as engine.Feed has them
}

func newFeed(s *killick.SpoutSpec, r *Result) *feed {
	f := &feed{spec: s, r: r, topic: s.Name, Intake: core.NewIntake()}
	if len(s.Info.Topics) > 0 {
		f.topic = s.Info.Topics[0]
	}
	if s.Order != killick.NoOrder {
		f.line = core.NewLanes[int]()
	}
	return f
}

// add makes records of ms, as a producer would: a Value by the spout's codec.
func (f *feed) add(ms []killick.Message) error {
	for i, m := range ms {
		if m.Time.IsZero() {
			m.Time = time.Now()
		}
		if m.Value != nil {
			b, err := f.encode(&m)
			if err != nil {
				return fmt.Errorf("testenv: Feed(%q): message %d: %w", f.spec.Name, i, err)
			}
			m.Bytes, m.Value = b, nil
		}
		f.recs = append(f.recs, record{m})
		switch f.spec.Order {
		case killick.PerKey:
			f.lanes = append(f.lanes, f.line.Of(m.Key))
		case killick.PerPartition:
			f.lanes = append(f.lanes, 0)
		}
	}
	return nil
}

func (f *feed) encode(m *killick.Message) ([]byte, error) {
	if m.Bytes != nil {
		return nil, errBoth
	}
	if c := f.spec.Info.Codec; c != nil && reflect.TypeOf(m.Value) == c.Type() {
		return c.Encode(m.Value)
	}
	switch v := m.Value.(type) {
	case []byte:
		return v, nil
	case string:
		if f.spec.Info.Codec == nil {
			return []byte(v), nil
		}
	}
	if c := f.spec.Info.Codec; c != nil {
		return c.Encode(m.Value) // which says what it takes
	}
	return nil, fmt.Errorf("a %T as Value, but the spout has no codec; set Bytes", m.Value)
}

// Next implements engine.Feed.
func (f *feed) Next(ctx context.Context, r *engine.Run) error {
	return f.Intake.Next(ctx, func(stopped bool) (found, end bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.line != nil && !stopped {
			return f.nextInOrder(r)
		}
		if stopped || f.next == len(f.recs) {
			return false, true
		}
		n := min(256, f.spec.Pending-f.open, len(f.recs)-f.next)
		if n <= 0 {
			return false, false
		}
		*r = engine.Run{Chunk: f, From: f.next, To: f.next + n}
		f.next += n
		f.open += n
		return true, false
	})
}

// nextInOrder is Next for a spout with an order, as a worker's partitions have it.
func (f *feed) nextInOrder(r *engine.Run) (found, end bool) {
	room := min(256, f.spec.Pending-f.open)
	if room <= 0 {
		return false, false
	}
	if i, ok := f.line.Next(); ok {
		*r = engine.Run{Chunk: f, From: i, To: i + 1}
		f.open++
		return true, false
	}
	from, to := f.next, f.next
	for to < len(f.recs) && to-from < room && f.line.Waiting() < f.spec.Pending {
		if f.line.Enter(f.lanes[to], to) {
			to++
			continue
		}
		f.next = to + 1
		if from < to {
			break
		}
		from, to = f.next, f.next
	}
	f.next = max(f.next, to)
	if from == to {
		return false, f.next == len(f.recs) && f.line.Waiting() == 0
	}
	*r = engine.Run{Chunk: f, From: from, To: to}
	f.open += to - from
	return true, false
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
	if f.line != nil {
		for _, lane := range f.lanes[from:to] {
			f.line.Leave(lane)
		}
	}
	f.mu.Unlock()
	f.Poke()
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
func (r *record) Time() time.Time { return r.m.Time }

// Bytes returns the raw value. Records of a feed have nothing else.
func (r *record) Bytes() []byte {
	switch v := r.m.Value.(type) {
	case nil:
		return r.m.Bytes
	case string:
		return []byte(v)
	default:
		panic(fmt.Sprintf("testenv: Bytes of a tuple that was made of a %T, without a codec; give Execute or Tuple the Bytes", v))
	}
}

func (r *record) Headers() []core.Header { return core.Headers[core.Header](r.m.Headers) }
