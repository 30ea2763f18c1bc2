package demo

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/killick-io/killick/worker"
)

const (
	// place is the worker's name in the group: the second process takes over from the first at once, without waiting
	// for the session of the dead one to end.
	place = "killick-demo"
	// commitEvery is a tenth of what a worker does by default, so that a run of a few seconds has commits to look at.
	commitEvery = 200 * time.Millisecond
	// paying is how long all payment calls would take one after the other; the bolt makes eight at a time. It gives the
	// run a middle in which to kill the worker, also with fewer orders.
	paying  = 26 * time.Second
	longest = 8 * time.Millisecond // of one call
)

// setup is what a worker process has to know. It travels as flags.
type setup struct {
	kafka    string // host:port
	settings bool   // take TLS, SASL and the like from the environment
	prefix   string // of the names in Kafka
	book     string // file
	delay    time.Duration
}

func (s setup) args() []string {
	return []string{"--kafka=" + s.kafka, fmt.Sprintf("--settings=%t", s.settings), "--prefix=" + s.prefix,
		"--book=" + s.book, "--delay=" + s.delay.String()}
}

// parseSetup is the reverse of args.
func parseSetup(args []string) (s setup, _ error) {
	fs := flag.NewFlagSet(WorkerCommand, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&s.kafka, "kafka", "", "")
	fs.BoolVar(&s.settings, "settings", false, "")
	fs.StringVar(&s.prefix, "prefix", "", "")
	fs.StringVar(&s.book, "book", "", "")
	fs.DurationVar(&s.delay, "delay", 0, "")
	if err := fs.Parse(args); err != nil {
		return s, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	var errs []error
	if fs.NArg() > 0 {
		errs = append(errs, fmt.Errorf("%w: unexpected argument %q", ErrUsage, fs.Arg(0)))
	}
	if s.kafka == "" || s.book == "" || s.delay < 0 {
		errs = append(errs, fmt.Errorf("%w: this command is started by killick demo, with --kafka, --book and --delay", ErrUsage))
	}
	return s, errors.Join(errs...)
}

// config is that of the worker.
func (s setup) config(environ []string) (worker.Config, error) {
	if !s.settings {
		environ = nil
	}
	c, err := load(s.kafka, environ)
	if err != nil {
		return c, err
	}
	n := newNames(s.prefix)
	c.Group, c.Place = n.group, place
	c.CommitInterval = commitEvery
	c.HTTP = "off"
	c.Drain = endLimit
	return c, nil
}
