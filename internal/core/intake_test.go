package core

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/killick-io/killick/testenv/bubble"
)

// What makes Intake.Next return, and that it looks again after each Poke.
func TestIntake(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		in := NewIntake()
		ctx, cancel := context.WithCancel(t.Context())
		looks, have := 0, 0
		next := func() <-chan error {
			done := make(chan error, 1)
			go func() {
				done <- in.Next(ctx, func(stopped bool) (found, end bool) {
					looks++
					if have > 0 {
						have--
						return true, false
					}
					return false, stopped
				})
			}()
			synctest.Wait()
			return done
		}
		have = 1
		if err := <-next(); err != nil || looks != 1 {
			t.Errorf("something is there: %v after %d looks", err, looks)
		}
		done := next()
		in.Poke()
		synctest.Wait()
		if looks != 3 || len(done) != 0 {
			t.Errorf("a poke for nothing: %d looks, returned %v", looks, len(done) != 0)
		}
		have = 1
		in.Poke()
		if err := <-done; err != nil || have != 0 {
			t.Errorf("a poke: %v", err)
		}
		done = next()
		in.Wake()
		if err := <-done; err != nil {
			t.Errorf("a wake: %v", err)
		}
		in.Wake() // comes before Next, and counts once
		if err := <-next(); err != nil {
			t.Errorf("a wake before: %v", err)
		}
		done = next()
		if len(done) != 0 {
			t.Error("one wake counted twice")
		}
		in.Stop()
		if err := <-done; err != io.EOF {
			t.Errorf("a stop: %v", err)
		}
		in = NewIntake()
		done = next()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the end of the context: %v", err)
		}
	})
}

// nil and empty headers stay different, and the copy is one.
func TestHeaders(t *testing.T) {
	type other struct {
		Key   string
		Value []byte
	}
	if Headers[other]([]Header(nil)) != nil {
		t.Error("nil became something")
	}
	if hs := Headers[other]([]Header{}); hs == nil || len(hs) != 0 {
		t.Error("empty became nil")
	}
	in := []Header{{"a", nil}, {"a", []byte{}}, {"", []byte("b")}}
	out := Headers[other](in)
	back := Headers[Header](out)
	out[0].Key = "changed"
	if !slices.EqualFunc(in, back, func(a, b Header) bool {
		return a.Key == b.Key && string(a.Value) == string(b.Value) && (a.Value == nil) == (b.Value == nil)
	}) {
		t.Errorf("%q became %q", in, back)
	}
}
