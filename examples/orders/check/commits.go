package check

import (
	"cmp"
	"fmt"
	"slices"
)

// maxMetadata is the broker's default limit (offset.metadata.max.bytes, counted in UTF-16 units): a longer text is
// refused together with its offset.
const maxMetadata = 4096

// commits walks the samples of each partition in time.
func (c *checker) commits() {
	c.r.Samples = len(c.samples)
	byPartition := map[int32][]*Sample{}
	for i := range c.samples {
		s := &c.samples[i]
		byPartition[s.Partition] = append(byPartition[s.Partition], s)
	}
	inputs := map[int32][]int{} // indices of roots, by offset
	for i := range c.roots {
		p := c.roots[i].in.Partition
		inputs[p] = append(inputs[p], i)
	}
	for _, e := range c.h.LogEnds {
		in := inputs[e.Partition]
		slices.SortFunc(in, func(a, b int) int { return cmp.Compare(c.roots[a].in.Offset, c.roots[b].in.Offset) })
		c.partition(e.Partition, in, byPartition[e.Partition])
	}
	slices.SortFunc(c.r.Partitions, func(a, b PartitionReport) int { return cmp.Compare(a.Partition, b.Partition) })
}

// partition judges one partition. in is ordered by offset, samples by time.
func (c *checker) partition(p int32, in []int, samples []*Sample) {
	end := c.logEnd[p]
	prev := int64(-1)
	next := 0               // in[:next] have been held against the first sample that covers them, the strictest one
	named := map[int]bool{} // likewise, covered by a map
	for _, s := range samples {
		when := fmt.Sprintf("partition %d at %s", p, s.At.UTC().Format(stamp))
		if s.Offset < prev {
			c.violate(Regress, -1, "%s: committed %d, before it was %d", when, s.Offset, prev)
		}
		prev = s.Offset
		if s.Offset > end {
			c.violate(PastEnd, -1, "%s: committed %d, the log ends at %d", when, s.Offset, end)
		}
		if n := units(s.Metadata); n > maxMetadata {
			c.violate(Metadata, -1, "%s: commit metadata of %d UTF-16 units, brokers take %d", when, n, maxMetadata)
		}
		for next < len(in) && c.roots[in[next]].in.Offset < s.Offset {
			if i := in[next]; !named[i] {
				c.covered(i, s, "committed")
			}
			next++
		}
		for _, d := range s.Done {
			if d >= end {
				c.violate(PastEnd, -1, "%s: the map names %d, the log ends at %d", when, d, end)
			}
			if i, ok := c.at[position{p, d}]; ok && d >= s.Offset && !named[i] {
				named[i] = true
				c.covered(i, s, "the map beside it")
			}
		}
	}
	if prev != end && !(prev == -1 && end == 0) {
		c.violate(NotAtEnd, -1, "partition %d: the last sample has %d, the log ends at %d", p, prev, end)
	}
	c.r.Partitions = append(c.r.Partitions, PartitionReport{Partition: p, Records: len(in), Committed: prev, LogEnd: end})
}

// covered: s says that the root at i has ended. All that it had to do must have been there at that moment.
func (c *checker) covered(i int, s *Sample, by string) {
	r := &c.roots[i]
	missing := ""
	if len(r.want.calls) > 0 && (r.paidAt == 0 || r.paidAt > s.At.UnixNano()) {
		missing = "its payment had not ended"
	}
	written := slices.ContainsFunc(r.effects(), func(e position) bool {
		end, ok := s.end(c.effectTopic(r), e.partition)
		return ok && e.offset < end
	})
	switch {
	case written:
	case r.want.dead():
		missing = "its dead letter was not written"
	default:
		missing = "its notification was not written"
	}
	if missing != "" {
		c.violate(EarlyCommit, i, "%s: committed %d (%s covers it), but %s", s.At.UTC().Format(stamp), s.Offset, by, missing)
	}
}

// finish sums up the kills and orders the violations by place.
func (c *checker) finish() {
	for k := range c.h.Kills {
		c.r.Kills = append(c.r.Kills, c.kill(k))
	}
	slices.SortStableFunc(c.r.Violations, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	c.r.OK = len(c.r.Violations) == 0
}

func (c *checker) kill(k int) KillReport {
	kill := &c.h.Kills[k]
	out := KillReport{At: kill.At}
	for _, e := range c.h.LogEnds {
		s := kill.sample(e.Partition)
		p := KillPartition{Partition: e.Partition, Committed: s.Offset, LogEnd: e.Offset}
		for i := range c.roots {
			r := &c.roots[i]
			if r.in.Partition != e.Partition || r.in.Offset < s.Offset {
				continue
			}
			if c.saved(k, r) {
				p.Saved++
			} else {
				p.Open++
			}
		}
		out.Saved += p.Saved
		out.Open += p.Open
		out.Partitions = append(out.Partitions, p)
	}
	slices.SortFunc(out.Partitions, func(a, b KillPartition) int { return cmp.Compare(a.Partition, b.Partition) })
	return out
}

// units counts as brokers count metadata: UTF-16 units.
func units(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xFFFF {
			n++
		}
	}
	return n
}
