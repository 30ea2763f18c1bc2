package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
)

// What a connection cannot be opened for, if something has run out, is told once and named by the error that
// a start ends with.
func TestShortage(t *testing.T) {
	dial := func(code error) func(context.Context, string, string) (net.Conn, error) {
		return func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", code)}
		}
	}
	timeUp := fmt.Errorf("topics: %w", context.DeadlineExceeded)
	for code, scarce := range map[error]bool{syscall.EMFILE: true, syscall.ENFILE: true, syscall.ECONNREFUSED: false} {
		var log bytes.Buffer
		s := &shortage{log: zerolog.New(&log)}
		for range 3 {
			if _, err := s.watch(dial(code))(t.Context(), "tcp", "kafka:9092"); !errors.Is(err, code) {
				t.Errorf("the error is %v", err)
			}
		}
		err := s.explain(timeUp)
		if got := strings.Contains(err.Error(), code.Error()); got != scarce || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: %v", code, err)
		}
		if n := strings.Count(log.String(), "kafka:9092"); n != map[bool]int{true: 1}[scarce] {
			t.Errorf("%v: %d lines: %s", code, n, &log)
		}
		if other := errors.New("other"); s.explain(other) != other {
			t.Errorf("%v: it explains what it knows nothing of: %v", code, s.explain(other))
		}
	}
}
