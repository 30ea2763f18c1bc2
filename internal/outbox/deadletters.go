package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/crash"
	"github.com/killick-io/killick/internal/partition"
	"github.com/killick-io/killick/internal/rules"
)

// Headers of a dead letter. All values are text. They replace those of an earlier dead letter, so
// that a record which fails again after a redrive does not grow.
const (
	HeaderTopic      = "killick-dlq-topic"
	HeaderPartition  = "killick-dlq-partition"
	HeaderOffset     = "killick-dlq-offset"
	HeaderTimestamp  = "killick-dlq-timestamp-ms"
	HeaderGroup      = "killick-dlq-group"
	HeaderTopology   = "killick-dlq-topology"
	HeaderComponent  = "killick-dlq-component"
	HeaderTask       = "killick-dlq-task"
	HeaderReason     = "killick-dlq-reason"
	HeaderErrorType  = "killick-dlq-error-type"
	HeaderError      = "killick-dlq-error"
	HeaderTupleKey   = "killick-dlq-tuple-key"
	HeaderTupleValue = "killick-dlq-tuple-value"
	HeaderAttempt    = "killick-attempt"
	HeaderFailed     = "killick-first-failed-ms"
	HeaderCut        = "killick-dlq-cut" // what was left out because the record was too large
)

// Limits of what a dead letter's headers carry.
const (
	maxError = 1 << 10
	maxTuple = 8 << 10
)

// DeadLetters writes dead letters: <topic>.<topology>.dlq, in the partition of the same number. A
// root ends when its dead letter is durable. What cannot be written is tried again, with back-off
// and without end: the offset stays. One goroutine, Run, does the waiting; the queue is bounded
// by the pending limits.
type DeadLetters struct {
	cfg  DeadLetterConfig
	ends deadlines

	mu     sync.Mutex
	queue  []letter
	taken  int // off the queue, not written yet
	flying int // written, not durable yet
	stats  DeadLetterStats
	signal chan struct{}
	// failing are the dead-letter topics whose last write has failed, while a letter waits for it.
	failing map[string]*failure
}

// DeadLetterConfig is what DeadLetters needs. Client must be a manual-partition producer.
type DeadLetterConfig struct {
	Client   *kgo.Client
	Topology string
	Group    string
	// Partitions returns the number of partitions of a dead-letter topic, creating it if that is
	// wanted and it is missing. again says that a write has failed: what was known of the topic
	// may not be true any more.
	Partitions func(ctx context.Context, sourceTopic string, again bool) (int, error)
	// Timeout bounds one try.
	Timeout time.Duration
	// Wait is the back-off between tries.
	Wait killick.Retry
	// Failed is told of each try that failed.
	Failed func(topic string, err error, wait time.Duration)
}

// DeadLetterStats is a snapshot.
type DeadLetterStats struct {
	Written, Errors int64
	ByReason        map[string]int64
	Waiting         int       // not durable yet
	Since           time.Time // writing to a topic has failed since then; zero: none waits for that
	Err             error     // the last failure of that topic
}

// failure is a topic that cannot be written to.
type failure struct {
	since   time.Time
	err     error
	letters int // that have failed by it, and wait
}

// letter is one dead letter on its way.
type letter struct {
	d     partition.Dead
	tries int
	cut   int  // how much is left out; see build
	now   bool // the record's own timestamp was refused
	at    time.Time
	// changed: the last try failed by the record's own fault, and the next one is another record.
	changed bool
	// alone: it was refused as too large in a batch, perhaps with others. It is written by itself
	// from then on, so that the next such answer is about it.
	alone bool
	// failed is why it waits; guarded by DeadLetters.mu.
	failed *failure
}

// Topic returns the dead-letter topic of a source topic.
func Topic(source, topology string) string { return source + "." + topology + ".dlq" }

// NewDeadLetters makes the writer; Run starts it.
func NewDeadLetters(cfg DeadLetterConfig) *DeadLetters {
	if cfg.Wait.Max == 0 {
		cfg.Wait = killick.Retry{Min: 100 * time.Millisecond, Max: 10 * time.Second}
	}
	if cfg.Failed == nil {
		cfg.Failed = func(string, error, time.Duration) {}
	}
	return &DeadLetters{cfg: cfg, ends: deadlines{after: cfg.Timeout}, signal: make(chan struct{}, 1), stats: DeadLetterStats{ByReason: map[string]int64{}},
		failing: map[string]*failure{}}
}

// Put takes d over. It does not block.
func (w *DeadLetters) Put(d partition.Dead) {
	w.push(letter{d: d, at: time.Now()})
}

func (w *DeadLetters) push(l letter) {
	w.mu.Lock()
	w.queue = append(w.queue, l)
	w.mu.Unlock()
	w.poke()
}

func (w *DeadLetters) poke() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// Stats returns a snapshot.
func (w *DeadLetters) Stats() DeadLetterStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.ByReason = make(map[string]int64, len(w.stats.ByReason))
	for k, v := range w.stats.ByReason {
		s.ByReason[k] = v
	}
	s.Waiting = len(w.queue) + w.taken + w.flying
	for _, f := range w.failing {
		if s.Since.IsZero() || f.since.Before(s.Since) {
			s.Since, s.Err = f.since, f.err
		}
	}
	return s
}

// noteLocked says that a topic cannot be written to, and that l waits for it. w.mu is held.
func (w *DeadLetters) noteLocked(l *letter, topic string, err error) {
	f := w.failing[topic]
	if f == nil {
		f = &failure{since: time.Now()}
		w.failing[topic] = f
	}
	f.err = fmt.Errorf("topic %q: %w", topic, err)
	if l.failed != f {
		w.dropLocked(l, topic)
		f.letters++
		l.failed = f
	}
}

// dropLocked says that l does not wait any more. Of a topic that nobody waits for it is not known
// whether it can be written to. w.mu is held.
func (w *DeadLetters) dropLocked(l *letter, topic string) {
	f := l.failed
	if f == nil {
		return
	}
	l.failed = nil
	if f.letters--; f.letters == 0 && w.failing[topic] == f {
		delete(w.failing, topic)
	}
}

// Run writes until ctx ends. What is not durable then stays open.
func (w *DeadLetters) Run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		for _, l := range w.due(&wait) {
			if l.alone {
				w.quiet(ctx)
			}
			w.write(ctx, l)
			if l.alone {
				w.quiet(ctx)
				wait = 0 // quiet has taken signals
			}
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-w.signal:
		case <-timer.C:
		}
	}
}

// quiet waits until no dead letter is under way.
func (w *DeadLetters) quiet(ctx context.Context) {
	for {
		w.mu.Lock()
		n := w.flying
		w.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-w.signal:
		case <-ctx.Done():
			return
		}
	}
}

// due takes what may be written now, and sets wait to the time until the next.
func (w *DeadLetters) due(wait *time.Duration) []letter {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	var out []letter
	keep := w.queue[:0]
	for _, l := range w.queue {
		switch left := l.at.Sub(now); {
		case l.d.Gone():
			w.dropLocked(&l, Topic(l.d.Topic(), w.cfg.Topology))
		case left <= 0:
			out = append(out, l)
		default:
			keep = append(keep, l)
			*wait = min(*wait, left)
		}
	}
	clear(w.queue[len(keep):])
	w.queue = keep
	w.taken = len(out)
	return out
}

func (w *DeadLetters) write(ctx context.Context, l letter) {
	w.mu.Lock()
	w.taken--
	w.flying++
	w.mu.Unlock()
	topic := Topic(l.d.Topic(), w.cfg.Topology)
	n, err := w.cfg.Partitions(ctx, l.d.Topic(), l.tries > 0 && !l.changed)
	if err != nil {
		w.written(ctx, l, topic, err)
		return
	}
	r := w.build(l)
	r.Topic, r.Partition, r.Context = topic, l.d.Partition()%int32(n), w.ends.next()
	w.cfg.Client.Produce(ctx, r, func(_ *kgo.Record, err error) { w.written(ctx, l, topic, err) })
}

// written ends the root, or plans the next try. It runs on the client's goroutine, too.
func (w *DeadLetters) written(ctx context.Context, l letter, topic string, err error) {
	if err == nil || !rules.DeadLetterBeforeEnd {
		w.mu.Lock()
		w.flying--
		w.stats.Written++
		w.stats.ByReason[l.d.Cause.Reason]++
		delete(w.failing, topic)
		w.dropLocked(&l, topic)
		w.mu.Unlock()
		crash.At(crash.LetterWritten)
		l.d.Done()
		w.poke()
		return
	}
	l.tries++
	wait := time.Duration(0)
	l.changed = true
	switch {
	case errors.Is(err, kerr.MessageTooLarge) && !l.alone:
		l.alone = true
	case errors.Is(err, kerr.MessageTooLarge) && l.cut < cutPointer:
		l.cut++ // at once, with less
	case errors.Is(err, kerr.InvalidTimestamp) && !l.now:
		l.now = true
	default:
		l.changed = false
		wait = w.cfg.Wait.Delay(l.tries)
		if ctx.Err() == nil {
			w.cfg.Failed(topic, err, wait)
		}
	}
	l.at = time.Now().Add(wait)
	w.mu.Lock()
	w.flying--
	if wait > 0 {
		w.stats.Errors++
		w.noteLocked(&l, topic, err)
	}
	w.mu.Unlock()
	w.push(l)
}

// How much of a dead letter is left out because it is too large for its topic. The root's own key,
// value and headers go last.
const (
	cutNothing = iota
	cutTuple   // the failing tuple's key and value, and the error's text
	cutOwn     // all of our headers but those that say where the record is
	cutPointer // the value, too: the record is then a pointer to the original
)

// build makes the record.
func (w *DeadLetters) build(l letter) *kgo.Record {
	src, c := l.d.Record(), l.d.Cause
	r := &kgo.Record{Key: src.Key, Value: src.Value, Timestamp: sane(src.Timestamp)}
	if l.now {
		r.Timestamp = time.Time{}
	}
	first := ""
	for _, h := range src.Headers {
		if h.Key == HeaderFailed {
			first = string(h.Value) // of the first time, over all redrives
		}
		if own(h.Key) || l.cut >= cutPointer {
			continue
		}
		r.Headers = append(r.Headers, h)
	}
	add := func(key, value string) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
	}
	add(HeaderTopic, l.d.Topic())
	add(HeaderPartition, strconv.Itoa(int(l.d.Partition())))
	add(HeaderOffset, strconv.FormatInt(l.d.Offset(), 10))
	if l.cut >= cutPointer {
		r.Value = nil
		if len(r.Key) > maxTuple {
			r.Key = r.Key[:maxTuple]
		}
		add(HeaderCut, "value and headers: read them at the topic, partition and offset named here")
		return r
	}
	if l.cut >= cutOwn {
		add(HeaderCut, "error and tuple headers")
		return r
	}
	add(HeaderTimestamp, strconv.FormatInt(src.Timestamp.UnixMilli(), 10))
	add(HeaderGroup, w.cfg.Group)
	add(HeaderTopology, w.cfg.Topology)
	add(HeaderComponent, c.Component)
	add(HeaderTask, strconv.Itoa(c.Task))
	add(HeaderReason, c.Reason)
	add(HeaderAttempt, strconv.Itoa(c.Attempts))
	if first == "" {
		first = strconv.FormatInt(time.Now().UnixMilli(), 10)
	}
	add(HeaderFailed, first)
	if c.Err != nil {
		add(HeaderErrorType, errorType(c.Err))
	}
	if l.cut >= cutTuple {
		add(HeaderCut, "tuple key and value, error text")
		return r
	}
	if c.Err != nil {
		add(HeaderError, cutText(c.Err.Error(), maxError))
	}
	if !same(c, src) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderTupleKey, Value: cutBytes(c.Key, maxTuple)},
			kgo.RecordHeader{Key: HeaderTupleValue, Value: cutBytes(c.Value, maxTuple)})
	}
	return r
}

// own reports whether a header is one that we write.
func own(key string) bool {
	return strings.HasPrefix(key, "killick-dlq-") || key == HeaderAttempt || key == HeaderFailed
}

// same reports whether the failing tuple is the root record itself.
func same(c *ack.Cause, r *kgo.Record) bool {
	return bytes.Equal(c.Key, r.Key) && bytes.Equal(c.Value, r.Value)
}

// errorType names the innermost error's type: what a person greps for.
func errorType(err error) string {
	for {
		switch u := err.(type) {
		case interface{ Unwrap() error }:
			if next := u.Unwrap(); next != nil {
				err = next
				continue
			}
		}
		return fmt.Sprintf("%T", err)
	}
}

func cutBytes(b []byte, n int) []byte {
	if len(b) > n {
		return b[:n]
	}
	return b
}

// cutText shortens s to n bytes without cutting a character, and makes it valid UTF-8.
func cutText(s string, n int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
