package engine_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/bubble"
)

// TestSpout: a user's spout gets each message's end once; errors and panics of Next are tried
// again; its limit holds; what the worker gives up is told, too.
func TestSpout(t *testing.T) {
	type end struct {
		n   int
		err error
	}
	var mu sync.Mutex
	var ends []end
	s := &numbers{last: 300, done: func(n int, err error) {
		mu.Lock()
		defer mu.Unlock()
		ends = append(ends, end{n, err})
		if n == 5 {
			panic("boom")
		}
	}}
	top := killick.New("spout")
	top.Spout("in", spout.New(func() killick.Spout { return s })).Pending(10, 1<<20)
	top.Bolt("a", fn(func(in *killick.Tuple, _ killick.Emitter) error {
		switch n := in.Value().(int); {
		case n%100 == 99:
			return killick.Permanent(errNo)
		case n%10 == 0 && in.Attempt() == 1:
			return errNo
		}
		return nil
	})).Shuffle("in")
	bubble.Test(t, func(t *testing.T) {
		spec, err := top.Spec()
		if err != nil {
			t.Fatal(err)
		}
		f := engine.NewSpoutFeed(&spec.Spouts[0], "spout", nil)
		e, err := engine.New(config{Spec: spec, Feeds: map[string]engine.Feed{"in": f}})
		if err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 1)
		go func() { errs <- f.Run(t.Context()) }()
		if err := errors.Join(e.Run(t.Context()), <-errs); err != nil {
			t.Error(err)
		}
		f.Close()
		if f.Pending() != 0 {
			t.Errorf("%d pending", f.Pending())
		}
	})
	slices.SortFunc(ends, func(a, b end) int { return a.n - b.n })
	for i, e := range ends {
		if e.n != i || (e.err != nil) != (i%100 == 99) {
			t.Fatalf("end %d: %d %v", i, e.n, e.err)
		}
	}
	if len(ends) != 300 || s.most > 10 {
		t.Errorf("%d ends, %d at a time", len(ends), s.most)
	}
}

// numbers is a spout of 0 to last - 1; a message in 50 comes after an error, one after a panic.
type numbers struct {
	last int
	done func(n int, err error)

	mu         sync.Mutex
	next, call int
	open, most int
}

func (s *numbers) Next(ctx) (killick.Message, func(error), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.call++
	switch {
	case s.next == s.last:
		return killick.Message{}, nil, io.EOF
	case s.call%50 == 0:
		return killick.Message{}, nil, errNo
	case s.call == 77:
		panic("boom")
	}
	n := s.next
	s.next++
	s.open++
	s.most = max(s.most, s.open)
	return killick.Message{Value: n}, func(err error) {
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
		s.done(n, err)
	}, nil
}

// TestSpoutGivenUp: at a stop whose limit passes, done is told of it.
func TestSpoutGivenUp(t *testing.T) {
	var told atomic.Int64
	top := killick.New("spout")
	s := &numbers{last: 20, done: func(_ int, err error) {
		if err == nil {
			t.Error("acked")
		}
		told.Add(1)
	}}
	top.Spout("in", spout.New(func() killick.Spout { return s })).Pending(10, 1<<20)
	top.Bolt("a", fn(func(_ *killick.Tuple, out killick.Emitter) error { out.Hold(); return nil })).Timeout(time.Hour).Shuffle("in")
	bubble.Test(t, func(t *testing.T) {
		spec, err := top.Spec()
		if err != nil {
			t.Fatal(err)
		}
		f := engine.NewSpoutFeed(&spec.Spouts[0], "spout", nil)
		e, err := engine.New(config{Spec: spec, Feeds: map[string]engine.Feed{"in": f}})
		if err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 1)
		go func() { errs <- f.Run(t.Context()) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Run(ctx); !errors.Is(err, engine.ErrDrain) {
			t.Errorf("run: %v", err)
		}
		if err := <-errs; err != nil {
			t.Error(err)
		}
		f.Close()
		f.Close()
	})
	if told.Load() != 10 {
		t.Errorf("%d told", told.Load())
	}
}

// lateSpout is one whose Prepare ends with its context.
type lateSpout struct{ cleaned *bool }

func (s *lateSpout) Prepare(ctx ctx, _ killick.Task) error { <-ctx.Done(); return ctx.Err() }
func (s *lateSpout) Cleanup(ctx) error                     { *s.cleaned = true; return nil }
func (s *lateSpout) Next(ctx) (killick.Message, func(error), error) {
	return killick.Message{}, nil, errNo
}

// TestSpoutStoppedInPrepare: what was not prepared is not cleaned up, as with bolts.
func TestSpoutStoppedInPrepare(t *testing.T) {
	cleaned := false
	top := killick.New("spout")
	top.Spout("in", spout.New(func() killick.Spout { return &lateSpout{&cleaned} }))
	top.Bolt("a", fn(null)).Shuffle("in")
	spec, err := top.Spec()
	if err != nil {
		t.Fatal(err)
	}
	f := engine.NewSpoutFeed(&spec.Spouts[0], "spout", nil)
	f.Stop()
	if err := f.Run(t.Context()); err != nil || cleaned {
		t.Errorf("run: %v, cleaned up %v", err, cleaned)
	}
}

// patient is a spout that asks for time.
type patient struct{ prepared, called, emitted time.Time }

func (s *patient) Prepare(ctx, killick.Task) error {
	if s.prepared.IsZero() {
		s.prepared = time.Now()
		return killick.RetryAfter(time.Hour, errNo)
	}
	return nil
}

func (s *patient) Next(ctx) (killick.Message, func(error), error) {
	switch {
	case s.called.IsZero():
		s.called = time.Now()
		return killick.Message{}, nil, killick.RetryAfter(2*time.Hour, errNo)
	case s.emitted.IsZero():
		s.emitted = time.Now()
		return killick.Message{}, nil, nil
	}
	return killick.Message{}, nil, io.EOF
}

// TestSpoutRetryAfter: the time that Prepare and Next ask for is theirs.
func TestSpoutRetryAfter(t *testing.T) {
	s := new(patient)
	top := killick.New("spout")
	top.Spout("in", spout.New(func() killick.Spout { return s }))
	top.Bolt("a", fn(null)).Shuffle("in")
	spec, err := top.Spec()
	if err != nil {
		t.Fatal(err)
	}
	bubble.Test(t, func(t *testing.T) {
		*s = patient{}
		f := engine.NewSpoutFeed(&spec.Spouts[0], "spout", nil)
		if err := f.Run(t.Context()); err != nil {
			t.Error(err)
		}
		f.Close()
	})
	if a, b := s.called.Sub(s.prepared), s.emitted.Sub(s.called); a != time.Hour || b != 2*time.Hour {
		t.Errorf("waited %v and %v", a, b)
	}
}

// deaf is a spout whose Next does not look at its context.
type deaf struct{ until chan struct{} }

func (s *deaf) Next(ctx) (killick.Message, func(error), error) {
	<-s.until
	return killick.Message{}, nil, io.EOF
}

// TestDeafSpout: a stop that waited in vain for Next to return has left no tree open, and says so.
func TestDeafSpout(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &deaf{make(chan struct{})}
		top := killick.New("spout")
		top.Spout("in", spout.New(func() killick.Spout { return s }))
		top.Bolt("a", fn(null)).Shuffle("in")
		spec, err := top.Spec()
		if err != nil {
			t.Fatal(err)
		}
		f := engine.NewSpoutFeed(&spec.Spouts[0], "spout", nil)
		e, err := engine.New(config{Spec: spec, Feeds: map[string]engine.Feed{"in": f}})
		if err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 1)
		go func() { errs <- f.Run(t.Context()) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := e.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
		if d := time.Since(began); d < 30*time.Second || d > 40*time.Second {
			t.Errorf("took %v", d)
		}
		close(s.until)
		if err := <-errs; err != nil {
			t.Error(err)
		}
	})
}
