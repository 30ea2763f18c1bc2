package partition

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/rules"
	"github.com/killick-io/killick/offsets"
)

// ReasonWorkerDeath is the reason of a dead letter whose record has ended the process.
const ReasonWorkerDeath = "worker-death"

// ErrWorkerDeath is the error of such a dead letter.
var ErrWorkerDeath = errors.New("killick: the process has died while this record, and no other, was being processed")

// Gate is shared by the feeds of a worker. While it is closed no root starts but those that were
// granted.
type Gate struct {
	closed atomic.Bool
	signal chan struct{}
}

// NewGate makes an open gate.
func NewGate() *Gate { return &Gate{signal: make(chan struct{}, 1)} }

// Close closes the gate. A root that a feed is handing out now starts all the same: the caller asks the
// feeds for their partitions afterwards, which waits for that.
func (g *Gate) Close() { g.closed.Store(true) }

// Open opens it. The caller pokes the feeds.
func (g *Gate) Open() { g.closed.Store(false) }

// Closed reports whether it is closed.
func (g *Gate) Closed() bool { return g.closed.Load() }

// Signal is poked, while the gate is closed, when a root has ended or a batch was delivered.
func (g *Gate) Signal() <-chan struct{} { return g.signal }

func (g *Gate) poke() {
	select {
	case g.signal <- struct{}{}:
	default:
	}
}

// Share makes f one of the feeds behind g. Called before anything else.
func (f *Feed) Share(g *Gate) { f.gate = g }

// care is what a partition does about owners that died; see offsets.State. Partition.mu guards it.
type care struct {
	state offsets.State
	// taking: the mark of state is not committed yet, and nothing starts. A death would not be seen.
	taking bool
	// left: the mark is taken back, since this owner is about to end.
	left bool
	// watched: records start up to offsets.Horizon above stored only. It ends when the broker knows.
	watched bool
	stored  int64 // what is committed
	// blocked: it cannot be, for now, and so stored does not move. There is no horizon meanwhile.
	blocked bool
	// name is the root whose offset is state.Suspect, nil while that is what an owner before has left.
	name *named
	// granted: name may start; handed: it has. Until then the partition has something to start, also
	// where its queue is empty.
	granted, handed bool
	// early is an accused root that was started before its turn, or entered its lane then; offsets.None: there
	// is none.
	early int64
	// behind are the strikes of early while it waits in its lane for another of its key, and a root that is
	// not accused has its place in state; 0: it does not.
	behind int
}

// named is the root that runs alone.
type named struct {
	c *chunk
	i int
}

func takeOver(base int64, s offsets.State) care {
	if !s.TakenOver {
		return care{state: offsets.State{Suspect: offsets.None}, left: true, stored: base, early: offsets.None}
	}
	return care{state: s, taking: rules.TakeOverFirst, watched: s.Watched(), stored: base, early: offsets.None}
}

// heldLocked is what a commit says to the next owner. p.mu is held.
func (p *Partition) heldLocked() offsets.State {
	s := p.care.state
	s.TakenOver = !p.care.left
	return s
}

// passed brings the state up to the ledger, whose floor is given.
func (c *care) passed(floor int64) {
	if c.state.Deaths == 0 && c.state.Suspect == offsets.None {
		return
	}
	if n := c.name; n != nil && n.c.c.Ended(n.i) {
		c.drop()
	}
	c.state = c.state.Passed(floor)
}

// drop ends the case of the suspect. The accused that it had displaced is the suspect again. (A death
// meanwhile forgets that one: a commit has room for one of them.)
func (c *care) drop() {
	c.name, c.state = nil, c.state.Dropped()
	if c.behind > 0 {
		c.state.Suspect, c.state.Strikes, c.state.Waits = c.early, c.behind, true
		c.behind = 0
	}
}

// reach cuts [from, to) at the horizon.
func (c *care) reach(ch *chunk, from, to int) int {
	if c.blocked {
		return to
	}
	for to > from && ch.c.Offset(to-1) >= c.stored+offsets.Horizon {
		to--
	}
	return to
}

// urgentLocked reports whether roots will soon wait for the horizon, and a commit would move it.
func (p *Partition) urgentLocked() bool {
	return !p.closed && len(p.queue) > 0 && p.ledger.Floor() > p.care.stored &&
		p.queue[0].c.Offset(p.cursor) >= p.care.stored+offsets.Horizon/2
}

// Stored says that m is committed: records that were held back for that may start.
func (p *Partition) Stored(m offsets.Map) {
	p.mu.Lock()
	p.held = false
	c := &p.care
	c.stored, c.blocked = max(c.stored, m.Base), false
	p.confirmed = max(p.confirmed, m.Base)
	c.taking = c.taking && !m.Held.TakenOver
	c.watched = c.watched && m.Held.Deaths > 0
	p.mu.Unlock()
	p.feed.Poke()
}

// Unmarked says that the position cannot be committed, and will not be for a while: records start all
// the same, far above what is committed, too, and a death will not be seen. It holds until Stored.
func (p *Partition) Unmarked() {
	p.mu.Lock()
	p.care.taking, p.care.blocked = false, true
	p.mu.Unlock()
	p.feed.Poke()
}

// Leave takes the mark of the owner back in the commits from now on: it ends, or gives the partition
// away, and has not died.
func (p *Partition) Leave() {
	p.mu.Lock()
	p.care.left = true
	p.mu.Unlock()
}

// Accuse says that the owner is about to end because of the root at offset: to the next one that is a
// death with this one as the suspect. Called after Leave.
func (p *Partition) Accuse(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drainLocked()
	if offset < p.ledger.Floor() {
		return // it has come back
	}
	s := &p.care.state
	if s.Suspect != offset {
		s.Suspect, s.Strikes = offset, 0
	}
	s.Waits = false
	p.care.left = p.care.left && !s.TakenOver // unless it was never marked
	p.care.granted = false
}

// Careful reports whether the partition makes the whole process run one root at a time.
func (p *Partition) Careful() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drainLocked()
	return !p.closed && !p.releasing && p.care.state.Careful()
}

// handOutLocked is takeLocked as far as the gate and careful mode allow. p.mu is held.
func (p *Partition) handOutLocked(max int, closed bool) (c *chunk, from, to int) {
	switch {
	case p.care.granted && max > 0:
		p.care.granted = false
		n := p.care.name
		if p.care.handed = n != nil; p.closed || n == nil {
			return nil, 0, 0
		}
		return n.c, n.i, n.i + 1
	case closed && rules.SuspectsRunAlone, p.care.state.Careful():
		return nil, 0, 0
	}
	return p.takeLocked(max)
}

// Picked says what Pick has found.
type Picked uint8

// What Pick finds.
const (
	NoRoot    Picked = iota // nothing can be started now
	Awaited                 // the accused has not been fetched yet
	Taking                  // the mark of the owner is not committed yet, so the accused cannot run
	Paused                  // the spout of the accused is paused; other partitions may go on
	Suspected               // a root is named: commit, then Grant
	Convicted               // the accused is what kills: Convict
)

// Pick chooses the root that runs next, alone: the accused, or the next in order. From now on commits
// name it as the suspect, and it counts as started.
func (p *Partition) Pick() (offset int64, is Picked) {
	f := p.feed
	f.mu.Lock()
	paused := f.paused
	f.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drainLocked()
	c := &p.care
	if p.closed || p.releasing || c.name != nil {
		return 0, NoRoot
	}
	off := c.state.Suspect
	if accused := c.state.Accused(); accused && off != c.early {
		ch, i := p.waitingLocked(off)
		switch {
		case paused:
			return off, Paused
		case p.held || c.taking:
			return off, Taking
		case ch == nil && p.ledger.Next() <= off && !p.paused:
			return off, Awaited
		case ch == nil:
			// No record any more; or so far behind others that they have to run first, each under
			// its own name.
			c.drop()
		default:
			ch.fresh, c.early = false, off // it ends before its turn
			if p.lanes != nil && !p.lanes.Enter(ch.lanes[i], place{ch, i}) {
				return 0, NoRoot // another of its key is under way
			}
			p.started++
			return p.nameLocked(ch, i)
		}
	}
	if paused {
		return 0, NoRoot
	}
	ch, i, _ := p.takeLocked(1)
	if ch == nil {
		return 0, NoRoot
	}
	return p.nameLocked(ch, i)
}

// nameLocked makes a root that was taken the suspect. p.mu is held.
func (p *Partition) nameLocked(ch *chunk, i int) (offset int64, is Picked) {
	c, off := &p.care, ch.c.Offset(i)
	switch s := &c.state; {
	case off == c.early && c.behind > 0:
		s.Suspect, s.Strikes, c.behind = off, c.behind, 0
	case off != s.Suspect:
		if s.Accused() {
			c.behind = s.Strikes
		}
		s.Suspect, s.Strikes = off, 0
	}
	c.state.Waits = false
	c.name, c.handed = &named{ch, i}, false
	if c.state.Convicted() {
		return off, Convicted
	}
	return off, Suspected
}

// waitingLocked finds a root that was delivered and not started. p.mu is held.
func (p *Partition) waitingLocked(off int64) (*chunk, int) {
	for q, c := range p.queue {
		n := c.c.Len()
		if c.c.Offset(n-1) < off {
			continue
		}
		from := 0
		if q == 0 {
			from = p.cursor
		}
		for i := from; i < n && c.c.Offset(i) <= off; i++ {
			if c.c.Offset(i) == off && !c.c.Ended(i) {
				return c, i
			}
		}
		break
	}
	return nil, 0
}

// Grant lets the named root start.
func (p *Partition) Grant() {
	p.mu.Lock()
	p.care.granted = p.care.name != nil
	p.mu.Unlock()
	p.feed.Poke()
}

// Runs reports whether the named root has not ended. While the worker stops, one that was not handed out
// will not be.
func (p *Partition) Runs(stopping bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drainLocked()
	return !p.closed && p.care.name != nil && !(stopping && p.care.granted)
}

// Unname gives up waiting for the named root: it waits for something else, such as its next try, and
// others run beside it from now on; if the process dies it is not its fault. One that was not handed
// out (the spout is paused) keeps its name, unless the worker is stopping: then it is its next owner's.
func (p *Partition) Unname(stopping bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &p.care
	if c.name == nil || !c.handed && !stopping {
		return
	}
	if !c.handed && !p.closed {
		p.started--
	}
	c.granted = false
	c.drop()
}

// Convict sets the named root aside unexecuted: it ends when its dead letter is durable.
func (p *Partition) Convict() {
	p.mu.Lock()
	n, strikes := p.care.name, p.care.state.Strikes
	p.mu.Unlock()
	if n == nil {
		return
	}
	d := Dead{p: p, c: n.c, i: n.i, Cause: &ack.Cause{Outcome: ack.Dead, Component: p.feed.Spout, Reason: ReasonWorkerDeath,
		Err:    fmt.Errorf("%w: %d times, at offset %d of %s", ErrWorkerDeath, strikes, n.c.c.Offset(n.i), p.Name()),
		Policy: ack.DeadLetter, Attempts: strikes}}
	if tell := p.feed.hooks.Convicted; tell != nil && !d.Gone() {
		tell(d)
	}
	p.feed.dead(d)
}

// Accused reports whether an owner before has died while one root alone ran, and that has not been
// run here. One that waits in its lane is not meant, unless the turn of somebody who waits has come: others go on.
func (p *Partition) Accused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drainLocked()
	lane := p.care.early == p.care.state.Suspect && !(p.lanes != nil && p.lanes.Ready())
	return !p.closed && p.care.state.Accused() && !lane
}

// Acquit drops the accusation of a record that cannot be fetched: others cannot wait for it for ever.
func (p *Partition) Acquit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := &p.care; c.name == nil {
		c.drop()
	}
}
