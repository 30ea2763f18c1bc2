package check

import (
	"errors"
	"fmt"
	"slices"
)

// ErrHistory is under every error of Check: the history cannot be judged. Mend what collects it; the run itself
// may be good or bad.
var ErrHistory = errors.New("check: history unusable")

// Check holds h against the rules. The error, all mistakes joined, means that there is no verdict.
func Check(h History) (*Report, error) {
	c := &checker{
		h:       &h,
		r:       &Report{Records: len(h.Inputs)},
		at:      make(map[position]int, len(h.Inputs)),
		byOrder: make(map[int64]int, len(h.Inputs)),
		logEnd:  make(map[int32]int64, len(h.LogEnds)),
		roots:   make([]root, len(h.Inputs)),
	}
	if err := c.index(); err != nil {
		return nil, err
	}
	c.outputs()
	c.deadLetters()
	c.payments()
	c.roundUp()
	c.commits()
	c.finish()
	return c.r, nil
}

type position struct {
	partition int32
	offset    int64
}

// root is one input record and all that was seen of it.
type root struct {
	want  want
	in    *Record
	outs  []position // its notifications, good or not, in OutputTopic
	dead  []position // its dead letters, good or not, in DeadLetterTopic
	calls []Payment  // in the order of the book

	// paidAt is when its payment had first ended as want says, 0 if it never did. Only set if want.calls is not empty.
	paidAt int64
	passes int // runs through the payment calls that ended
	starts int // runs through the payment calls that began
	procs  int // processes that made calls for it
}

// effects are the positions of what the root had to write.
func (r *root) effects() []position {
	if r.want.dead() {
		return r.dead
	}
	return r.outs
}

type checker struct {
	h       *History
	r       *Report
	at      map[position]int // index of roots
	byOrder map[int64]int    // index of roots, without poison
	logEnd  map[int32]int64
	roots   []root
	samples []Sample // those of History and of its kills, by time

	named []map[position]bool // per kill: what the completion maps of its samples name
}

// index fills the maps and refuses histories in which a violation could hide.
func (c *checker) index() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrHistory}, args...)...))
	}
	h := c.h
	if len(h.Inputs) == 0 {
		bad("no inputs")
	}
	if h.InputTopic == "" || h.OutputTopic == "" || h.DeadLetterTopic == "" {
		bad("a topic has no name: input %q, output %q, dead letters %q", h.InputTopic, h.OutputTopic, h.DeadLetterTopic)
	}
	for _, e := range h.LogEnds {
		if _, ok := c.logEnd[e.Partition]; ok || e.Topic != h.InputTopic || e.Offset < 0 {
			bad("log end %s-%d@%d: want one per partition of %q, none below 0", e.Topic, e.Partition, e.Offset, h.InputTopic)
		}
		c.logEnd[e.Partition] = e.Offset
	}
	for i := range h.Inputs {
		in := &h.Inputs[i]
		pos := position{in.Partition, in.Offset}
		if in.Topic != h.InputTopic {
			bad("input %s-%d@%d is not of topic %q", in.Topic, in.Partition, in.Offset, h.InputTopic)
		}
		if _, ok := c.at[pos]; ok {
			bad("input %s-%d@%d is given twice", in.Topic, in.Partition, in.Offset)
		}
		if end, ok := c.logEnd[in.Partition]; !ok || in.Offset >= end {
			bad("input %s-%d@%d does not lie below a given log end", in.Topic, in.Partition, in.Offset)
		}
		w := expect(in.Value)
		c.at[pos] = i
		c.roots[i] = root{want: w, in: in}
		if w.poison {
			continue
		}
		if j, ok := c.byOrder[w.order.ID]; ok || w.order.ID == 0 {
			bad("input %s-%d@%d: order id %d is missing or also at %d@%d", in.Topic, in.Partition, in.Offset,
				w.order.ID, h.Inputs[j].Partition, h.Inputs[j].Offset)
		}
		c.byOrder[w.order.ID] = i
	}
	c.samples = slices.Clone(h.Samples)
	for i, k := range h.Kills {
		c.samples = append(c.samples, k.Samples...)
		told, named := map[int32]bool{}, map[position]bool{}
		for _, s := range k.Samples {
			told[s.Partition] = true
			for _, d := range s.Done {
				named[position{s.Partition, d}] = true
			}
		}
		c.named = append(c.named, named)
		for _, e := range h.LogEnds {
			if !told[e.Partition] {
				bad("kill %d has no sample of partition %d", i, e.Partition)
			}
		}
	}
	slices.SortStableFunc(c.samples, func(a, b Sample) int { return a.At.Compare(b.At) })
	sampled := map[int32]bool{}
	for _, s := range c.samples {
		sampled[s.Partition] = true
		if _, ok := c.logEnd[s.Partition]; !ok || s.At.IsZero() || s.Offset < -1 {
			bad("sample of partition %d at %v with offset %d: want a partition with a log end, a time, an offset from -1 on",
				s.Partition, s.At, s.Offset)
		}
	}
	for _, e := range h.LogEnds {
		if !sampled[e.Partition] {
			bad("no sample of partition %d", e.Partition)
		}
	}
	errs = append(errs, c.needEnds()...)
	return errors.Join(errs...)
}

// needEnds: a sample that does not know the end of a partition with outputs could not tell early from late.
func (c *checker) needEnds() []error {
	type part struct {
		topic string
		id    int32
	}
	need := map[part]bool{}
	for _, rs := range [][]Record{c.h.Outputs, c.h.DeadLetters} {
		for _, r := range rs {
			need[part{r.Topic, r.Partition}] = true
		}
	}
	var errs []error
	for p := range need {
		if p.topic != c.h.OutputTopic && p.topic != c.h.DeadLetterTopic {
			continue // an unknown output, and named as such
		}
		for i := range c.samples {
			if _, ok := c.samples[i].end(p.topic, p.id); !ok {
				errs = append(errs, fmt.Errorf("%w: the sample of partition %d at %v has no end of %s-%d", ErrHistory,
					c.samples[i].Partition, c.samples[i].At, p.topic, p.id))
				break
			}
		}
	}
	return errs
}

// end is what s knows of the end of an output partition.
func (s *Sample) end(topic string, partition int32) (int64, bool) {
	for _, e := range s.Ends {
		if e.Topic == topic && e.Partition == partition {
			return e.Offset, true
		}
	}
	return 0, false
}

// violate notes a violation of the root at index i; -1 is the run as a whole.
func (c *checker) violate(k Kind, i int, format string, args ...any) {
	v := Violation{Kind: k, Partition: -1, Offset: -1, Detail: fmt.Sprintf(format, args...)}
	if i >= 0 {
		r := &c.roots[i]
		v.Partition, v.Offset, v.Order = r.in.Partition, r.in.Offset, r.want.order.ID
	}
	c.r.Violations = append(c.r.Violations, v)
}
