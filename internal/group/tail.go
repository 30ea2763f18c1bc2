package group

import (
	"context"
	"time"

	"github.com/killick-io/killick/internal/kafka"
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
		}
		lctx, cancel := context.WithTimeout(ctx, lookTime)
		r.look(lctx)
		cancel()
	}
}

func (r *Reader) look(ctx context.Context) {
	names := map[string]bool{}
	for _, s := range r.cfg.Sources {
		for _, p := range s.Feed.Partitions() {
			names[p.Topic] = true
		}
	}
	if len(names) == 0 {
		return
	}
	var list []string
	for n := range names {
		list = append(list, n)
	}
	bounds, err := r.admin.Bounds(ctx, list...)
	if err != nil && ctx.Err() == nil {
		r.log.Debug().Err(err).Msg("the ends of the logs could not be read")
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
			if !ok || st.Next >= b.Stable || st.Paused || st.Held || time.Since(st.Moved) < r.cfg.TailIdle || st.Finished {
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
