//go:build unix

package kafkaenv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ask is how often a cluster is asked whether it is ready: an answer comes in a millisecond.
const ask = 20 * time.Millisecond

// await waits until the brokers take part in the cluster, and the coordinators answer: an accepted
// connection says nothing, and the topics of the coordinators are made when they are asked for.
func (c *Cluster) await(ctx context.Context, brokers ...*Broker) error {
	// One client for each broker: a client asks whom it likes.
	for _, b := range brokers {
		cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr(Plaintext)), kgo.RequestRetries(0), kgo.WithLogger(nil),
			kgo.DialTimeout(time.Second), kgo.RetryTimeout(time.Second))
		if err != nil {
			return fmt.Errorf("kafkaenv: %w", err)
		}
		err = c.poll(ctx, func(ctx context.Context) error { return c.member(ctx, cl, b) })
		cl.Close()
		if err != nil {
			return err
		}
	}
	if slices.ContainsFunc(c.brokers, func(b *Broker) bool { return !b.Running() }) {
		return nil // their partitions of the internal topics may have no leader
	}
	cl, err := c.client(kgo.RequestRetries(0))
	if err != nil {
		return err
	}
	defer cl.Close()
	return c.poll(ctx, func(ctx context.Context) error { return coordinators(ctx, cl) })
}

// member: the broker itself says that it and all that are running are members.
func (c *Cluster) member(ctx context.Context, cl *kgo.Client, b *Broker) error {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none, not all
	resp, err := cl.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return err
	}
	meta := resp.(*kmsg.MetadataResponse)
	if meta.ControllerID < 0 {
		return errors.New("no controller yet")
	}
	for _, other := range c.brokers {
		if other.Running() && !slices.ContainsFunc(meta.Brokers, func(m kmsg.MetadataResponseBroker) bool { return int(m.NodeID) == other.id }) {
			return fmt.Errorf("broker %d does not know broker %d yet", b.id, other.id)
		}
	}
	return nil
}

func coordinators(ctx context.Context, cl *kgo.Client) error {
	for kind := range int8(2) { // 0: of groups, 1: of transactions
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorType, req.CoordinatorKey = kind, "kafkaenv"
		req.CoordinatorKeys = []string{"kafkaenv"}
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return err
		}
		for _, one := range resp.Coordinators {
			if err := kerr.ErrorForCode(one.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}

// poll calls ready until it has no error, ctx ends, or a process has ended by itself.
func (c *Cluster) poll(ctx context.Context, ready func(context.Context) error) error {
	tick := time.NewTicker(ask)
	defer tick.Stop()
	for {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			return ready(ctx)
		}()
		if err == nil {
			return nil
		}
		for _, n := range c.nodes {
			if err := n.failed(); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("kafkaenv: not ready: %w (last: %w)", context.Cause(ctx), err)
		}
	}
}

// ClientOpts are kgo options for a client of the test itself: through the listener Plaintext.
func (c *Cluster) ClientOpts(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{kgo.SeedBrokers(c.Addrs()...)}, more...)
}

func (c *Cluster) client(more ...kgo.Opt) (*kgo.Client, error) {
	cl, err := kgo.NewClient(c.ClientOpts(more...)...)
	if err != nil {
		return nil, fmt.Errorf("kafkaenv: %w", err)
	}
	return cl, nil
}

// CreateTopic makes a topic and waits until each partition has a leader. configs may be nil.
func (c *Cluster) CreateTopic(ctx context.Context, name string, partitions int, configs map[string]string) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	set := map[string]*string{}
	for k, v := range configs {
		set[k] = &v
	}
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(ctx, int32(partitions), -1, set, name); err != nil {
		return fmt.Errorf("kafkaenv: create topic %s: %w", name, err)
	}
	return c.poll(ctx, func(ctx context.Context) error {
		_, err := c.leaders(ctx, adm, name)
		return err
	})
}

// leaders are the leaders of a topic's partitions; an error if one has none.
func (c *Cluster) leaders(ctx context.Context, adm *kadm.Client, name string) ([]*Broker, error) {
	meta, err := adm.Metadata(ctx, name)
	if err != nil {
		return nil, err
	}
	t := meta.Topics[name]
	if t.Err != nil {
		return nil, t.Err
	}
	var all []*Broker
	for _, p := range t.Partitions.Sorted() {
		b := c.broker(p.Leader)
		if p.Err != nil || b == nil {
			return nil, fmt.Errorf("partition %d of %s has no leader: %w", p.Partition, name, p.Err)
		}
		all = append(all, b)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("topic %s has no partitions yet", name)
	}
	return all, nil
}

func (c *Cluster) broker(id int32) *Broker {
	for _, b := range c.brokers {
		if int32(b.id) == id {
			return b
		}
	}
	return nil
}

// Leader is the broker that leads a partition now.
func (c *Cluster) Leader(ctx context.Context, topic string, partition int) (*Broker, error) {
	cl, err := c.client()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	all, err := c.leaders(ctx, kadm.NewClient(cl), topic)
	if err != nil {
		return nil, fmt.Errorf("kafkaenv: leader of %s/%d: %w", topic, partition, err)
	}
	if partition < 0 || partition >= len(all) {
		return nil, fmt.Errorf("kafkaenv: %s has %d partitions, no %d", topic, len(all), partition)
	}
	return all[partition], nil
}

// Coordinator is the broker that coordinates a group now.
func (c *Cluster) Coordinator(ctx context.Context, group string) (*Broker, error) {
	cl, err := c.client()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	got := kadm.NewClient(cl).FindGroupCoordinators(ctx, group)[group]
	if err := got.Err; err != nil {
		return nil, fmt.Errorf("kafkaenv: coordinator of group %s: %w", group, err)
	}
	b := c.broker(got.NodeID)
	if b == nil {
		return nil, fmt.Errorf("kafkaenv: the coordinator of group %s is node %d, which is no broker of this cluster", group, got.NodeID)
	}
	return b, nil
}

// PreferLeaders gives each partition back to the broker that is its first replica, if that runs:
// after a broker was away the others lead all. Coordinators move with the internal topics.
func (c *Cluster) PreferLeaders(ctx context.Context) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).ElectLeaders(ctx, kadm.ElectPreferredReplica, nil); err != nil {
		return fmt.Errorf("kafkaenv: elect the preferred leaders: %w", err)
	}
	return nil
}
