package verify

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
)

// Check holds h against r. The report names what broke the rules. An error means that there is no verdict: h could not be
// read, or contradicts itself or r (ErrHistory). Check starts no goroutine; how long it takes and what memory it needs
// is in the package comment. h is used up.
func Check(r Rules, h *History) (*Report, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	c := &checker{
		Rules:   r.withDefaults(),
		h:       h,
		seed:    maphash.MakeSeed(),
		rep:     &Report{Counts: map[Kind]int64{}, Unchecked: slices.Clone(h.Notes)},
		byTopic: map[string][]*part{},
		lives:   map[string]*life{},
		members: map[string]*life{},
		pending: map[sent]*commit{},
		early:   map[place]string{},
		resets:  map[Reset]bool{},
		crashes: map[*life]*repeats{},
		strange: map[place]bool{},
	}
	c.f = finder{most: c.Listed, counts: c.rep.Counts, kept: map[Kind][]Finding{}}
	for _, s := range r.Resets {
		c.resets[s] = true
	}
	for _, step := range []func() error{c.open, c.inputs, c.enough, c.replay, c.outputs, c.letters, c.finish} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return c.rep, nil
}

type checker struct {
	Rules
	h    *History
	seed maphash.Seed
	rep  *Report
	f    finder

	parts   []*part
	byTopic map[string][]*part // by partition; nil where there is no log
	topic   string             // the last one looked up in byTopic
	ofTopic []*part

	outs    []*outLog // of Outputs, then of DeadLetters
	ends    [][]int64 // per sample, the ends of outs
	effects bool      // some record wants one
	wanted  bool      // some record wants an output
	dying   bool      // some record wants, or may have, a dead letter
	content []known   // what outputs are known by without Rules.Made

	lives   map[string]*life
	order   []*life          // in the order of their first event
	members map[string]*life // by member id, as commit lines tell
	runner  bool             // there is a file of a runner: it knows who was killed
	pending map[sent]*commit // commit lines without a clear answer
	lines   bool             // there were commit lines
	newest  int32            // the highest generation of a confirmed commit
	gens    map[int32]map[string]map[Partition]bool
	early   map[place]string // evidence of the first records that were passed too early
	strange map[place]bool   // where user code was given what it must not see: each is told once
	resets  map[Reset]bool
	odd     []odd // outputs with wrong content

	crashes map[*life]*repeats
	others  repeats // effects that no crash explains
	again   repeats // outputs
	dead    repeats // dead letters
}

// place is a record of a partition.
type place struct {
	p *part
	i int
}

// part is an input partition.
type part struct {
	topic              string
	id                 int32
	start, stable, end int64

	at numbering // numbers the records; all below is by that number

	visible  bitmap // counts as input
	aborted  bitmap // of an aborted transaction; neither: of an undecided one
	wantE    bitmap // wants an effect
	mayDie   bitmap
	wantD    bitmap // wants a dead letter
	done     bitmap // has had its effect
	again    bitmap // more than once
	claimed  bitmap // some commit has said that it had ended
	bySample bitmap // likewise, some sample
	tooLate  bitmap // its effect was not there at the first claim

	keys   []uint32 // sums of the keys
	ids    []uint64 // sums of Rules.ID; only if there is one
	lastBy []uint16 // the life, by its number, that had the last effect

	slots []uint32 // the key's slot, 0: none; only if ordered by key
	turns []turn   // per slot

	items  items
	lettAt []uint64 // sums of what a dead letter must have; only if some record wants one
	letts  []uint8  // dead letters seen
	lettIn bitmap   // one was there in time

	cover   []uint32 // 1 + the first sample that covers the record; only if samples are held against outputs
	coverMs []int64  // Unix milliseconds of the first claim; only if outputs are Timed

	position
}

// items are the outputs that the records of a partition want.
type items struct {
	first []uint32 // per record, and one more: its items are [first[i], first[i+1])
	sums  []uint64
	seen  []uint8
	in    bitmap // one was there in time
}

// of returns the items of record i.
func (t *items) of(i int) (lo, hi int) {
	if t.first == nil {
		return 0, 0
	}
	return int(t.first[i]), int(t.first[i+1])
}

// repeats are effects or outputs beyond the first.
type repeats struct {
	n    int64
	kept []Finding
}

func (r *repeats) add(most int, topic string, partition int32, offset int64, format string, args ...any) {
	r.n++
	if len(r.kept) < most {
		r.kept = append(r.kept, Finding{Duplicate, topic, partition, offset, fmt.Sprintf(format, args...)})
	}
}

// part returns an input partition, or nil.
func (c *checker) part(topic string, partition int32) *part {
	if topic != c.topic || c.ofTopic == nil {
		c.topic, c.ofTopic = topic, c.byTopic[topic]
	}
	if partition < 0 || int(partition) >= len(c.ofTopic) {
		return nil
	}
	return c.ofTopic[partition]
}

// open looks at the logs, and at samples as far as they must fit.
func (c *checker) open() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrHistory}, args...)...))
	}
	seen := map[Partition]bool{}
	look := func(what string, l *Log) {
		name := fmt.Sprintf("%s %s/%d", what, l.Topic, l.Partition)
		if l.Topic == "" || l.Partition < 0 || l.Partition > 1<<20 {
			bad("%s: a log has a topic and a partition", name)
		}
		if l.Start < 0 || l.Stable < l.Start || l.End < l.Stable {
			bad("%s: start %d, stable %d, end %d: want 0 <= start <= stable <= end", name, l.Start, l.Stable, l.End)
		}
		if l.Entries == nil {
			bad("%s: no entries", name)
		}
		if k := (Partition{l.Topic, l.Partition}); seen[k] {
			bad("%s is given twice, perhaps as input and output", name)
		} else {
			seen[k] = true
		}
	}
	if len(c.h.Inputs) == 0 {
		bad("no input logs")
	}
	for i := range c.h.Inputs {
		l := &c.h.Inputs[i]
		look("input", l)
		if len(errs) > 0 {
			continue
		}
		p := &part{topic: l.Topic, id: l.Partition, start: l.Start, stable: l.Stable, end: l.End, position: unknownPosition}
		p.index = len(c.parts)
		c.parts = append(c.parts, p)
		ps := c.byTopic[l.Topic]
		for len(ps) <= int(l.Partition) {
			ps = append(ps, nil)
		}
		ps[l.Partition] = p
		c.byTopic[l.Topic] = ps
	}
	for i := range c.h.Outputs {
		look("output", &c.h.Outputs[i])
		c.outs = append(c.outs, &outLog{Log: &c.h.Outputs[i], number: len(c.outs)})
	}
	for i := range c.h.DeadLetters {
		look("dead letters", &c.h.DeadLetters[i])
		c.outs = append(c.outs, &outLog{Log: &c.h.DeadLetters[i], number: len(c.outs), letters: true})
	}
	if len(errs) == 0 {
		errs = c.samples()
	}
	return errors.Join(errs...)
}

// samples: a sample that does not know the end of an output partition could not tell early from late.
func (c *checker) samples() (errs []error) {
	numbers := map[Partition]int{}
	for _, o := range c.outs {
		numbers[Partition{o.Topic, o.Partition}] = o.number
	}
	for i := range c.h.Samples {
		s := &c.h.Samples[i]
		ends := make([]int64, len(c.outs))
		for k := range ends {
			ends[k] = -1
		}
		for _, e := range s.Ends {
			if n, ok := numbers[Partition{e.Topic, e.Partition}]; ok {
				ends[n] = e.End
			}
		}
		if s.Asked.IsZero() || s.Answered.Before(s.Asked) || i > 0 && s.Answered.Before(c.h.Samples[i-1].Answered) {
			errs = append(errs, fmt.Errorf("%w: sample %d was asked at %v and answered at %v: want ascending times", ErrHistory, i, s.Asked, s.Answered))
			return errs
		}
		for k, o := range c.outs {
			// A dead-letter topic may come into being during the run.
			if ends[k] < 0 && !o.letters {
				errs = append(errs, fmt.Errorf("%w: sample %d at %v has no end of %s/%d", ErrHistory, i, s.Answered, o.Topic, o.Partition))
				return errs
			}
		}
		c.ends = append(c.ends, ends)
	}
	return nil
}

// enough refuses a history in which what is wanted could not be seen, and says what will go unjudged.
func (c *checker) enough() error {
	var errs []error
	if c.effects && len(c.h.Events) == 0 {
		errs = append(errs, fmt.Errorf("%w: records want an effect, and there are no event files", ErrHistory))
	}
	c.runner = false
	note := func(format string, args ...any) {
		c.rep.Unchecked = append(c.rep.Unchecked, fmt.Sprintf(format, args...))
	}
	if len(c.h.Samples) == 0 {
		if (c.wanted || c.dying) && !(c.Timed && c.h.Stored != nil) {
			note("outputs and dead letters were not held against commits (I2): there are no samples")
		}
		if c.MaxStall > 0 || len(c.Healed) > 0 {
			errs = append(errs, fmt.Errorf("%w: MaxStall and Healed need samples, and there are none", ErrHistory))
		}
	}
	if c.Exclusive && c.h.Stored == nil {
		errs = append(errs, fmt.Errorf("%w: Exclusive needs the group's generations (Stored), and there are none", ErrHistory))
	}
	if c.Guarantee == ExactlyOnce && len(c.h.Outputs) == 0 {
		errs = append(errs, fmt.Errorf("%w: exactly once is about outputs, and there are no output logs", ErrHistory))
	}
	if c.dying && len(c.h.DeadLetters) == 0 {
		note("dead letters: there is no log of any")
	}
	return errors.Join(errs...)
}

// sum is a fingerprint of a record's content. nil and empty differ.
func (c *checker) sum(topic string, key, value []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	h.WriteString(topic)
	add(&h, key)
	add(&h, value)
	return h.Sum64()
}

// add writes b so that no two lists of bytes write the same.
func add(h *maphash.Hash, b []byte) {
	if b == nil {
		h.WriteByte(0)
		return
	}
	n := uint64(len(b))
	h.Write([]byte{1, byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24), byte(n >> 32)})
	h.Write(b)
}

// key is a small fingerprint, of a key that is there.
func (c *checker) key(b []byte) uint32 {
	if b == nil {
		return 0
	}
	return uint32(maphash.Bytes(c.seed, b)) | 1
}

func (c *checker) broken(l *Log, offset int64, format string, args ...any) error {
	return fmt.Errorf("%w: %s/%d@%d: %s", ErrHistory, l.Topic, l.Partition, offset, fmt.Sprintf(format, args...))
}
