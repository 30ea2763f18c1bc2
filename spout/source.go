package spout

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/killick-io/killick"
)

// New makes a source of one's own spouts: f is called once per task, and once when the topology
// is validated: construct cheaply, connect in Prepare ([killick.Preparer]).
func New(f func() killick.Spout) killick.Source { return source{new: f} }

type source struct{ new func() killick.Spout }

func (s source) SourceInfo() (killick.SourceInfo, error) {
	if s.new == nil {
		return killick.SourceInfo{New: func() killick.Spout { return nil }}, errors.New("spout.New: the factory is nil")
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
// blocks: implement [killick.Spout] to wait for something.
func Seq(ms iter.Seq[killick.Message]) killick.Source {
	if ms == nil {
		return source{}
	}
	return New(func() killick.Spout { return &seq{ms: ms} })
}

type seq struct {
	ms   iter.Seq[killick.Message]
	next func() (killick.Message, bool)
	stop func()
}

func (s *seq) Next(context.Context) (killick.Message, func(error), error) {
	if s.next == nil {
		s.next, s.stop = iter.Pull(s.ms)
	}
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
