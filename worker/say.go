package worker

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/killick-io/killick/internal/engine"
)

// sayer logs what the engine reports, without flooding: of one kind and component at most
// sayLimit lines per sayWindow, and then how many were left out (Storm's limit, too).
type sayer struct {
	log zerolog.Logger

	mu     sync.Mutex
	window map[sayKey]*sayCount
}

type sayKey struct {
	kind      engine.EventKind
	component string
}

type sayCount struct {
	since time.Time
	n     int
}

const (
	sayLimit  = 4
	sayWindow = 10 * time.Second
)

func newSayer(log zerolog.Logger) *sayer {
	return &sayer{log: log, window: map[sayKey]*sayCount{}}
}

// allow reports whether a line may be written, and how many were left out in the last window.
func (s *sayer) allow(k sayKey) (ok bool, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.window[k]
	if c == nil {
		c = &sayCount{}
		s.window[k] = c
	}
	if now := time.Now(); now.Sub(c.since) >= sayWindow {
		left = max(0, c.n-sayLimit)
		c.since, c.n = now, 0
	}
	c.n++
	return c.n <= sayLimit, left
}

var eventText = map[engine.EventKind]string{
	engine.TryFailed:     "a try failed; the tuple is tried again",
	engine.TupleDead:     "a tuple was given up",
	engine.RootReplayed:  "a root is replayed",
	engine.LooseDropped:  "an untracked tuple was given up",
	engine.TaskStuck:     "user code has had a tuple for more than twice its time-out",
	engine.PrepareFailed: "Prepare failed; it is tried again",
	engine.HookFailed:    "a component's method failed",
	engine.Misuse:        "an emitter was used after its end",
}

func (s *sayer) event(ev engine.Event) {
	ok, left := s.allow(sayKey{ev.Kind, ev.Component})
	if !ok {
		return
	}
	e := s.log.Warn()
	if ev.Kind == engine.TupleDead || ev.Kind == engine.TaskStuck {
		e = s.log.Error()
	}
	e = e.Str("component", ev.Component).Int("task", ev.Task).Err(ev.Err)
	if ev.ID != "" {
		e = e.Str("tuple", ev.ID)
	}
	if ev.Attempt > 0 {
		e = e.Int("attempt", ev.Attempt)
	}
	if ev.Reason != "" {
		e = e.Str("reason", ev.Reason)
	}
	if ev.Wait > 0 {
		e = e.Dur("wait", ev.Wait)
	}
	if len(ev.Stack) > 0 {
		e = e.Str("stack", string(ev.Stack))
	}
	if left > 0 {
		e = e.Int("left_out", left)
	}
	e.Msg(eventText[ev.Kind])
}

func (s *sayer) deadLetter(topic string, err error, wait time.Duration) {
	if ok, left := s.allow(sayKey{255, topic}); ok {
		s.log.Error().Str("topic", topic).Err(err).Dur("wait", wait).Int("left_out", left).
			Msg("a dead letter could not be written; its record stays uncommitted")
	}
}
