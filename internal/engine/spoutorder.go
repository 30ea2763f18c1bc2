package engine

import "github.com/killick-io/killick"

// spoutPlace is a message of a user's spout.
type spoutPlace struct {
	c *spoutChunk
	i int
}

// takeInOrder is Next's for a spout with an order, which holds within a task: first the messages whose
// turn has come, then those that nobody has looked at. Those that wait count against their task's
// pending limit. The feed's mutex is held.
func (f *SpoutFeed) takeInOrder(r *Run) (found, end bool) {
	waiting := false
	for k := range f.tasks {
		t := f.tasks[(f.turn+k)%len(f.tasks)]
		if next, ok := t.lanes.Next(); ok {
			f.turn++
			*r = Run{Chunk: next.c, From: next.i, To: next.i + 1}
			return true, false
		}
		waiting = waiting || t.lanes.Waiting() > 0
	}
	for {
		if f.cur == nil {
			if f.cur, f.at = f.take(), 0; f.cur == nil {
				return false, f.running == 0 && !waiting
			}
			f.cur.sort()
		}
		c, from, to := f.cur, f.at, f.at
		for to < len(c.recs) && c.t.lanes.Enter(c.lanes[to], spoutPlace{c, to}) {
			to++
		}
		if f.at = to + 1; f.at >= len(c.recs) { // the one at to, if there is one, waits
			f.cur = nil
		}
		waiting = waiting || to < len(c.recs)
		if from < to {
			*r = Run{Chunk: c, From: from, To: to}
			return true, false
		}
	}
}

// sort notes the lanes of a chunk that nothing is added to any more.
func (c *spoutChunk) sort() {
	c.lanes = make([]uint64, len(c.recs))
	if c.t.f.spec.Order == killick.PerPartition {
		return // one lane
	}
	for i := range c.recs {
		c.lanes[i] = c.t.lanes.Of(c.recs[i].m.Key)
	}
}
