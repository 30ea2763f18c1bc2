package outbox

import (
	"context"
	"fmt"
	"sync"
)

// maxAsks is how many questions about topics are asked at the same time.
const maxAsks = 8

// asks are the questions how many partitions dead-letter topics have. A topic that does not answer takes a
// goroutine, and not Run; letters of the same topic share the question, and wait for it. DeadLetters.mu guards
// it, but for wg.
type asks struct {
	of      map[string]*question // by source topic
	line    []string             // source topics that are not asked about yet
	running int                  // goroutines, at most maxAsks; each ends when the line is empty
	wg      sync.WaitGroup       // of them; Run waits for it
}

// question is what is asked about one topic.
type question struct {
	again   bool
	letters []letter
}

// ask has a letter wait for an answer about its topic. Run only.
func (w *DeadLetters) ask(ctx context.Context, l letter, again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	source := l.d.Topic()
	q := w.asks.of[source]
	if q == nil {
		q = &question{}
		w.asks.of[source] = q
		w.asks.line = append(w.asks.line, source)
		if w.asks.running < maxAsks {
			w.asks.running++
			w.asks.wg.Go(func() { w.asker(ctx) })
		}
	}
	q.again = q.again || again
	q.letters = append(q.letters, l)
}

// asker asks until nothing is left to ask.
func (w *DeadLetters) asker(ctx context.Context) {
	for {
		w.mu.Lock()
		if len(w.asks.line) == 0 {
			w.asks.running--
			w.mu.Unlock()
			return
		}
		source := w.asks.line[0]
		w.asks.line = w.asks.line[1:]
		again := w.asks.of[source].again
		w.mu.Unlock()
		n, err := w.cfg.Partitions(ctx, source, again)
		w.answered(ctx, source, n, err)
	}
}

// answered lets the letters of a topic go on. Those that came while it was asked have its answer, too: if that
// is old the write fails, and they ask again.
func (w *DeadLetters) answered(ctx context.Context, source string, n int, err error) {
	if err == nil && n < 1 {
		err = fmt.Errorf("outbox: topic %q is said to have %d partitions", Topic(source, w.cfg.Topology), n)
	}
	w.mu.Lock()
	letters := w.asks.of[source].letters
	delete(w.asks.of, source)
	if err == nil {
		for _, l := range letters {
			w.landLocked(&l)
			l.partitions = n
			w.queue = append(w.queue, l)
		}
	}
	w.mu.Unlock()
	if err != nil {
		for _, l := range letters {
			w.written(ctx, l, err)
		}
	}
	w.poke()
}
