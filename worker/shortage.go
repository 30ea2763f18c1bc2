package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/killick-io/killick/internal/kafka"
	"github.com/killick-io/killick/internal/rules"
)

// shortage notes connections that cannot be opened because the process or its machine has run out of
// something. Clients try again for as long as they may, and what they say then is that time was up.
type shortage struct {
	log zerolog.Logger

	mu   sync.Mutex
	last error
	said time.Time
}

// scarce are the codes by which the system says that there is none left, of descriptors, memory or ports.
var scarce = [...]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL}

// watch is dial that is watched.
func (s *shortage) watch(dial kafka.DialFunc) kafka.DialFunc {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			s.note(addr, err)
		}
		return c, err
	}
}

func (s *shortage) note(addr string, err error) {
	var code syscall.Errno
	if !errors.As(err, &code) || !rules.ShortageIsTold {
		return
	}
	for _, c := range scarce {
		if c == code {
			s.tell(addr, err)
			return
		}
	}
}

// tell logs it, once a minute.
func (s *shortage) tell(addr string, err error) {
	s.mu.Lock()
	s.last = err
	say := time.Since(s.said) >= time.Minute
	if say {
		s.said = time.Now()
	}
	s.mu.Unlock()
	if say {
		s.log.Error().Str("address", addr).Err(err).Msg("a connection could not be opened: this process, or the machine, has none left of what it takes (see ulimit -n)")
	}
}

// explain adds what was short to an error that does not say more than that time was up.
func (s *shortage) explain(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, s.last) {
		return err
	}
	return fmt.Errorf("%w\nconnections could not be opened: %w (see ulimit -n)", err, s.last)
}
