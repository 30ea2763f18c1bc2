package verify

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
)

// replay plays the events of all processes, what the group stored, and the samples in the order of time. Of the same
// moment, what may have come first to the run's credit does: effects before commits. Within one file the order is the
// file's. The files of all lives that overlap are open at the same time.
func (c *checker) replay() error {
	var all []source
	names := map[string]bool{}
	for _, f := range c.h.Events {
		if names[f.Name] {
			return fmt.Errorf("%w: two event files are named %q", ErrHistory, f.Name)
		}
		names[f.Name] = true
		all = append(all, &fileSource{c: c, file: f})
	}
	if c.h.Stored != nil {
		all = append(all, &storedSource{c: c})
	}
	if len(c.h.Samples) > 0 {
		all = append(all, &sampleSource{c: c})
	}
	defer func() {
		for _, s := range all {
			s.close()
		}
	}()
	var q queue
	for i, s := range all {
		if err := s.load(); err != nil {
			return err
		}
		if h := s.top(); !h.over {
			h.index = i
			q = append(q, s)
		}
	}
	for i := len(q)/2 - 1; i >= 0; i-- {
		q.down(i)
	}
	for len(q) > 0 {
		s := q[0]
		if err := s.step(); err != nil {
			return err
		}
		if s.top().over {
			s.close()
			q[0] = q[len(q)-1]
			q = q[:len(q)-1]
		}
		q.down(0)
	}
	return nil
}

// source is a list of moments in the order of time.
type source interface {
	load() error // finds the first one
	step() error // plays the one at the head and finds the next
	top() *head
	close() // may be called twice
}

// head is the next moment of a source.
type head struct {
	at    int64 // Unix nanoseconds
	claim bool  // it says that records have ended: comes after what does not, at the same moment
	index int   // of the source
	over  bool  // there is none
}

func (h *head) before(o *head) bool {
	switch {
	case h.at != o.at:
		return h.at < o.at
	case h.claim != o.claim:
		return !h.claim
	}
	return h.index < o.index
}

// queue is a heap: the earliest head is first.
type queue []source

func (q queue) down(i int) {
	for {
		k := 2*i + 1
		if k >= len(q) {
			return
		}
		if k+1 < len(q) && q[k+1].top().before(q[k].top()) {
			k++
		}
		if q[i].top().before(q[k].top()) {
			return
		}
		q[i], q[k] = q[k], q[i]
		i = k
	}
}

// fileSource is an event file. It is open from its first moment on.
type fileSource struct {
	head head
	c    *checker
	file EventFile
	r    io.ReadCloser
	ev   *events
	life *life // that writes it; nil for others than workers
}

func (s *fileSource) top() *head { return &s.head }

func (s *fileSource) open() error {
	if s.file.Open == nil {
		return fmt.Errorf("%w: event file %q has no Open", ErrHistory, s.file.Name)
	}
	r, err := s.file.Open()
	if err != nil {
		return fmt.Errorf("verify: open event file: %w", err)
	}
	s.r, s.ev = r, newEvents(r, s.file.Name)
	return s.next()
}

// load looks at the first line only: there may be more files than a process can have open.
func (s *fileSource) load() error {
	err := s.open()
	if err == nil && !s.head.over && s.ev.ev.Proc == "runner" {
		s.c.runner = true
	}
	if s.head.over && err == nil && s.ev.torn {
		s.c.rep.Totals.TornLines++
	}
	s.close()
	return err
}

func (s *fileSource) next() error {
	ev, err := s.ev.next()
	if errors.Is(err, io.EOF) {
		s.head.over = true
		return nil
	}
	if err != nil {
		return err
	}
	s.head.at = ev.At
	s.head.claim = ev.Kind == "commit" || ev.Kind == "committed"
	return nil
}

func (s *fileSource) step() error {
	if s.r == nil {
		if err := s.open(); err != nil {
			return err
		}
	}
	if err := s.c.event(s, &s.ev.ev); err != nil {
		return err
	}
	if err := s.next(); err != nil {
		return err
	}
	if s.head.over {
		if s.ev.torn {
			s.c.rep.Totals.TornLines++
		}
		if s.life != nil {
			s.life.over = true
		}
	}
	return nil
}

func (s *fileSource) close() {
	if s.r != nil {
		_ = s.r.Close() // it was read only
		s.r = nil
	}
}

// storedSource is what the group stored.
type storedSource struct {
	head head
	c    *checker
	pull func() (Stored, error, bool)
	stop func()
	at   Stored
}

func (s *storedSource) top() *head { return &s.head }

func (s *storedSource) load() error {
	s.head.at = math.MinInt64
	s.pull, s.stop = iter.Pull2(s.c.h.Stored)
	return s.next()
}

func (s *storedSource) next() error {
	v, err, ok := s.pull()
	switch {
	case !ok:
		s.head.over = true
		return nil
	case err != nil:
		return fmt.Errorf("verify: read what the group stored: %w", err)
	case (v.Commit == nil) == (v.Generation == nil) || v.At.IsZero():
		return fmt.Errorf("%w: stored at %v (%s): want a time, and a commit or a generation", ErrHistory, v.At, v.Ref)
	}
	s.at = v
	// The order is the log's, whatever the times say.
	s.head.at, s.head.claim = max(s.head.at, v.At.UnixNano()), v.Commit != nil
	if v.Commit != nil {
		s.head.at = max(s.head.at, v.At.Add(s.c.Skew).UnixNano())
	}
	return nil
}

func (s *storedSource) step() error {
	if err := s.c.stored(&s.at, s.head.at); err != nil {
		return err
	}
	return s.next()
}

func (s *storedSource) close() {
	if s.stop != nil {
		s.stop()
	}
}

// sampleSource is the samples.
type sampleSource struct {
	head head
	c    *checker
	i    int
}

func (s *sampleSource) top() *head { return &s.head }

func (s *sampleSource) load() error {
	s.head.over = s.i >= len(s.c.h.Samples)
	if !s.head.over {
		s.head.at, s.head.claim = s.c.h.Samples[s.i].Answered.UnixNano(), true
	}
	return nil
}

func (s *sampleSource) step() error {
	s.c.sample(s.i)
	s.i++
	return s.load()
}

func (s *sampleSource) close() {}
