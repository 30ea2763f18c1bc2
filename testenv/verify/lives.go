package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// life is one life of a process.
type life struct {
	name    string
	number  uint16 // from 1 on: 0 is none
	started bool   // its file has a start line
	at      int64  // of that
	over    bool   // its file has no more lines
	ended   bool   // it ended in order
	failed  bool   // it ended by itself with a code that is not 0, or by a signal
	killed  bool   // the runner says so
	frozen  bool   // likewise, at least once

	// base is what was committed when it started, per part: what it must not run again.
	base []base
}

// base is what was confirmed of a partition when a life started.
type base struct {
	pos     int64
	done    *Completion // of the last commit; nil: none, or not that of a certain last commit
	commits int         // sent for the partition until then
	settled bool        // done has been looked at: it holds, or is nil
	resets  int
}

// lifeOf returns the life of that name, and makes it if there is none yet.
func (c *checker) lifeOf(proc string, n int64) (*life, error) {
	name := fmt.Sprintf("%s-%d", proc, n)
	if l, ok := c.lives[name]; ok {
		return l, nil
	}
	if len(c.order) == math.MaxUint16 {
		return nil, fmt.Errorf("%w: more than %d lives", ErrHistory, len(c.order))
	}
	l := &life{name: name, number: uint16(len(c.order) + 1)}
	c.lives[name] = l
	c.order = append(c.order, l)
	return l, nil
}

// byNumber is nil for 0.
func (c *checker) byNumber(n uint16) *life {
	if n == 0 {
		return nil
	}
	return c.order[n-1]
}

// crashed reports whether l has been killed or frozen, or has failed, so far.
func (c *checker) crashed(l *life) bool {
	if l == nil {
		return false
	}
	return l.killed || l.frozen || l.failed || !c.runner && l.over && !l.ended
}

// event plays a line of an event file.
func (c *checker) event(s *fileSource, ev *Event) error {
	switch ev.Kind {
	case "start":
		l, err := c.lifeOf(ev.Proc, ev.Life)
		if err != nil {
			return err
		}
		if l.started || ev.Seq != 1 {
			return s.ev.broken("a second start of %s", l.name)
		}
		s.life = l
		c.start(l, ev.At)
	case "begin", "effect", "end":
		if s.life == nil {
			return s.ev.broken("%s before start: the first line of a life is its start", ev.Kind)
		}
		if ev.Kind == "end" {
			s.life.ended, s.life.failed = true, ev.Code != 0
			return nil
		}
		return c.effect(s, ev)
	case "commit":
		return c.sent(s, ev)
	case "committed":
		return c.answered(s, ev)
	case "kill", "stop", "exit":
		l, err := c.lifeOf(ev.Target, ev.LifeOf)
		if err != nil {
			return err
		}
		l.killed = l.killed || ev.Kind == "kill"
		l.frozen = l.frozen || ev.Kind == "stop"
		l.failed = l.failed || ev.Kind == "exit" && (ev.Code != 0 || ev.Signal != "")
	}
	return nil
}

// start notes what is committed for sure when a life starts.
func (c *checker) start(l *life, at int64) {
	l.started, l.at = true, at
	l.base = make([]base, len(c.parts))
	for k, p := range c.parts {
		l.base[k] = base{pos: p.conf, commits: p.commits, done: p.confMap, resets: p.resets}
	}
	if c.h.Stored == nil { // when a reset came is not known
		for _, r := range c.Resets {
			if p := c.part(r.Topic, r.Partition); p != nil {
				b := &l.base[p.index]
				b.pos, b.done = min(b.pos, r.To), nil
			}
		}
	}
	// A commit that is still under way may land later, and lower.
	for k, m := range c.pending {
		b := &l.base[k.p.index]
		b.pos, b.done = min(b.pos, m.next), nil
	}
}

// acts notes that l does something about p: it owns it, or thinks so.
func (p *part) acts(l *life, generation int32) {
	if l == nil {
		return
	}
	b := &l.base[p.index]
	if !b.settled {
		b.settled = true
		if b.commits != p.commits || b.resets != p.resets {
			b.done = nil // somebody has committed since, perhaps with less in the map
		}
	}
	if p.actor != l {
		if p.actor != nil {
			p.actor.base[p.index].done = nil // if it gets the partition back, another map counts
		}
		p.actor, p.generation = l, generation
		p.turn++
	} else if generation >= 0 && p.generation != generation {
		if p.generation >= 0 {
			p.turn++
		}
		p.generation = generation
	}
	if p.owner != "" && p.owns == l {
		p.begun = true
	}
}

// crashReport lists the lives that crashed.
func (c *checker) crashReport() {
	for _, l := range c.order {
		if l.started {
			c.rep.Totals.Lives++
		}
		r := c.crashes[l]
		if r == nil && !l.killed && !l.frozen && !l.failed {
			continue
		}
		n := int64(0)
		if r != nil {
			n = r.n
		}
		c.rep.Crashes = append(c.rep.Crashes, Crash{Life: l.name, Frozen: l.frozen && !l.killed, Duplicates: n})
	}
	slices.SortStableFunc(c.rep.Crashes, func(a, b Crash) int { return cmp.Compare(c.lives[a.Life].at, c.lives[b.Life].at) })
}
