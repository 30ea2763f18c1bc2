package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/killick-io/killick/internal/crash"
	"github.com/killick-io/killick/internal/kafka"
	"github.com/killick-io/killick/internal/partition"
	"github.com/killick-io/killick/internal/rules"
	"github.com/killick-io/killick/offsets"
)

// lookTime bounds a question to the cluster that the poll or commit loop waits for.
const lookTime = 10 * time.Second

// renewTime is how long a lease that was refused is not used again. A new one comes with the next
// heartbeat or two, if the refusal was right; a coordinator that has lost its state refuses a
// member that stays one, and nothing would ever be committed again without another try.
const renewTime = 5 * time.Second

// ErrRenewal says that the lease was refused and a new one has not come yet.
var ErrRenewal = errors.New("group: the membership has changed; commits wait for the next assignment")

// ErrDoubt says that a topic may be another one by now. Its positions wait until that is known.
var ErrDoubt = errors.New("group: a topic may have been made anew; its positions are not committed until that is known")

// commits commits the floors of all open partitions. commit is the only function that does, and
// holds turn while it does: one commit is in flight at a time.
type commits struct {
	r    *Reader
	now  chan struct{} // commit before the interval is over
	turn chan struct{} // a lock that a context can end the wait for
	tick atomic.Int64  // unix nanos of the loop's last turn

	// Guarded by turn.
	enc       offsets.Encoder
	refused   *kafka.Lease // refused for good; not used again until refusedAt + renewTime
	refusedAt time.Time
	// spent is a lease under which a commit of an at-most-once topology is perhaps on its way still:
	// nothing is claimed under its generation any more.
	spent kafka.Lease
	// kept is the mistake that rules.CommitsUnderLease stands against: positions that were refused, to be
	// sent again under the next lease. Empty while the rule holds.
	kept []item

	// state guards what others may see.
	state   sync.Mutex
	acked   map[*partition.Partition]acked
	blocked map[*partition.Partition]string // why a position is refused, again and again
	final   map[*partition.Partition]final  // of those whose last answer was kafka.Hopeless
	// mine is what this process has stored last for a partition, and sent last: an answer may be lost.
	mine   map[partition.Key][2]committed
	count  CommitStats
	said   time.Time // the last refusal that was logged
	unsaid int       // those since then that were not
}

// acked is what the broker has stored for a partition.
type acked struct {
	offset   int64
	metadata string
	at       time.Time
}

// final is an answer after which another try does not help.
type final struct {
	err error
	at  time.Time
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

// own reports whether had is what this process itself has committed: the membership was lost meanwhile,
// but nobody has died.
func (c *commits) own(k partition.Key, had committed) bool {
	c.state.Lock()
	defer c.state.Unlock()
	m, ok := c.mine[k]
	return ok && had.metadata != "" && (had == m[0] || had == m[1])
}

// adopt makes had this process's own.
func (c *commits) adopt(k partition.Key, had committed) {
	c.state.Lock()
	defer c.state.Unlock()
	c.mine[k] = [2]committed{had}
}

func (c *commits) forget(p *partition.Partition) {
	c.state.Lock()
	defer c.state.Unlock()
	delete(c.acked, p)
	delete(c.blocked, p)
	delete(c.final, p)
}

// hopeless returns the answer after which p's position need not be sent again; nil: there was none since
// then.
func (c *commits) hopeless(p *partition.Partition, since time.Time) error {
	c.state.Lock()
	defer c.state.Unlock()
	if f := c.final[p]; !f.at.Before(since) {
		return f.err
	}
	return nil
}

// committed returns what is stored for p, -1 if nothing is known to be, and why its position
// cannot be committed, "" if nothing is wrong.
func (c *commits) committed(p *partition.Partition) (offset int64, blocked string) {
	c.state.Lock()
	defer c.state.Unlock()
	offset = -1
	if a, ok := c.acked[p]; ok {
		offset = a.offset
	}
	return offset, c.blocked[p]
}

// settled reports whether the broker has stored exactly what p has now.
func (c *commits) settled(p *partition.Partition) bool {
	pos, ok := p.Position()
	if !ok {
		return true // closed: nothing is to be stored any more
	}
	var enc offsets.Encoder
	text, _ := enc.Encode(pos)
	c.state.Lock()
	defer c.state.Unlock()
	a, have := c.acked[p]
	return have && a.offset == pos.Base && a.metadata == text
}

func (c *commits) stats() CommitStats {
	c.state.Lock()
	defer c.state.Unlock()
	return c.count
}

func (c *commits) loop(ctx context.Context) {
	t := time.NewTicker(c.r.cfg.CommitInterval)
	defer t.Stop()
	beat := time.NewTicker(aliveTime / 3) // the interval may be longer than a loop may be silent
	defer beat.Stop()
	for {
		c.tick.Store(time.Now().UnixNano())
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			continue
		case <-t.C:
		case <-c.now:
		}
		cctx, cancel := context.WithTimeout(ctx, lookTime)
		_, _ = c.commit(cctx) // logged; the next one is built anew
		cancel()
	}
}

// Commit commits once, now. It returns how many partitions have a position that is not stored,
// and why, of one of them: of one that another try may store, if there is one.
func (r *Reader) Commit(ctx context.Context) (left int, err error) { return r.commits.commit(ctx) }

// item is one position of a commit in progress.
type item struct {
	p   *partition.Partition
	m   offsets.Map // what pos says
	pos kafka.Position
}

func (c *commits) commit(ctx context.Context) (left int, err error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	lease := c.r.lease.Load() // before the positions; see the package comment
	refused := lease != nil && lease == c.refused && time.Since(c.refusedAt) < renewTime || lease != nil && c.isSpent(lease)
	items, doubtful := c.collect(lease != nil && !refused)
	if !rules.CommitsUnderLease {
		items = append(slices.Clone(c.kept), items...)
	}
	switch {
	case len(items)+doubtful == 0:
		return 0, nil
	case lease == nil:
		return len(items) + doubtful, kafka.ErrNoLease
	case refused:
		return len(items) + doubtful, ErrRenewal
	case len(items) == 0:
		return doubtful, ErrDoubt
	}
	ps := make([]kafka.Position, len(items))
	for i := range items {
		ps[i] = items[i].pos
	}
	c.state.Lock()
	for i := range items {
		k := partition.Key{Topic: ps[i].Topic, ID: ps[i].Partition}
		c.mine[k] = [2]committed{c.mine[k][0], {ps[i].Offset, ps[i].Metadata}}
	}
	c.state.Unlock()
	start := time.Now()
	crash.At(crash.BeforeCommit)
	results, err := kafka.Commit(ctx, c.r.cl, c.r.cfg.Group, *lease, ps)
	crash.At(crash.AfterCommit)
	took := time.Since(start)
	c.state.Lock()
	c.count.Requests++
	c.count.Nanos += int64(took)
	c.state.Unlock()
	if err != nil {
		// Stored or not, and perhaps stored later: the next commit carries the state of then.
		c.add(&c.count.Failed, len(items))
		for i := range items {
			items[i].p.Withdraw()
		}
		c.doubt(lease)
		if !errors.Is(ctx.Err(), context.Canceled) {
			c.say(err, lease, &ps[0], len(ps))
		}
		return len(items) + doubtful, err
	}
	if left = doubtful; left > 0 {
		err = ErrDoubt
	}
	for i, res := range results {
		it := &items[i]
		if res.Err == nil || !rules.CodesAreLookedAt {
			c.stored(it)
			continue
		}
		left++
		it.p.Withdraw()
		if errors.Is(res.Err, kerr.RequestTimedOut) || errors.Is(res.Err, kerr.UnknownServerError) || errors.Is(res.Err, kafka.ErrNoAnswer) {
			c.doubt(lease)
		}
		// What may pass is said rather than what will not: the caller tries again then.
		if err == nil || kafka.Refusal(err) == kafka.Fatal {
			err = res.Err
		}
		c.refusal(it, res.Err, lease)
		if !rules.CommitsUnderLease {
			c.kept = append(c.kept, *it)
		}
	}
	if left == 0 {
		c.state.Lock()
		c.count.Last = time.Now()
		c.state.Unlock()
	}
	return left, err
}

// refusal acts on the code that one position was answered with.
func (c *commits) refusal(it *item, err error, lease *kafka.Lease) {
	c.add(&c.count.Refused, 1)
	c.say(err, lease, &it.pos, 1)
	c.state.Lock()
	if delete(c.final, it.p); kafka.Hopeless(err) && !it.p.Closed() {
		c.final[it.p] = final{err, time.Now()}
	}
	c.state.Unlock()
	switch kafka.Refusal(err) {
	case kafka.WaitRenewal, kafka.LostMembership:
		c.refused, c.refusedAt = lease, time.Now()
	case kafka.Fatal:
		if errors.Is(err, kerr.UnknownTopicID) {
			c.r.recreated(it.p.Topic, err)
			return
		}
		// The others are not affected, and a person may mend it: records go on, their offset
		// stays behind, and people are told.
		c.state.Lock()
		if !it.p.Closed() {
			c.blocked[it.p] = fmt.Sprintf("its offset %d cannot be committed: %v", it.pos.Offset, err)
		}
		c.state.Unlock()
		it.p.Unmarked()
	}
}

// collect takes the positions that differ from what is stored, or whose refresh is due; doubtful is
// how many of topics under suspicion are left out. claim: those that commit first may claim records.
func (c *commits) collect(claim bool) (items []item, doubtful int) {
	now := time.Now()
	for _, s := range c.r.cfg.Sources {
		for _, p := range s.Feed.Partitions() {
			if s.Feed.First() && claim {
				p.Claim()
			}
			pos, ok := p.Position()
			if !ok {
				continue
			}
			text, _ := c.enc.Encode(pos)
			c.state.Lock()
			a, have := c.acked[p]
			c.state.Unlock()
			same := have && a.offset == pos.Base && a.metadata == text
			if same && now.Sub(a.at) < c.r.cfg.Refresh {
				continue
			}
			c.r.mu.Lock()
			id, suspect := c.r.topics[p.Topic].ID, c.r.suspects[p.Topic]
			c.r.mu.Unlock()
			if suspect {
				p.Withdraw()
				doubtful++
				continue
			}
			items = append(items, item{p, pos, kafka.Position{Topic: p.Topic, TopicID: id, Partition: p.ID,
				Offset: pos.Base, LeaderEpoch: -1, Metadata: text}})
		}
	}
	return items, doubtful
}

func (c *commits) stored(it *item) {
	c.state.Lock()
	if !it.p.Closed() {
		c.acked[it.p] = acked{it.pos.Offset, it.pos.Metadata, time.Now()}
		delete(c.blocked, it.p)
		delete(c.final, it.p)
		c.mine[partition.Key{Topic: it.pos.Topic, ID: it.pos.Partition}] = [2]committed{{it.pos.Offset, it.pos.Metadata}}
	}
	c.count.OK++
	c.state.Unlock()
	it.p.Stored(it.m)
}

func (c *commits) add(n *int64, by int) {
	c.state.Lock()
	defer c.state.Unlock()
	*n += int64(by)
}

// say logs a refusal with all that is needed to understand it, at most one per second. p is the
// only one of n positions, or the first.
func (c *commits) say(err error, l *kafka.Lease, p *kafka.Position, n int) {
	c.state.Lock()
	quiet := time.Since(c.said) < time.Second
	left := c.unsaid
	if quiet {
		c.unsaid++
	} else {
		c.said, c.unsaid = time.Now(), 0
	}
	c.state.Unlock()
	if quiet {
		return
	}
	e := c.r.log.Warn().Err(err).Str("group", c.r.cfg.Group).Str("member", l.Member).Int32("generation", l.Generation).
		Str("topic", p.Topic).Int32("partition", p.Partition).Int64("offset", p.Offset).
		Str("code", code(err)).Str("then", kafka.Refusal(err).String())
	if n > 1 {
		e = e.Int("positions", n)
	}
	if left > 0 {
		e = e.Int("left_out", left)
	}
	e.Msg("commit not stored")
}

// code is Kafka's name of an error, or what stands in for it.
func code(err error) string {
	var ke *kerr.Error
	switch {
	case errors.As(err, &ke):
		return ke.Message
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	}
	return "no answer"
}
