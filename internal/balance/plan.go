package balance

import (
	"cmp"
	"fmt"
	"slices"
)

// Plan shares the partitions out. counts has how many partitions each topic has, as far as the leader
// knows: what a member claims stays its own even if the leader has not heard of it yet, or does not any
// more. It is no load then. The result has a grant for each member, by id. Two members with the same id are a mistake of the caller's.
//
// Ownerless partitions go, in the order of their names, to the member that has the fewest, of those
// the one that has the fewest of the topic. Then members that have at least two more than another
// one are asked for as many as evens it out, which is as few as can be where all subscribe to the
// same topics. Grants change only as claims do, so a plan that asks for nothing is repeated as it is
// while nobody comes or goes.
func Plan(members []Member, counts map[string]int32) map[string]Grant {
	ms := make([]*Member, len(members))
	for i := range members {
		ms[i] = &members[i]
	}
	slices.SortFunc(ms, func(a, b *Member) int { return cmp.Compare(a.ID, b.ID) })
	out := make(map[string]Grant, len(ms))
	if len(ms) == 0 {
		return out
	}
	owner := claims(ms)
	shape := atWork(ms, owner)
	number := numbers(ms)
	// The members in the order of their numbers: who was there first is served first.
	slices.SortFunc(ms, func(a, b *Member) int { return cmp.Compare(number[a], number[b]) })

	standby := map[*Member]string{}
	var able []*Member
	allStop := true
	for _, m := range ms {
		switch {
		case m.Shape != shape:
			standby[m] = otherShape(shape, m.Shape)
		case !m.Stopping:
			able = append(able, m)
			allStop = false
		}
	}
	if single := only(able, owner, shape); single != nil {
		for _, m := range able {
			if m != single {
				standby[m] = fmt.Sprintf("one member at a time may work on this topology, and worker %d does", number[single])
			}
		}
		able = slices.DeleteFunc(able, func(m *Member) bool { return m != single })
	}
	s := newShare(able, owner)
	s.deal(counts, ms)
	s.even()

	for _, m := range ms {
		out[m.ID] = Grant{Number: number[m], AllStop: allStop && len(owner) == 0, Standby: standby[m], Echo: m.Facts.Echo()}
	}
	for p, m := range s.owner {
		g := out[m.ID]
		g.Parts = append(g.Parts, p)
		if s.asked[p] {
			g.Asks = append(g.Asks, p)
		}
		out[m.ID] = g
	}
	for id, g := range out {
		slices.SortFunc(g.Parts, compareParts)
		slices.SortFunc(g.Asks, compareParts)
		out[id] = g
	}
	return out
}

// otherShape says why a member stands by whose shape is not the one at work. "" is one that is not known.
func otherShape(works, own string) string {
	const same = "run the same version of killick in all workers of the group"
	switch {
	case works == "":
		return "the members at work are of another version of killick, which the group's leader cannot read: " + same
	case own == "":
		return fmt.Sprintf("what this member says of itself cannot be read by the group's leader, which is of another version of killick, and the members at work have the shape %s: %s", works, same)
	}
	return fmt.Sprintf("the members at work have the shape %s, this one has %s", works, own)
}

// only returns the member that alone may work, nil if there is no such rule: the one that claims
// something, if any does, or the one of the smallest number. While a stopping member still claims
// something nobody else may begin.
func only(able []*Member, owner map[Part]*Member, shape string) *Member {
	if !slices.ContainsFunc(able, func(m *Member) bool { return m.Single }) {
		return nil
	}
	var at *Member
	for _, m := range owner {
		if m.Shape == shape && m.Single && (at == nil || at.Generation < m.Generation || at.Generation == m.Generation && m.ID < at.ID) {
			at = m
		}
	}
	if at != nil {
		return at
	}
	return able[0]
}

// share is a plan in the making.
type share struct {
	able  []*Member
	owner map[Part]*Member // of now: claimed or dealt
	asked map[Part]bool

	// What each of able will have when what is asked for has moved.
	load map[*Member]*load
}

type load struct {
	total  int
	topics map[string]int
	// claimed are the partitions that can be asked for, by topic. Those that were dealt just now
	// are not among them.
	claimed map[string][]Part
	names   []string // of claimed, sorted
	reads   map[string]bool
}

func newShare(able []*Member, owner map[Part]*Member) *share {
	s := &share{able: able, owner: owner, asked: map[Part]bool{}, load: map[*Member]*load{}}
	for _, m := range able {
		l := &load{topics: map[string]int{}, claimed: map[string][]Part{}, reads: map[string]bool{}}
		for _, t := range m.Topics {
			l.reads[t] = true
		}
		s.load[m] = l
	}
	return s
}

func (s *share) add(t string, m *Member, by int) {
	if l := s.load[m]; l != nil {
		l.total += by
		l.topics[t] += by
	}
}

// taker returns who should get a partition of topic t, nil if nobody may have one. but, if not nil,
// says who may not.
func (s *share) taker(t string, but map[*Member]bool) (to *Member) {
	var best *load
	for _, m := range s.able {
		l := s.load[m]
		if !l.reads[t] || but[m] {
			continue
		}
		if to == nil || l.total < best.total || l.total == best.total && l.topics[t] < best.topics[t] {
			to, best = m, l
		}
	}
	return to
}

// deal counts what is claimed, and gives what nobody claims.
func (s *share) deal(counts map[string]int32, ms []*Member) {
	claimed := make([]Part, 0, len(s.owner))
	for p := range s.owner {
		claimed = append(claimed, p)
	}
	slices.SortFunc(claimed, compareParts)
	exists := func(p Part) bool { return p.ID < counts[p.Topic] }
	var moving []Part // asked of members that may not work
	for _, p := range claimed {
		m := s.owner[p]
		if exists(p) {
			s.add(p.Topic, m, 1)
		}
		switch l := s.load[m]; {
		case l != nil && !exists(p): // its topic was deleted, perhaps: it is worth nothing to anybody
		case l != nil && m.Shape == "": // whether it closes it would not be seen
		case l != nil:
			if len(l.claimed[p.Topic]) == 0 {
				l.names = append(l.names, p.Topic)
			}
			l.claimed[p.Topic] = append(l.claimed[p.Topic], p)
		case !m.Stopping: // a stopping member gives all away by itself
			moving = append(moving, p)
		}
	}
	closed := map[Part]map[*Member]bool{}
	for _, m := range ms {
		for _, p := range m.Released {
			if closed[p] == nil {
				closed[p] = map[*Member]bool{}
			}
			closed[p][m] = true
		}
	}
	topics := make([]string, 0, len(counts))
	for t := range counts {
		topics = append(topics, t)
	}
	slices.Sort(topics)
	for _, t := range topics {
		for i := range counts[t] {
			p := Part{t, i}
			if s.owner[p] != nil {
				continue
			}
			if to := s.taker(t, closed[p]); to != nil {
				s.owner[p] = to
				s.add(t, to, 1)
			}
		}
	}
	for _, p := range moving {
		if to := s.taker(p.Topic, nil); to != nil {
			s.asked[p] = true
			if exists(p) {
				s.add(p.Topic, to, 1)
			}
		}
	}
}
