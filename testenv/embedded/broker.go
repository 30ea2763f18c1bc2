package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrClosed is returned by methods of a Broker that has been closed.
var ErrClosed = errors.New("embedded: the broker is closed")

// TB is the part of testing.TB that Start needs. It is an interface of its own
// so that programs which use New do not link package testing.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// Broker is a running embedded cluster of one or more brokers. Its methods may
// be called from any goroutine.
//
// Goroutines: kfake's own, one for each connection and direction, those that
// wait in Accept, and heartbeats for members that wait (see keeper). All end
// with Close.
type Broker struct {
	cfg     *config
	cluster *kfake.Cluster
	addrs   []string
	wire    *wire
	vnet    *kfake.VirtualNetwork // nil unless virtual

	mu     sync.Mutex
	client *kgo.Client // for the helpers; made at first use
	closed bool
}

// Start runs a broker until the end of the test and fails the test if it
// cannot. Clients must be closed before that: register them with t.Cleanup
// after Start.
func Start(t TB, opts ...Option) *Broker {
	t.Helper()
	b, err := New(opts...)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	t.Cleanup(b.Close)
	return b
}

// StartVirtual is Start with the option Virtual, for use inside
// testing/synctest; see "Virtual time" in the package comment.
func StartVirtual(t TB, opts ...Option) *Broker {
	t.Helper()
	return Start(t, append(slices.Clone(opts), Virtual())...)
}

// New runs a broker until Close, for programs that are not tests. The error
// joins everything that is wrong with the options.
func New(opts ...Option) (*Broker, error) {
	cfg, err := build(opts)
	if err != nil {
		return nil, err
	}
	b := &Broker{cfg: cfg}
	listen := net.Listen
	if cfg.virtual {
		b.vnet = new(kfake.VirtualNetwork)
		listen = b.vnet.Listen
	}
	b.wire = newWire(listen, cfg.serverTLS, newRecorder(cfg.recordLimit))
	b.wire.keep = newKeeper(b)
	b.cluster, err = kfake.NewCluster(cfg.kfakeOpts(b.wire.listen)...)
	if err != nil {
		b.wire.close()
		return nil, fmt.Errorf("embedded: start: %w", err)
	}
	b.addrs = b.cluster.ListenAddrs()
	b.observeTopicNames()
	if err := b.ensureTopics(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// ensureTopics creates what a reopened DataDir does not hold yet: kfake seeds
// topics only into an empty directory.
func (b *Broker) ensureTopics() error {
	var errs []error
	for _, t := range b.cfg.topics {
		if b.cluster.TopicInfo(t.name) == nil {
			if err := b.cluster.CreateTopic(t.name, int32(t.partitions), nil); err != nil {
				errs = append(errs, fmt.Errorf("embedded: create topic %q: %w", t.name, err))
			}
			continue
		}
		if n := len(b.cluster.PartitionInfos(t.name)); n != t.partitions {
			errs = append(errs, fmt.Errorf("embedded: topic %q in %s has %d partitions, not %d",
				t.name, b.cfg.dataDir, n, t.partitions))
		}
	}
	return errors.Join(errs...)
}

// Close ends the broker and all connections. What Hold and HoldAnswers kept is
// let go. Closing twice does nothing.
func (b *Broker) Close() {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	b.closed = true
	cl := b.client
	b.mu.Unlock()
	b.wire.release()
	b.wire.keep.close()
	if cl != nil {
		cl.Close()
	}
	b.cluster.Close()
	b.wire.close()
}

// Addrs are the addresses of the brokers at the start, "127.0.0.1:41234", to
// be used as seeds. They are fixed for the life of the Broker.
func (b *Broker) Addrs() []string { return slices.Clone(b.addrs) }

// Cluster is the kfake cluster below, for what this package does not wrap:
// moving leaders and coordinators, compaction, retention, group state. Its
// methods block for ever once the Broker is closed.
func (b *Broker) Cluster() *kfake.Cluster { return b.cluster }

// ClientOpts are the options for a client of this broker that suit tests, with
// extra appended (of two options that set the same thing the later wins):
// seeds, retries after milliseconds, metadata at most each 100 ms, fetches that
// wait at most 100 ms, no client metrics, and TLS, SASL and virtual network as
// the broker has them.
func (b *Broker) ClientOpts(extra ...kgo.Opt) []kgo.Opt {
	var dial func() kgo.Opt
	if b.cfg.virtual || b.cfg.clientTLS != nil {
		dial = func() kgo.Opt { return kgo.Dialer(b.Dialer()) }
	}
	return append(b.cfg.clientOpts(b.addrs, dial), extra...)
}

// Dialer connects to this broker: over TCP or the virtual network, with TLS if
// the broker listens with it. It is part of ClientOpts; clients that are
// configured by hand pass it to kgo.Dialer.
func (b *Broker) Dialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	dial := new(net.Dialer).DialContext
	if b.vnet != nil {
		dial = dialVirtual(b.vnet)
	}
	if b.cfg.clientTLS == nil {
		return dial
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		cfg := b.cfg.clientTLS.Clone()
		if cfg.ServerName == "" {
			if cfg.ServerName, _, err = net.SplitHostPort(address); err != nil {
				c.Close()
				return nil, fmt.Errorf("embedded: dial: %w", err)
			}
		}
		tc := tls.Client(c, cfg)
		if err := tc.HandshakeContext(ctx); err != nil {
			c.Close()
			return nil, err
		}
		return tc, nil
	}
}

// kgo returns the client of the helpers.
func (b *Broker) kgo() (*kgo.Client, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	if b.client == nil {
		cl, err := kgo.NewClient(b.ClientOpts(
			kgo.ClientID("embedded-helper"),
			kgo.RecordPartitioner(helperPartitioner()),
			kgo.ProducerLinger(0),
		)...)
		if err != nil {
			return nil, fmt.Errorf("embedded: client: %w", err)
		}
		b.client = cl
	}
	return b.client, nil
}
