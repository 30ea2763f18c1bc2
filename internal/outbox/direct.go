package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/engine"
)

// Direct writes records as they come: an output is done at the broker's ack. It implements
// engine.Outbox and has no goroutine of its own; Done is called by the client's.
type Direct struct{ cl *kgo.Client }

// NewDirect writes through cl, which stays the caller's.
func NewDirect(cl *kgo.Client) *Direct { return &Direct{cl} }

// Put implements engine.Outbox. It blocks while the client's buffer is full.
func (d *Direct) Put(ctx context.Context, o *engine.Output) error {
	r := &kgo.Record{Topic: o.Topic, Key: o.Key, Value: o.Value, Timestamp: o.Time, Headers: headers(o.Headers)}
	done := o.Done
	d.cl.Produce(ctx, r, func(_ *kgo.Record, err error) { done(classify(o.Topic, err)) })
	return nil
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

// classify names the topic, and makes those refusals permanent that no retry changes: they are
// about the record itself.
func classify(topic string, err error) error {
	if err == nil {
		return nil
	}
	wrapped := fmt.Errorf("topic %q: %w", topic, err)
	for _, own := range []error{kerr.MessageTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.RecordListTooLarge} {
		if errors.Is(err, own) {
			return killick.Permanent(wrapped)
		}
	}
	return wrapped
}
