package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick/internal/crash"
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
	end    int64     // of the log
	had    committed // what is committed; offset -1: nothing
	hold   bool
	refuse string // it does not open, and why
	wait   string // it does not open now, and why
	// unknown: what is committed is not known, either.
	unknown bool
}

// adjust decides where each newly assigned partition starts, opens it, and returns the offsets
// to the client. It runs between Assigned and the first fetch.
func (r *Reader) adjust(ctx context.Context, given map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	if r.proto.foreign() {
		// A static member has its old assignment back, and has become another: it opens nothing,
		// and claims nothing when it joins again.
		for t, ps := range given {
			for p := range ps {
				r.proto.close(partition.Key{Topic: t, ID: p})
			}
		}
		r.log.Info().Msg("the assignment is for a worker of another shape: joining again")
		r.rel.again()
		return nil, nil
	}
	sound, refused, waits, err := r.know(ctx, slices.Sorted(maps.Keys(given)))
	if err != nil {
		return nil, err
	}
	bounds, unknown := r.admin.Bounds(ctx, sound...)
	var list []*opening
	for t, ps := range given {
		for p := range ps {
			o := &opening{key: partition.Key{Topic: t, ID: p}, had: committed{offset: -1}, refuse: refused[t], wait: waits[t]}
			if o.refuse == "" && o.wait == "" {
				var err error
				if b, ok := bounds[kafka.Partition{Topic: t, ID: p}]; !ok {
					err = cmp.Or(unknown, kafka.ErrNoPartition)
				} else if o, err = r.decide(ctx, o.key, b); err != nil {
					o = &opening{key: partition.Key{Topic: t, ID: p}, had: committed{offset: -1}}
				}
				if err != nil {
					o.wait = err.Error()
				}
			}
			list = append(list, o)
		}
	}
	for _, k := range r.untold(given) {
		list = append(list, &opening{key: k, had: committed{offset: -1}, wait: "the broker does not tell what is committed", unknown: true})
		if given[k.Topic] == nil {
			given[k.Topic] = map[int32]kgo.Offset{}
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	for p, b := range bounds {
		r.bounds[p] = b
	}
	for _, o := range list {
		if o.wait == "" {
			delete(r.fetched, o.key)
		}
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
		if o.had.offset != o.base || o.refuse != "" || o.wait != "" {
			// An offset of our own has no epoch that the client could compare; and what is
			// refused or waits is not fetched, so its epoch must not be looked at.
			at = kgo.NewOffset().At(o.base).WithEpoch(-1)
		}
		given[o.key.Topic][o.key.ID] = at
	}
	r.commits.poke()
	crash.At(crash.Opened)
	return given, nil
}

// untold are the partitions of this assignment of whose committed offset the broker has said nothing but
// an error. The client leaves them out of given, and would never read them.
func (r *Reader) untold(given map[string]map[int32]kgo.Offset) (out []partition.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.fresh {
		if _, ok := given[k.Topic][k.ID]; !ok && !r.proto.isClosed(k) {
			out = append(out, k)
		}
	}
	return out
}

// openOne runs on the poll loop.
func (r *Reader) openOne(o *opening) {
	if r.proto.isClosed(o.key) {
		return // given away: it may be another member's by now
	}
	r.mu.Lock()
	delete(r.fresh, o.key)
	r.mu.Unlock()
	if old := r.open[o.key]; old != nil {
		r.shut(o.key, "assigned again")
	}
	if o.refuse != "" {
		r.halt(o.key, o.refuse)
		return
	}
	if o.wait != "" {
		why := "where it starts cannot be found out now, and is asked again: " + o.wait
		r.log.Warn().Str("topic", o.key.Topic).Int32("partition", o.key.ID).Str("reason", why).Msg("the partition has to wait")
		r.await(o.key, &late{unknown: o.unknown}, why)
		return
	}
	o.m.Held = o.m.TakeOver(o.end, r.commits.own(o.key, o.had))
	if s := o.m.Held; s.Deaths > 0 || s.Accused() {
		r.log.Warn().Str("topic", o.key.Topic).Int32("partition", o.key.ID).Int64("floor", o.base).Int("deaths", s.Deaths).Int64("until", s.Until).
			Int64("suspect", s.Suspect).Int("strikes", s.Strikes).Msg("the owner before has died, or was cut off, with open records")
	}
	p := o.src.Feed.Open(o.key.Topic, o.key.ID, o.base, o.m, o.hold)
	r.open[o.key] = &owned{p, o.src}
	if o.had.offset >= 0 && o.had.offset == o.base {
		r.commits.known(p, o.had)
		if m, ok := p.Position(); ok && r.commits.settled(p) {
			p.Stored(m) // its mark is there already, as this process or an idle owner has left it
			r.commits.adopt(o.key, o.had)
		}
	}
	if !rules.LatestIsCommittedFirst {
		p.Unmarked() // the mistake: no first commit is waited for
	}
	r.hunt.opened(p)
}

// decide says where a partition starts.
func (r *Reader) decide(ctx context.Context, k partition.Key, b kafka.Bounds) (*opening, error) {
	o := &opening{key: k, src: r.source(k.Topic), had: committed{offset: -1}, end: b.End}
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
			return o, r.gone(ctx, o, "is committed", b)
		}
		if rules.MapIsUsed {
			o.m = r.decode(k, c)
		}
		return o, nil
	}
	at := o.src.Kafka.Start
	if r.newborn(k) && rules.NewPartitionsAreReadWhole {
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

// gone handles an offset that is committed, or next to be read, and not in the log any more.
func (r *Reader) gone(ctx context.Context, o *opening, is string, b kafka.Bounds) error {
	k, policy := o.key, o.src.Kafka.Lost
	what := fmt.Sprintf("offset %d %s, but the log has %d to %d", o.base, is, b.Start, b.End)
	if !policy.IsSet() && !rules.LostRangesStop {
		policy = spout.Earliest()
	}
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

func isNoTopic(err error) bool { return errors.Is(err, kafka.ErrNoTopic) }

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
// reader, or the log was truncated. The client does not fetch the partition until it is told where.
// Poll loop only.
func (r *Reader) outOfRange(k partition.Key) {
	old := r.open[k]
	if old == nil {
		return
	}
	r.await(k, &late{p: old.p}, "")
}
