package outbox

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Limits are the largest batches that topics allow, as far as they are known: a client that makes
// larger ones has all records of a batch refused, and not because of what is in any of them.
type Limits struct {
	// Most bounds every batch. At least 512.
	Most int32
	// Ask asks a topic for its limit; 0 is unknown. It may block, and ends with ctx.
	Ask func(ctx context.Context, topic string) int32

	mu    sync.Mutex
	known map[string]int32
}

// Of is the limit of a topic. It has the form of kgo.ProducerBatchMaxBytesFn.
func (l *Limits) Of(topic string) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.known[topic]; n > 0 {
		return max(512, min(n, l.Most))
	}
	return l.Most
}

// Set notes the limit of a topic.
func (l *Limits) Set(topic string, n int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = map[string]int32{}
	}
	l.known[topic] = n
}

// learn asks for the limit of a topic that has refused a batch. Without an answer it is halved.
func (l *Limits) learn(ctx context.Context, topic string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	old := l.Of(topic)
	if n := l.Ask(ctx, topic); n > 0 && n < old {
		l.Set(topic, n)
		return
	}
	l.Set(topic, old/2)
}

// batchOverhead is about what a batch of one record has beside its bytes.
const batchOverhead = 100

// size is about what a record takes in a batch.
func size(r *kgo.Record) int {
	n := len(r.Key) + len(r.Value) + batchOverhead
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value) + 6
	}
	return n
}
