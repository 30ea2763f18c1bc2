package verify

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// outLog is a log of outputs or of dead letters.
type outLog struct {
	*Log
	number  int // in checker.outs, and in the ends of samples
	letters bool

	// turns are the highest records that have had their first output here: by input partition, and slot of the key.
	turns map[slotOf]uint32
}

type slotOf struct {
	part int
	slot uint32
}

// odd is an output whose content its record does not want.
type odd struct {
	p     *part
	i     int
	sum   uint64
	where string
}

// maxOdd bounds the outputs with wrong content that are looked up.
const maxOdd = 4096

// outputs reads the output logs.
func (c *checker) outputs() error {
	for _, o := range c.outs {
		if o.letters {
			continue
		}
		o.turns = map[slotOf]uint32{}
		err := c.walk(o.Log, func(e Entry) error { return c.output(o, e) })
		if err != nil {
			return err
		}
		if o.Stable < o.End && !c.Running {
			c.f.add(OpenTransaction, o.Topic, o.Partition, -1, "the last stable offset is %d, the log ends at %d", o.Stable, o.End)
		}
		o.turns = nil
	}
	c.lookUp()
	return nil
}

func (c *checker) output(o *outLog, e Entry) error {
	switch e.State {
	case Marker:
		return nil
	case Aborted, Open:
		c.rep.Totals.Leftovers++
		return nil
	}
	c.rep.Totals.Outputs++
	p, i, item, ok := c.origin(o, e)
	if !ok || item < 0 {
		return nil
	}
	t := &p.items
	if t.seen[item] < math.MaxUint8 {
		t.seen[item]++
	}
	if c.inTime(p, i, o, e) {
		t.in.set(item)
	}
	if t.seen[item] > 1 {
		c.rep.Totals.DuplicateOutputs++
		c.again.add(c.Listed, p.topic, p.id, p.at.at(i), "its output again, at %s/%d@%d", o.Topic, o.Partition, e.Offset)
		return nil
	}
	c.outTurn(o, p, i, e)
	return nil
}

// origin says which record an output is of, and which of its items. item is -1 if that has been told already.
func (c *checker) origin(o *outLog, e Entry) (p *part, i, item int, ok bool) {
	if c.Made == nil {
		sum := c.sum(o.Topic, e.Key, e.Value)
		k := sort.Search(len(c.content), func(k int) bool { return c.content[k].sum >= sum })
		if k == len(c.content) || c.content[k].sum != sum {
			c.f.add(Foreign, o.Topic, o.Partition, e.Offset, "no record wants it: key %.60q, value %.60q", e.Key, e.Value)
			return nil, 0, 0, false
		}
		p = c.parts[c.content[k].part]
		item = int(c.content[k].item)
		return p, p.items.owner(item), item, true
	}
	m, err := c.Made(e.Record)
	if err != nil {
		c.f.add(Foreign, o.Topic, o.Partition, e.Offset, "Rules.Made: %v", err)
		return nil, 0, 0, false
	}
	p, i, ok = c.from(o, e, &m)
	if !ok {
		return nil, 0, 0, false
	}
	lo, hi := p.items.of(i)
	if lo == hi {
		c.f.add(Unexpected, p.topic, p.id, m.Offset, "an output at %s/%d@%d, where the rules want none", o.Topic, o.Partition, e.Offset)
		return nil, 0, 0, false
	}
	sum := c.sum(o.Topic, m.Key, m.Value)
	item = -1
	for k := lo; k < hi; k++ { // of two equal ones, one that has not been seen
		if p.items.sums[k] == sum && (item < 0 || p.items.seen[item] > p.items.seen[k]) {
			item = k
		}
	}
	if item >= 0 {
		return p, i, item, true
	}
	if len(c.odd) < maxOdd {
		c.odd = append(c.odd, odd{p, i, sum, fmt.Sprintf("%s/%d@%d: key %.60q, value %.60q", o.Topic, o.Partition, e.Offset, m.Key, m.Value)})
	} else {
		c.rep.Totals.UndecidedByContent++
		c.f.add(Altered, p.topic, p.id, m.Offset, "output at %s/%d@%d", o.Topic, o.Partition, e.Offset)
	}
	// It is told what it is; that its record has no other would say the same again.
	for k := lo; k < hi; k++ {
		if p.items.seen[k] == 0 {
			p.items.seen[k] = 1
			p.items.in.set(k)
			break
		}
	}
	return p, i, -1, true
}

// from finds the record that a record was made from, and tells if there is none.
func (c *checker) from(o *outLog, e Entry, m *Made) (*part, int, bool) {
	p := c.part(m.Topic, m.Partition)
	if p == nil {
		c.f.add(Foreign, o.Topic, o.Partition, e.Offset, "made from %s/%d@%d, which is no input", m.Topic, m.Partition, m.Offset)
		return nil, 0, false
	}
	i, ok := p.at.find(m.Offset)
	switch {
	case !ok && (m.Offset >= 0 && m.Offset < p.start || c.Holes && m.Offset >= 0 && m.Offset < p.end):
		c.rep.Totals.Unplaced++
		return nil, 0, false
	case !ok:
		c.f.add(Foreign, o.Topic, o.Partition, e.Offset, "made from %s/%d@%d, where no record is", m.Topic, m.Partition, m.Offset)
		return nil, 0, false
	case !p.visible.get(i):
		c.f.add(AbortedRead, m.Topic, m.Partition, m.Offset, "made %s/%d@%d, though it is of a transaction that is aborted or undecided", o.Topic, o.Partition, e.Offset)
		return nil, 0, false
	}
	return p, i, true
}

// inTime reports whether an output was there when the first sample, or commit, covered its record.
func (c *checker) inTime(p *part, i int, o *outLog, e Entry) bool {
	if p.cover != nil && p.cover[i] > 0 {
		// A topic of dead letters whose end the sample does not know was new then: nothing can be said.
		if end := c.ends[p.cover[i]-1][o.number]; end >= 0 && e.Offset >= end {
			return false
		}
	}
	if p.coverMs != nil && !o.letters && p.coverMs[i] > 0 && e.Timestamp.UnixMilli() > p.coverMs[i]+c.Skew.Milliseconds() {
		return false
	}
	return true
}

// outTurn holds the first output of a record against those of the same key, or partition, in one output partition.
func (c *checker) outTurn(o *outLog, p *part, i int, e Entry) {
	k := slotOf{part: p.index}
	switch c.Order {
	case Unordered:
		return
	case PerKey:
		if k.slot = p.slots[i]; k.slot == 0 {
			return
		}
	}
	n := uint32(i + 1)
	if before := o.turns[k]; n < before && !p.mayDie.get(i) {
		c.f.add(Order, p.topic, p.id, p.at.at(i), "its first output, at %s/%d@%d, came after that of %d", o.Topic, o.Partition, e.Offset, p.at.at(int(before-1)))
	}
	o.turns[k] = max(o.turns[k], n)
}

// lookUp finds out whose content the outputs have that their own records do not want. One pass over all items.
func (c *checker) lookUp() {
	if len(c.odd) == 0 {
		return
	}
	of := map[uint64]string{}
	for _, x := range c.odd {
		of[x.sum] = ""
	}
	for _, p := range c.parts {
		for k, s := range p.items.sums {
			if name, ok := of[s]; ok && name == "" {
				of[s] = p.name(p.items.owner(k))
			}
		}
	}
	for _, x := range c.odd {
		if name := of[x.sum]; name != "" {
			c.f.add(Swap, x.p.topic, x.p.id, x.p.at.at(x.i), "its output has the content that %s wants: %s", name, x.where)
		} else {
			c.f.add(Altered, x.p.topic, x.p.id, x.p.at.at(x.i), "its output has content that no record wants: %s", x.where)
		}
	}
}

// letters reads the logs of dead letters.
func (c *checker) letters() error {
	for _, o := range c.outs {
		if !o.letters {
			continue
		}
		err := c.walk(o.Log, func(e Entry) error { return c.letter(o, e) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) letter(o *outLog, e Entry) error {
	if e.State == Marker {
		return nil
	}
	if e.State != Visible {
		c.rep.Totals.Leftovers++
		return nil
	}
	c.rep.Totals.DeadLetters++
	read := c.Letter
	if read == nil {
		read = killickLetter
	}
	m, err := read(e.Record)
	if err != nil {
		c.f.add(Foreign, o.Topic, o.Partition, e.Offset, "dead letter: %v", err)
		return nil
	}
	p, i, ok := c.from(o, e, &m)
	if !ok {
		return nil
	}
	if !p.wantD.get(i) && !p.mayDie.get(i) {
		c.f.add(Unexpected, p.topic, p.id, m.Offset, "a dead letter at %s/%d@%d, where the rules want none", o.Topic, o.Partition, e.Offset)
		return nil
	}
	switch {
	case c.Letter == nil && pointer(e.Record):
		c.rep.Totals.Pointers++
	case c.sumLetter(taken(e.Record, &m)) != p.lettAt[i]:
		c.f.add(DeadLetterAltered, p.topic, p.id, m.Offset, "%s/%d@%d has other bytes than the record: key %.60q, value %.60q", o.Topic, o.Partition, e.Offset, m.Key, m.Value)
	}
	if p.letts[i] < math.MaxUint8 {
		p.letts[i]++
	}
	if c.inTime(p, i, o, e) {
		p.lettIn.set(i)
	}
	if p.letts[i] > 1 {
		c.rep.Totals.DuplicateLetters++
		c.dead.add(c.Listed, p.topic, p.id, m.Offset, "its dead letter again, at %s/%d@%d", o.Topic, o.Partition, e.Offset)
	}
	return nil
}

// taken is what a dead letter has taken over of its record.
func taken(r *kgo.Record, m *Made) *kgo.Record {
	return &kgo.Record{Key: m.Key, Value: m.Value, Headers: r.Headers}
}

// pointer reports whether a dead letter is cut to a pointer at its record, which was too large for the topic.
func pointer(r *kgo.Record) bool {
	_, cut := header(r, "killick-dlq-cut")
	return cut && r.Value == nil
}

// killickLetter reads the headers of a dead letter of killick.
func killickLetter(r *kgo.Record) (Made, error) {
	topic, ok1 := header(r, "killick-dlq-topic")
	partition, ok2 := header(r, "killick-dlq-partition")
	offset, ok3 := header(r, "killick-dlq-offset")
	if !ok1 || !ok2 || !ok3 {
		return Made{}, errors.New("it has no headers killick-dlq-topic, -partition and -offset")
	}
	n, err1 := strconv.ParseInt(partition, 10, 32)
	at, err2 := strconv.ParseInt(offset, 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return Made{}, err
	}
	return Made{Topic: topic, Partition: int32(n), Offset: at, Key: r.Key, Value: r.Value}, nil
}

func header(r *kgo.Record, key string) (string, bool) {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value), true
		}
	}
	return "", false
}
