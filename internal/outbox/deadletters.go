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
// and without end: the offset stays. One goroutine, Run, does the waiting and writes; what has to be asked
// about a topic is asked beside it (see asks), so that one that answers slowly holds up no other. The queue is
// bounded by the pending limits.
type DeadLetters struct {
	cfg  DeadLetterConfig
	ends deadlines

	mu     sync.Mutex
	queue  []letter
	flying map[string]int // off the queue and not durable yet, by dead-letter topic
	// solo are the dead-letter topics of which a letter is flying that is written alone.
	solo   map[string]bool
	asks   asks
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
	// Known returns what Partitions would, if that needs no question; nil: it always does.
	Known func(sourceTopic string) (n int, ok bool)
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
	topic string // the dead-letter topic
	tries int
	cut   int  // how much is left out; see build
	now   bool // the record's own timestamp was refused
	at    time.Time
	// changed: the last try failed by the record's own fault, and the next one is another record.
	changed bool
	// alone: it was refused as too large in a batch, perhaps with others. It is written by itself, of its
	// topic, from then on, so that the next such answer is about it.
	alone bool
	// partitions is an answer to Partitions, for the next try; 0: there is none.
	partitions int
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
		flying: map[string]int{}, solo: map[string]bool{}, asks: asks{of: map[string]*question{}}, failing: map[string]*failure{}}
}

// Put takes d over. It does not block.
func (w *DeadLetters) Put(d partition.Dead) {
	w.push(letter{d: d, topic: Topic(d.Topic(), w.cfg.Topology), at: time.Now()})
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
	s.Waiting = len(w.queue)
	for _, n := range w.flying {
		s.Waiting += n
	}
	for _, f := range w.failing {
		if s.Since.IsZero() || f.since.Before(s.Since) {
			s.Since, s.Err = f.since, f.err
		}
	}
	return s
}

// noteLocked says that a topic cannot be written to, and that l waits for it. w.mu is held.
func (w *DeadLetters) noteLocked(l *letter, err error) {
	f := w.failing[l.topic]
	if f == nil {
		f = &failure{since: time.Now()}
		w.failing[l.topic] = f
	}
	f.err = fmt.Errorf("topic %q: %w", l.topic, err)
	if l.failed != f {
		w.dropLocked(l)
		f.letters++
		l.failed = f
	}
}

// dropLocked says that l does not wait any more. Of a topic that nobody waits for it is not known
// whether it can be written to. w.mu is held.
func (w *DeadLetters) dropLocked(l *letter) {
	f := l.failed
	if f == nil {
		return
	}
	l.failed = nil
	if f.letters--; f.letters == 0 && w.failing[l.topic] == f {
		delete(w.failing, l.topic)
	}
}

// Run writes until ctx ends. What is not durable then stays open.
func (w *DeadLetters) Run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer w.asks.wg.Wait()
	for {
		wait := time.Hour
		for _, l := range w.due(&wait) {
			w.write(ctx, l)
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

// due takes what may be written now, and sets wait to the time until the next. A letter that is written alone
// waits until none of its topic is flying, and those behind it wait for it. Of a topic that cannot be written
// to one letter at a time finds out whether it can: more of them would fill the client, which blocks all topics
// then. Each letter that lands wakes Run.
func (w *DeadLetters) due(wait *time.Duration) []letter {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	var out []letter
	var closed map[string]bool // topics of which nothing more is taken now
	keep := w.queue[:0]
	for _, l := range w.queue {
		switch left := l.at.Sub(now); {
		case l.d.Gone():
			w.dropLocked(&l)
		case left > 0:
			keep = append(keep, l)
			*wait = min(*wait, left)
		case w.solo[l.topic] || closed[l.topic] || w.failing[l.topic] != nil && w.flying[l.topic] > 0:
			keep = append(keep, l)
		case l.alone && w.flying[l.topic] > 0:
			keep = append(keep, l)
			if closed == nil {
				closed = map[string]bool{}
			}
			closed[l.topic] = true
		default:
			out = append(out, l)
			w.flying[l.topic]++
			if l.alone {
				w.solo[l.topic] = true
			}
		}
	}
	clear(w.queue[len(keep):])
	w.queue = keep
	return out
}

// landLocked says that a letter is not flying any more. w.mu is held.
func (w *DeadLetters) landLocked(l *letter) {
	if w.flying[l.topic]--; w.flying[l.topic] == 0 {
		delete(w.flying, l.topic)
	}
	if l.alone {
		delete(w.solo, l.topic)
	}
}

func (w *DeadLetters) write(ctx context.Context, l letter) {
	n := l.partitions
	if l.partitions = 0; n == 0 {
		again := l.tries > 0 && !l.changed
		if !again && w.cfg.Known != nil {
			n, _ = w.cfg.Known(l.d.Topic())
		}
		if n == 0 {
			w.ask(ctx, l, again)
			return
		}
	}
	r := w.build(l)
	r.Topic, r.Partition, r.Context = l.topic, l.d.Partition()%int32(n), w.ends.next()
	// Produce would wait for room in the client: letters of other topics may have it all, for Timeout.
	w.cfg.Client.TryProduce(ctx, r, func(_ *kgo.Record, err error) {
		if errors.Is(err, kgo.ErrMaxBuffered) {
			w.back(l, n)
			return
		}
		w.written(ctx, l, err)
	})
}

// fullTime is how long a letter waits that the client has no room for.
const fullTime = 100 * time.Millisecond

// back puts a letter back that was not tried, since the client is full. n is what is known of its topic.
func (w *DeadLetters) back(l letter, n int) {
	w.mu.Lock()
	w.landLocked(&l)
	l.partitions, l.at = n, time.Now().Add(fullTime)
	w.queue = append(w.queue, l)
	w.mu.Unlock()
	w.poke()
}

// written ends the root, or plans the next try. It runs on the client's goroutine, too.
func (w *DeadLetters) written(ctx context.Context, l letter, err error) {
	if err == nil || !rules.DeadLetterBeforeEnd {
		w.mu.Lock()
		w.landLocked(&l)
		w.stats.Written++
		w.stats.ByReason[l.d.Cause.Reason]++
		delete(w.failing, l.topic)
		w.dropLocked(&l)
		w.mu.Unlock()
		crash.At(crash.LetterWritten)
		l.d.Done()
		w.poke()
		return
	}
	landed := l // as it was flying
	l.tries++
	wait := time.Duration(0)
	l.changed = true
	switch {
	case errors.Is(err, kerr.MessageTooLarge) && !l.alone:
		l.alone = true
	case errors.Is(err, kerr.MessageTooLarge) && l.cut < cutPointer:
		l.cut++ // at once, with less
	case errors.Is(err, kerr.InvalidTimestamp) && !l.now && rules.TimesAreSane:
		l.now = true
	default:
		l.changed = false
		wait = w.cfg.Wait.Delay(l.tries)
		if ctx.Err() == nil {
			w.cfg.Failed(l.topic, err, wait)
		}
	}
	l.at = time.Now().Add(wait)
	w.mu.Lock()
	w.landLocked(&landed)
	if wait > 0 {
		w.stats.Errors++
		w.noteLocked(&l, err)
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
	if !rules.LettersAreWhole {
		r.Value = bytes.ToValidUTF8(r.Value, []byte("?"))
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
