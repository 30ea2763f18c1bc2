package balance

import (
	"slices"

	"github.com/killick-io/killick/internal/rules"
)

// even asks members that have too much: as long as one has two more than another that could have
// one of its partitions, the greatest difference first, and of the topics the one that the member has
// most of.
//
// The leader does this between its join and its sync, and the group waits: a pattern may match
// thousands of topics, so topics that the same members read are looked at as one wherever that is
// enough, and nothing here is looked up by name. It returns how often it has looked at a number, which is
// what it costs.
func (s *share) even() (looks int) {
	e := s.newEvening()
	for {
		from, to, topic := e.next()
		if from < 0 {
			return e.looks
		}
		m, name := s.able[from], e.names[topic]
		l := s.load[m]
		ps := l.claimed[name]
		p := ps[len(ps)-1]
		l.claimed[name] = ps[:len(ps)-1]
		if rules.ReleaseBeforeMoving {
			s.asked[p] = true
		} else {
			s.owner[p] = s.able[to]
		}
		e.move(from, to, topic, len(ps) == 1)
	}
}

// evening is what even looks at. Members, topics and classes are numbers: members are indexes of
// share.able, topics of names, and a class is topics that the same members read.
type evening struct {
	names   []string // of the topics of which something can be asked for, sorted
	class   []int    // of each topic
	readers [][]int  // of each class, in their order
	least   []int    // the smallest total of a class's readers
	total   []int    // of each member
	have    [][]int  // of each member, by topic
	mine    [][]int  // topics of which a member can be asked for something, sorted
	looks   int      // at members and topics so far
}

func (s *share) newEvening() *evening {
	e := &evening{}
	for _, m := range s.able {
		e.names = append(e.names, s.load[m].names...)
	}
	slices.Sort(e.names)
	e.names = slices.Compact(e.names)
	classes := map[string]int{}
	number := make(map[string]int, len(e.names))
	for t, name := range e.names {
		number[name] = t
		var readers []int
		who := make([]byte, len(s.able))
		for m := range s.able {
			if s.load[s.able[m]].reads[name] {
				who[m] = 1
				readers = append(readers, m)
			}
		}
		c, ok := classes[string(who)]
		if !ok {
			c = len(e.readers)
			classes[string(who)] = c
			e.readers = append(e.readers, readers)
		}
		e.class = append(e.class, c)
	}
	e.least = make([]int, len(e.readers))
	for _, m := range s.able {
		l := s.load[m]
		have := make([]int, len(e.names))
		for t, name := range e.names {
			have[t] = l.topics[name]
		}
		mine := make([]int, 0, len(l.names))
		for _, name := range l.names {
			mine = append(mine, number[name])
		}
		slices.Sort(mine)
		e.total, e.have, e.mine = append(e.total, l.total), append(e.have, have), append(e.mine, mine)
	}
	return e
}

// next returns what moves next, from < 0: nothing.
func (e *evening) next() (from, to, topic int) {
	for c, readers := range e.readers {
		e.least[c] = -1
		e.looks += len(readers)
		for _, m := range readers {
			if e.least[c] < 0 || e.total[m] < e.least[c] {
				e.least[c] = e.total[m]
			}
		}
	}
	// The greatest difference, and more than can be had of a topic where it is.
	best, most := 1, 0
	for m, mine := range e.mine {
		if e.total[m] < best {
			continue
		}
		e.looks += len(mine)
		for _, t := range mine {
			switch d := e.differs(m, t); {
			case d > best:
				best, most = d, e.have[m][t]
			case d == best:
				most = max(most, e.have[m][t])
			}
		}
	}
	from = -1
	if best < 2 {
		return from, 0, 0
	}
	tie := 0
	for m, mine := range e.mine {
		for _, t := range mine {
			e.looks++
			if e.differs(m, t) != best {
				continue
			}
			other := e.taker(t)
			if d := e.have[m][t] - e.have[other][t]; from < 0 || d > tie {
				from, to, topic, tie = m, other, t, d
			}
			if tie == most {
				return from, to, topic
			}
		}
	}
	return from, to, topic
}

// differs is how much more than a topic's taker a member has; 0 if nobody could have the topic.
func (e *evening) differs(m, t int) int {
	if least := e.least[e.class[t]]; least >= 0 {
		return e.total[m] - least
	}
	return 0
}

// taker is share.taker for a topic that somebody could have.
func (e *evening) taker(t int) int {
	c := e.class[t]
	to := -1
	e.looks += len(e.readers[c])
	for _, m := range e.readers[c] {
		if e.total[m] == e.least[c] && (to < 0 || e.have[m][t] < e.have[to][t]) {
			to = m
		}
	}
	return to
}

// move moves a partition of a topic; last says that it was the last one that could be asked for.
func (e *evening) move(from, to, t int, last bool) {
	e.total[from]--
	e.total[to]++
	e.have[from][t]--
	e.have[to][t]++
	if last {
		if i, ok := slices.BinarySearch(e.mine[from], t); ok {
			e.mine[from] = slices.Delete(e.mine[from], i, i+1)
		}
	}
}
