package topology

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAnswer(t *testing.T) {
	for _, tt := range []struct {
		order   int64
		attempt int
		want    Outcome // "" fails
	}{
		{100000, 1, OutcomePaid},
		{37 * 3000, 1, ""}, {37 * 3000, 2, OutcomePaid},
		{101 * 1000, 1, ""}, {101 * 1000, 2, ""}, {101 * 1000, 3, OutcomePaid},
		{101 * 37, 2, ""}, // both: the first rule that fits
		{499 * 201, 1, OutcomeDeclined},
		{499 * 101, 2, ""}, {499 * 101, 3, OutcomeDeclined},
		{104242, 1, ""}, {104242, 5, ""}, {104242, 500, ""},
	} {
		got, err := answer(Charge{Order: tt.order, Attempt: tt.attempt})
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("order %d attempt %d: %q, %v; want %q", tt.order, tt.attempt, got, err, tt.want)
		}
		if err != nil && !errors.Is(err, ErrGateway) {
			t.Errorf("order %d: %v is no ErrGateway", tt.order, err)
		}
	}
}

// writes counts Write calls.
type writes struct {
	bytes.Buffer
	n int
}

func (w *writes) Write(p []byte) (int, error) {
	w.n++
	return w.Buffer.Write(p)
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestSimulatedBook(t *testing.T) {
	var w writes
	s := &Simulated{Book: &w}
	if got, err := s.Charge(t.Context(), Charge{Order: 7, Attempt: 1}); got != OutcomePaid || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if w.n != 1 || !strings.HasPrefix(w.String(), `{"order":7,"attempt":1,"outcome":"paid","at":`) || !strings.HasSuffix(w.String(), "}\n") {
		t.Errorf("%d writes: %q; want one whole line", w.n, w.String())
	}

	// No answer without its line: a payment that is in no book is none.
	s.Book = broken{}
	if got, err := s.Charge(t.Context(), Charge{Order: 7, Attempt: 1}); got != "" || !errors.Is(err, os.ErrClosed) {
		t.Errorf("with a broken book: %q, %v", got, err)
	}

	// A call that never came through leaves nothing.
	w.Reset()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s = &Simulated{Book: &w, Delay: time.Hour}
	if _, err := s.Charge(ctx, Charge{Order: 7, Attempt: 1}); !errors.Is(err, context.Canceled) || w.Len() != 0 {
		t.Errorf("cancelled: %v, book %q", err, w.String())
	}
}

func TestOpenBook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book")
	for range 2 { // the second connection appends
		s, err := OpenBook(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Charge(t.Context(), Charge{Order: 7, Attempt: 1}); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	b, err := os.ReadFile(path)
	if n := bytes.Count(b, []byte("\n")); n != 2 || err != nil {
		t.Errorf("%d lines, %v; want 2", n, err)
	}
	missing := filepath.Join(t.TempDir(), "no", "book")
	if _, err := OpenBook(missing, 0); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("in a missing folder: %v, want an error that names %s", err, missing)
	}
}
