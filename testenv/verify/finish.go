package verify

import (
	"fmt"
	"slices"
)

// finish looks at each record, and at where the positions ended.
func (c *checker) finish() error {
	for _, p := range c.parts {
		if c.h.Stored != nil && !p.kept && p.sampled >= 0 {
			return fmt.Errorf("%w: samples have position %d for %s/%d, and what the group stored has none: is it of another group, or compacted?",
				ErrHistory, p.sampled, p.topic, p.id)
		}
		r := PartitionReport{Topic: p.topic, Partition: p.id, End: p.end, Records: p.visible.count(), Committed: c.final(p)}
		for i := range p.at.n {
			if p.visible.get(i) && c.record(p, i) {
				r.Done++
			}
		}
		c.rep.Partitions = append(c.rep.Partitions, r)
		c.ended(p, r.Committed)
	}
	c.unanswered()
	c.healed()
	c.bounds()
	c.crashReport()
	c.unchecked()
	c.rep.Findings = c.f.findings()
	c.rep.OK = len(c.rep.Counts) == 0
	return nil
}

// final is the last position of a partition that is known, -1 if none is.
func (c *checker) final(p *part) int64 {
	switch {
	case c.h.Stored != nil:
		return p.stored
	case len(c.h.Samples) > 0:
		return p.sampled
	}
	return p.conf
}

// record holds what a record left behind against what it wants. It reports whether all of it is there.
func (c *checker) record(p *part, i int) bool {
	lo, hi := p.items.of(i)
	outs, in := 0, true
	for k := lo; k < hi; k++ {
		if p.items.seen[k] > 0 {
			outs++
			in = in && p.items.in.get(k)
		}
	}
	var (
		wantE, dead = p.wantE.get(i), p.wantD.get(i)
		died        = (dead || p.mayDie.get(i)) && p.letts[i] > 0
		diedIn      = died && p.lettIn.get(i)
		late        = wantE && p.tooLate.get(i) || !in
		whole       = !dead && (!wantE || p.done.get(i)) && outs == hi-lo
		claimed     = p.claimed.get(i)
		offset      = p.at.at(i)
		say         = func(k Kind, format string, args ...any) { c.f.add(k, p.topic, p.id, offset, format, args...) }
	)
	if c.Guarantee == AtMostOnce {
		if !whole && !died && (claimed || !c.Running) {
			c.rep.Totals.Lost++
			if c.rep.Totals.Lost > c.MaxLost {
				say(Loss, "no outcome; number %d of those, and %d may be lost", c.rep.Totals.Lost, c.MaxLost)
			}
		}
		return whole || died
	}
	if c.Guarantee == ExactlyOnce && outs > 0 {
		switch {
		case outs < hi-lo:
			say(Torn, "%d of %d outputs are visible", outs, hi-lo)
			return false
		case c.ahead(p, offset):
			say(Ahead, "its outputs are visible, the position is %s", shown(c.final(p)))
		}
	}
	switch {
	case whole && !late, diedIn:
		return true
	case whole, died: // too late, one way or the other
		say(EarlyCommit, "%s", c.passed(p, i, died && !whole, !in))
		return true
	case !claimed && c.Running:
		return false
	case dead:
		say(DeadLetterMissing, "no dead letter; %s", c.how(p, i))
	case wantE && !p.done.get(i):
		say(Loss, "no effect; %s", c.how(p, i))
	default:
		say(Loss, "%d of %d outputs; %s", outs, hi-lo, c.how(p, i))
	}
	return false
}

// ahead reports whether a record with visible outputs is one that the last position and its map do not cover.
func (c *checker) ahead(p *part, offset int64) bool {
	at := c.final(p)
	return c.positions() && offset >= at && !(p.textMap != nil && p.textMap.Base == at && p.textMap.Done(offset))
}

// passed says what passed a record too early.
func (c *checker) passed(p *part, i int, letter, outs bool) string {
	what := "its effect"
	switch {
	case letter:
		what = "its dead letter"
	case outs:
		what = "an output"
	}
	if text, ok := c.early[place{p, i}]; ok && !letter && !outs {
		return text
	}
	if (letter || outs) && p.cover != nil && p.cover[i] > 0 {
		s := &c.h.Samples[p.cover[i]-1]
		return fmt.Sprintf("the sample of %s covers it, %s was written later", when(s.Answered.UnixNano()), what)
	}
	return fmt.Sprintf("a commit covers it, %s came later", what)
}

// how says why a record that has nothing should have something.
func (c *checker) how(p *part, i int) string {
	if text, ok := c.early[place{p, i}]; ok {
		return text
	}
	if p.claimed.get(i) {
		return "a commit covers it"
	}
	return fmt.Sprintf("the run has ended, at position %s", shown(c.final(p)))
}

// ended holds the last position against the end of the log.
func (c *checker) ended(p *part, at int64) {
	if p.late > 0 && at < p.late {
		c.f.add(Regress, p.topic, p.id, at, "a late commit had set it back from %d, and nothing has repaired that", p.late)
	}
	if c.Running {
		return
	}
	if p.stable < p.end {
		c.f.add(OpenTransaction, p.topic, p.id, -1, "the last stable offset is %d, the log ends at %d", p.stable, p.end)
	}
	want := p.stable
	if c.ReadUncommitted {
		want = p.end
	}
	if c.positions() && at != want && !(at < 0 && want == 0) && at <= p.end {
		c.f.add(NotAtEnd, p.topic, p.id, at, "the last position is %s, the end is %d", shown(at), want)
	}
}

// positions reports whether anything is known of committed positions.
func (c *checker) positions() bool { return c.h.Stored != nil || len(c.h.Samples) > 0 || c.lines }

func (c *checker) unanswered() {
	for _, m := range c.pending {
		if m.own {
			c.rep.Totals.CommitsUnknown++
		}
	}
}

// healed holds the samples against Rules.Healed.
func (c *checker) healed() {
	for _, h := range c.Healed {
		for _, p := range c.parts {
			c.caughtUp(h, p)
		}
	}
}

func (c *checker) caughtUp(h Healing, p *part) {
	goal := int64(-1)
	for k := range c.h.Samples {
		s := &c.h.Samples[k]
		if s.Asked.Before(h.At) {
			continue
		}
		if goal < 0 {
			for _, e := range s.Ends {
				if e.Topic == p.topic && e.Partition == p.id {
					goal = e.End
				}
			}
		}
		late := s.Answered.Sub(h.At) > h.Within
		for _, m := range s.Positions {
			if m.Topic == p.topic && m.Partition == p.id && m.Next >= goal && goal >= 0 && !late {
				return
			}
		}
		if late {
			break
		}
	}
	if goal <= p.start {
		return // there was nothing to catch up with
	}
	c.f.add(Stalled, p.topic, p.id, goal, "not there %v after %s, when the log ended there", h.Within, when(h.At.UnixNano()))
}

// bounds holds what happened more than once against Rules.Duplicates.
func (c *checker) bounds() {
	c.rep.Totals.OtherDuplicates = c.others.n
	over := func(r *repeats, most int64) {
		if r == nil {
			return
		}
		for _, f := range r.kept {
			c.rep.Repeats = append(c.rep.Repeats, Repeat{f.Topic, f.Partition, f.Offset, f.Evidence})
		}
		if most < 0 || r.n <= most {
			return
		}
		c.f.counts[Duplicate] += r.n
		for _, f := range r.kept {
			if len(c.f.kept[Duplicate]) < c.Listed {
				f.Evidence = fmt.Sprintf("%s (%d of these, at most %d)", f.Evidence, r.n, most)
				c.f.kept[Duplicate] = append(c.f.kept[Duplicate], f)
			}
		}
	}
	over(&c.others, c.Duplicates.Other)
	for _, l := range c.order {
		over(c.crashes[l], c.Duplicates.PerCrash)
	}
	over(&c.again, c.Duplicates.Outputs)
	over(&c.dead, c.Duplicates.DeadLetters)
}

// unchecked says what could not be judged.
func (c *checker) unchecked() {
	note := func(s string) { c.rep.Unchecked = append(c.rep.Unchecked, s) }
	if !c.positions() {
		note("early commits and positions (I2, I3): nothing is known of commits")
	}
	if c.gens == nil && c.newest == 0 {
		note("ownership (I6): there are neither generations nor commit lines that carry one")
	}
	if c.Guarantee == AtMostOnce && !c.lines {
		note("records before their commits: there are no commit lines")
	}
	slices.Sort(c.rep.Unchecked)
	c.rep.Unchecked = slices.Compact(c.rep.Unchecked)
}
