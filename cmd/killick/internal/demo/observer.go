package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/killick-io/killick/examples/orders/check"
	"github.com/killick-io/killick/offsets"
)

// round is one look at the committed offsets and then, in this order, at the ends of the outputs.
type round struct {
	at      time.Time // when the committed offsets had arrived
	commits [partitions]commit
	named   [partitions][]int64 // what the completion maps beside them name as finished
	ends    []check.End         // of notifications and dead letters
	fresh   bool                // a commit is there that the round before had not seen
}

// effects are the records written so far: each order leads to one.
func (r *round) effects() (n int64) {
	for _, e := range r.ends {
		n += e.Offset
	}
	return n
}

// covered are the records that the commits and their maps call finished.
func (r *round) covered() (n int64) {
	for p, c := range r.commits {
		n += max(c.offset, 0) + int64(len(r.named[p]))
	}
	return n
}

// above are those of them that only the maps know.
func (r *round) above() (n int) {
	for _, d := range r.named {
		n += len(d)
	}
	return n
}

// committed: at least one commit of a partition is there.
func (r *round) committed() bool {
	return slices.ContainsFunc(r.commits[:], func(c commit) bool { return c.offset >= 0 })
}

// sample is what the round says of one partition.
func (r *round) sample(p int32) check.Sample {
	return check.Sample{At: r.at, Partition: p, Offset: r.commits[p].offset, Metadata: r.commits[p].metadata,
		Done: r.named[p], Ends: r.ends}
}

// observer looks at a run from outside, round by round. It keeps the first sentence of each story: a sample of a
// partition only when its commit differs from the one before, since an early commit shows most in the first round
// that sees it.
type observer struct {
	k        *cluster
	patience time.Duration // with a broker that does not answer, or not well
	samples  []check.Sample
	last     *round // nil before the first

	// before is how many effects there were two rounds before the newest commit was seen: a commit that the worker
	// had made up by then cannot know more than those and what was under way.
	before int64
	older  int64 // effects of the round before last
}

// errMetadata: what the worker has written is wrong, and looking again does not help. All other errors of look come from
// Kafka and may pass.
var errMetadata = errors.New("demo: unreadable commit metadata")

// look takes one round. What goes wrong at a broker may pass: it tries again for a while.
func (o *observer) look(ctx context.Context) (*round, error) {
	for begin := time.Now(); ; {
		r, err := o.try(ctx)
		switch {
		case err == nil || errors.Is(err, errMetadata):
			return r, err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case time.Since(begin) > o.patience:
			return nil, fmt.Errorf("demo: no good answer from Kafka for %v: %w", o.patience, err)
		}
		if err := pause(ctx, again); err != nil {
			return nil, err
		}
	}
}

// again is the time between two tries.
const again = 50 * time.Millisecond

// try takes one round at the first go, or changes nothing.
func (o *observer) try(ctx context.Context) (*round, error) {
	commits, err := o.k.commits(ctx)
	if err != nil {
		return nil, err
	}
	r := &round{at: time.Now(), commits: commits}
	if r.ends, err = o.k.ends(ctx, o.k.notifications, o.k.dead); err != nil {
		return nil, err
	}
	var news []check.Sample
	for p, c := range commits {
		same := o.last != nil && o.last.commits[p] == c
		if same {
			r.named[p] = o.last.named[p]
			continue
		}
		if r.named[p], err = named(c); err != nil {
			return nil, fmt.Errorf("%w of %s-%d at offset %d: %w", errMetadata, o.k.orders, p, c.offset, err)
		}
		r.fresh = r.fresh || c.offset >= 0
		news = append(news, r.sample(int32(p)))
	}
	o.samples = append(o.samples, news...)
	if r.fresh {
		o.before = o.older
	}
	if o.last != nil {
		o.older = o.last.effects()
	}
	o.last = r
	return r, nil
}

// named lists the offsets that the completion map of a commit calls finished. Metadata that is not a map of this very
// commit is an error: killick wrote it, and nobody else.
func named(c commit) ([]int64, error) {
	if c.metadata == "" {
		return nil, nil
	}
	m, err := offsets.Decode(c.metadata, c.offset)
	if err != nil {
		return nil, err
	}
	var done []int64
	for off := m.Base; off < m.Next; off++ {
		if m.Done(off) {
			done = append(done, off)
		}
	}
	return done, nil
}

const (
	// settled is how long nothing may change after a worker's death: what it had sent may still be on its way.
	settled     = 150 * time.Millisecond
	settleLimit = 10 * time.Second
)

// settle looks until what the dead worker has left does not change any more.
func (o *observer) settle(ctx context.Context) (*round, error) {
	limit, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	prev, err := o.look(limit)
	for err == nil {
		if err = pause(limit, settled); err != nil {
			break
		}
		var r *round
		if r, err = o.look(limit); err != nil {
			break
		}
		if r.commits == prev.commits && slices.Equal(r.ends, prev.ends) {
			return r, nil
		}
		prev = r
	}
	if limit.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("demo: offsets and outputs still change %v after the worker was killed", settleLimit)
	}
	return nil, err
}

// pause waits for d, or returns the reason why ctx has ended.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
