package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/crash"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/internal/rules"
)

// Direct writes records as they come: an output is done at the broker's ack. It implements
// engine.Outbox and has no goroutine of its own; Done is called by the client's.
type Direct struct {
	cl     *kgo.Client
	limits *Limits
	ends   deadlines

	mu    sync.Mutex
	stale map[string]error // topics that the client must forget before it writes to them again, and why
}

// NewDirect writes through cl, which stays the caller's and takes the size of its batches from
// limits. An output that is not durable within timeout has failed.
func NewDirect(cl *kgo.Client, limits *Limits, timeout time.Duration) *Direct {
	return &Direct{cl: cl, limits: limits, ends: deadlines{after: timeout}, stale: map[string]error{}}
}

// Put implements engine.Outbox. It blocks while the client's buffer is full.
func (d *Direct) Put(ctx context.Context, o *engine.Output) error {
	d.refresh(ctx, o.Topic)
	r := &kgo.Record{Topic: o.Topic, Key: o.Key, Value: o.Value, Timestamp: sane(o.Time), Headers: headers(o.Headers), Context: d.ends.next()}
	done := o.Done
	d.cl.Produce(ctx, r, func(r *kgo.Record, err error) {
		crash.At(crash.SinkWritten)
		done(d.judge(r, err))
	})
	crash.At(crash.SinkQueued)
	return nil
}

// refresh makes the client forget what it must: a topic that was deleted and made anew, which it
// never writes to again by itself, or the size of batches.
func (d *Direct) refresh(ctx context.Context, topic string) {
	d.mu.Lock()
	why := d.stale[topic]
	delete(d.stale, topic)
	d.mu.Unlock()
	if why == nil {
		return
	}
	if errors.Is(why, kerr.MessageTooLarge) {
		d.limits.learn(ctx, topic)
	}
	d.cl.PurgeTopicsFromClient(topic)
}

// judge names the topic, and makes those refusals permanent that no retry changes: they are about
// the record itself. It runs on the client's goroutine.
func (d *Direct) judge(r *kgo.Record, err error) error {
	if err == nil {
		return nil
	}
	wrapped := fmt.Errorf("topic %q: %w", r.Topic, err)
	switch {
	case errors.Is(err, kerr.MessageTooLarge) && size(r) < int(d.limits.Of(r.Topic)), errors.Is(err, kerr.UnknownTopicID):
		// The batch was too large, not the record; or the topic is another one.
		d.mu.Lock()
		d.stale[r.Topic] = err
		d.mu.Unlock()
		return wrapped
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.InvalidRecord), errors.Is(err, kerr.InvalidTimestamp), errors.Is(err, kerr.RecordListTooLarge):
		return killick.Permanent(wrapped)
	}
	return wrapped
}

// sane is t where the client can write it: it counts nanoseconds, which end in the year 2262, and
// would write nonsense. Then, and without a time, the record gets that of its writing.
func sane(t time.Time) time.Time {
	// In seconds: a year takes as long to find out as all the rest of Put.
	const year1678, year2262 = -9_214_560_000, 9_214_646_400
	if s := t.Unix(); (s < year1678 || s >= year2262) && rules.TimesAreSane {
		return time.Time{}
	}
	return t
}

func headers(hs []core.Header) []kgo.RecordHeader {
	if len(hs) == 0 {
		return nil
	}
	out := make([]kgo.RecordHeader, len(hs))
	for i, h := range hs {
		out[i] = kgo.RecordHeader(h)
	}
	return out
}
