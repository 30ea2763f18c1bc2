package group

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/balance"
	"github.com/killick-io/killick/internal/crash"
	"github.com/killick-io/killick/internal/partition"
	"github.com/killick-io/killick/internal/rules"
)

// Trees is what ends the tuple trees of partitions: the engine.
type Trees interface {
	// Release hurries what the epoch's trees wait for. Called once, after the intake has ended.
	Release(*ack.Epoch)
	// Flush asks for what bolts have collected. Called again and again during a release.
	Flush()
	// Busy reports whether user code is at work on a tuple now.
	Busy() bool
	// Left is how many trees of the epoch will not end here any more.
	Left(*ack.Epoch) int
}

const (
	// releaseTick is how often a release is looked at.
	releaseTick = 10 * time.Millisecond
	// gather is how long a member waits with the news that it has closed a partition, for others
	// that are about to close: each piece of news is a rebalance.
	gather = 200 * time.Millisecond
	// commitPause and commitPauses are how long a release waits with another try of a last commit that was
	// not stored: the first time, and at most. It doubles.
	commitPause, commitPauses = 10 * time.Millisecond, 500 * time.Millisecond
)

// releases gives partitions away that the group has asked for, without a callback that waits: intake of
// that partition ends, its trees end while all others go on, its position is committed and the answer
// seen, the ledger is closed, and only then the member stops to claim it and has the group rebalance.
// loop is its goroutine.
type releases struct {
	r   *Reader
	now chan struct{} // there may be something to do

	mu    sync.Mutex
	asked map[partition.Key]bool
	under map[partition.Key]*release
	all   bool // the worker stops: everything is to be released
	// news is since when the group does not know what was closed here; zero: it knows.
	news  time.Time
	count ReleaseStats
}

// release is a partition that is being given away.
type release struct {
	p     *partition.Partition
	begun time.Time
	limit time.Time // it is closed then, whatever is open
	// next is when its last commit is sent again, which was not stored; pause is what was waited before it.
	next  time.Time
	pause time.Duration
}

// again plans the next try of the last commit.
func (rel *release) again() {
	rel.pause = min(max(2*rel.pause, commitPause), commitPauses)
	rel.next = time.Now().Add(rel.pause)
}

// ReleaseStats counts partitions that were given away.
type ReleaseStats struct {
	Clean int64 // all trees had ended and were committed
	Cut   int64 // the drain limit passed, a retry failed again, or the last position could not be committed
	Open  int64 // trees that were open then; they run again elsewhere
	Nanos int64 // from the end of intake to the close, of all
}

func (g *releases) poke() {
	select {
	case g.now <- struct{}{}:
	default:
	}
}

// ask sets what the group wants. Called for each assignment.
func (g *releases) ask(parts []balance.Part) {
	g.mu.Lock()
	g.asked = map[partition.Key]bool{}
	for _, p := range parts {
		g.asked[partition.Key{Topic: p.Topic, ID: p.ID}] = true
	}
	g.mu.Unlock()
	g.poke()
}

// lost forgets the release of a partition that is not ours any more.
func (g *releases) lost(k partition.Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.under, k)
}

// again has the group rebalance, since it does not know what this member is now.
func (g *releases) again() {
	g.mu.Lock()
	if g.news.IsZero() {
		g.news = time.Now()
	}
	g.mu.Unlock()
	g.poke()
}

func (g *releases) loop(ctx context.Context) {
	for {
		var tick <-chan time.Time
		if g.busy() {
			tick = time.After(releaseTick)
		}
		select {
		case <-ctx.Done():
			return
		case <-g.now:
		case <-tick:
		}
		g.begin()
		g.end(ctx)
		g.tell()
	}
}

func (g *releases) busy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.under) > 0 || len(g.asked) > 0 || g.all || !g.news.IsZero()
}

// begin ends the intake of what is asked for.
func (g *releases) begin() {
	g.mu.Lock()
	want := len(g.asked) > 0 || g.all
	g.mu.Unlock()
	if !want {
		return
	}
	var begun []*partition.Partition
	g.r.tell("release", func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.all {
			for k, o := range g.r.open {
				if !g.releasesLocked(o) {
					begun = append(begun, g.beginLocked(k))
				}
			}
		}
		for k := range g.asked {
			o := g.r.open[k]
			switch {
			case g.r.proto.isClosed(k), o != nil && g.releasesLocked(o):
				delete(g.asked, k)
			case o != nil:
				begun = append(begun, g.beginLocked(k))
				delete(g.asked, k)
			case g.r.idle(k): // it does not work here; perhaps it does elsewhere
				g.r.proto.close(k)
				g.newsLocked()
				delete(g.asked, k)
			}
			// Else it is about to open, or was lost: the next assignment says.
		}
	})
	for _, p := range begun {
		g.r.log.Info().Str("topic", p.Topic).Int32("partition", p.ID).Int("open", p.Started()).Msg("releasing the partition: its intake has ended")
		g.r.trees().Release(p.Epoch())
	}
}

// releasesLocked reports whether o is being released: not what was open under its name before.
func (g *releases) releasesLocked(o *owned) bool {
	rel := g.under[partition.Key{Topic: o.p.Topic, ID: o.p.ID}]
	return rel != nil && rel.p == o.p
}

func (g *releases) newsLocked() {
	if g.news.IsZero() {
		g.news = time.Now()
	}
}

// beginLocked runs on the poll loop.
func (g *releases) beginLocked(k partition.Key) *partition.Partition {
	p := g.r.open[k].p
	p.Release()
	g.r.cl.PauseFetchPartitions(names([]*partition.Partition{p}))
	now := time.Now()
	g.under[k] = &release{p: p, begun: now, limit: now.Add(g.r.cfg.Drain)}
	return p
}

// end closes what has ended and is committed, and what has reached its limit.
func (g *releases) end(ctx context.Context) {
	g.mu.Lock()
	list := make([]*release, 0, len(g.under))
	for k, rel := range g.under {
		if rel.p.Closed() { // it has stopped, or is open anew: it is ours still, and to be given away
			delete(g.under, k)
			g.asked[k] = true
			continue
		}
		list = append(list, rel)
	}
	all := g.all
	g.mu.Unlock()
	if len(list) == 0 {
		return
	}
	g.r.trees().Flush()
	var done, late, due []*release
	for _, rel := range list {
		open := rel.p.Started() // before those that are left: of these none has ended since
		left := g.r.trees().Left(rel.p.Epoch())
		if all {
			left = 0 // the stop itself waits for them, and says what it has left open
		}
		switch {
		case open <= left || !rules.ReleaseDrains:
			done = append(done, rel)
			if !time.Now().Before(rel.next) {
				due = append(due, rel)
			}
		case !all && time.Now().After(rel.limit) && rules.ReleaseIsBounded:
			late = append(late, rel)
		}
	}
	for _, rel := range append(late, done...) {
		rel.p.Leave() // before the commit: a partition that is given away has not lost its owner
	}
	if len(due)+len(late) > 0 {
		crash.At(crash.ReleaseEnded)
		cctx, cancel := context.WithTimeout(ctx, lookTime)
		_, _ = g.r.commits.commit(cctx) // logged
		cancel()
		crash.At(crash.ReleaseCommitted)
		for _, rel := range due {
			rel.again()
		}
	}
	for _, rel := range done {
		final := g.r.commits.hopeless(rel.p, rel.begun)
		switch {
		case g.r.commits.settled(rel.p):
			g.close(rel, "")
		case all: // the stop itself asks for the last time, and says what was not stored
			if final != nil {
				rel.next = rel.limit
			}
		case final != nil:
			g.close(rel, fmt.Sprintf("its last position cannot be committed: %v", final))
		case time.Now().After(rel.limit):
			g.close(rel, "its last position could not be committed within the drain limit")
		}
	}
	for _, rel := range late {
		g.close(rel, "the drain limit passed")
	}
}

// close ends a release. why says what is wrong, "" if nothing is.
func (g *releases) close(rel *release, why string) {
	p := rel.p
	k := partition.Key{Topic: p.Topic, ID: p.ID}
	open := p.Started()
	closed := false
	g.r.tell("released", func() {
		if o := g.r.open[k]; o == nil || o.p != p {
			return // lost, or see end
		}
		g.r.shut(k, "released")
		g.r.proto.close(k)
		closed = true
	})
	if !closed {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.under, k)
	g.newsLocked()
	took := time.Since(rel.begun)
	g.count.Nanos += int64(took)
	if open == 0 && why == "" {
		g.count.Clean++
		g.r.log.Info().Str("topic", p.Topic).Int32("partition", p.ID).Dur("took", took).Msg("the partition is released")
		return
	}
	if why == "" {
		why = "a retry failed again"
	}
	g.count.Cut++
	g.count.Open += int64(open)
	what := "the partition is released with open records"
	if open == 0 {
		what = "the partition is released without its last commit: what has ended since the one before it runs again"
	}
	g.r.log.Warn().Str("topic", p.Topic).Int32("partition", p.ID).Dur("took", took).Int("open", open).Str("why", why).Msg(what)
}

// tell has the group rebalance once something was closed: at once if nothing else is about to close,
// after gather at the latest.
func (g *releases) tell() {
	g.mu.Lock()
	now := !g.news.IsZero() && (len(g.under) == 0 && len(g.asked) == 0 && !g.all || time.Since(g.news) >= gather)
	if now {
		g.news = time.Time{}
	}
	g.mu.Unlock()
	if now {
		crash.At(crash.ReleaseClosed)
		g.r.cl.ForceRebalance()
	}
}

func (g *releases) stats() ReleaseStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count
}

// Leave says that this member is about to end. It is given nothing any more, and what has ended here
// goes to others at once; the rest does when Close leaves the group. A worker with a place does not
// leave: it keeps what it has for when it is back, so that nothing moves. It does not wait.
func (r *Reader) Leave() {
	r.PauseAll()
	if r.cfg.Consumer.InstanceID != "" {
		return
	}
	r.proto.set(func(f *balance.Facts) { f.Stopping = true })
	r.rel.mu.Lock()
	r.rel.all = true
	r.rel.newsLocked()
	r.rel.mu.Unlock()
	r.rel.poke()
}

// noTrees stands in where nothing but the partitions is tested.
type noTrees struct{}

func (noTrees) Release(*ack.Epoch)  {}
func (noTrees) Flush()              {}
func (noTrees) Busy() bool          { return false }
func (noTrees) Left(*ack.Epoch) int { return 0 }

func (r *Reader) trees() Trees {
	if r.cfg.Trees == nil {
		return noTrees{}
	}
	return r.cfg.Trees
}

// idle reports whether a partition is ours and does not work: it has stopped, or waits for the
// cluster.
func (r *Reader) idle(k partition.Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped[k] != "" || r.late[k] != nil
}
