package dev

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/testenv/embedded"
)

// startLimit bounds how long a broker in this process may take to say its cluster id.
const startLimit = 10 * time.Second

// Broker is a running broker. One goroutine prints what made says; it ends with Close.
type Broker struct {
	o    Options
	emb  *embedded.Broker
	addr string
	file string   // the announcement; "" if there is none
	held *os.File // the lock of Options.Data; nil: none

	// made has what happened to topics that clients asked for. It is bounded, and who finds it full drops his line: a
	// request of a client must not wait for a terminal.
	made    chan string
	closing chan struct{}
	printed chan struct{} // closed when the printing goroutine has ended
}

// Start runs a broker until Close. It is announced when Start returns.
func Start(ctx context.Context, o Options) (*Broker, error) {
	o, err := o.check()
	if err != nil {
		return nil, err
	}
	held, err := alone(ctx, o)
	if err != nil {
		return nil, err
	}
	b, err := begin(ctx, o)
	if err != nil {
		return nil, errors.Join(err, letGo(held))
	}
	b.held = held
	return b, nil
}

// begin is Start of a broker whose folder is its own.
func begin(ctx context.Context, o Options) (*Broker, error) {
	opts := []embedded.Option{embedded.Kfake(kfake.ClusterID("killick-dev-"+rand.Text()), kfake.DefaultNumPartitions(o.Partitions))}
	if o.Port != 0 {
		opts = append(opts, embedded.Ports(o.Port))
	}
	if o.Data != "" {
		opts = append(opts, embedded.DataDir(o.Data))
	}
	emb, err := embedded.New(opts...)
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "listen" {
		return nil, wrong("--port %d: cannot listen at 127.0.0.1:%d: %w; --port N takes another one, --port 0 a free one", o.Port, o.Port, op.Err)
	}
	if err != nil {
		return nil, fmt.Errorf("dev: %w", err)
	}
	b := &Broker{o: o, emb: emb, addr: emb.Addrs()[0], made: make(chan string, 256), closing: make(chan struct{}), printed: make(chan struct{})}
	go b.print()
	if err := b.topics(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if !o.NoCreate {
		emb.Cluster().ControlKey(int16(kmsg.Metadata), b.asked)
	}
	if o.Folder != "" {
		if err := b.announce(ctx); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	return b, nil
}

// alone makes sure that no broker has the data folder open, and that none opens it as long as what it
// returns is open: two of them would destroy it.
func alone(ctx context.Context, o Options) (held *os.File, err error) {
	if o.Folder != "" {
		for _, a := range sweep(ctx, o.Folder) {
			if o.Data != "" && a.Data == o.Data {
				return nil, wrong("--data %s: killick dev at %s, process %d, has it open: stop that one, or name another folder", o.Data, a.Address, a.PID)
			}
		}
	}
	if o.Data == "" {
		return nil, nil
	}
	held, taken, err := lock(o.Data)
	if err != nil {
		return nil, fmt.Errorf("dev: --data %s: %w", o.Data, err)
	}
	if taken {
		return nil, wrong("--data %s: %s has it open and does not answer: end that one, or name another folder", o.Data, silent(o))
	}
	return held, nil
}

// silent names who has the data folder open without being alive, as far as that is known.
func silent(o Options) string {
	if o.Folder != "" {
		for _, a := range announcements(o.Folder) {
			if a.Data == o.Data {
				return fmt.Sprintf("killick dev at %s, process %d,", a.Address, a.PID)
			}
		}
	}
	return "another process"
}

// letGo ends a lock.
func letGo(held *os.File) error {
	if held == nil {
		return nil
	}
	return held.Close()
}

// topics makes those that Options names and that are not there.
func (b *Broker) topics() error {
	var errs []error
	for _, t := range b.o.Topics {
		have := len(b.emb.Cluster().PartitionInfos(t.Name))
		switch {
		case have == 0:
			n := t.Partitions
			if n == 0 {
				n = b.o.Partitions
			}
			if err := b.emb.Cluster().CreateTopic(t.Name, int32(n), nil); err != nil {
				errs = append(errs, fmt.Errorf("--topics %s: %w", t.Name, err))
			}
		case t.Partitions != 0 && have != t.Partitions:
			errs = append(errs, fmt.Errorf("--topics %s:%d: in %s it has %d partitions", t.Name, t.Partitions, b.o.Data, have))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return usage{err}
	}
	return nil
}

// asked sees each metadata request before the broker does, and makes the topics in it that do not exist. It runs on a
// goroutine of the broker, one at a time, and never handles the request.
func (b *Broker) asked(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive // the order is kfake's
	cluster := b.emb.Cluster()
	for _, rt := range req.(*kmsg.MetadataRequest).Topics {
		if rt.Topic == nil || !creates(*rt.Topic) || cluster.TopicInfo(*rt.Topic) != nil {
			continue
		}
		line := fmt.Sprintf("topic %s made, with %d partitions: a client asked for it", *rt.Topic, b.o.Partitions)
		if err := cluster.CreateTopic(*rt.Topic, int32(b.o.Partitions), nil); err != nil {
			line = fmt.Sprintf("a client asked for topic %s, which cannot be made: %v", *rt.Topic, err)
		}
		select {
		case b.made <- line:
		default:
		}
	}
	return nil, nil, false
}

// creates reports whether a topic of this name is made when it is asked for. What killick makes with settings of its own
// is not, nor what no broker would accept.
func creates(topic string) bool {
	return checkName(topic) == nil && !strings.HasSuffix(topic, ".dlq") && !strings.HasPrefix(topic, "killick.") && !strings.HasPrefix(topic, "__")
}

// print writes what was made to the log, until the broker closes.
func (b *Broker) print() {
	defer close(b.printed)
	for {
		select {
		case line := <-b.made:
			fmt.Fprintf(b.o.Log, "killick dev: %s\n", line)
		case <-b.closing:
			return
		}
	}
}

// announce writes the file by which Find finds this broker.
func (b *Broker) announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	// A folder with data has had its cluster id since its first broker, so it is asked for.
	id, err := clusterID(ctx, b.emb.ClientOpts(kgo.ClientID("killick-dev"))...)
	if err != nil {
		return fmt.Errorf("dev: %w", err)
	}
	b.file, err = write(b.o.Folder, announcement{Address: b.addr, PID: os.Getpid(), Cluster: id, Started: time.Now(), Data: b.o.Data})
	if err != nil { // a home that cannot be written to is no reason to go without a broker
		fmt.Fprintf(b.o.Log, "killick dev: this broker cannot be found without its address: %v\n", err)
	}
	return nil
}

// Address is where the broker listens, host:port.
func (b *Broker) Address() string { return b.addr }

// Environ is environ with the broker's address in the variables that programs read it from, and without those that would
// have a killick worker use TLS or credentials meant for another Kafka.
func (b *Broker) Environ(environ []string) []string {
	var out []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if name == EnvBootstrap || name == envKafka || name == "KILLICK_KAFKA__SECURITY_PROTOCOL" ||
			strings.HasPrefix(name, "KILLICK_KAFKA__SASL__") || strings.HasPrefix(name, "KILLICK_KAFKA__TLS__") {
			continue
		}
		out = append(out, kv)
	}
	return append(out, EnvBootstrap+"="+b.addr, envKafka+"="+b.addr)
}

const (
	// EnvBootstrap is the variable by which workers, and Produce and Consume, are told where Kafka is.
	EnvBootstrap = "KILLICK_KAFKA__BOOTSTRAP_SERVERS"
	// envKafka is what other programs often read.
	envKafka = "KAFKA_BOOTSTRAP_SERVERS"
)

// Close takes the announcement away, ends the broker, and lets go of its folder.
func (b *Broker) Close() error {
	var err error
	if b.file != "" {
		if err = os.Remove(b.file); errors.Is(err, os.ErrNotExist) {
			err = nil // the cache was cleaned
		}
	}
	b.emb.Close()
	close(b.closing)
	<-b.printed
	return errors.Join(err, letGo(b.held))
}
