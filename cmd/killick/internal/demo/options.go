package demo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/killick-io/killick/examples/orders/data"
	"github.com/killick-io/killick/worker"
)

const (
	// MinRecords is the least input with which a commit can be seen and the worker still be killed half way.
	MinRecords = 1000
	// MaxRecords is all the input there is.
	MaxRecords = 6000
)

var (
	// ErrUsage is under what is wrong with Options: nothing was started. The user mends the call.
	ErrUsage = errors.New("wrong usage")
	// ErrUnreachable says that no Kafka answered at Options.Kafka: nothing was started. The user starts it, or mends the
	// address.
	ErrUnreachable = errors.New("cannot reach Kafka")
)

// Options say how the demo runs. The zero value is good: all records, on an embedded broker.
type Options struct {
	// Kafka is the host:port of a broker to use instead of the embedded one. The demo's topics and group have a prefix
	// of their own there and are deleted at the end.
	Kafka string
	// Environ has the settings KILLICK_* for TLS and SASL, as os.Environ gives them. They are used only with Kafka.
	Environ []string
	// Records is how much of the input is used. Default: MaxRecords.
	Records int
	// Keep is a folder for the worker's logs, the gateway's book and all that was observed. It must be empty or not
	// exist. Default: a temporary one, which stays only if something is wrong.
	Keep string
	// Log takes a line now and then about how it goes. Default: none.
	Log io.Writer
	// Worker is the program, and its first arguments, that [Worker] is called in; flags follow. Default: this program
	// with the argument WorkerCommand.
	Worker []string

	patience time.Duration // with a broker that gives no good answer. Default: patience.
	temp     string        // where temporary folders are made. Default: the system's place.
}

// patience is enough for a new cluster, which has to make the topic of the groups' offsets first.
const patience = 10 * time.Second

// WorkerCommand is the hidden command that runs [Worker].
const WorkerCommand = "demo-worker"

// check fills in the defaults and reports all mistakes. config is how to reach Kafka; its Bootstrap is empty for the
// embedded broker.
func (o Options) check() (_ Options, config worker.Config, _ error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrUsage}, args...)...))
	}
	if o.Records == 0 {
		o.Records = MaxRecords
	}
	if o.Records < MinRecords || o.Records > MaxRecords {
		bad("%d records: want %d to %d", o.Records, MinRecords, MaxRecords)
	}
	if o.patience == 0 {
		o.patience = patience
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Kafka != "" {
		var err error
		if config, err = load(o.Kafka, o.Environ); err != nil {
			bad("%w", err)
		}
	}
	if o.Keep != "" {
		switch in, err := os.ReadDir(o.Keep); {
		case err == nil && len(in) > 0:
			bad("the folder %s to keep everything in is not empty: name another one", o.Keep)
		case err != nil && !errors.Is(err, os.ErrNotExist):
			bad("the folder to keep everything in: %w", err)
		}
	}
	if len(o.Worker) == 0 {
		self, err := os.Executable()
		if err != nil {
			return o, config, fmt.Errorf("demo: find the program to start as the worker: %w", err)
		}
		o.Worker = []string{self, WorkerCommand}
	}
	return o, config, errors.Join(errs...)
}

// load reads how to reach Kafka. An address is all that the embedded broker needs: environ is nil then.
func load(address string, environ []string) (worker.Config, error) {
	return worker.Load([]string{"--bootstrap=" + address}, environ)
}

// names are those of one run in Kafka.
type names struct{ topology, group, orders, notifications, dead string }

// newNames: with a prefix, everything begins with it.
func newNames(prefix string) names {
	n := names{topology: "orders", group: "killick.orders", orders: "orders", notifications: "notifications"}
	if prefix != "" {
		n.group, n.orders, n.notifications = prefix, prefix+"-orders", prefix+"-notifications"
	}
	n.dead = n.orders + "." + n.topology + ".dlq"
	return n
}

// records are the first n of the story's input.
func records(n int) ([]data.Record, error) {
	rs, err := data.Records()
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	if len(rs) != MaxRecords {
		return nil, fmt.Errorf("demo: the input has %d records, want %d", len(rs), MaxRecords)
	}
	return slices.Clip(rs[:n]), nil
}
