package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/examples/orders/topology"
)

// fakeCommand runs a fake worker in the test binary, as WorkerCommand runs the real one in killick.
const fakeCommand = "fake-worker"

// What a fake worker does: the right thing, or one of the things that the demo must find.
const (
	honest  = "honest"
	early   = "early"   // commits what it has not done yet
	lazy    = "lazy"    // never commits
	garbled = "garbled" // writes commit metadata that nobody can read
	quits   = "quits"   // ends at once
	tires   = "tires"   // ends at once when it is the second
)

// fake does the story on a bare Kafka client, one order after the other, so that the demo is seen to judge what is there
// and not what killick says.
type fake struct {
	mode    string
	cl      *kgo.Client
	gateway topology.Gateway
	left    map[int32]int64 // ends of the partitions that are not done
	names
}

// runFake is the main function of a fake worker.
func runFake(mode string, args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	s, err := parseSetup(args)
	if err != nil {
		return err
	}
	if _, err := os.Stat(s.book); mode == quits || mode == tires && err == nil {
		return errors.New("I quit")
	}
	gateway, err := topology.OpenBook(s.book, s.delay/100)
	if err != nil {
		return err
	}
	defer gateway.Close()
	f := fake{mode: mode, gateway: gateway, left: map[int32]int64{}, names: newNames(s.prefix)}
	f.cl, err = kgo.NewClient(kgo.SeedBrokers(s.kafka), kgo.ConsumerGroup(f.group), kgo.InstanceID(place),
		kgo.ConsumeTopics(f.orders), kgo.DisableAutoCommit(), kgo.ProducerLinger(0), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer f.cl.Close()
	if err := f.prepare(ctx); err != nil {
		return err
	}
	for len(f.left) > 0 {
		if err := f.batch(ctx); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes the dead-letter topic and learns what is to do.
func (f *fake) prepare(ctx context.Context) error {
	adm := kadm.NewClient(f.cl)
	if _, err := adm.CreateTopic(ctx, partitions, -1, nil, f.dead); err != nil {
		fmt.Fprintln(os.Stderr, "the second worker finds it there:", err)
	}
	ends, err := adm.ListEndOffsets(ctx, f.orders)
	if err != nil {
		return err
	}
	committed, err := adm.FetchOffsets(ctx, f.group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return err
	}
	ends.Each(func(o kadm.ListedOffset) {
		if c, _ := committed.Lookup(o.Topic, o.Partition); c.At < o.Offset {
			f.left[o.Partition] = o.Offset
		}
	})
	return nil
}

// batch works on what one poll brings.
func (f *fake) batch(ctx context.Context) error {
	fs := f.cl.PollRecords(ctx, 20)
	if err := fs.Err(); err != nil {
		return err
	}
	next := map[int32]kgo.EpochOffset{}
	for r := range fs.RecordsAll() {
		next[r.Partition] = kgo.EpochOffset{Epoch: -1, Offset: r.Offset + 1}
	}
	if f.mode == early {
		if err := f.commit(ctx, next); err != nil {
			return err
		}
	}
	for r := range fs.RecordsAll() {
		if err := f.order(ctx, r); err != nil {
			return err
		}
	}
	for p, o := range next {
		if o.Offset >= f.left[p] {
			delete(f.left, p)
		}
	}
	return f.commit(ctx, next)
}

func (f *fake) commit(ctx context.Context, next map[int32]kgo.EpochOffset) (err error) {
	if f.mode == lazy || len(next) == 0 {
		return nil
	}
	metadata := "" // the client's own is the member's id
	if f.mode == garbled {
		metadata = "gibberish"
	}
	ctx = kgo.PreCommitFnContext(ctx, func(r *kmsg.OffsetCommitRequest) error {
		for i := range r.Topics[0].Partitions {
			r.Topics[0].Partitions[i].Metadata = &metadata
		}
		return nil
	})
	f.cl.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{f.orders: next},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, e error) { err = e })
	return err
}

// order does everything for one order and waits until it is durable.
func (f *fake) order(ctx context.Context, r *kgo.Record) error {
	var o topology.Order
	if err := json.Unmarshal(r.Value, &o); err != nil {
		return f.bury(ctx, r)
	}
	status := topology.Rejected
	if o.Cents <= 25_000 {
		outcome, err := f.gateway.Charge(ctx, topology.Charge{Order: o.ID, Attempt: 1})
		for attempt := 2; err != nil; attempt++ {
			if attempt > 5 {
				return f.bury(ctx, r)
			}
			outcome, err = f.gateway.Charge(ctx, topology.Charge{Order: o.ID, Attempt: attempt})
		}
		if status = topology.Paid; outcome == topology.OutcomeDeclined {
			status = topology.PaymentFailed
		}
	}
	v, err := json.Marshal(topology.Notification{Order: o.ID, Customer: o.Customer, Item: o.Item, Cents: o.Cents, Status: status})
	if err != nil {
		return err
	}
	return f.cl.ProduceSync(ctx, &kgo.Record{Topic: f.notifications, Key: r.Key, Value: v,
		Headers: []kgo.RecordHeader{{Key: "order-origin", Value: fmt.Appendf(nil, "%s/%d/%d", r.Topic, r.Partition, r.Offset)}}}).FirstErr()
}

func (f *fake) bury(ctx context.Context, r *kgo.Record) error {
	return f.cl.ProduceSync(ctx, &kgo.Record{Topic: f.dead, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp,
		Headers: append(r.Headers, kgo.RecordHeader{Key: "killick-dlq-topic", Value: []byte(r.Topic)},
			kgo.RecordHeader{Key: "killick-dlq-partition", Value: []byte(strconv.Itoa(int(r.Partition)))},
			kgo.RecordHeader{Key: "killick-dlq-offset", Value: []byte(strconv.FormatInt(r.Offset, 10))})}).FirstErr()
}
