package group

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/killick-io/killick/internal/kafka"
	"github.com/killick-io/killick/internal/partition"
	"github.com/killick-io/killick/internal/rules"
)

// tails looks at the ends of the logs: for the lag, and for offsets at the end that were
// compacted away, which no poll ever passes.
func (r *Reader) tails(ctx context.Context) {
	t := time.NewTicker(max(r.cfg.TailIdle/4, 10*time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-r.lookNow:
		}
		lctx, cancel := context.WithTimeout(ctx, lookTime)
		r.latecomers(lctx)
		r.look(lctx)
		r.others(lctx)
		cancel()
		// A suspicion that comes back at once must not make this a busy loop.
		pause := time.NewTimer(lookPause)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// lookPause is the least time between two looks.
const lookPause = 200 * time.Millisecond

func (r *Reader) look(ctx context.Context) {
	names := map[string]bool{}
	for _, s := range r.cfg.Sources {
		for _, p := range s.Feed.Partitions() {
			names[p.Topic] = true
		}
	}
	r.mu.Lock()
	for k := range r.stopped {
		names[k.Topic] = true
	}
	r.mu.Unlock()
	if len(names) == 0 {
		return
	}
	ts, err := r.admin.Topics(ctx, slices.Sorted(maps.Keys(names))...)
	if err != nil && !errors.Is(err, kafka.ErrNoTopic) {
		r.complain(ctx, err)
		return
	}
	for name := range names {
		switch t, ok := ts[name]; {
		case !ok:
			r.vanished(name)
		case !r.same(t):
			r.recreated(name, kerr.InconsistentTopicID)
			return
		default:
			delete(r.missing, name)
			r.sound(name)
		}
	}
	bounds, err := r.admin.Bounds(ctx, slices.Sorted(maps.Keys(ts))...)
	if err != nil {
		r.complain(ctx, err)
	}
	r.mu.Lock()
	for p, b := range bounds {
		r.bounds[p] = b
	}
	r.mu.Unlock()
	for _, s := range r.cfg.Sources {
		for _, p := range s.Feed.Partitions() {
			st := p.Status()
			k := kafka.Partition{Topic: p.Topic, ID: p.ID}
			b, ok := bounds[k]
			idle := r.cfg.TailIdle
			if st.Until >= 0 {
				idle = min(idle, time.Second) // somebody waits for the end
			}
			if !ok || !rules.TailsAreAsked || st.Next >= b.Stable || st.Paused || st.Held || r.unreadable(p) != "" || time.Since(st.Moved) < idle || st.Finished {
				continue
			}
			tail, err := r.admin.NextOffset(ctx, k, st.Next)
			if err != nil || tail.Records || tail.Next <= st.Next {
				continue // next time, or the poll brings it
			}
			if p.Skip(st.Next, tail.Next) {
				r.log.Info().Str("topic", k.Topic).Int32("partition", k.ID).Int64("from", st.Next).Int64("to", tail.Next).
					Msg("the end of the log was compacted away; the position moved behind it")
				s.Feed.Delivered()
			}
		}
	}
}

// complain says that a look has failed, if it is not the end. Once in ten minutes: a broker that is
// away is seen elsewhere.
func (r *Reader) complain(ctx context.Context, err error) {
	if errors.Is(ctx.Err(), context.Canceled) || time.Since(r.complained) < 10*time.Minute {
		return
	}
	r.complained = time.Now()
	r.log.Warn().Err(err).Msg("the ends of the logs could not be read; lag is not known")
}

// vanishTime is how long a topic must be missing: a broker that starts may not know all of them yet.
const vanishTime = 5 * time.Second

// vanished stops the partitions of a topic that does not exist any more.
func (r *Reader) vanished(topic string) {
	since, ok := r.missing[topic]
	if !ok {
		r.missing[topic] = time.Now()
		return
	}
	if time.Since(since) < vanishTime {
		return
	}
	r.tell("vanished", func() {
		for k := range r.open {
			if k.Topic == topic {
				r.halt(k, "the topic does not exist any more")
			}
		}
	})
}

// others ends the partitions of bounded runs that other members of the group have brought to their
// end: what they have committed says so.
func (r *Reader) others(ctx context.Context) {
	for _, s := range r.cfg.Sources {
		left := s.Feed.Unfinished()
		for _, p := range s.Feed.Partitions() {
			delete(left, partition.Key{Topic: p.Topic, ID: p.ID})
		}
		if len(left) == 0 {
			continue
		}
		names := map[string]bool{}
		for k := range left {
			names[k.Topic] = true
		}
		got, err := r.admin.Committed(ctx, r.cfg.Group, slices.Collect(maps.Keys(names))...)
		if err != nil {
			r.complain(ctx, err)
		}
		for k, end := range left {
			if c, ok := got[kafka.Partition{Topic: k.Topic, ID: k.ID}]; ok && c.Offset >= end {
				s.Feed.Over(k)
			}
		}
	}
}
