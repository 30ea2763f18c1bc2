package group

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/killick-io/killick/internal/kafka"
	"github.com/killick-io/killick/internal/partition"
	"github.com/killick-io/killick/offsets"
)

// lookTime bounds a question to the cluster that the poll or commit loop waits for.
const lookTime = 10 * time.Second

// commits commits the floors of all open partitions. commit is the only function that does, and
// holds mu while it does: one commit is in flight at a time.
type commits struct {
	r   *Reader
	now chan struct{} // commit before the interval is over

	mu  sync.Mutex
	enc offsets.Encoder

	// state guards what others may see.
	state sync.Mutex
	acked map[*partition.Partition]acked
	count CommitStats
	said  time.Time // the last refusal that was logged
}

// acked is what the broker has stored for a partition.
type acked struct {
	offset   int64
	metadata string
	at       time.Time
}

// CommitStats counts commits, by partition.
type CommitStats struct {
	OK, Refused, Failed int64
	Nanos               int64 // of requests
	Requests            int64
	Last                time.Time // the last request whose positions were all stored
}

func (c *commits) poke() {
	select {
	case c.now <- struct{}{}:
	default:
	}
}

// known notes what was committed when the partition opened.
func (c *commits) known(p *partition.Partition, had committed) {
	c.state.Lock()
	defer c.state.Unlock()
	c.acked[p] = acked{had.offset, had.metadata, time.Now()}
}

func (c *commits) forget(p *partition.Partition) {
	c.state.Lock()
	defer c.state.Unlock()
	delete(c.acked, p)
}

func (c *commits) committed(p *partition.Partition) int64 {
	c.state.Lock()
	defer c.state.Unlock()
	if a, ok := c.acked[p]; ok {
		return a.offset
	}
	return -1
}

func (c *commits) stats() CommitStats {
	c.state.Lock()
	defer c.state.Unlock()
	return c.count
}

func (c *commits) loop(ctx context.Context) {
	t := time.NewTicker(c.r.cfg.CommitInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-c.now:
		}
		cctx, cancel := context.WithTimeout(ctx, lookTime)
		_, _ = c.commit(cctx) // logged; the next one is built anew
		cancel()
	}
}

// Commit commits once, now. It returns how many partitions have a position that is not stored.
func (r *Reader) Commit(ctx context.Context) (left int, err error) { return r.commits.commit(ctx) }

// item is one position of a commit in progress.
type item struct {
	p    *partition.Partition
	pos  kafka.Position
	same bool // as what is stored: a refresh
}

func (c *commits) commit(ctx context.Context) (left int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lease := c.r.lease.Load() // before the positions; see the package comment
	items := c.collect()
	if len(items) == 0 {
		return 0, nil
	}
	if lease == nil {
		return len(items), kafka.ErrNoLease
	}
	ps := make([]kafka.Position, len(items))
	for i := range items {
		ps[i] = items[i].pos
	}
	start := time.Now()
	results, err := kafka.Commit(ctx, c.r.cl, c.r.cfg.Group, *lease, ps)
	took := time.Since(start)
	c.state.Lock()
	c.count.Requests++
	c.count.Nanos += int64(took)
	c.state.Unlock()
	if err != nil {
		// Stored or not, and perhaps stored later: the next commit carries the state of then.
		c.count1(&c.count.Failed, len(items))
		if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
			c.say(err, lease, nil)
		}
		return len(items), err
	}
	var first error
	for i, res := range results {
		it := &items[i]
		if res.Err == nil {
			c.stored(it)
			continue
		}
		left++
		if first == nil {
			first = res.Err
		}
		c.count1(&c.count.Refused, 1)
		c.say(res.Err, lease, &res.Position)
		if kafka.Refusal(res.Err) == kafka.Fatal {
			c.r.stop(fmt.Errorf("the offset of %s cannot be committed: %w", it.p.Name(), res.Err))
		}
	}
	if left == 0 {
		c.state.Lock()
		c.count.Last = time.Now()
		c.state.Unlock()
	}
	return left, first
}

// collect takes the positions that differ from what is stored, or whose refresh is due.
func (c *commits) collect() []item {
	var items []item
	now := time.Now()
	for _, s := range c.r.cfg.Sources {
		for _, p := range s.Feed.Partitions() {
			pos, ok := p.Position()
			if !ok {
				continue
			}
			text, _ := c.enc.Encode(pos.Map)
			c.state.Lock()
			a, have := c.acked[p]
			c.state.Unlock()
			same := have && a.offset == pos.Map.Base && a.metadata == text
			if same && now.Sub(a.at) < c.r.cfg.Refresh {
				continue
			}
			c.r.mu.Lock()
			id := c.r.topics[p.Topic].ID
			c.r.mu.Unlock()
			items = append(items, item{p, kafka.Position{Topic: p.Topic, TopicID: id, Partition: p.ID,
				Offset: pos.Map.Base, LeaderEpoch: -1, Metadata: text}, same})
		}
	}
	return items
}

func (c *commits) stored(it *item) {
	c.state.Lock()
	if !it.p.Closed() {
		c.acked[it.p] = acked{it.pos.Offset, it.pos.Metadata, time.Now()}
	}
	c.count.OK++
	c.state.Unlock()
	it.p.Release()
}

func (c *commits) count1(n *int64, by int) {
	c.state.Lock()
	defer c.state.Unlock()
	*n += int64(by)
}

// say logs a refusal with all that is needed to understand it, at most one per second.
func (c *commits) say(err error, l *kafka.Lease, p *kafka.Position) {
	c.state.Lock()
	quiet := time.Since(c.said) < time.Second
	if !quiet {
		c.said = time.Now()
	}
	c.state.Unlock()
	if quiet {
		return
	}
	e := c.r.log.Warn().Err(err).Str("group", c.r.cfg.Group).Str("member", l.Member).Int32("generation", l.Generation).
		Str("kind", kafka.Refusal(err).String())
	if p != nil {
		e = e.Str("topic", p.Topic).Int32("partition", p.Partition).Int64("offset", p.Offset)
	}
	e.Msg("commit not stored")
}
