package partition

import (
	"github.com/killick-io/killick/offsets"
)

// Commits before processing, for at-most-once topologies. What is committed is a claim: the offset behind
// the records that are to start next, as many as the window has room for, so that a crash loses no more
// than the window. A record starts when the claim on it is confirmed. A claim that was not stored is
// withdrawn; none of its records has started.

// Claim extends what may be committed over records that have room to start, unless the partition is being
// given away or the feed stops: what is claimed then could not be started any more.
func (p *Partition) Claim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.releasing || p.feed.halts.Load() {
		return
	}
	p.drainLocked()
	room := p.feed.pending - p.started - p.granted
	for _, c := range p.queue {
		n := min(room, c.c.Len()-c.claimed)
		if n > 0 {
			c.claimed += n
			p.granted += n
			room -= n
			p.claimed = c.c.Offset(c.claimed-1) + 1
		}
		if c.claimed < c.c.Len() {
			return
		}
	}
	p.claimed = max(p.claimed, p.ledger.Next()) // behind markers and gaps
}

// Withdraw takes back what was claimed and is not confirmed: its commit was not stored, or nobody knows.
func (p *Partition) Withdraw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.feed.first || p.closed || p.claimed == p.confirmed {
		return
	}
	p.claimed, p.granted = p.confirmed, 0
	for i, c := range p.queue {
		for c.claimed > 0 && c.c.Offset(c.claimed-1) >= p.confirmed {
			c.claimed--
		}
		p.granted += c.claimed
		if i == 0 {
			p.granted -= p.cursor
		}
	}
	p.feed.Poke() // a stop may wait for them
}

// wantsLocked reports whether a claim is due: half of the window is free, and records wait. p.mu is held.
func (p *Partition) wantsLocked() bool {
	if !p.feed.first || p.closed || p.releasing || p.feed.halts.Load() || p.started+p.granted > p.feed.pending/2 || len(p.queue) == 0 {
		return false
	}
	last := p.queue[len(p.queue)-1]
	return last.claimed < last.c.Len()
}

// takeConfirmedLocked is takeLocked for records that were committed first. p.mu is held.
func (p *Partition) takeConfirmedLocked(max int) (c *chunk, from, to int) {
	for len(p.queue) > 0 {
		c = p.queue[0]
		was := p.cursor
		for from = was; p.confirmedLocked(c, from) && c.known(from); { // and no farther: the rest may be withdrawn
			from++
		}
		for to = from; to-from < max && p.confirmedLocked(c, to) && !c.known(to); {
			to++
		}
		if to == was {
			break
		}
		p.granted -= to - was
		p.passLocked(to)
		if from < to {
			p.started += to - from
			return c, from, to
		}
	}
	return nil, 0, 0
}

// confirmedLocked reports whether the i-th record of a queued chunk is in a commit that is stored. p.mu is held.
func (p *Partition) confirmedLocked(c *chunk, i int) bool {
	return i < c.claimed && c.c.Offset(i) < p.confirmed
}

// known reports whether the completion map knew a record of what lies behind the cursor. p.mu is held.
func (c *chunk) known(i int) bool { return !c.fresh && c.c.Ended(i) }

// claimLocked is the position of a partition that commits first: the claim. What the completion map of the
// commit before knows above it is kept. p.mu is held.
func (p *Partition) claimLocked() offsets.Map {
	m := offsets.Map{Base: p.claimed, Next: p.claimed, Held: offsets.State{Suspect: offsets.None}}
	if !p.recalls {
		return m
	}
	all := p.ledger.Snapshot()
	if all.Next <= p.claimed {
		p.recalls = false
		return m
	}
	m.Next = all.Next
	for _, o := range all.Open {
		if o >= p.claimed {
			m.Open = append(m.Open, o)
		}
	}
	return m
}

// lostLocked is how many records are committed and will never start. p.mu is held.
func (p *Partition) lostLocked() (n int) {
	for i, c := range p.queue {
		from := 0
		if i == 0 {
			from = p.cursor
		}
		for k := from; p.confirmedLocked(c, k); k++ {
			if !c.known(k) {
				n++
			}
		}
	}
	return n
}
