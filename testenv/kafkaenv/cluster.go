//go:build unix

package kafkaenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/killick-io/killick/testenv/internal/jvm"
)

// startLimit bounds a start, without fetching jars: a start takes seconds, also on a busy machine.
const startLimit = 2 * time.Minute

// Cluster is a running Apache Kafka. Its methods may be called from any goroutine.
type Cluster struct {
	config *config
	jars   *jvm.Jars
	dir    string     // everything of this cluster
	doors  []Listener // of each broker
	plain  bool       // without the archive of classes

	nodes      []*node // brokers, and the controller if it is alone
	brokers    []*Broker
	controller string // address
	ca         *CA    // nil without TLS
}

// New starts a cluster and returns when it is ready: all brokers take part, the internal topics for
// offsets and transactions are there, and so are the topics of the options. Close ends it. An error
// that wraps ErrMissing says that this machine cannot run Kafka.
//
// The first use of a release on a machine fetches it and prepares it, which takes half a minute with
// a good network. ctx ends the start; a cluster that runs does not end with it.
func New(ctx context.Context, opts ...Option) (*Cluster, error) {
	cfg, err := configure(opts)
	if err != nil {
		return nil, err
	}
	line, err := release(cfg.version)
	if err != nil {
		return nil, fmt.Errorf("kafkaenv: %w", err)
	}
	jars, err := line.Jars(ctx)
	if err != nil {
		return nil, fmt.Errorf("kafkaenv: %w", err)
	}
	c := &Cluster{config: cfg, jars: jars}
	if !cfg.load {
		if err := c.archive(ctx); err != nil {
			return nil, err
		}
	}
	if err := c.open(); err != nil {
		return nil, err
	}
	if err := c.launch(ctx); ctx.Err() != nil {
		return nil, errors.Join(err, c.Close()) // somebody does not want it any more
	} else if err != nil {
		return nil, errors.Join(fmt.Errorf("%w (the brokers' folder is kept: %s)", err, c.dir), c.end())
	}
	for _, t := range cfg.topics {
		if err := c.CreateTopic(ctx, t.name, t.partitions, t.configs); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// ErrMissing is returned by New where Java or Maven is missing.
var ErrMissing = jvm.ErrMissing

// open makes the folder and what does not depend on ports.
func (c *Cluster) open() (err error) {
	if c.dir, err = os.MkdirTemp("", fmt.Sprintf("kafkaenv-%d-", os.Getpid())); err != nil {
		return fmt.Errorf("kafkaenv: %w", err)
	}
	if err := os.WriteFile(filepath.Join(c.dir, "log4j2.xml"), []byte(log4j), 0o644); err != nil {
		return fmt.Errorf("kafkaenv: %w", err)
	}
	c.doors = []Listener{Plaintext}
	if len(c.config.users) > 0 {
		c.doors = append(c.doors, SASL)
	}
	if c.config.tls == nil {
		return nil
	}
	c.doors = append(c.doors, TLS)
	if len(c.config.users) > 0 {
		c.doors = append(c.doors, SASLTLS)
	}
	if c.ca, err = NewCA("killick test CA"); err != nil {
		return err
	}
	return c.ca.serverFiles(c.dir, *c.config.tls)
}

// launch starts the processes, with other ports if some are taken, and waits until they are ready.
func (c *Cluster) launch(ctx context.Context, extra ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("kafkaenv: not ready within %v", startLimit))
	defer cancel()
	const tries = 5
	for try := 1; ; try++ {
		err := c.tryLaunch(ctx, extra...)
		if err == nil {
			return nil
		}
		if !slices.ContainsFunc(c.nodes, (*node).clash) || try == tries {
			return err
		}
		if err := c.end(); err != nil {
			return err
		}
		for _, n := range c.nodes {
			if err := os.RemoveAll(n.dir); err != nil {
				return fmt.Errorf("kafkaenv: %w", err)
			}
		}
	}
}

func (c *Cluster) tryLaunch(ctx context.Context, extra ...string) error {
	if err := c.plan(); err != nil {
		return err
	}
	var all errgroup.Group
	for _, n := range c.nodes {
		all.Go(func() error {
			if err := os.MkdirAll(n.dir, 0o755); err != nil {
				return fmt.Errorf("kafkaenv: %w", err)
			}
			if err := os.WriteFile(filepath.Join(n.dir, "server.properties"), []byte(text(n.properties())), 0o600); err != nil {
				return fmt.Errorf("kafkaenv: %w", err)
			}
			if err := n.format(ctx); err != nil {
				return err
			}
			return n.start(extra...)
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	return c.await(ctx, c.brokers...)
}

// plan lays out the nodes: who they are and where they listen.
func (c *Cluster) plan() error {
	per := len(c.doors)
	count := c.config.brokers*per + 1
	ports, err := jvm.Ports(count)
	if err != nil {
		return fmt.Errorf("kafkaenv: %w", err)
	}
	take := func() (p int) { p, ports = ports[0], ports[1:]; return p }
	controller := take()
	c.controller = fmt.Sprintf("127.0.0.1:%d", controller)
	c.nodes, c.brokers = nil, nil
	for id := 1; id <= c.config.brokers; id++ {
		b := &Broker{node{cluster: c, id: id, roles: "broker", dir: filepath.Join(c.dir, fmt.Sprint(id)), ports: map[Listener]int{}}}
		for _, l := range c.doors {
			b.ports[l] = take()
		}
		c.brokers = append(c.brokers, b)
		c.nodes = append(c.nodes, &b.node)
	}
	if c.config.brokers == 1 {
		c.nodes[0].roles = "broker,controller"
		c.nodes[0].ports[controllerDoor] = controller
		return nil
	}
	const alone = 100 // its node ID: beyond the brokers'
	c.nodes = append(c.nodes, &node{cluster: c, id: alone, roles: "controller", dir: filepath.Join(c.dir, "controller"),
		ports: map[Listener]int{controllerDoor: controller}})
	return nil
}

// Close ends all processes and removes their folder. It is no clean stop: see Broker.Stop.
func (c *Cluster) Close() error {
	if err := c.end(); err != nil {
		return err
	}
	if c.config.keep {
		return nil
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("kafkaenv: %w", err)
	}
	return nil
}

func (c *Cluster) end() error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.end())
	}
	return errors.Join(errs...)
}

// Brokers lists the brokers by ID.
func (c *Cluster) Brokers() []*Broker { return slices.Clone(c.brokers) }

// Dir is the folder with the brokers' logs and data.
func (c *Cluster) Dir() string { return c.dir }

// Addrs are the bootstrap addresses of the listener Plaintext.
func (c *Cluster) Addrs() []string { return c.AddrsOf(Plaintext) }

// AddrsOf are the bootstrap addresses of a listener; none if the cluster has no such listener.
func (c *Cluster) AddrsOf(l Listener) (all []string) {
	for _, b := range c.brokers {
		if a := b.Addr(l); a != "" {
			all = append(all, a)
		}
	}
	return all
}

// CA is the authority that the brokers' certificates are of; nil without WithTLS.
func (c *Cluster) CA() *CA { return c.ca }

// String names the release and the addresses.
func (c *Cluster) String() string {
	return fmt.Sprintf("Kafka %s at %s", c.config.version, strings.Join(c.Addrs(), ","))
}
