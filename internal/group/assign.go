package group

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick/internal/kafka"
	"github.com/killick-io/killick/internal/partition"
	"github.com/killick-io/killick/internal/rules"
	"github.com/killick-io/killick/offsets"
	"github.com/killick-io/killick/spout"
)

// bound resolves the ends of a bounded spout.
func (r *Reader) bound(ctx context.Context, s *Source, ts map[string]kafka.Topic) error {
	if !s.Kafka.Until.IsSet() {
		return nil
	}
	var ps []kafka.Partition
	for _, t := range ts {
		for i := range t.Partitions {
			ps = append(ps, kafka.Partition{Topic: t.Name, ID: int32(i)})
		}
	}
	pos, err := r.positions(ctx, s.Kafka.Until, ps)
	if err != nil {
		return fmt.Errorf("spout %q: resolving where it ends: %w", s.Spec.Name, err)
	}
	var names []string
	for _, t := range ts {
		names = append(names, t.Name)
	}
	bounds, err := r.admin.Bounds(ctx, names...)
	if err != nil {
		return fmt.Errorf("spout %q: %w", s.Spec.Name, err)
	}
	ends := map[partition.Key]int64{}
	for p, end := range pos {
		k := partition.Key{Topic: p.Topic, ID: p.ID}
		// An end at the beginning of the log has nothing before it.
		if ends[k] = end; end <= bounds[p].Start {
			ends[k] = 0
		}
	}
	s.Feed.Bound(ends)
	return nil
}

// positions resolves a position for each of ps. A partition without one (an end that Offsets does
// not list) is absent.
func (r *Reader) positions(ctx context.Context, at spout.Position, ps []kafka.Partition) (map[kafka.Partition]int64, error) {
	if len(ps) == 0 {
		return nil, nil
	}
	if t, ok := at.Time(); ok {
		return r.admin.Positions(ctx, kafka.AtTime(t), ps...)
	}
	if at.IsLatest() {
		return r.admin.Positions(ctx, kafka.Latest(), ps...)
	}
	if at.IsEarliest() || !at.IsSet() {
		return r.admin.Positions(ctx, kafka.Earliest(), ps...)
	}
	out := map[kafka.Partition]int64{}
	for _, p := range ps {
		if o, ok := at.Offset(p.Topic, p.ID); ok {
			out[p] = o
		}
	}
	return out, nil
}

// opening is a partition that is about to open.
type opening struct {
	key    partition.Key
	src    *Source
	base   int64
	m      offsets.Map
	had    committed // what is committed; offset -1: nothing
	hold   bool
	refuse string // it does not open, and why
}

// adjust decides where each newly assigned partition starts, opens it, and returns the offsets
// to the client. It runs between Assigned and the first fetch.
func (r *Reader) adjust(ctx context.Context, given map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	var names []string
	for t := range given {
		names = append(names, t)
	}
	ts, err := r.admin.Topics(ctx, names...)
	if err != nil && !errors.Is(err, kafka.ErrNoTopic) {
		return nil, err
	}
	refused := map[string]string{} // topics that cannot be read
	names = names[:0]
	for t := range given {
		switch have, ok := ts[t]; {
		case !ok:
			refused[t] = "the topic does not exist any more"
		case !r.same(have):
			r.recreated(t, kerr.InconsistentTopicID)
			refused[t] = "the topic is not the one that was there before"
		default:
			if err := r.newTopic(ctx, have); err != nil {
				if ctx.Err() != nil {
					return nil, err
				}
				refused[t] = err.Error()
				continue
			}
			names = append(names, t)
		}
	}
	bounds, err := r.admin.Bounds(ctx, names...)
	if err != nil {
		return nil, err
	}
	var list []*opening
	for t, ps := range given {
		for p := range ps {
			k := partition.Key{Topic: t, ID: p}
			if why := refused[t]; why != "" {
				list = append(list, &opening{key: k, had: committed{offset: -1}, refuse: why})
				continue
			}
			o, err := r.decide(ctx, k, bounds[kafka.Partition{Topic: t, ID: p}])
			if err != nil {
				return nil, err
			}
			list = append(list, o)
		}
	}
	r.mu.Lock()
	for p, b := range bounds {
		r.bounds[p] = b
	}
	for _, o := range list {
		delete(r.fetched, o.key)
	}
	r.mu.Unlock()
	r.tell("open", func() {
		if ctx.Err() != nil {
			return // the session has ended: the next one decides anew
		}
		for _, o := range list {
			r.openOne(o)
		}
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, o := range list {
		at := given[o.key.Topic][o.key.ID]
		if o.had.offset != o.base || o.refuse != "" {
			// An offset of our own has no epoch that the client could compare; and what is
			// refused is not fetched, so its epoch must not be looked at.
			at = kgo.NewOffset().At(o.base).WithEpoch(-1)
		}
		given[o.key.Topic][o.key.ID] = at
	}
	r.commits.poke()
	return given, nil
}

// openOne runs on the poll loop.
func (r *Reader) openOne(o *opening) {
	if old := r.open[o.key]; old != nil {
		r.shut(o.key, "assigned again")
	}
	if o.refuse != "" {
		r.halt(o.key, o.refuse)
		return
	}
	p := o.src.Feed.Open(o.key.Topic, o.key.ID, o.base, o.m, o.hold)
	r.open[o.key] = &owned{p, o.src}
	if o.had.offset >= 0 && o.had.offset == o.base {
		r.commits.known(p, o.had)
	}
}

// decide says where a partition starts.
func (r *Reader) decide(ctx context.Context, k partition.Key, b kafka.Bounds) (*opening, error) {
	o := &opening{key: k, src: r.source(k.Topic), had: committed{offset: -1}}
	if o.src == nil {
		o.refuse = "no spout of the topology reads the topic"
		return o, nil
	}
	if err := r.clash(k.Topic); err != nil { // a topic that was born later
		o.refuse = err.Error()
		return o, nil
	}
	r.mu.Lock()
	c, ok := r.fetched[k]
	r.mu.Unlock()
	if ok {
		o.had, o.base = c, c.offset
		if c.offset < b.Start || c.offset > b.End {
			return o, r.gone(ctx, o, b)
		}
		if rules.MapIsUsed {
			o.m = r.decode(k, c)
		}
		return o, nil
	}
	at := o.src.Kafka.Start
	if r.newborn(k) {
		at = spout.Earliest()
	}
	pos, err := r.positions(ctx, at, []kafka.Partition{{Topic: k.Topic, ID: k.ID}})
	if err != nil {
		return nil, err
	}
	base, listed := pos[kafka.Partition{Topic: k.Topic, ID: k.ID}]
	if !listed {
		base = b.Start
	}
	if base < b.Start || base > b.End {
		o.refuse = fmt.Sprintf("the spout starts at offset %d, but the log has %d to %d", base, b.Start, b.End)
		return o, nil
	}
	o.base = base
	// Where the position was found out just now, it must be durable before a record is: after a
	// crash it would be found out again, behind records that came meanwhile.
	o.hold = rules.LatestIsCommittedFirst && at.IsSet() && !at.IsEarliest()
	return o, nil
}

// gone handles a committed offset that is not in the log any more.
func (r *Reader) gone(ctx context.Context, o *opening, b kafka.Bounds) error {
	k, policy := o.key, o.src.Kafka.Lost
	what := fmt.Sprintf("offset %d is committed, but the log has %d to %d", o.base, b.Start, b.End)
	if !policy.IsSet() {
		o.refuse = what + "; set KafkaSource.Lost, or reset the group's offset, to go on"
		return nil
	}
	pos, err := r.positions(ctx, policy, []kafka.Partition{{Topic: k.Topic, ID: k.ID}})
	if err != nil {
		return err
	}
	to := pos[kafka.Partition{Topic: k.Topic, ID: k.ID}]
	lost := max(0, b.Start-o.base)
	r.mu.Lock()
	r.stats.LostOffsets += lost
	r.mu.Unlock()
	r.log.Warn().Str("topic", k.Topic).Int32("partition", k.ID).Int64("committed", o.base).Int64("log_start", b.Start).
		Int64("log_end", b.End).Int64("lost", lost).Int64("goes_on_at", to).Str("policy", policy.String()).Msg("the committed offset is out of range")
	o.base, o.had, o.hold = to, committed{offset: -1}, !policy.IsEarliest()
	return nil
}

// decode reads the completion map of a commit. What cannot be read is worth nothing: records
// may run again, none is lost.
func (r *Reader) decode(k partition.Key, c committed) offsets.Map {
	m, err := offsets.Decode(c.metadata, c.offset)
	if err == nil {
		return m
	}
	if c.metadata != "" {
		e := r.log.Warn()
		if errors.Is(err, offsets.ErrForeign) {
			e = r.log.Info()
		}
		e.Str("topic", k.Topic).Int32("partition", k.ID).Int64("committed", c.offset).Err(err).
			Msg("the commit's metadata is not used: records above the committed offset run again")
	}
	return offsets.Map{}
}

// outOfRange handles a position that fell out of the log while it was read: retention overtook the
// reader, or the log was truncated. Poll loop only.
func (r *Reader) outOfRange(k partition.Key, cause error) {
	old := r.open[k]
	if old == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	bounds, err := r.admin.Bounds(ctx, k.Topic)
	if err != nil {
		r.halt(k, fmt.Sprintf("%v; and its bounds could not be read: %v", cause, err))
		return
	}
	o := &opening{key: k, src: old.src, base: old.p.Status().Next}
	if err := r.gone(ctx, o, bounds[kafka.Partition{Topic: k.Topic, ID: k.ID}]); err != nil {
		r.halt(k, fmt.Sprintf("%v; and its new position could not be read: %v", cause, err))
		return
	}
	r.openOne(o)
	if o.refuse == "" {
		r.cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{k.Topic: {k.ID: {Epoch: -1, Offset: o.base}}})
		r.commits.poke()
	}
}
