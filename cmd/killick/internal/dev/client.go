package dev

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/worker"
)

// reachLimit bounds how long a broker may take to say that it is there.
const reachLimit = 10 * time.Second

// Kafka says where Produce and Consume work: at Bootstrap, else where EnvBootstrap says, else at the newest [Broker] that
// is announced in Folder.
type Kafka struct {
	Bootstrap string
	// Environ has the settings KILLICK_* for TLS and SASL, as os.Environ gives them. They do not count for an announced
	// broker.
	Environ []string
	Folder  string
}

// client is a connection of Produce or Consume.
type client struct {
	*kgo.Client
	adm   *kadm.Client
	where string
}

// options finds the broker. where names it in errors.
func (k Kafka) options(ctx context.Context) (where string, opts []kgo.Opt, err error) {
	var c worker.Config
	switch {
	case k.Bootstrap != "":
		c, err = worker.Load([]string{"--bootstrap=" + k.Bootstrap}, k.Environ)
	case slices.ContainsFunc(k.Environ, func(kv string) bool { v, ok := strings.CutPrefix(kv, EnvBootstrap+"="); return ok && v != "" }):
		c, err = worker.Load(nil, k.Environ)
	default:
		address := Find(ctx, k.Folder)
		if ctx.Err() != nil {
			return "", nil, context.Cause(ctx)
		}
		if address == "" {
			return "", nil, wrong("no killick dev runs: start one, or say where Kafka is with --bootstrap host:port or %s", EnvBootstrap)
		}
		c, err = worker.Load([]string{"--bootstrap=" + address}, nil)
	}
	if err != nil {
		return "", nil, usage{err}
	}
	opts, err = c.ClientOpts()
	if err != nil {
		return "", nil, usage{err}
	}
	return strings.Join(c.Bootstrap, ","), opts, nil
}

// connect returns a client of a broker that has answered. The caller closes it.
func (k Kafka) connect(ctx context.Context, extra ...kgo.Opt) (*client, error) {
	where, opts, err := k.options(ctx)
	if err != nil {
		return nil, err
	}
	return dial(ctx, where, append(opts, extra...))
}

// dial makes the client. A topic that was made a moment ago should not take seconds to be seen.
func dial(ctx context.Context, where string, opts []kgo.Opt) (*client, error) {
	cl, err := kgo.NewClient(append(opts, kgo.MetadataMinAge(100*time.Millisecond))...)
	if err != nil {
		return nil, fmt.Errorf("dev: Kafka client: %w", err)
	}
	c := &client{Client: cl, adm: kadm.NewClient(cl), where: where}
	if err := c.reach(ctx); err != nil {
		cl.Close()
		return nil, err
	}
	return c, nil
}

// reach asks a broker for a sign of life. The error is ErrUnreachable, or the context's.
func (c *client) reach(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	switch err := c.Ping(limited); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case limited.Err() != nil:
		return fmt.Errorf("%w at %s: no answer within %v", ErrUnreachable, c.where, reachLimit)
	default:
		return fmt.Errorf("%w at %s: %w", ErrUnreachable, c.where, err)
	}
}

// partitions returns how many the topic has, 0 if it does not exist, and the names of all there are. All topics are asked
// for: a broker that makes topics makes those that are named. (kadm would answer from a cache, in which a topic just made is
// missing.)
func (c *client) partitions(ctx context.Context, topic string) (n int, all []string, err error) {
	req := kmsg.NewPtrMetadataRequest() // no topics: all
	resp, err := req.RequestWith(ctx, c.Client)
	if err != nil {
		return 0, nil, fmt.Errorf("dev: list the topics of %s: %w", c.where, err)
	}
	for _, t := range resp.Topics {
		if t.Topic == nil || t.IsInternal && *t.Topic != topic {
			continue
		}
		all = append(all, *t.Topic)
		if *t.Topic != topic {
			continue
		}
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return 0, nil, fmt.Errorf("dev: topic %s of %s: %w", topic, c.where, err)
		}
		n = len(t.Partitions)
	}
	slices.Sort(all)
	return n, all, nil
}

// noTopic says that a topic does not exist, and what there is.
func (c *client) noTopic(topic string, names []string, hint string) error {
	const most = 10
	there := strings.Join(names[:min(most, len(names))], ", ")
	switch {
	case len(names) == 0:
		there = "there are no topics"
	case len(names) > most:
		there = fmt.Sprintf("there are %s and %d more", there, len(names)-most)
	default:
		there = "there are: " + there
	}
	return wrong("topic %q does not exist at %s (%s)%s", topic, c.where, there, hint)
}

// isInterrupt reports whether an error only says that the context has ended.
func isInterrupt(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx)) || errors.Is(err, ctx.Err()))
}
