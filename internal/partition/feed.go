package partition

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/offsets"
)

// runSize is how many roots are handed to the engine at once.
const runSize = 256

// Hooks are what a feed asks of its owner. They are called from any goroutine, without locks
// held, and must not block.
type Hooks struct {
	// Resume says that fetching of p should go on.
	Resume func(p *Partition)
	// Commit says that more of p can be started once its position is committed; nil: nobody cares.
	Commit func(p *Partition)
	// Dead takes a root over whose tree is dead and wants a dead letter. The owner calls
	// Dead.Done when that is durable.
	Dead func(Dead)
	// Convicted tells of a root that is set aside unexecuted, before Dead gets it: no tree of it ends; nil:
	// nobody cares.
	Convicted func(Dead)
}

// Feed hands the roots of one spout's partitions to the engine. It implements engine.Feed.
type Feed struct {
	Spout   string
	pending int   // started roots per partition
	high    int64 // bytes per partition above which fetching pauses
	hooks   Hooks
	order   core.Order
	first   bool        // see CommitFirst
	halts   atomic.Bool // no record is claimed any more: the feed is paused, or has stopped

	mu    sync.Mutex
	parts []*Partition
	turn  int
	// ends, if not nil, makes the feed bounded: it ends when each of these partitions has come
	// to its end.
	ends map[Key]int64
	over map[Key]bool // ended, and stays so when the partition moves away
	// paused: no root is started, of partitions that open later neither. Started ones go on.
	paused bool
	gate   *Gate
	// stopping: Stop was called.
	stopping bool

	core.Intake // Wake, as engine.Feed has it
}

// Key names a partition.
type Key struct {
	Topic string
	ID    int32
}

// NewFeed makes the feed of a spout with its limits per partition.
func NewFeed(spout string, pending int, bytes int64, hooks Hooks) *Feed {
	return &Feed{Spout: spout, pending: pending, high: bytes, hooks: hooks, gate: NewGate(), Intake: core.NewIntake()}
}

// Keep sets the order that records are kept in. It is called before the first Open.
func (f *Feed) Keep(o core.Order) { f.order = o }

// CommitFirst makes the feed one of an at-most-once topology: a record starts when a commit behind it is
// stored, see Partition.Claim. It is called before the first Open.
func (f *Feed) CommitFirst() { f.first = true }

// First reports whether records start after they were committed.
func (f *Feed) First() bool { return f.first }

// Bound makes the run a bounded one. ends has the end of each partition; it is called before
// the first Open.
func (f *Feed) Bound(ends map[Key]int64) {
	f.mu.Lock()
	f.ends, f.over = ends, map[Key]bool{}
	for k, end := range ends {
		if end <= 0 {
			f.over[k] = true
		}
	}
	f.mu.Unlock()
	f.Poke()
}

// Unfinished returns the partitions of a bounded run that have not come to their end here, with
// their ends; nil for a run without end. Those of other members are among them.
func (f *Feed) Unfinished() map[Key]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ends == nil {
		return nil
	}
	left := map[Key]int64{}
	for k, end := range f.ends {
		if !f.over[k] {
			left[k] = end
		}
	}
	return left
}

// Over says that a partition has come to its end at another member of the group.
func (f *Feed) Over(k Key) {
	f.mu.Lock()
	if _, ok := f.ends[k]; ok {
		f.over[k] = true
	}
	f.mu.Unlock()
	f.Poke()
}

// Open starts an assignment of a partition at the committed offset base. m.Held is the state of the
// new owner; if it is taken over, records are kept back until that is committed. held keeps them back
// until the base is.
func (f *Feed) Open(topic string, id int32, base int64, m offsets.Map, held bool) *Partition {
	if f.first {
		m.Held.TakenOver = false // nothing runs twice, so nothing has to be found
	}
	p := &Partition{Topic: topic, ID: id, feed: f, ledger: offsets.Open(base, m), until: -1, held: held, care: takeOver(base, m.Held)}
	if f.first {
		p.claimed, p.confirmed, p.held, p.recalls = base, base, false, m.Next > base
	}
	if f.order == core.PerKey {
		p.lanes = core.NewLanes[place]()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ends != nil {
		if end, ok := f.ends[Key{topic, id}]; ok {
			p.until = end
			if base < end {
				delete(f.over, Key{topic, id}) // it was lost before its roots had ended
			}
		}
	}
	f.parts = append(f.parts, p)
	f.Poke()
	return p
}

// Remove takes a closed partition off the feed.
func (f *Feed) Remove(p *Partition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.Index(f.parts, p); i >= 0 {
		f.parts = slices.Delete(f.parts, i, i+1)
	}
	if p.until >= 0 && p.Status().Floor < p.until {
		delete(f.over, Key{p.Topic, p.ID}) // started, but not ended: its next owner runs it
	}
	f.Poke()
}

// Partitions returns those that are open.
func (f *Feed) Partitions() []*Partition {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.parts)
}

// Delivered says that there may be something to start.
func (f *Feed) Delivered() { f.Poke() }

func (f *Feed) resume(p *Partition) {
	if f.hooks.Resume != nil {
		f.hooks.Resume(p)
	}
}

func (f *Feed) commit(p *Partition) {
	if f.hooks.Commit != nil {
		f.hooks.Commit(p)
	}
}

func (f *Feed) dead(d Dead) { f.hooks.Dead(d) }

// Pause stops the start of roots, or lets it go on. What was polled waits here, up to the high water;
// a stop ends a paused feed as any other, and so does a release a paused partition.
func (f *Feed) Pause(on bool) {
	f.mu.Lock()
	f.paused = on
	f.halts.Store(on || f.stopping)
	f.mu.Unlock()
	f.Poke()
}

// Stop implements engine.Feed. Records that are claimed still come.
func (f *Feed) Stop() {
	f.mu.Lock()
	f.stopping = true
	f.halts.Store(true) // before Next can see the stop: what it does not find then was never claimed
	f.mu.Unlock()
	f.Intake.Stop()
}

// Next implements engine.Feed: partitions take turns.
func (f *Feed) Next(ctx context.Context, r *engine.Run) error {
	return f.Intake.Next(ctx, func(stopped bool) (found, end bool) {
		if stopped && !f.first {
			return false, true
		}
		granted := 0
		var resume, commit []*Partition
		f.mu.Lock()
		closed := f.gate.closed.Load()
		n := len(f.parts)
		for k := range n {
			p := f.parts[(f.turn+k)%n]
			most := runSize
			p.mu.Lock()
			if f.paused && !stopped && !p.releasing { // what is promised starts before a stop or a release
				most = 0
			}
			p.drainLocked()
			c, from, to := p.handOutLocked(most, closed)
			if p.resumeLocked() {
				resume = append(resume, p)
			}
			if p.care.watched && p.urgentLocked() || p.wantsLocked() {
				commit = append(commit, p)
			}
			granted += p.granted
			if f.ends != nil && p.finishedLocked() {
				f.over[Key{p.Topic, p.ID}] = true
			}
			p.mu.Unlock()
			if c != nil {
				*r = engine.Run{Chunk: c, From: from, To: to}
				f.turn = (f.turn + k + 1) % n
				found = true
				break
			}
		}
		end = f.ends != nil && len(f.over) >= len(f.ends) || stopped && granted == 0
		f.mu.Unlock()
		for _, p := range resume {
			f.resume(p)
		}
		for _, p := range commit {
			f.commit(p)
		}
		if closed && !found {
			f.gate.poke()
		}
		return found, end && !found
	})
}

// Pending implements engine.Feed.
func (f *Feed) Pending() int {
	n := 0
	for _, p := range f.Partitions() {
		p.mu.Lock()
		p.drainLocked()
		n += p.started
		p.mu.Unlock()
	}
	return n
}

// Dead is a root that wants a dead letter. It stays open, and holds the floor, until Done.
type Dead struct {
	p     *Partition
	c     *chunk
	i     int
	Cause *ack.Cause
}

// Topic, Partition and Offset are the root's.
func (d Dead) Topic() string    { return d.p.Topic }
func (d Dead) Partition() int32 { return d.p.ID }
func (d Dead) Offset() int64    { return d.c.c.Offset(d.i) }

// Record is the root's record.
func (d Dead) Record() *kgo.Record { return d.c.recs[d.i] }

// Gone reports whether the partition was lost meanwhile: its next owner will decide anew.
func (d Dead) Gone() bool { return d.p.epoch.Closed() }

// Done says that the dead letter is durable: the root has ended.
func (d Dead) Done() {
	d.c.ended(d.i)
}

var _ engine.Feed = (*Feed)(nil)
