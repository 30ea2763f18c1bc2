package verify

import (
	"fmt"
	"hash/maphash"
)

// turn is the order of a key, or of a partition.
type turn struct {
	first uint32 // 1 + the highest record that has had its effect; 0: none
	last  uint32 // 1 + the record of the last effect
	by    uint16 // the life that had it
	turn  uint32 // the part's turn then
}

// effect plays a begin or an effect line.
func (c *checker) effect(s *fileSource, ev *Event) error {
	begin := ev.Kind == "begin"
	if !begin {
		if c.Select != nil && !c.Select(ev) {
			return nil
		}
		c.rep.Totals.Effects++
	}
	l := s.life
	p := c.part(ev.Topic, ev.Partition)
	if p == nil {
		if !begin {
			c.f.add(Foreign, ev.Topic, ev.Partition, ev.Offset, "%s:%d: an effect for a record of no input", s.ev.name, ev.Seq)
		}
		return nil
	}
	p.acts(l, -1)
	c.exclusive(s, p, ev)
	i, ok := p.at.find(ev.Offset)
	if !ok {
		c.nowhere(s, p, ev)
		return nil
	}
	if !p.visible.get(i) {
		c.dirty(s, p, i, ev)
		return nil
	}
	c.named(s, p, i, ev)
	if begin {
		return nil
	}
	if c.Guarantee == AtMostOnce && p.lineMax <= ev.Offset {
		c.f.add(TooSoon, p.topic, p.id, ev.Offset, "%s:%d: its effect at %s, when %s was confirmed", s.ev.name, ev.Seq, when(ev.At), shown(p.lineMax))
	}
	if !p.wantE.get(i) {
		if c.effects { // else the rules do not speak of effects
			c.f.add(Unexpected, p.topic, p.id, ev.Offset, "%s:%d: an effect, where the rules want none", s.ev.name, ev.Seq)
		}
		return nil
	}
	c.inTurn(s, p, i, ev)
	if p.done.get(i) {
		c.repeated(s, p, i, ev)
	} else {
		p.done.set(i)
		if p.tooLate.get(i) {
			if text, ok := c.early[place{p, i}]; ok {
				c.early[place{p, i}] = text + "; its effect came at " + when(ev.At) + " (" + s.ev.name + ")"
			}
		}
	}
	p.lastBy[i] = l.number
	return nil
}

// nowhere is an effect where no record is.
func (c *checker) nowhere(s *fileSource, p *part, ev *Event) {
	switch {
	case ev.Offset >= 0 && ev.Offset < p.start, c.Holes && ev.Offset >= 0 && ev.Offset < p.end:
		if ev.Kind == "effect" {
			c.rep.Totals.Unplaced++
		}
	case ev.Kind == "begin":
	case ev.Offset < 0 || ev.Offset >= p.end:
		c.f.add(Foreign, p.topic, p.id, ev.Offset, "%s:%d: an effect outside of the log [%d, %d)", s.ev.name, ev.Seq, p.start, p.end)
	default:
		c.f.add(Foreign, p.topic, p.id, ev.Offset, "%s:%d: an effect where no record is (a transaction marker, or a hole)", s.ev.name, ev.Seq)
	}
}

// dirty is user code that was given what a read_committed reader does not see.
func (c *checker) dirty(s *fileSource, p *part, i int, ev *Event) {
	if c.strange[place{p, i}] {
		return
	}
	c.strange[place{p, i}] = true
	what := "undecided"
	if p.aborted.get(i) {
		what = "aborted"
	}
	c.f.add(AbortedRead, p.topic, p.id, ev.Offset, "%s:%d: %s of a record of an %s transaction", s.ev.name, ev.Seq, ev.Kind, what)
}

// named holds the key and id that a line has against those of the record.
func (c *checker) named(s *fileSource, p *part, i int, ev *Event) {
	if ev.ID != nil && c.ID != nil {
		if sum := maphash.Bytes(c.seed, ev.ID); sum != p.ids[i] {
			k, where := Altered, "which no record has"
			if o, j, ok := c.whose(sum); ok {
				k, where = Swap, "that of "+o.name(j)
			}
			c.f.add(k, p.topic, p.id, ev.Offset, "%s:%d: %s with the id %.60q, %s", s.ev.name, ev.Seq, ev.Kind, ev.ID, where)
			return
		}
	}
	if ev.Key != nil && c.key(ev.Key) != p.keys[i] {
		c.f.add(Swap, p.topic, p.id, ev.Offset, "%s:%d: %s with the key %.60q, which is not the record's", s.ev.name, ev.Seq, ev.Kind, ev.Key)
	}
}

// whose finds the record with an id. O(records): it is for findings that will be listed.
func (c *checker) whose(sum uint64) (*part, int, bool) {
	for _, p := range c.parts {
		for i, s := range p.ids {
			if s == sum && p.visible.get(i) {
				return p, i, true
			}
		}
	}
	return nil, 0, false
}

// inTurn holds an effect against those of the same key, or partition.
//
// First effects come in the order of offsets. Of repeated ones the order is that within one turn of an owner: a new owner,
// or the same one in a new generation, begins further back.
func (c *checker) inTurn(s *fileSource, p *part, i int, ev *Event) {
	var t *turn
	switch c.Order {
	case Unordered:
		return
	case PerPartition:
		t = &p.turns[0]
	case PerKey:
		if p.slots[i] == 0 {
			return
		}
		t = &p.turns[p.slots[i]]
	}
	n, first := uint32(i+1), !p.done.get(i)
	switch {
	case first && n < t.first && !p.mayDie.get(i): // it may have had its turn as a dead letter
		c.f.add(Order, p.topic, p.id, ev.Offset, "%s:%d: its first effect at %s came after that of %d", s.ev.name, ev.Seq, when(ev.At), p.at.at(int(t.first-1)))
	case !first && n < t.last && t.by == s.life.number && t.turn == p.turn:
		c.f.add(Order, p.topic, p.id, ev.Offset, "%s:%d: %s repeated it after %d", s.ev.name, ev.Seq, s.life.name, p.at.at(int(t.last-1)))
	}
	if first {
		t.first = max(t.first, n)
	}
	t.last, t.by, t.turn = n, s.life.number, p.turn
}

// repeated is an effect beyond the first.
func (c *checker) repeated(s *fileSource, p *part, i int, ev *Event) {
	c.rep.Totals.Duplicates++
	if !p.again.get(i) {
		p.again.set(i)
		c.rep.Totals.Repeated++
	}
	l, before := s.life, c.byNumber(p.lastBy[i])
	if b := &l.base[p.index]; b.resets == p.resets {
		switch {
		case ev.Offset < b.pos:
			c.f.add(Rerun, p.topic, p.id, ev.Offset, "%s:%d: ran again, though %d was committed when %s started", s.ev.name, ev.Seq, b.pos, l.name)
			return
		case b.done != nil && b.settled && b.done.Done(ev.Offset):
			c.f.add(Rerun, p.topic, p.id, ev.Offset, "%s:%d: ran again, though the map at %d said that it had ended when %s started", s.ev.name, ev.Seq, b.done.Base, l.name)
			return
		}
	}
	r, bound := &c.others, "no crash explains it"
	for _, by := range []*life{before, l} {
		// Who was killed leaves work that others repeat. Who was frozen does the same, and repeats itself what others did meanwhile.
		if by != nil && c.crashed(by) && (by == before && before != l || by.frozen) {
			if r = c.crashes[by]; r == nil {
				r = &repeats{}
				c.crashes[by] = r
			}
			bound = "because of " + by.name
			break
		}
	}
	r.add(c.Listed, p.topic, p.id, ev.Offset, "%s:%d: the effect of %s at %s, after one of %s; %s", s.ev.name, ev.Seq, l.name, when(ev.At), before.name, bound)
}

// exclusive holds who acts on a partition against who owns it.
func (c *checker) exclusive(s *fileSource, p *part, ev *Event) {
	if !c.Exclusive || p.owns == nil || p.owns == s.life || !p.begun || ev.Kind != "effect" {
		return
	}
	c.f.add(NonOwner, p.topic, p.id, ev.Offset, "%s:%d: an effect of %s, after %s had become its owner and begun", s.ev.name, ev.Seq, s.life.name, p.owns.name)
}

// name is a record for people.
func (p *part) name(i int) string { return fmt.Sprintf("%s/%d@%d", p.topic, p.id, p.at.at(i)) }
