//go:build unix

package kafkaenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// TB is what of testing.TB this package uses.
type TB interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// fetchLimit bounds a first use, with a network that is slow.
const fetchLimit = 10 * time.Minute

// Start is New for a test, or a part of one: the cluster ends with it. If the test has failed by
// then, the brokers' logs and data are kept and their place is logged. Where Java or Maven is
// missing the test is skipped, or fails if CI is "true" in the environment.
func Start(t TB, opts ...Option) *Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), fetchLimit)
	defer cancel()
	c, err := New(ctx, opts...)
	if refuse(t, err) {
		return nil
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.config.keep = true
			t.Logf("kafkaenv: logs and data of %s are kept in %s", c, c.dir)
		}
		if err := c.Close(); err != nil {
			t.Logf("%v", err)
		}
	})
	return c
}

func refuse(t TB, err error) bool {
	t.Helper()
	switch {
	case err == nil:
		return false
	case errors.Is(err, ErrMissing) && os.Getenv("CI") != "true":
		t.Skipf("no Apache Kafka for this test: %v", err)
	default:
		t.Fatalf("%v", err)
	}
	return true
}

// Shared is a cluster for all tests of a package that do not break it. It starts when the first
// one asks for it; Main ends it.
//
//	var kafka = kafkaenv.NewShared()
//
//	func TestMain(m *testing.M) { os.Exit(kafka.Main(m.Run)) }
//
//	func TestOrders(t *testing.T) {
//		k := kafka.Use(t)
//		...
//	}
type Shared struct {
	opts []Option

	mu      sync.Mutex
	started bool
	cluster *Cluster
	err     error
}

// NewShared names a cluster without starting it.
func NewShared(opts ...Option) *Shared { return &Shared{opts: opts} }

// Use is the cluster, started if it is the first use. Tests use topics and groups of their own.
func (s *Shared) Use(t TB) *Cluster {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		ctx, cancel := context.WithTimeout(context.Background(), fetchLimit)
		defer cancel()
		s.started = true
		s.cluster, s.err = New(ctx, s.opts...)
	}
	if refuse(t, s.err) {
		return nil
	}
	return s.cluster
}

// Main runs the tests of a package and ends the cluster. It returns what run returned, the exit
// code; if that is not 0 the brokers' logs and data are kept and their place is printed.
func (s *Shared) Main(run func() int) int {
	code := run()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster == nil {
		return code
	}
	if code != 0 {
		s.cluster.config.keep = true
		fmt.Fprintf(os.Stderr, "kafkaenv: logs and data of %s are kept in %s\n", s.cluster, s.cluster.dir)
	}
	if err := s.cluster.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}
