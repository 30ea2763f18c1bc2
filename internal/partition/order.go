package partition

import (
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/rules"
)

// Order per key. A record is in its lane from the moment that the cursor passes it: under way, which is
// to say started, until its root has ended; or waiting behind another one. Order per partition needs
// none of this: it is a window of one root.

// sort notes the lanes of a batch's records.
func (c *chunk) sort(l *core.Lanes[place]) {
	if l == nil {
		return
	}
	c.lanes = make([]uint64, len(c.recs))
	for i, r := range c.recs {
		c.lanes[i] = l.Of(r.Key)
	}
}

// takeInOrderLocked is takeLocked for an order per key: first those whose turn has come, which are the
// older ones, then what lies at the cursor. A run ends before a record that has to wait. p.mu is held.
func (p *Partition) takeInOrderLocked(max int) (c *chunk, from, to int) {
	if !rules.OrderOverRetries {
		p.lanes.Free()
	}
	if next, ok := p.lanes.Next(); ok {
		p.started++
		return next.c, next.i, next.i + 1
	}
	for len(p.queue) > 0 {
		c = p.queue[0]
		from, to = p.cursor, p.cursor
		for ; to < c.c.Len() && to-from < max; to++ {
			if !c.fresh && (c.c.Ended(to) || c.c.Offset(to) == p.care.early) { // the completion map knew it
				if from == to {
					from++
					continue
				}
				break
			}
			if p.lanes.Waiting() >= p.feed.pending {
				break // too many wait: nobody looks further ahead
			}
			if p.care.watched && p.care.reach(c, to, to+1) == to {
				break
			}
			if !p.lanes.Enter(c.lanes[to], place{c, to}) {
				if from == to {
					from++
					continue
				}
				p.passLocked(to + 1)
				p.started += to - from
				return c, from, to
			}
		}
		stuck := to < c.c.Len()
		p.passLocked(to)
		if from < to {
			p.started += to - from
			return c, from, to
		}
		if stuck {
			break
		}
	}
	return nil, 0, 0
}

// behind is how many records wait behind others of their key. p.mu is held.
func (p *Partition) behind() int {
	if p.lanes == nil {
		return 0
	}
	return p.lanes.Waiting()
}

// leaveLocked says that the root of a record has ended. p.mu is held.
func (p *Partition) leaveLocked(c *chunk, i int) {
	if p.lanes != nil {
		p.lanes.Leave(c.lanes[i])
	}
}

// endRunLocked ends the roots [from, to) and returns how many of them had not ended. p.mu is held.
func (c *chunk) endRunLocked(from, to int) (ended int) {
	if c.p.lanes == nil {
		return c.c.EndRun(from, to)
	}
	for i := from; i < to; i++ {
		if c.c.End(i) {
			c.p.leaveLocked(c, i)
			ended++
		}
	}
	return ended
}

// letPass lets the next one of a key start, although a record has not ended. It is the mistake that
// rules.OrderOverDeadLetters stands against.
func (c *chunk) letPass(i int) {
	c.p.mu.Lock()
	c.p.leaveLocked(c, i)
	c.p.mu.Unlock()
	c.p.feed.Poke()
}
