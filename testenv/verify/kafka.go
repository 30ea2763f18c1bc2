package verify

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Target is what to read from a cluster.
type Target struct {
	Group       string   // whose positions; empty: none
	Inputs      []string // topics that the topology reads
	Outputs     []string // topics that it writes
	DeadLetters []string // topics of dead letters; they may be missing
}

func (t *Target) validate() error {
	var errs []error
	if len(t.Inputs) == 0 {
		errs = append(errs, errors.New("verify: Target.Inputs: no topic is given"))
	}
	seen := map[string]bool{}
	for _, topic := range slices.Concat(t.Inputs, t.Outputs, t.DeadLetters) {
		if topic == "" || seen[topic] {
			errs = append(errs, fmt.Errorf("verify: Target: topic %q is empty or given twice", topic))
		}
		seen[topic] = true
	}
	return errors.Join(errs...)
}

// Read looks at a cluster after a run: where the logs begin and end now, and what the group has stored (from
// __consumer_offsets; where that cannot be read, History.Notes says why). Records are read when Check asks for them, with
// ctx, which must live until then. cl is used for requests only, so any client will do; it is not closed.
//
// The logs' ends are taken after those of the group's log: a group that still runs cannot look as if it had committed
// too much.
func Read(ctx context.Context, cl *kgo.Client, t Target) (*History, error) {
	if err := t.validate(); err != nil {
		return nil, err
	}
	h := &History{Group: t.Group}
	if t.Group != "" {
		stored, err := readStored(ctx, cl, t.Group)
		switch {
		case err == nil:
			h.Stored = stored
		case ctx.Err() != nil:
			return nil, err
		default:
			h.Notes = append(h.Notes, fmt.Sprintf("what the group stored, in order (I3, I6): %v", err))
		}
	}
	var errs []error
	for _, x := range []struct {
		topics []string
		to     *[]Log
		may    bool // be missing
	}{{t.Inputs, &h.Inputs, false}, {t.Outputs, &h.Outputs, false}, {t.DeadLetters, &h.DeadLetters, true}} {
		for _, topic := range x.topics {
			logs, err := readLogs(ctx, cl, topic)
			if x.may && errors.Is(err, kerr.UnknownTopicOrPartition) {
				h.Notes = append(h.Notes, fmt.Sprintf("dead letters in %s: there is no such topic", topic))
				continue
			}
			errs = append(errs, err)
			*x.to = append(*x.to, logs...)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return h, nil
}

// Settle returns when no transaction is open in the logs of t, or with the error of ctx and the log that has one. The end
// of a transaction shows in its logs some milliseconds after its producer was told; what Read finds before that is Open.
func Settle(ctx context.Context, cl *kgo.Client, t Target) error {
	topics := slices.Concat(t.Inputs, t.Outputs, t.DeadLetters)
	if t.Group != "" {
		topics = append(topics, offsetsTopic)
	}
	for {
		open := ""
		for _, topic := range topics {
			logs, err := readLogs(ctx, cl, topic)
			if errors.Is(err, kerr.UnknownTopicOrPartition) {
				continue // Read tells
			}
			if err != nil {
				return err
			}
			for _, l := range logs {
				if l.Stable < l.End {
					open = fmt.Sprintf("%s/%d is stable up to %d of %d", l.Topic, l.Partition, l.Stable, l.End)
				}
			}
		}
		if open == "" {
			return nil
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("verify: settle: %s: %w", open, err)
		}
	}
}

// readLogs finds the bounds of all partitions of a topic.
func readLogs(ctx context.Context, cl *kgo.Client, topic string) ([]Log, error) {
	id, n, err := describe(ctx, cl, topic)
	if err != nil {
		return nil, fmt.Errorf("verify: topic %q: %w", topic, err)
	}
	adm := kadm.NewClient(cl)
	logs := make([]Log, n)
	for _, f := range []struct {
		list func(context.Context, ...string) (kadm.ListedOffsets, error)
		set  func(*Log, int64)
	}{
		// In this order, since all of them only grow: start <= stable <= end.
		{adm.ListStartOffsets, func(l *Log, o int64) { l.Start = o }},
		{adm.ListCommittedOffsets, func(l *Log, o int64) { l.Stable = o }},
		{adm.ListEndOffsets, func(l *Log, o int64) { l.End = o }},
	} {
		got, err := f.list(ctx, topic)
		if err == nil {
			err = got.Error()
		}
		if err != nil {
			return nil, fmt.Errorf("verify: bounds of topic %q: %w", topic, err)
		}
		for i := range logs {
			o, ok := got[topic][int32(i)]
			if !ok {
				return nil, fmt.Errorf("verify: bounds of topic %q: no answer for partition %d of %d", topic, i, n)
			}
			f.set(&logs[i], o.Offset)
		}
	}
	for i := range logs {
		l := &logs[i]
		l.Topic, l.Partition = topic, int32(i)
		r := &logReader{ctx: ctx, cl: cl, topic: topic, id: id, partition: l.Partition, leader: -1}
		start, stable, end := l.Start, l.Stable, l.End
		l.Entries = func(yield func(Entry, error) bool) { r.read(start, stable, end, yield) }
	}
	return logs, nil
}

// describe returns the id of a topic and how many partitions it has.
func describe(ctx context.Context, cl *kgo.Client, topic string) (id [16]byte, partitions int, err error) {
	md, err := kadm.NewClient(cl).Metadata(ctx, topic)
	if err != nil {
		return id, 0, err
	}
	t, ok := md.Topics[topic]
	if !ok {
		return id, 0, kerr.UnknownTopicOrPartition
	}
	if t.Err != nil {
		return id, 0, t.Err
	}
	for _, p := range t.Partitions {
		if int(p.Partition) >= len(t.Partitions) {
			return id, 0, fmt.Errorf("partitions %v: want 0 to n-1", slices.Sorted(maps.Keys(t.Partitions)))
		}
	}
	return t.ID, len(t.Partitions), nil
}

// logReader reads the raw log of one partition. It holds one fetch answer at a time.
type logReader struct {
	ctx       context.Context // of the iteration, as package iter has no other way to hand it over
	cl        *kgo.Client
	topic     string
	id        [16]byte
	partition int32
	leader    int32 // -1: not known
}

const (
	fetchBytes = 8 << 20
	fetchWait  = 200 // ms
	retryWait  = 50 * time.Millisecond
)

// read yields all records of [start, end), with what became of them.
func (r *logReader) read(start, stable, end int64, yield func(Entry, error) bool) {
	for next := start; next < end; {
		committed := next < stable
		p, err := r.fetch(next, committed)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		fp, after := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
			Offset:             next,
			IsolationLevel:     kgo.ReadUncommitted(), // all of it: what is aborted is told here
			KeepControlRecords: true,
			Topic:              r.topic,
			Partition:          r.partition,
		}, p, kgo.DefaultDecompressor(), nil)
		if fp.Err != nil {
			yield(Entry{}, fmt.Errorf("from offset %d on: %w", next, fp.Err))
			return
		}
		aborted := newAborts(p.AbortedTransactions)
		for _, rec := range fp.Records {
			if rec.Offset >= end {
				return
			}
			e := Entry{Record: rec}
			switch {
			case rec.Attrs.IsControl():
				e.State = Marker
				aborted.end(rec)
			case rec.Offset >= stable:
				e.State = Open
			case rec.Attrs.IsTransactional() && aborted.has(rec):
				e.State = Aborted
			}
			if !yield(e, nil) {
				return
			}
		}
		switch {
		case after > next:
			next = after
		case committed && p.LastStableOffset >= stable:
			next = stable // nothing is left below: compacted away
		case !committed && p.HighWatermark >= end:
			return
		default: // a new leader that does not know yet how far it may answer
			if err := pause(r.ctx); err != nil {
				yield(Entry{}, fmt.Errorf("nothing from offset %d on, below the end %d: %w", next, end, err))
				return
			}
		}
	}
}

// fetch reads what the leader has from an offset on. It tries until ctx ends.
func (r *logReader) fetch(offset int64, committed bool) (*kmsg.FetchResponseTopicPartition, error) {
	for {
		p, err := r.ask(offset, committed)
		if err == nil || r.ctx.Err() != nil {
			return p, err
		}
		var ke *kerr.Error
		if errors.As(err, &ke) && !ke.Retriable {
			return nil, fmt.Errorf("at offset %d: %w", offset, err)
		}
		r.leader = -1
		if pause(r.ctx) != nil {
			return nil, fmt.Errorf("at offset %d: %w", offset, err)
		}
	}
}

func (r *logReader) ask(offset int64, committed bool) (*kmsg.FetchResponseTopicPartition, error) {
	if r.leader < 0 {
		md, err := kadm.NewClient(r.cl).Metadata(r.ctx, r.topic)
		if err != nil {
			return nil, err
		}
		if r.leader = md.Topics[r.topic].Partitions[r.partition].Leader; r.leader < 0 {
			return nil, kerr.LeaderNotAvailable
		}
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = fetchWait, 1, fetchBytes
	if committed {
		req.IsolationLevel = 1 // only so does the answer name the aborted transactions
	}
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = r.topic, r.id
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = r.partition, offset, fetchBytes
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	kresp, err := r.cl.Broker(int(r.leader)).RetriableRequest(r.ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, kerr.UnknownServerError
	}
	out := &resp.Topics[0].Partitions[0]
	return out, kerr.ErrorForCode(out.ErrorCode)
}

// pause waits before another try.
func pause(ctx context.Context) error {
	t := time.NewTimer(retryWait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// aborts are the aborted transactions that one fetch answer speaks of: by producer, where each begins.
type aborts map[int64][]int64

func newAborts(ts []kmsg.FetchResponseTopicPartitionAbortedTransaction) aborts {
	a := aborts{}
	for _, t := range ts {
		a[t.ProducerID] = append(a[t.ProducerID], t.FirstOffset)
	}
	for _, offsets := range a {
		slices.Sort(offsets) // brokers other than Apache Kafka may not
	}
	return a
}

func (a aborts) has(r *kgo.Record) bool {
	begins := a[r.ProducerID]
	return len(begins) > 0 && begins[0] <= r.Offset
}

// end takes note of a marker.
func (a aborts) end(r *kgo.Record) {
	if commit, ok := committing(r); ok && !commit && a.has(r) {
		a[r.ProducerID] = a[r.ProducerID][1:]
	}
}

// committing reports whether a control record commits a transaction. ok is false if it is no end of one.
func committing(r *kgo.Record) (commit, ok bool) {
	if len(r.Key) < 4 {
		return false, false
	}
	switch binary.BigEndian.Uint16(r.Key[2:]) {
	case 0:
		return false, true
	case 1:
		return true, true
	}
	return false, false
}
