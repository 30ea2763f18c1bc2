package spout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/killick-io/killick"
)

// New makes a source of one's own spouts: f is called once per task, and once when the topology
// is validated: construct cheaply, connect in Prepare ([killick.Preparer]).
func New(f func() killick.Spout) killick.Source { return source{new: f} }

type source struct {
	new func() killick.Spout
	err error // there is nothing to make spouts of
}

func (s source) SourceInfo() (killick.SourceInfo, error) {
	if s.new == nil {
		err := s.err
		if err == nil {
			err = errors.New("spout.New: the factory is nil")
		}
		return killick.SourceInfo{New: func() killick.Spout { return nil }}, err
	}
	return killick.SourceInfo{New: s.new}, nil
}

// Slice emits the messages once, in order, and ends. With n tasks each takes every n-th.
func Slice(ms ...killick.Message) killick.Source {
	return New(func() killick.Spout { return &slice{ms: ms, step: 1} })
}

type slice struct {
	ms         []killick.Message
	next, step int
}

func (s *slice) Prepare(_ context.Context, t killick.Task) error {
	s.next, s.step = t.Index, t.Count
	return nil
}

func (s *slice) Next(context.Context) (killick.Message, func(error), error) {
	if s.next >= len(s.ms) {
		return killick.Message{}, nil, io.EOF
	}
	m := s.ms[s.next]
	s.next += s.step
	return m, nil, nil
}

// Seq emits the messages of a sequence and ends with it. Each task runs the whole sequence, so
// leave it at one task unless that is what you want. Nothing can interrupt a sequence that
// blocks: implement [killick.Spout] to wait for something. Nothing can resume one that panics: its
// task fails from then on, with the back-off of a spout that returns errors, and the run does not end.
func Seq(ms iter.Seq[killick.Message]) killick.Source {
	if ms == nil {
		return source{err: errors.New("spout.Seq: the sequence is nil")}
	}
	return New(func() killick.Spout { return &seq{ms: ms} })
}

type seq struct {
	ms   iter.Seq[killick.Message]
	next func() (killick.Message, bool)
	stop func()
	err  error // it has panicked; next would say that it is over
}

func (s *seq) Next(context.Context) (killick.Message, func(error), error) {
	if s.err != nil {
		return killick.Message{}, nil, s.err
	}
	if s.next == nil {
		s.next, s.stop = iter.Pull(s.ms)
	}
	defer func() {
		if p := recover(); p != nil {
			s.err = fmt.Errorf("spout.Seq: the sequence panicked: %v; it cannot go on", p)
			panic(p) // to be reported, with the stack
		}
	}()
	m, ok := s.next()
	if !ok {
		return killick.Message{}, nil, io.EOF
	}
	return m, nil, nil
}

// Cleanup ends a sequence that was not read to its end.
func (s *seq) Cleanup(context.Context) error {
	if s.stop != nil {
		s.stop()
	}
	return nil
}
