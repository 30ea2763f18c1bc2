package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
)

// Partition names one partition of one topic.
type Partition struct {
	Topic string
	ID    int32
}

// String is "topic/3".
func (p Partition) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.ID) }

// DialFunc opens a connection to a broker.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Cluster says how to reach a Kafka cluster. The zero value is not usable:
// Seeds and Topology are needed.
type Cluster struct {
	// Seeds are the bootstrap addresses, host:port.
	Seeds []string
	// Topology is the name of the topology; it is part of every client id
	// ("killick.orders.consumer"), so brokers' metrics and quotas can tell
	// topologies apart.
	Topology string
	// ClientID is the first part of client ids. Default: "killick".
	ClientID string
	// TLS, if not nil, encrypts connections. It is asked at each connection,
	// so certificates may be replaced at run time, and gives a config that
	// the caller may change. An empty ServerName is filled with the host that
	// is dialled.
	TLS func() (*tls.Config, error)
	// SASL, if not nil, authenticates each connection.
	SASL sasl.Mechanism
	// User is who we are to the cluster, if that is known: errors name it.
	User string
	// Dial opens the connection below TLS. Default: TCP, 10 s.
	Dial DialFunc
	// Extra options are applied after killick's own, to every client. Those
	// that break a guarantee are refused when the client is made.
	Extra []kgo.Opt
}

// String names the addresses and whether TLS and SASL are on; no secrets.
func (c Cluster) String() string {
	onTLS, mech := "off", "off"
	if c.TLS != nil {
		onTLS = "on"
	}
	if c.SASL != nil {
		mech = c.SASL.Name()
	}
	return fmt.Sprintf("%s (TLS %s, SASL %s)", strings.Join(c.Seeds, ","), onTLS, mech)
}

// GoString is String: a cluster that is printed must not show its SASL
// mechanism's fields.
func (c Cluster) GoString() string { return c.String() }

func (c Cluster) validate() error {
	var errs []error
	if len(c.Seeds) == 0 {
		errs = append(errs, errors.New("kafka: no bootstrap servers: at least one host:port is needed"))
	}
	for _, s := range c.Seeds {
		host, port, err := net.SplitHostPort(s)
		if err != nil || host == "" || port == "" {
			errs = append(errs, fmt.Errorf("kafka: bootstrap server %q is not host:port", s))
		}
	}
	switch {
	case c.Topology == "":
		errs = append(errs, errors.New("kafka: the cluster's topology name is empty"))
	case len(c.clientID("dead-letters")) > 256:
		errs = append(errs, fmt.Errorf("kafka: client id %.60q... has %d bytes with the topology's name and a role; 256 are allowed",
			c.ClientID+"."+c.Topology, len(c.clientID("dead-letters"))))
	}
	return errors.Join(errs...)
}

func (c Cluster) clientID(role string) string {
	def(&c.ClientID, "killick")
	return c.ClientID + "." + c.Topology + "." + role
}

// opts are the options that all roles share, without Extra.
func (c Cluster) opts(role string, dial *dialer) []kgo.Opt {
	// Two closed connections in a row would else end even a commit of a
	// transaction, whatever RequestRetries says. The price, that missing TLS or
	// SASL is retried for ever, too, is why Reach runs first with a client that
	// lacks this option.
	return append(c.base(role, dial), kgo.AlwaysRetryEOF())
}

func (c Cluster) base(role string, dial *dialer) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Seeds...),
		kgo.ClientID(c.clientID(role)),
		kgo.Dialer(dial.DialContext),
		kgo.WithHooks(dial),
	}
	if c.SASL != nil {
		opts = append(opts, kgo.SASL(c.SASL))
	}
	return opts
}

// ClientOpts are the options with which any one client reaches the cluster,
// Extra included, for clients that have none of the roles. A closed connection
// is an answer to them; see Reach.
func (c Cluster) ClientOpts(role string) ([]kgo.Opt, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return append(c.base(role, c.dialer()), c.Extra...), nil
}

// Validate reports what the clients of a topology would refuse when they are
// made, without making any.
func Validate(c Cluster, k Consumer, ps ...Producer) error {
	k = k.withDefaults()
	errs := []error{c.validate(), k.validate()}
	check := func(role string, opts []kgo.Opt) {
		opts = append(append(c.opts(role, c.dialer()), opts...), c.Extra...)
		if err := kgo.ValidateOpts(opts...); err != nil {
			errs = append(errs, fmt.Errorf("kafka: %s: %w", role, err))
		}
	}
	if errors.Join(errs...) == nil {
		check("consumer", k.opts())
	}
	for _, p := range ps {
		p = p.withDefaults()
		if err := p.validate(); err != nil {
			errs = append(errs, err)
			continue
		}
		check(p.Role.String(), p.opts())
	}
	return errors.Join(errs...)
}

const (
	dialTimeout = 10 * time.Second
	// dialWindow is how long a refused dial is repeated inside one dial. Some requests, such as
	// the one for offsets when partitions are assigned, kgo does not repeat when nobody else can be
	// asked, and then the membership is lost; within the window a single broker can restart
	// without anybody noticing. See also away.
	dialWindow = 1500 * time.Millisecond
	dialPause  = 50 * time.Millisecond
)

// dialer opens connections for one client and repeats refused dials for a
// while, but only while the client knows of one broker: with several, another
// one answers, and waiting here would only delay the change of leader by the
// length of the window.
//
// It learns the number of brokers as kgo's connect hook, whose node ids are
// negative for seeds.
type dialer struct {
	dial   DialFunc
	tls    func() (*tls.Config, error)
	seeds  int
	window time.Duration
	// patient makes a broker that is away look like one that is slow; see away.
	patient bool

	mu    sync.Mutex
	nodes map[int32]struct{} // brokers seen so far
}

func (c Cluster) dialer() *dialer {
	d := &dialer{dial: c.Dial, tls: c.TLS, seeds: len(c.Seeds), window: dialWindow, nodes: make(map[int32]struct{})}
	if d.dial == nil {
		d.dial = new(net.Dialer).DialContext
	}
	return d
}

var _ kgo.HookBrokerConnect = (*dialer)(nil)

// OnBrokerConnect notes the brokers that the client has tried to connect to.
func (d *dialer) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, _ error) {
	if meta.NodeID < 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nodes[meta.NodeID] = struct{}{}
}

func (d *dialer) oneBroker() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seeds == 1 && len(d.nodes) <= 1
}

// away is a dial that was refused, for a group member. When the coordinator's broker goes away, kgo
// asks others who coordinates now. A dial of those that times out it repeats, until the time for
// the request is over; one that is refused it does not, if it has nobody else to ask or is told of
// a broker that is away: the heartbeat fails, and with it the membership (OnPartitionsLost), although
// the coordinator has not missed anybody when it is back. So a refusal says that it is a time-out.
// To producers kgo's difference is of use: they look for the new leader of a partition after one.
type away struct{ error }

func (away) Timeout() bool   { return true }
func (a away) Unwrap() error { return a.error }

// DialContext dials, with TLS if the cluster has it, for at most dialTimeout:
// the context that kgo passes has no deadline of its own.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := d.connect(ctx, network, address)
	if err != nil && d.patient {
		return nil, patient(err)
	}
	if err != nil || d.tls == nil {
		return conn, err
	}
	return handshake(ctx, conn, d.tls, address)
}

// patient marks a dial that failed as one that may be repeated, unless that does not help.
func patient(err error) error {
	var dns *net.DNSError
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" || op.Timeout() || errors.As(err, &dns) && dns.IsNotFound || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
		return err
	}
	marked := *op
	marked.Err = away{op.Err}
	return &marked
}

// connect opens the connection below TLS.
func (d *dialer) connect(ctx context.Context, network, address string) (net.Conn, error) {
	end := time.Now().Add(d.window)
	for {
		conn, err := d.dial(ctx, network, address)
		if err == nil || ctx.Err() != nil || !d.oneBroker() || !time.Now().Add(dialPause).Before(end) {
			return conn, err
		}
		pause := time.NewTimer(dialPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, err
		}
	}
}

// handshake makes a TLS client connection of conn, which it owns from here on.
func handshake(ctx context.Context, conn net.Conn, config func() (*tls.Config, error), address string) (net.Conn, error) {
	cfg, err := config()
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("kafka: TLS settings: %w", err)
	}
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			conn.Close()
			return nil, fmt.Errorf("kafka: broker address %q: %w", address, err)
		}
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	tc := tls.Client(conn, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return tc, nil
}

// rule is an option that a client must have for killick's guarantees.
type rule struct {
	name string
	opt  any // the option's function, as kgo.Client.OptValue takes it
	want any
	why  string
}

// check reports the rules that Extra options have broken.
func check(cl *kgo.Client, rules []rule) error {
	var errs []error
	for _, r := range rules {
		if got := cl.OptValue(r.opt); got != r.want {
			errs = append(errs, fmt.Errorf("kafka: option kgo.%s must be %v, not %v: %s", r.name, r.want, got, r.why))
		}
	}
	return errors.Join(errs...)
}
