package verify

import (
	"errors"
	"fmt"
	"time"
)

// position is what is known of a partition's committed position while the run is played.
type position struct {
	index int // of the part

	conf    int64         // confirmed for sure; -1: nothing yet
	confMap *Completion   // of that commit
	lineMax int64         // confirmed by a committed line: at most once needs that
	stored  int64         // the last one that the group stored; -1: none
	kept    bool          // the group stored one at least
	sampled int64         // the last one that a sample has; -1: none
	lined   int64         // the last one confirmed by a line
	commits int           // commit lines (or, without any, stored commits) so far
	resets  int           // times that it went back, on purpose or late
	told    map[told]bool // findings that others may see, too
	used    [3]uint64     // the declared resets that each source has seen, as bits
	late    int64         // it went back from here by a commit whose answer was lost; 0: it did not
	covered int           // records below this number were claimed by a position
	sampleC int           // likewise by a sample
	text    string
	textMap *Completion // of text: samples show the same metadata again and again

	// Who acts on the partition.
	actor      *life
	generation int32  // that actor's commits carried last
	turn       uint32 // changes when the owner may have changed
	owner      string // member id, as the generations say; "": nobody or not known
	owns       *life  // likewise
	begun      bool   // owns has done something since

	// Progress, as samples have it.
	stuckAt    int64
	stuckSince time.Time
	stuckTold  bool
}

var unknownPosition = position{conf: -1, lineMax: -1, stored: -1, sampled: -1, lined: -1, generation: -1, stuckAt: -1}

// told is a finding about a position, which samples, lines and the group's log may all see.
type told struct {
	kind Kind
	at   int64
}

// once reports whether a finding about a position is new.
func (p *part) once(k Kind, at int64) bool {
	if p.told[told{k, at}] {
		return false
	}
	if p.told == nil {
		p.told = map[told]bool{}
	}
	p.told[told{k, at}] = true
	return true
}

// sent is a commit line, by what pairs it with its answer.
type sent struct {
	file    string
	request int64 // 0: the line has none, next pairs then
	next    int64
	p       *part
}

// commit is a commit line that has no clear answer yet.
type commit struct {
	next       int64
	floor      int64 // the highest one that lines had confirmed when it was sent
	conf       int64 // the position that was known then
	newest     int32 // generation, likewise
	generation int32
	member     string
	done       *Completion
	txn        bool
	order      int  // of the part's commits
	own        bool // of a worker's file
}

// from says where a claim comes from.
type from struct {
	at     int64
	sample int // 1 + its number, 0: it is none
	next   int64
	file   string // or what else it is
	seq    int64
}

func (f *from) String() string {
	if f.seq > 0 {
		return fmt.Sprintf("commit of %d (%s:%d, %s)", f.next, f.file, f.seq, when(f.at))
	}
	return fmt.Sprintf("commit of %d (%s, %s)", f.next, f.file, when(f.at))
}

func (c *checker) pairs(s *fileSource, ev *Event) (sent, bool) {
	if c.h.Group != "" && ev.Group != c.h.Group {
		return sent{}, false
	}
	p := c.part(ev.Topic, ev.Partition)
	if p == nil {
		return sent{}, false // of a topic that is no input here
	}
	k := sent{file: s.ev.name, request: ev.Request, p: p}
	if k.request == 0 {
		k.next = ev.Next
	}
	return k, true
}

// sent plays a commit line: the position is about to leave.
func (c *checker) sent(s *fileSource, ev *Event) error {
	k, ok := c.pairs(s, ev)
	if !ok {
		return nil
	}
	if ev.Next < 0 {
		return s.ev.broken("a commit of %d", ev.Next)
	}
	p := k.p
	p.acts(s.life, ev.Generation)
	if s.life != nil && ev.Member != "" {
		c.member(ev.Member, s.life)
	}
	if s.life != nil {
		c.rep.Totals.CommitsSent++
		c.lines = true
		p.commits++
		if c.pending[k] != nil { // a second one of the same number
			c.rep.Totals.CommitsUnknown++
		}
	}
	f := &from{at: ev.At, next: ev.Next, file: s.ev.name, seq: ev.Seq}
	done := c.metadata(p, ev.Next, ev.Metadata, f)
	c.claims(p, done, f)
	c.pending[k] = &commit{next: ev.Next, floor: p.lined, conf: p.conf, newest: c.newest, generation: ev.Generation, member: ev.Member, done: done,
		txn: ev.Txn != "", order: p.commits, own: s.life != nil}
	return nil
}

// answered plays a committed line.
func (c *checker) answered(s *fileSource, ev *Event) error {
	k, ok := c.pairs(s, ev)
	if !ok {
		return nil
	}
	m := c.pending[k]
	if m == nil {
		return s.ev.broken("an answer to no commit: %s/%d request %d", ev.Topic, ev.Partition, ev.Request)
	}
	p, own := k.p, s.life != nil
	switch {
	case ev.Error == "REQUEST_TIMED_OUT": // the broker may have stored it all the same, or may later
		if own {
			c.rep.Totals.CommitsRefused++
		}
		return nil
	case ev.Error != "":
		delete(c.pending, k)
		if own {
			c.rep.Totals.CommitsRefused++
		}
		return nil
	}
	delete(c.pending, k)
	if m.txn {
		return nil // it counts when its transaction ends
	}
	f := &from{at: ev.At, next: m.next, file: s.ev.name, seq: ev.Seq}
	c.owned(p, m, f)
	if m.next < m.floor && c.back(p, m.floor, m.next, byLine, f) {
		p.lined = m.next
	}
	p.lined = max(p.lined, m.next)
	p.lineMax = max(p.lineMax, m.next)
	c.confirm(p, m.next)
	if m.order == p.commits {
		p.confMap = m.done
	} else {
		p.confMap = nil // there has been another one since
	}
	c.newest = max(c.newest, m.generation)
	return nil
}

func (c *checker) confirm(p *part, next int64) {
	if next != p.conf {
		p.confMap = nil
	}
	p.conf = max(p.conf, next)
}

// owned holds a commit that was accepted against who may have sent it.
func (c *checker) owned(p *part, m *commit, f *from) {
	if m.generation < 0 {
		return // of a tool, for an empty group
	}
	if m.generation < m.newest {
		c.f.add(NonOwner, p.topic, p.id, m.next, "%v: accepted in generation %d, though one of generation %d had been before it was sent", f, m.generation, m.newest)
		return
	}
	g, ok := c.gens[m.generation]
	if !ok || m.member == "" {
		return
	}
	if !g[m.member][Partition{p.topic, p.id}] {
		c.f.add(NonOwner, p.topic, p.id, m.next, "%v: accepted from member %s, which did not own it in generation %d", f, m.member, m.generation)
	}
}

// Who has seen a position fall.
const (
	byLine = iota
	byStore
	bySample
)

// declared reports whether a fall is one of the resets. Each of them counts once for each source. Only the group's log has
// the very position: the others may see the first one after it.
func (c *checker) declared(p *part, next int64, by int) bool {
	for i, r := range c.Resets {
		if r.Topic != p.topic || r.Partition != p.id || p.used[by]&(1<<i) != 0 {
			continue
		}
		if r.To == next || by != byStore && r.To < next {
			p.used[by] |= 1 << i
			return true
		}
	}
	return false
}

// back notes that a position fell. It is told once, however many have seen it. It reports whether somebody meant it to.
func (c *checker) back(p *part, before, next int64, by int, f *from) bool {
	meant := c.declared(p, next, by)
	p.resets++
	p.conf, p.confMap = min(p.conf, next), nil
	if meant {
		p.lineMax = min(p.lineMax, next)
		return true
	}
	if !p.once(Regress, next) {
		return false
	}
	for k, m := range c.pending {
		if k.p == p && m.next == next && m.conf <= next {
			// It was no step back when it was sent; its answer was lost and it has landed late. The next commit must repair that; finish looks.
			p.late = max(p.late, before)
			c.rep.Totals.LateCommits++
			return false
		}
	}
	c.f.add(Regress, p.topic, p.id, next, "%v: it was %d before", f, before)
	return false
}

// stored plays what the group stored.
func (c *checker) stored(s *Stored, at int64) error {
	if g := s.Generation; g != nil {
		c.generation(g)
		return nil
	}
	m := s.Commit
	c.rep.Totals.CommitsStored++
	p := c.part(m.Topic, m.Partition)
	if p == nil {
		return nil
	}
	file := "stored"
	if s.Ref != "" {
		file = "stored at " + s.Ref
	}
	f := &from{at: at, next: m.Next, file: file}
	if m.Next < p.stored {
		c.back(p, p.stored, m.Next, byStore, f)
	}
	p.stored, p.kept = m.Next, true
	if m.Next < 0 {
		return nil
	}
	done := c.metadata(p, m.Next, m.Metadata, f)
	c.claims(p, done, f)
	c.confirm(p, m.Next)
	if !c.lines {
		p.commits++
		p.confMap = done
	}
	return nil
}

func (c *checker) generation(g *Generation) {
	c.rep.Totals.GenerationsStored++
	if c.gens == nil {
		c.gens = map[int32]map[string]map[Partition]bool{}
	}
	members := c.gens[g.Number]
	if members == nil { // a static member that comes back has another id in the same generation
		members = map[string]map[Partition]bool{}
		c.gens[g.Number] = members
	}
	owners := map[Partition]string{}
	for id, ps := range g.Members {
		if members[id] == nil {
			members[id] = map[Partition]bool{}
		}
		for _, p := range ps {
			members[id][p] = true
			owners[p] = id
		}
	}
	for _, p := range c.parts {
		if id := owners[Partition{p.topic, p.id}]; id != p.owner {
			p.owner, p.owns, p.begun = id, c.members[id], false
		}
	}
}

// member notes which life a member is.
func (c *checker) member(id string, l *life) {
	if c.members[id] == l {
		return
	}
	c.members[id] = l
	for _, p := range c.parts {
		if p.owner == id && p.owns != l {
			p.owns, p.begun = l, p.actor == l
		}
	}
}

// sample plays a sample.
func (c *checker) sample(i int) {
	s := &c.h.Samples[i]
	c.rep.Totals.Samples++
	ends := map[Partition]int64{}
	for _, e := range s.Ends {
		if c.part(e.Topic, e.Partition) != nil {
			ends[Partition{e.Topic, e.Partition}] = e.End
		}
	}
	at := map[*part]bool{}
	for k := range s.Positions {
		m := &s.Positions[k]
		p := c.part(m.Topic, m.Partition)
		if p == nil || m.Next < 0 {
			continue
		}
		at[p] = true
		f := &from{at: s.Answered.UnixNano(), next: m.Next, file: "sample", sample: i + 1}
		if m.Next < p.sampled {
			c.back(p, p.sampled, m.Next, bySample, f)
		}
		p.sampled = m.Next
		done := c.metadata(p, m.Next, m.Metadata, f)
		if end, ok := ends[Partition{p.topic, p.id}]; ok && m.Next > end && p.once(PastEnd, m.Next) {
			c.f.add(PastEnd, p.topic, p.id, m.Next, "%v: the log ended at %d", f, end)
		}
		c.claims(p, done, f)
		c.confirm(p, m.Next)
	}
	for _, p := range c.parts {
		if p.sampled >= 0 && !at[p] {
			c.back(p, p.sampled, -1, bySample, &from{at: s.Answered.UnixNano(), next: -1, file: "sample"})
			p.sampled = -1
		}
		if end, ok := ends[Partition{p.topic, p.id}]; ok {
			c.progress(p, end, s)
		}
	}
}

// progress holds a partition against MaxStall.
func (c *checker) progress(p *part, end int64, s *Sample) {
	if p.sampled >= end || end <= p.start || p.sampled != p.stuckAt || p.stuckSince.IsZero() {
		p.stuckAt, p.stuckSince, p.stuckTold = p.sampled, time.Time{}, false
		if p.sampled < end && end > p.start {
			p.stuckSince = s.Asked
		}
		return
	}
	if d := s.Answered.Sub(p.stuckSince); c.MaxStall > 0 && d > c.MaxStall && !p.stuckTold {
		p.stuckTold = true
		c.f.add(Stalled, p.topic, p.id, p.sampled, "stood at %s for %v, from %s on, with the end at %d", shown(p.sampled), d.Round(time.Millisecond),
			when(p.stuckSince.UnixNano()), end)
	}
}

// metadata reads the map that came with a position.
func (c *checker) metadata(p *part, next int64, text string, f *from) *Completion {
	if next > p.end && p.once(PastEnd, next) {
		c.f.add(PastEnd, p.topic, p.id, next, "%v: the log ends at %d", f, p.end)
	}
	if text == "" {
		return nil
	}
	if text == p.text && p.textMap != nil && p.textMap.Base == next {
		return p.textMap
	}
	p.text, p.textMap = text, nil
	n := units(text)
	c.rep.Totals.LongestMetadata = max(c.rep.Totals.LongestMetadata, n)
	if n > maxMetadata && p.once(Metadata, next) {
		c.f.add(Metadata, p.topic, p.id, next, "%v: metadata of %d UTF-16 units, brokers take %d", f, n, maxMetadata)
	}
	m, err := ParseCompletion(text)
	switch {
	case errors.Is(err, ErrForeign):
		c.rep.Totals.ForeignMetadata++
		return nil
	case err != nil:
		if p.once(Metadata, next) {
			c.f.add(Metadata, p.topic, p.id, next, "%v: %v", f, err)
		}
		return nil
	case m.Base != next:
		// Tools that set a position keep its metadata.
		if !c.resets[Reset{p.topic, p.id, next}] && p.once(Metadata, next) {
			c.f.add(Metadata, p.topic, p.id, next, "%v: its map was made for %d", f, m.Base)
		}
		return nil
	case m.Next > p.end && p.once(PastEnd, m.Next):
		c.f.add(PastEnd, p.topic, p.id, m.Next, "%v: its map goes to %d, the log ends at %d", f, m.Next, p.end)
	}
	c.rep.Totals.Maps++
	if m.TakenOver {
		c.rep.Totals.TakenOver++
	}
	p.textMap = m
	return m
}

// maxMetadata is the broker's default limit (offset.metadata.max.bytes): Apache Kafka compares it with the length of a
// Java string, and refuses what is longer together with its position.
const maxMetadata = 4096

// units counts as brokers count metadata.
func units(s string) (n int64) {
	for _, r := range s {
		if n++; r > 0xFFFF {
			n++
		}
	}
	return n
}

// claims notes what a position and its map say of records, and holds it against their effects.
func (c *checker) claims(p *part, done *Completion, f *from) {
	to := p.at.lower(f.next)
	if to > p.covered {
		c.claim(p, p.covered, to, f)
		p.covered = to
	}
	if f.sample > 0 && p.cover != nil && to > p.sampleC {
		c.cover(p, p.sampleC, to, f)
		p.sampleC = to
	}
	if done == nil {
		return
	}
	done.each(func(s Span) {
		lo, hi := p.at.lower(s.From), p.at.lower(s.To)
		c.claim(p, lo, hi, f)
		if f.sample > 0 && p.cover != nil {
			c.cover(p, lo, hi, f)
		}
	})
}

func (c *checker) claim(p *part, lo, hi int, f *from) {
	words(lo, hi, func(w int, mask uint64) {
		fresh := mask &^ p.claimed[w]
		if fresh == 0 {
			return
		}
		p.claimed[w] |= fresh
		if p.coverMs != nil {
			ms := (f.at + int64(time.Millisecond) - 1) / int64(time.Millisecond)
			ones(w, fresh, func(i int) { p.coverMs[i] = ms })
		}
		early := fresh & p.wantE[w] &^ p.done[w]
		p.tooLate[w] |= early
		if early != 0 && len(c.early) < maxEarly {
			ones(w, early, func(i int) { c.early[place{p, i}] = f.String() })
		}
	})
}

// maxEarly bounds the records of which it is remembered who passed them too early.
const maxEarly = 4096

func (c *checker) cover(p *part, lo, hi int, f *from) {
	words(lo, hi, func(w int, mask uint64) {
		fresh := mask &^ p.bySample[w]
		p.bySample[w] |= fresh
		ones(w, fresh, func(i int) { p.cover[i] = uint32(f.sample) })
	})
}
