package group

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick/internal/kafka"
	"github.com/killick-io/killick/internal/partition"
)

// late is a partition of ours of which the cluster must say where it starts and has not yet: it has
// no leader now, or its position has left the log. The others do not wait for it, and neither do
// the poll loop and the group: tails asks again with each look.
type late struct {
	// p is the open partition whose position has left the log; nil: the partition is not open yet.
	p *partition.Partition
	// unknown: what is committed must be asked for, too. To take it for nothing would be a loss where new
	// partitions start at the end.
	unknown bool
}

// await puts a partition off. why is shown to people until it opens; "" for one that is open.
func (r *Reader) await(k partition.Key, l *late, why string) {
	r.mu.Lock()
	r.late[k] = l
	if why != "" {
		r.stopped[k] = why
	}
	r.mu.Unlock()
	r.cl.PauseFetchPartitions(map[string][]int32{k.Topic: {k.ID}})
	select {
	case r.lookNow <- struct{}{}:
	default:
	}
}

// know looks at topics before partitions of theirs open. refused are those that cannot be read, and
// why; waits those of which that is not known now. The others are in sound.
func (r *Reader) know(ctx context.Context, names []string) (sound []string, refused, waits map[string]string, err error) {
	refused, waits = map[string]string{}, map[string]string{}
	ts, err := r.admin.Topics(ctx, names...)
	if ctx.Err() != nil {
		return nil, nil, nil, ctx.Err()
	}
	if ts == nil && err != nil { // no reason to lose the others
		for _, name := range names {
			waits[name] = err.Error()
		}
		return nil, refused, waits, nil
	}
	for _, name := range names {
		have, ok := ts[name]
		if !ok { // one by one: err is about any of them
			one, err := r.admin.Topics(ctx, name)
			switch have, ok = one[name]; {
			case ok:
			case isNoTopic(err):
				refused[name] = "the topic does not exist any more"
				continue
			default:
				waits[name] = err.Error()
				continue
			}
		}
		if !r.same(have) {
			r.recreated(name, kerr.InconsistentTopicID)
			refused[name] = "the topic is not the one that was there before"
			continue
		}
		if err := r.newTopic(ctx, have); err != nil {
			if ctx.Err() != nil {
				return nil, nil, nil, err
			}
			refused[name] = err.Error()
			continue
		}
		sound = append(sound, name)
	}
	return sound, refused, waits, nil
}

// latecomers opens partitions that were put off, as far as the cluster knows now where they start.
func (r *Reader) latecomers(ctx context.Context) {
	r.mu.Lock()
	waiting := maps.Clone(r.late)
	r.mu.Unlock()
	if len(waiting) == 0 {
		return
	}
	topics := map[string]bool{}
	for k := range waiting {
		topics[k.Topic] = true
	}
	sound, refused, _, err := r.know(ctx, slices.Sorted(maps.Keys(topics)))
	if err != nil {
		r.complain(ctx, err)
		return
	}
	bounds, err := r.admin.Bounds(ctx, sound...)
	if err != nil {
		r.complain(ctx, err)
	}
	known := r.recall(ctx, waiting, sound)
	var list []*opening
	for k, l := range waiting {
		if l.unknown && !known && refused[k.Topic] == "" {
			continue
		}
		b, ok := bounds[kafka.Partition{Topic: k.Topic, ID: k.ID}]
		switch why := refused[k.Topic]; {
		case why != "":
			list = append(list, &opening{key: k, had: committed{offset: -1}, refuse: why})
		case ok:
			o, err := r.where(ctx, k, l, b)
			if err != nil {
				r.complain(ctx, err)
				continue
			}
			list = append(list, o)
		}
	}
	if len(list) == 0 || ctx.Err() != nil {
		return
	}
	r.tell("late", func() {
		for _, o := range list {
			r.arrive(o, waiting[o.key])
		}
	})
}

// recall finds out what is committed for partitions of which that is unknown, and reports whether it is
// known now.
func (r *Reader) recall(ctx context.Context, waiting map[partition.Key]*late, topics []string) bool {
	unknown := slices.DeleteFunc(slices.Collect(maps.Keys(waiting)), func(k partition.Key) bool { return !waiting[k].unknown })
	if len(unknown) == 0 || len(topics) == 0 {
		return true
	}
	got, err := r.admin.Committed(ctx, r.cfg.Group, topics...)
	if err != nil {
		r.complain(ctx, err)
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range unknown {
		if c, ok := got[kafka.Partition{Topic: k.Topic, ID: k.ID}]; ok && r.late[k] == waiting[k] {
			r.fetched[k] = committed{c.Offset, c.Metadata}
		}
	}
	return true
}

// where says where a partition that was put off starts.
func (r *Reader) where(ctx context.Context, k partition.Key, l *late, b kafka.Bounds) (*opening, error) {
	if l.p == nil {
		return r.decide(ctx, k, b)
	}
	o := &opening{key: k, src: r.source(k.Topic), base: l.p.Status().Next, end: b.End}
	return o, r.gone(ctx, o, "is next", b)
}

// arrive opens a partition that was put off, if it is still the assignment that l was put off in.
// Poll loop only.
func (r *Reader) arrive(o *opening, l *late) {
	r.mu.Lock()
	same := r.late[o.key] == l
	if same {
		delete(r.late, o.key)
		delete(r.fetched, o.key)
		delete(r.stopped, o.key)
	}
	r.mu.Unlock()
	if !same || l.p != nil && l.p.Closed() || r.proto.isClosed(o.key) {
		return
	}
	r.openOne(o)
	if o.refuse != "" {
		return
	}
	r.cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{o.key.Topic: {o.key.ID: {Epoch: -1, Offset: o.base}}})
	if !r.drains.Load() {
		r.cl.ResumeFetchPartitions(map[string][]int32{o.key.Topic: {o.key.ID}})
	}
	r.log.Info().Str("topic", o.key.Topic).Int32("partition", o.key.ID).Int64("offset", o.base).Msg("the partition that had to wait is open")
	r.commits.poke()
}
