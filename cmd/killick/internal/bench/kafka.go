package bench

import (
	"context"
	"crypto/rand"
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

const (
	// reachLimit bounds how long a broker may take to say that it is there.
	reachLimit = 10 * time.Second
	// leaderLimit bounds how long a new topic may have no leaders.
	leaderLimit = 30 * time.Second
	// cleanLimit bounds the deleting of topics and groups, which goes on after an interrupt.
	cleanLimit = 30 * time.Second
)

// kafka is a Kafka that is measured: a client of this process, and names of its own.
type kafka struct {
	what   string // for people
	config worker.Config
	cl     *kgo.Client
	adm    *kadm.Client
	prefix string
	stop   func() error // ends the broker; nil: it is not ours
}

// open starts a broker, or finds the one that is there. The caller closes.
func (w Where) open(ctx context.Context) (_ *kafka, err error) {
	k := &kafka{prefix: "killick-bench-" + strings.ToLower(rand.Text()[:8])}
	defer func() {
		if err != nil && k.stop != nil {
			err = errors.Join(err, k.stop())
		}
	}()
	address := w.Kafka
	if address == "" {
		w.say("starting Apache Kafka")
		if address, k.what, k.stop, err = startKafka(ctx); err != nil {
			return nil, err
		}
		k.config, err = worker.Load([]string{"--bootstrap=" + address}, nil)
	} else {
		k.what = "Kafka at " + address
		k.config, err = w.config()
	}
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	opts, err := k.config.ClientOpts()
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	if k.cl, err = kgo.NewClient(append(opts, kgo.MetadataMinAge(100*time.Millisecond), kgo.ProducerLinger(0),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))...); err != nil {
		return nil, fmt.Errorf("bench: Kafka client: %w", err)
	}
	k.adm = kadm.NewClient(k.cl)
	if err := k.reach(ctx, address); err != nil {
		k.cl.Close()
		return nil, err
	}
	return k, nil
}

func (k *kafka) reach(ctx context.Context, address string) error {
	limited, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	switch err := k.cl.Ping(limited); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case limited.Err() != nil:
		return fmt.Errorf("%w at %s: no answer within %v", ErrUnreachable, address, reachLimit)
	default:
		return fmt.Errorf("%w at %s: %w", ErrUnreachable, address, err)
	}
}

// close ends the broker, or deletes what was made there; what cannot be deleted is told. It works after ctx has ended, too.
func (k *kafka) close(ctx context.Context, w Where) error {
	if k.stop != nil {
		k.cl.Close()
		return k.stop()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanLimit)
	defer cancel()
	if err := k.clean(ctx); err != nil {
		w.say("not everything that begins with %s could be deleted: %v", k.prefix, err)
	}
	k.cl.Close()
	return nil
}

// clean deletes all topics and groups of the prefix: those of dead letters, which workers make, too.
func (k *kafka) clean(ctx context.Context) error {
	var errs []error
	note := func(err error, fine error) {
		if err != nil && !errors.Is(err, fine) {
			errs = append(errs, err)
		}
	}
	groups, err := k.adm.ListGroups(ctx)
	note(err, nil)
	ours := slices.DeleteFunc(groups.Groups(), func(g string) bool { return !strings.HasPrefix(g, k.prefix) })
	if len(ours) > 0 {
		deleted, err := k.adm.DeleteGroups(ctx, ours...)
		note(err, nil)
		for _, d := range deleted.Sorted() {
			note(d.Err, kerr.GroupIDNotFound)
		}
	}
	topics, err := k.adm.ListTopics(ctx)
	note(err, nil)
	ours = slices.DeleteFunc(topics.Names(), func(t string) bool { return !strings.HasPrefix(t, k.prefix) })
	if len(ours) > 0 {
		deleted, err := k.adm.DeleteTopics(ctx, ours...)
		note(err, nil)
		for _, d := range deleted.Sorted() {
			note(d.Err, kerr.UnknownTopicOrPartition)
		}
	}
	return errors.Join(errs...)
}

// create makes a topic whose records stay, and waits until each partition has a leader. The name gets the prefix.
func (k *kafka) create(ctx context.Context, name string, partitions int32, configs map[string]string) (topic string, err error) {
	return k.createOn(ctx, name, partitions, configs, nil)
}

// createOn makes a topic whose partitions are all on one broker, with no other replicas; broker nil: where Kafka likes, with
// as many as it likes.
func (k *kafka) createOn(ctx context.Context, name string, partitions int32, configs map[string]string, broker *int32) (topic string, err error) {
	topic = k.prefix + "-" + name
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, partitions, -1
	if broker != nil {
		rt.NumPartitions = -1
		for p := range partitions {
			ra := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			ra.Partition, ra.Replicas = p, []int32{*broker}
			rt.ReplicaAssignment = append(rt.ReplicaAssignment, ra)
		}
	}
	set := map[string]string{"retention.ms": "-1", "retention.bytes": "-1"} // the records are old
	for key, v := range configs {
		set[key] = v
	}
	for key, v := range set {
		rc := kmsg.NewCreateTopicsRequestTopicConfig()
		rc.Name, rc.Value = key, &v
		rt.Configs = append(rt.Configs, rc)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(leaderLimit.Milliseconds())
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, k.cl)
	if err == nil && len(resp.Topics) != 1 {
		err = fmt.Errorf("the answer has %d topics", len(resp.Topics))
	}
	if err == nil {
		if err = kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil && resp.Topics[0].ErrorMessage != nil {
			err = fmt.Errorf("%w: %s", err, *resp.Topics[0].ErrorMessage)
		}
	}
	if err != nil {
		return "", fmt.Errorf("bench: create topic %s: %w", topic, err)
	}
	limited, cancel := context.WithTimeoutCause(ctx, leaderLimit, fmt.Errorf("not each partition has a leader after %v", leaderLimit))
	defer cancel()
	if err := until(limited, func() (bool, error) { return k.led(limited, topic, partitions) }); err != nil {
		return "", fmt.Errorf("bench: topic %s: %w", topic, err)
	}
	return topic, nil
}

// led reports whether all partitions have a leader.
func (k *kafka) led(ctx context.Context, topic string, partitions int32) (bool, error) {
	meta, err := k.adm.Metadata(ctx, topic)
	if err != nil {
		return false, err
	}
	t := meta.Topics[topic]
	if t.Err != nil && !errors.Is(t.Err, kerr.UnknownTopicOrPartition) && !errors.Is(t.Err, kerr.LeaderNotAvailable) {
		return false, t.Err
	}
	for p := range partitions {
		if d, ok := t.Partitions[p]; !ok || d.Err != nil || d.Leader < 0 {
			return false, nil
		}
	}
	return true, nil
}

// until asks now and then, until it is so, or there is an error.
func until(ctx context.Context, so func() (bool, error)) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := so(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
