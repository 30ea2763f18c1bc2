package demo

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/killick-io/killick/worker"
)

// TestLifeline: the worker ends with its standard input, cleanly and long before the end of the orders, so that none is
// left behind when the demo dies.
func TestLifeline(t *testing.T) {
	t.Parallel()
	b, k := open(t)
	rs, err := records(MinRecords)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.fill(t.Context(), rs); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s := setup{kafka: b.Addrs()[0], book: filepath.Join(t.TempDir(), "book"), delay: 20 * time.Millisecond}
	stdin, lifeline := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Worker(ctx, s.args(), nil, stdin) }()

	// Some orders are through: it is under way.
	o := observer{k: k, patience: time.Second}
	for started := false; !started; {
		r, err := o.look(ctx)
		if err != nil {
			t.Fatal(err)
		}
		started = r.effects() > 20
		select {
		case err := <-ended:
			t.Fatalf("the worker ended by itself: %v", err)
		case <-time.After(every):
		}
	}
	if err := lifeline.Close(); err != nil {
		t.Fatal(err)
	}
	// An order whose payment fails again while the worker stops is left to the next one.
	if err := <-ended; err != nil && !errors.Is(err, worker.ErrDrain) {
		t.Errorf("the worker returned %v, want a clean end", err)
	}
	r, err := o.look(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.effects(); n >= MinRecords || r.covered() != n {
		t.Errorf("%d of %d orders are through, %d are committed: want a part of them, and all of that", n, MinRecords, r.covered())
	}
}

// TestWorkerUsage: what is wrong with its flags, or with its environment, is said before anything starts.
func TestWorkerUsage(t *testing.T) {
	for _, args := range [][]string{
		nil, {"--kafka=127.0.0.1:1"}, {"--book=b"}, {"--delay=-1s", "--book=b", "--kafka=127.0.0.1:1"},
		{"--delay=soon"}, {"--kafka=127.0.0.1:1", "--book=b", "more"},
	} {
		if err := Worker(t.Context(), args, nil, eof{}); !errors.Is(err, ErrUsage) {
			t.Errorf("%q: %v, want %v", args, err, ErrUsage)
		}
	}
	s := setup{kafka: "127.0.0.1:1", settings: true, book: "b"}
	if err := Worker(t.Context(), s.args(), []string{"KILLICK_DRAIN=soon"}, eof{}); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("a wrong setting in the environment: %v", err)
	}
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }
