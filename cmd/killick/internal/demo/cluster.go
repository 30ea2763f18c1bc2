package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/examples/orders/check"
	"github.com/killick-io/killick/examples/orders/data"
)

// partitions of each topic.
const partitions = 4

const (
	// reachLimit bounds how long a broker may take to say that it is there.
	reachLimit = 10 * time.Second
	// aliveLimit bounds the look whether there is still a broker to clean up at.
	aliveLimit = 3 * time.Second
	// cleanLimit bounds the deleting of topics and group, which goes on after an interrupt.
	cleanLimit = 15 * time.Second
)

// cluster is the demo's own view of Kafka: it shares no client with a worker.
type cluster struct {
	opts []kgo.Opt
	cl   *kgo.Client
	adm  *kadm.Client
	// known are the topics that exist: none is deleted before the end.
	known map[string]bool
	names
}

// connect waits until a broker has answered. The error is ErrUnreachable if none did; else the caller closes.
func connect(ctx context.Context, address string, n names, opts []kgo.Opt) (*cluster, error) {
	opts = append(slices.Clone(opts), kgo.FetchMaxWait(100*time.Millisecond), kgo.RecordDeliveryTimeout(20*time.Second))
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("demo: Kafka client: %w", err)
	}
	reach, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	if err := cl.Ping(reach); err != nil {
		cl.Close()
		if reach.Err() != nil && ctx.Err() == nil {
			return nil, fmt.Errorf("%w at %s: no answer within %v", ErrUnreachable, address, reachLimit)
		}
		return nil, fmt.Errorf("%w at %s: %w", ErrUnreachable, address, err)
	}
	return &cluster{opts: opts, cl: cl, adm: kadm.NewClient(cl), known: map[string]bool{}, names: n}, nil
}

func (k *cluster) close() { k.cl.Close() }

// fill creates the topics and produces the input. Records have the present time: a broker deletes by it.
func (k *cluster) fill(ctx context.Context, rs []data.Record) error {
	made, err := k.adm.CreateTopics(ctx, partitions, -1, nil, k.orders, k.notifications)
	if err == nil {
		err = made.Error()
	}
	if err != nil {
		return fmt.Errorf("demo: create the topics %s and %s: %w", k.orders, k.notifications, err)
	}
	out := make([]*kgo.Record, len(rs))
	for i, r := range rs {
		out[i] = &kgo.Record{Topic: k.orders, Key: r.Key, Value: r.Value,
			Headers: []kgo.RecordHeader{{Key: "line", Value: strconv.AppendInt(nil, int64(i+1), 10)}}}
	}
	if err := k.cl.ProduceSync(ctx, out...).FirstErr(); err != nil {
		return fmt.Errorf("demo: produce %d records to %s: %w", len(rs), k.orders, err)
	}
	return nil
}

// ends are the ends of all partitions of the topics, ordered; 0 for those of a topic that does not exist (yet).
func (k *cluster) ends(ctx context.Context, topics ...string) ([]check.End, error) {
	if err := k.discover(ctx, topics); err != nil {
		return nil, err
	}
	there := slices.DeleteFunc(slices.Clone(topics), func(t string) bool { return !k.known[t] })
	listed := kadm.ListedOffsets{}
	if len(there) > 0 { // no topics would mean all
		var err error
		if listed, err = k.adm.ListEndOffsets(ctx, there...); err == nil {
			err = listed.Error()
		}
		if err != nil {
			return nil, fmt.Errorf("demo: ends of %q: %w", there, err)
		}
	}
	var out []check.End
	for _, topic := range topics {
		for p := range int32(partitions) {
			o, ok := listed.Lookup(topic, p)
			if !ok && k.known[topic] {
				return nil, fmt.Errorf("demo: ends of %s: partition %d is missing", topic, p)
			}
			out = append(out, check.End{Topic: topic, Partition: p, Offset: o.Offset})
		}
	}
	return out, nil
}

// discover asks the brokers which of the topics exist now. The client itself takes a topic that it has once not found
// for missing for seconds, and a dead letter that is there would be taken for missing, too.
func (k *cluster) discover(ctx context.Context, topics []string) error {
	req := kmsg.NewPtrMetadataRequest()
	for _, t := range topics {
		if !k.known[t] {
			rt := kmsg.NewMetadataRequestTopic()
			rt.Topic = kmsg.StringPtr(t)
			req.Topics = append(req.Topics, rt)
		}
	}
	if len(req.Topics) == 0 {
		return nil
	}
	resp, err := req.RequestWith(ctx, k.cl)
	if err != nil {
		return fmt.Errorf("demo: look for the topics %q: %w", topics, err)
	}
	for _, t := range resp.Topics {
		err := kerr.ErrorForCode(t.ErrorCode)
		for _, p := range t.Partitions {
			err = cmp.Or(err, kerr.ErrorForCode(p.ErrorCode))
		}
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition) || t.Topic == nil:
		case err != nil:
			return fmt.Errorf("demo: topic %s: %w", *t.Topic, err)
		case len(t.Partitions) != partitions:
			return fmt.Errorf("demo: topic %s has %d partitions, want %d", *t.Topic, len(t.Partitions), partitions)
		default:
			k.known[*t.Topic] = true
		}
	}
	return nil
}

// commit is what the group has committed for one input partition; offset -1: nothing.
type commit struct {
	offset   int64
	metadata string
}

// commits are those of all input partitions.
func (k *cluster) commits(ctx context.Context) (out [partitions]commit, _ error) {
	all, err := k.adm.FetchOffsets(ctx, k.group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return out, fmt.Errorf("demo: committed offsets of %s: %w", k.group, err)
	}
	for p := range out {
		out[p].offset = -1
		if o, ok := all.Lookup(k.orders, int32(p)); ok && o.At >= 0 {
			if o.Err != nil {
				return out, fmt.Errorf("demo: committed offset of %s-%d: %w", k.orders, p, o.Err)
			}
			out[p] = commit{o.At, o.Metadata}
		}
	}
	return out, nil
}

// read returns all records of a topic, from its start to the end that it has now; none if it does not exist.
func (k *cluster) read(ctx context.Context, topic string) ([]check.Record, error) {
	ends, err := k.ends(ctx, topic)
	if err != nil {
		return nil, err
	}
	from, left := map[int32]kgo.Offset{}, map[int32]int64{}
	for _, e := range ends {
		if e.Offset > 0 { // nothing is ever deleted in the life of the demo: the start is 0
			from[e.Partition], left[e.Partition] = kgo.NewOffset().At(0), e.Offset
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	cl, err := kgo.NewClient(append(slices.Clone(k.opts), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))...)
	if err != nil {
		return nil, fmt.Errorf("demo: read %s: %w", topic, err)
	}
	defer cl.Close()
	var out []check.Record
	for len(left) > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil { // the context's
			return nil, fmt.Errorf("demo: read %s: %w", topic, err)
		}
		for _, e := range fs.Errors() {
			return nil, fmt.Errorf("demo: read %s-%d: %w", e.Topic, e.Partition, e.Err)
		}
		for r := range fs.RecordsAll() {
			end, ok := left[r.Partition]
			if !ok {
				continue // written meanwhile: it would lie behind the end
			}
			out = append(out, record(r))
			if r.Offset >= end-1 {
				delete(left, r.Partition)
			}
		}
	}
	return out, nil
}

func record(r *kgo.Record) check.Record {
	out := check.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value}
	if r.Attrs.TimestampType() == 0 { // of the producer; the broker's own says nothing about the record
		out.Time = r.Timestamp
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, check.Header(h))
	}
	return out
}

// clean deletes what the demo has made. It works after ctx has ended, too, and says what is left.
func (k *cluster) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanLimit)
	defer cancel()
	there, done := context.WithTimeout(ctx, aliveLimit)
	defer done()
	if err := k.cl.Ping(there); err != nil {
		return fmt.Errorf("demo: Kafka does not answer any more: %w", err)
	}
	var errs []error
	// A static member stays in its group until its session ends. Without one there is nothing to leave: the delete says
	// what matters.
	_, _ = k.adm.LeaveGroup(ctx, kadm.LeaveGroup(k.group).InstanceIDs(place).Reason("the demo is over"))
	if _, err := k.adm.DeleteGroup(ctx, k.group); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		errs = append(errs, fmt.Errorf("demo: delete group %s: %w", k.group, err))
	}
	deleted, err := k.adm.DeleteTopics(ctx, k.orders, k.notifications, k.dead)
	if err != nil {
		errs = append(errs, fmt.Errorf("demo: delete the topics %s, %s and %s: %w", k.orders, k.notifications, k.dead, err))
	}
	for _, d := range deleted.Sorted() {
		if d.Err != nil && !errors.Is(d.Err, kerr.UnknownTopicOrPartition) {
			errs = append(errs, fmt.Errorf("demo: delete topic %s: %w", d.Topic, d.Err))
		}
	}
	return errors.Join(errs...)
}
