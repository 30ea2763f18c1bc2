package embedded

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Option changes how a Broker is set up. Options are applied in order; wrong
// ones are reported together by New and Start.
type Option func(*config)

type topic struct {
	name       string
	partitions int
}

type config struct {
	topics      []topic
	brokers     int
	ports       []int
	dataDir     string
	virtual     bool
	serverTLS   *tls.Config
	clientTLS   *tls.Config
	mechanism   sasl.Mechanism
	saslOpts    []kfake.Opt
	kfake       []kfake.Opt
	recordLimit int
	errs        []error
}

func (c *config) fail(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("embedded: "+format, args...))
}

// Topic creates a topic. With a DataDir that already holds the topic, the
// stored one is kept and must have this number of partitions.
func Topic(name string, partitions int) Option {
	return func(c *config) {
		if name == "" {
			c.fail("Topic: the name is empty")
		}
		if partitions < 1 {
			c.fail("Topic %q: %d partitions; at least 1 is needed", name, partitions)
		}
		if slices.ContainsFunc(c.topics, func(t topic) bool { return t.name == name }) {
			c.fail("Topic %q is given twice", name)
		}
		c.topics = append(c.topics, topic{name, partitions})
	}
}

// Brokers sets the number of brokers. Default: 1.
func Brokers(n int) Option {
	return func(c *config) {
		if n < 1 {
			c.fail("Brokers: %d; at least 1 is needed", n)
		}
		c.brokers = n
	}
}

// Ports fixes the ports to listen on, one for each broker; it sets the number
// of brokers, too. It is meant for a broker that is to come back under its old
// address: in a restarted process, or with DataDir in the same one. Ports from
// 32768 on can be taken by outgoing connections at any time. Default: free
// ports that the system picks.
func Ports(ports ...int) Option {
	return func(c *config) {
		for _, p := range ports {
			if p < 1 || p > 65535 {
				c.fail("Ports: %d is not a port", p)
			}
		}
		c.ports = append(c.ports, ports...)
	}
}

// DataDir keeps topics, records, groups and transactions in a directory, so
// that a new Broker on the same directory goes on where the old one ended, as
// a restarted broker does. State survives a kill of the process. Without it
// everything is in memory.
func DataDir(dir string) Option {
	return func(c *config) {
		if dir == "" {
			c.fail("DataDir: the directory is empty")
		}
		c.dataDir = dir
	}
}

// Virtual makes the broker reachable inside this process only, through pipes
// in memory, for tests inside testing/synctest. See StartVirtual.
func Virtual() Option { return func(c *config) { c.virtual = true } }

// TLS makes the broker listen with the server configuration; ClientOpts then
// dials with the client configuration. SelfSigned makes a matching pair.
// (Use this rather than kfake.TLS, which would encrypt above the wire that
// this package records and disturbs.)
func TLS(server, client *tls.Config) Option {
	return func(c *config) {
		if server == nil || client == nil {
			c.fail("TLS: both the server's and the client's configuration are needed")
			return
		}
		c.serverTLS, c.clientTLS = server, client
	}
}

// SASL demands authentication and adds a superuser. The mechanism is PLAIN,
// SCRAM-SHA-256 or SCRAM-SHA-512; ClientOpts then authenticates as this user.
// A wrong password is answered by closing the connection, where Apache Kafka
// answers SASL_AUTHENTICATION_FAILED.
func SASL(mechanism, user, password string) Option {
	return func(c *config) {
		switch mechanism {
		case "PLAIN":
			c.mechanism = plain.Auth{User: user, Pass: password}.AsMechanism()
		case "SCRAM-SHA-256":
			c.mechanism = scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
		case "SCRAM-SHA-512":
			c.mechanism = scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
		default:
			c.fail("SASL: mechanism %q; PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 are known", mechanism)
			return
		}
		c.saslOpts = append(c.saslOpts, kfake.EnableSASL(), kfake.Superuser(mechanism, user, password))
	}
}

// RecordLimit bounds how many commits, and how many assignments, the broker
// remembers; beyond it the oldest are dropped and counted (Broker.Dropped).
// Default: 200000.
func RecordLimit(n int) Option {
	return func(c *config) {
		if n < 1 {
			c.fail("RecordLimit: %d; at least 1 is needed", n)
		}
		c.recordLimit = n
	}
}

// Kfake passes options to kfake, after the ones of this package. NumBrokers,
// Ports, ListenFn, TLS and DataDir belong to this package's own options.
func Kfake(opts ...kfake.Opt) Option {
	return func(c *config) { c.kfake = append(c.kfake, opts...) }
}

// build validates the options as a whole.
func build(opts []Option) (*config, error) {
	c := &config{recordLimit: 200_000}
	for _, o := range opts {
		o(c)
	}
	switch {
	case c.brokers == 0 && len(c.ports) == 0:
		c.brokers = 1
	case c.brokers == 0:
		c.brokers = len(c.ports)
	case len(c.ports) != 0 && len(c.ports) != c.brokers:
		c.fail("Ports: %d ports for %d brokers", len(c.ports), c.brokers)
	}
	if err := errors.Join(c.errs...); err != nil {
		return nil, err
	}
	if c.virtual && len(c.ports) == 0 {
		// The virtual network has no port 0 that picks a free one; each
		// broker has a network of its own, so any number will do.
		for i := range c.brokers {
			c.ports = append(c.ports, 9092+i)
		}
	}
	return c, nil
}

// kfakeOpts translates the configuration for kfake.
func (c *config) kfakeOpts(listen func(network, address string) (net.Listener, error)) []kfake.Opt {
	opts := []kfake.Opt{
		kfake.NumBrokers(c.brokers),
		kfake.ListenFn(listen),
		// Sessions of 100 ms are accepted, so that tests can let members
		// expire without virtual time.
		kfake.GroupMinSessionTimeout(100 * time.Millisecond),
		kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "100"}),
	}
	if len(c.ports) > 0 {
		opts = append(opts, kfake.Ports(c.ports...))
	}
	if c.dataDir != "" {
		opts = append(opts, kfake.DataDir(c.dataDir))
	}
	for _, t := range c.topics {
		opts = append(opts, kfake.SeedTopics(int32(t.partitions), t.name))
	}
	opts = append(opts, c.saslOpts...)
	return append(opts, c.kfake...)
}

// retryBackoff is the wait between two tries of a request in ClientOpts.
func retryBackoff(tries int) time.Duration {
	return min(time.Duration(tries)*5*time.Millisecond, 50*time.Millisecond)
}

// clientOpts are the options for clients that talk to the broker.
func (c *config) clientOpts(addrs []string, dial func() kgo.Opt) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(addrs...),
		kgo.RetryBackoffFn(retryBackoff),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.DisableClientMetrics(),
	}
	if dial != nil {
		opts = append(opts, dial())
	}
	if c.mechanism != nil {
		opts = append(opts, kgo.SASL(c.mechanism))
	}
	return opts
}
