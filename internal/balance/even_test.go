package balance

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// evenNaively is even in the words of its comment: as long as one has two more than another that could have
// one of its partitions, the greatest difference first, and of the topics the one that the member has
// most of.
func (s *share) evenNaively() {
	for {
		var from, to *Member
		var topic string
		best, tie := 1, 0
		for _, m := range s.able {
			l := s.load[m]
			if l.total < best {
				continue
			}
			for _, t := range l.names {
				if len(l.claimed[t]) == 0 {
					continue
				}
				other := s.taker(t, nil)
				if other == nil || other == m {
					continue
				}
				o := s.load[other]
				d, dt := l.total-o.total, l.topics[t]-o.topics[t]
				if d > best || d == best && from != nil && dt > tie {
					from, to, topic, best, tie = m, other, t, d, dt
				}
			}
		}
		if from == nil {
			return
		}
		l := s.load[from]
		ps := l.claimed[topic]
		p := ps[len(ps)-1]
		l.claimed[topic] = ps[:len(ps)-1]
		s.asked[p] = true
		s.add(topic, from, -1)
		s.add(topic, to, 1)
	}
}

// even asks for the very partitions that its naive twin asks for.
func TestEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var names []string
		counts := map[string]int32{}
		for i := range rapid.IntRange(1, 6).Draw(t, "topics") {
			names = append(names, fmt.Sprint("t", i))
			counts[names[i]] = int32(rapid.IntRange(0, 9).Draw(t, "partitions"))
		}
		alike := rapid.Bool().Draw(t, "all read all")
		var ms []*Member
		for i := range rapid.IntRange(1, 6).Draw(t, "members") {
			m := &Member{ID: fmt.Sprint("m", i), Facts: Facts{Shape: "s"}}
			for _, name := range names {
				if alike || rapid.Bool().Draw(t, "reads") {
					m.Topics = append(m.Topics, name)
				}
			}
			ms = append(ms, m)
		}
		owner := map[Part]*Member{}
		for _, name := range names {
			for id := range counts[name] {
				if i := rapid.IntRange(-1, len(ms)+3).Draw(t, "owner"); i >= 0 {
					owner[Part{name, id}] = ms[min(i, len(ms)-1)] // one has more than the others
				}
			}
		}
		share := func() *share {
			s := newShare(ms, maps.Clone(owner))
			s.deal(counts, ms)
			return s
		}
		fast, slow := share(), share()
		fast.even()
		slow.evenNaively()
		if !maps.Equal(fast.asked, slow.asked) {
			t.Fatalf("asked for %v, the twin asks for %v", slices.SortedFunc(maps.Keys(fast.asked), compareParts), slices.SortedFunc(maps.Keys(slow.asked), compareParts))
		}
	})
}

// A pattern that matches thousands of topics, and one member that has had them all: the group waits for the
// plan, and the leader's session runs. For each partition that moves, each topic is looked at about once, and
// not once for each member: that took longer than a session.
func TestManyTopics(t *testing.T) {
	const topics, members = 3000, 20
	big := Member{ID: "m00", Generation: 1, Facts: Facts{Shape: "s"}}
	counts := map[string]int32{}
	for i := range topics {
		name := fmt.Sprintf("topic-%04d", i)
		counts[name] = 1
		big.Topics, big.Owned = append(big.Topics, name), append(big.Owned, Part{name, 0})
	}
	ms := []Member{big}
	for i := range members - 1 {
		ms = append(ms, Member{ID: fmt.Sprintf("m%02d", i+1), Topics: big.Topics, Generation: -1, Facts: Facts{Number: NoNumber, Shape: "s"}})
	}
	got := Plan(ms, counts)
	const moves = topics - topics/members
	if n := len(got["m00"].Asks); n != moves {
		t.Errorf("%d partitions are asked for", n)
	}
	all := make([]*Member, len(ms))
	owner := map[Part]*Member{}
	for i := range ms {
		all[i] = &ms[i]
		for _, p := range ms[i].Owned {
			owner[p] = all[i]
		}
	}
	s := newShare(all, owner)
	s.deal(counts, all)
	looks := s.even()
	if len(s.asked) != moves {
		t.Fatalf("%d partitions are asked for, %d in a plan", len(s.asked), moves)
	}
	if most := (moves + 1) * (2*topics + 3*members); looks > most {
		t.Errorf("%d looks for %d moves, more than %d", looks, moves, most)
	}
	t.Logf("%d looks for %d moves", looks, moves)
}
