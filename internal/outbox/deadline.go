package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrNotDurable says that a record was not durable within its delivery timeout. Where it had been
// sent, it may be written all the same.
var ErrNotDurable = errors.New("outbox: not durable in time")

// deadlines gives records the end of their delivery time, as a context for kgo.Record.Context. kgo's
// own RecordDeliveryTimeout counts from the record's timestamp, which is that of the source here.
//
// Records of about the same moment share one: a context of its own costs half a microsecond.
type deadlines struct {
	after time.Duration

	mu   sync.Mutex
	cur  *deadline
	made time.Time
}

// next returns a context that ends after the timeout, up to a sixteenth later.
func (d *deadlines) next() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	step := d.after / 16
	if now := time.Now(); d.cur == nil || now.Sub(d.made) >= step {
		d.cur, d.made = newDeadline(d.after+step), now
	}
	return d.cur
}

// deadline is a context that nobody has to cancel: a timer ends it, and all that it holds is gone
// then.
type deadline struct {
	context.Context // Background
	at              time.Time
	after           time.Duration
	done            chan struct{}
}

func newDeadline(after time.Duration) *deadline {
	d := &deadline{Context: context.Background(), at: time.Now().Add(after), after: after, done: make(chan struct{})}
	time.AfterFunc(after, func() { close(d.done) })
	return d
}

func (d *deadline) Deadline() (time.Time, bool) { return d.at, true }
func (d *deadline) Done() <-chan struct{}       { return d.done }

// Err is the error that the record fails with.
func (d *deadline) Err() error {
	select {
	case <-d.done:
		return fmt.Errorf("%w: waited %v", ErrNotDurable, d.after)
	default:
		return nil
	}
}
