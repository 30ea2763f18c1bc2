package demo

import (
	"context"
	"io"

	"github.com/killick-io/killick/examples/orders/topology"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/worker"
)

// Worker is the command WorkerCommand: it runs the topology up to the end that the input has now, and returns what
// worker.Run does. It stops when lifeline ends, so that it does not outlive the demo. One goroutine reads lifeline; it
// is left behind, as the process ends with Worker.
func Worker(ctx context.Context, args, environ []string, lifeline io.Reader) error {
	s, err := parseSetup(args)
	if err != nil {
		return err
	}
	config, err := s.config(environ)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, lifeline) // whatever ends it, it has ended
	}()
	n := newNames(s.prefix)
	return worker.Run(ctx, topology.New(topology.Config{
		Name:          n.topology,
		Orders:        n.orders,
		Notifications: n.notifications,
		// All input was there before the first worker started: the end is the same at each start.
		Until:   spout.Latest(),
		Connect: func(context.Context) (topology.Gateway, error) { return topology.OpenBook(s.book, s.delay) },
	}), config)
}
