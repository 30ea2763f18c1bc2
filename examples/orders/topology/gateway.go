package topology

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// The gateway's rules.
const (
	brokenOrder   = 104_242 // each call for it fails
	declinedEvery = 499     // ids divisible by it are declined, for good
	twiceEvery    = 101     // ids divisible by it fail twice first
	onceEvery     = 37      // ids divisible by it, and not by twiceEvery, fail once first
)

// ErrGateway is what a payment call fails with: no answer, call again.
var ErrGateway = errors.New("gateway: no answer")

// Simulated is a payment gateway that keeps a book: one line per call, written before it answers. It is one
// connection; several may write to the same file, in as many processes as you like.
type Simulated struct {
	// Book takes each line in one Write.
	Book io.Writer
	// Delay is how long a call takes. Default: none.
	Delay time.Duration
}

// OpenBook opens a connection whose book is a file that is appended to, and made if it is missing. The caller closes it.
func OpenBook(path string, delay time.Duration) (*Simulated, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("gateway: open the book: %w", err)
	}
	return &Simulated{Book: f, Delay: delay}, nil
}

// line is one call in the book.
type line struct {
	Order   int64  `json:"order"`
	Attempt int    `json:"attempt"`
	Outcome string `json:"outcome"`
	At      int64  `json:"at"` // Unix time in nanoseconds
	Process int    `json:"process"`
}

// Charge answers by the rules of the story. A call that ends in the delay, by its context, is in no book.
func (s *Simulated) Charge(ctx context.Context, c Charge) (Outcome, error) {
	if s.Delay > 0 {
		t := time.NewTimer(s.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	outcome, err := answer(c)
	l := line{Order: c.Order, Attempt: c.Attempt, Outcome: string(outcome), At: time.Now().UnixNano(), Process: os.Getpid()}
	if err != nil {
		l.Outcome = "error"
	}
	b, jerr := json.Marshal(l)
	if jerr != nil {
		return "", fmt.Errorf("gateway: write the book: %w", jerr)
	}
	// One write on a file opened to append: not even a kill leaves half a line, and no two lines mix.
	if _, werr := s.Book.Write(append(b, '\n')); werr != nil {
		return "", fmt.Errorf("gateway: write the book: %w", werr)
	}
	return outcome, err
}

// answer is what the gateway says to an attempt.
func answer(c Charge) (Outcome, error) {
	fails := 0
	switch {
	case c.Order == brokenOrder:
		fails = c.Attempt
	case c.Order%twiceEvery == 0:
		fails = 2
	case c.Order%onceEvery == 0:
		fails = 1
	}
	switch {
	case c.Attempt <= fails:
		return "", ErrGateway
	case c.Order%declinedEvery == 0:
		return OutcomeDeclined, nil
	}
	return OutcomePaid, nil
}

// Close closes the book if it can be closed.
func (s *Simulated) Close() error {
	if c, ok := s.Book.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
