package verify

import (
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// inputs reads the input logs, and notes what each record wants.
func (c *checker) inputs() error {
	outputs := map[string]bool{}
	for i := range c.h.Outputs {
		outputs[c.h.Outputs[i].Topic] = true
	}
	for k := range c.h.Inputs {
		l, p := &c.h.Inputs[k], c.parts[k]
		in := &intake{c: c, l: l, p: p, outputs: outputs, slots: map[uint64]uint32{}}
		if c.Order == PerPartition {
			p.turns = make([]turn, 1)
		}
		if c.Order == PerKey {
			p.turns = make([]turn, 1, 64) // slot 0 is for records without a key
		}
		err := c.walk(l, in.record)
		if err != nil {
			return err
		}
		in.close()
		c.rep.Totals.Markers += in.markers
		c.rep.Totals.Holes += l.End - l.Start - int64(p.at.n) - in.markers
	}
	if c.Made == nil && c.wanted {
		return c.index()
	}
	return nil
}

// walk iterates a log, checks that it is one, and that what it says of transactions is what their markers say.
func (c *checker) walk(l *Log, f func(e Entry) error) error {
	last := l.Start - 1
	txns := map[int64]*txn{}
	for e, err := range l.Entries {
		if err != nil {
			return fmt.Errorf("verify: read %s/%d: %w", l.Topic, l.Partition, err)
		}
		switch o := e.Offset; {
		case e.Topic != l.Topic || e.Partition != l.Partition:
			return c.broken(l, o, "a record of %s/%d", e.Topic, e.Partition)
		case o <= last || o >= l.End:
			return c.broken(l, o, "want ascending offsets, above %d and below the end %d", last, l.End)
		case (e.State == Visible || e.State == Aborted) && o >= l.Stable:
			return c.broken(l, o, "%v, at or above the last stable offset %d", e.State, l.Stable)
		case e.State > Marker:
			return c.broken(l, o, "state %d is none", e.State)
		}
		last = e.Offset
		c.decided(l, txns, e)
		if err := f(e); err != nil {
			return err
		}
	}
	return nil
}

// txn is the open transaction of a producer in one partition: where the first record is that was said to be in it.
type txn struct{ visible, aborted int64 }

// decided holds what the log says of records against the marker that ends their transaction.
func (c *checker) decided(l *Log, txns map[int64]*txn, e Entry) {
	if e.State == Marker {
		t := txns[e.ProducerID]
		delete(txns, e.ProducerID)
		commit, ok := committing(e.Record)
		switch {
		case t == nil || !ok:
		case !commit && t.visible >= 0:
			c.f.add(AbortedRead, l.Topic, l.Partition, t.visible, "taken for committed; the marker at %d aborts the transaction of producer %d", e.Offset, e.ProducerID)
		case commit && t.aborted >= 0:
			c.f.add(HiddenCommit, l.Topic, l.Partition, t.aborted, "taken for aborted; the marker at %d commits the transaction of producer %d", e.Offset, e.ProducerID)
		}
		return
	}
	if !e.Attrs.IsTransactional() {
		return
	}
	t := txns[e.ProducerID]
	if t == nil {
		t = &txn{visible: -1, aborted: -1}
		txns[e.ProducerID] = t
	}
	if e.State == Visible && t.visible < 0 {
		t.visible = e.Offset
	}
	if e.State == Aborted && t.aborted < 0 {
		t.aborted = e.Offset
	}
}

// intake fills one part.
type intake struct {
	c       *checker
	l       *Log
	p       *part
	outputs map[string]bool
	markers int64
	slots   map[uint64]uint32 // by a sum of the key
}

func (in *intake) record(e Entry) error {
	c, p := in.c, in.p
	if e.State == Marker {
		in.markers++
		return nil
	}
	i := p.at.n
	if i == math.MaxUint32 {
		return c.broken(in.l, e.Offset, "more than %d records in one partition", i)
	}
	p.at.add(e.Offset)
	for _, b := range []*bitmap{&p.visible, &p.aborted, &p.wantE, &p.mayDie, &p.wantD, &p.tooLate} {
		b.grow(p.at.n)
	}
	p.keys = append(p.keys, c.key(e.Key))
	if c.ID != nil {
		p.ids = append(p.ids, 0)
	}
	if c.Order == PerKey {
		p.slots = append(p.slots, 0)
	}
	if e.State == Aborted {
		p.aborted.set(i)
		c.rep.Totals.Aborted++
	}
	if e.State != Visible && !c.ReadUncommitted {
		if p.items.first != nil {
			p.items.first = append(p.items.first, uint32(len(p.items.sums)))
		}
		return nil
	}
	p.visible.set(i)
	c.rep.Totals.Inputs++
	if c.ID != nil {
		p.ids[i] = maphash.String(c.seed, c.ID(e.Record))
	}
	if c.Order == PerKey && e.Key != nil {
		p.slots[i] = in.slot(e.Key)
	}
	return in.want(i, e.Record)
}

func (in *intake) slot(key []byte) uint32 {
	sum := maphash.Bytes(in.c.seed, key)
	s, ok := in.slots[sum]
	if !ok {
		s = uint32(len(in.p.turns))
		in.p.turns = append(in.p.turns, turn{})
		in.slots[sum] = s
	}
	return s
}

func (in *intake) want(i int, r *kgo.Record) error {
	c, p := in.c, in.p
	w := c.Want(r)
	if w.Dead && (w.Effect || len(w.Outputs) > 0) {
		return c.broken(in.l, r.Offset, "Rules.Want asks for a dead letter and for more; what may end in either way has MayDie")
	}
	if w.Effect {
		c.effects = true
		p.wantE.set(i)
	}
	if w.MayDie {
		p.mayDie.set(i)
	}
	if w.Dead {
		p.wantD.set(i)
	}
	if w.Dead || w.MayDie {
		c.dying = true
		if p.lettAt == nil {
			p.lettAt = make([]uint64, i, max(i, 64))
		}
		for len(p.lettAt) < i {
			p.lettAt = append(p.lettAt, 0)
		}
		p.lettAt = append(p.lettAt, c.sumLetter(r))
	}
	t := &p.items
	if len(w.Outputs) > 0 && t.first == nil {
		t.first = make([]uint32, i+1, max(i+1, 64)) // all before want none
	}
	if t.first == nil {
		return nil
	}
	for _, o := range w.Outputs {
		if !in.outputs[o.Topic] {
			return c.broken(in.l, r.Offset, "Rules.Want asks for an output in %q, of which no log is given", o.Topic)
		}
		c.wanted = true
		t.sums = append(t.sums, c.sum(o.Topic, o.Key, o.Value))
	}
	if len(t.sums) > math.MaxUint32 {
		return c.broken(in.l, r.Offset, "more than %d outputs wanted by the records of one partition", uint32(math.MaxUint32))
	}
	t.first = append(t.first, uint32(len(t.sums)))
	return nil
}

// close makes room for what later steps note.
func (in *intake) close() {
	p, n := in.p, in.p.at.n
	for _, b := range []*bitmap{&p.done, &p.again, &p.claimed, &p.bySample, &p.lettIn} {
		b.grow(n)
	}
	p.lastBy = make([]uint16, n)
	if p.lettAt != nil {
		p.lettAt = append(p.lettAt, make([]uint64, n-len(p.lettAt))...)
		p.letts = make([]uint8, n)
	}
	if k := len(p.items.sums); k > 0 {
		p.items.seen = make([]uint8, k)
		p.items.in.grow(k)
	}
	if (p.items.first != nil || p.lettAt != nil) && len(in.c.h.Samples) > 0 {
		p.cover = make([]uint32, n)
	}
	if p.items.first != nil && in.c.Timed {
		p.coverMs = make([]int64, n)
	}
}

// sumLetter is a fingerprint of what a dead letter takes over: key, value, headers.
func (c *checker) sumLetter(r *kgo.Record) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	add(&h, r.Key)
	add(&h, r.Value)
	if c.Letter == nil {
		for _, x := range r.Headers {
			if !ownHeader(x.Key) {
				h.WriteString(x.Key)
				add(&h, x.Value)
			}
		}
	}
	return h.Sum64()
}

// ownHeader reports whether killick puts a header of that name on a dead letter. It replaces those of an earlier one.
func ownHeader(key string) bool {
	return strings.HasPrefix(key, "killick-dlq-") || key == "killick-attempt" || key == "killick-first-failed-ms"
}

// known is an output by its content, and the item that it is.
type known struct {
	sum  uint64
	part uint32
	item uint32
}

// index makes outputs known by their content.
func (c *checker) index() error {
	n := 0
	for _, p := range c.parts {
		n += len(p.items.sums)
	}
	c.content = make([]known, 0, n)
	for k, p := range c.parts {
		for i, s := range p.items.sums {
			c.content = append(c.content, known{s, uint32(k), uint32(i)})
		}
	}
	slices.SortFunc(c.content, func(a, b known) int {
		switch {
		case a.sum < b.sum:
			return -1
		case a.sum > b.sum:
			return 1
		}
		return 0
	})
	for i := 1; i < len(c.content); i++ {
		if a, b := c.content[i-1], c.content[i]; a.sum == b.sum {
			return fmt.Errorf("%w: %v and %v want the same output: say by Rules.Made which is whose", ErrHistory, c.item(a), c.item(b))
		}
	}
	return nil
}

// item names the record that wants an item.
func (c *checker) item(k known) string {
	p := c.parts[k.part]
	return p.name(p.items.owner(int(k.item)))
}

// owner is the record that wants an item.
func (t *items) owner(item int) int {
	// first ascends; the owner is the last record whose first item is not above item and that has any.
	lo, hi := 0, len(t.first)-1
	for lo < hi {
		if m := int(uint(lo+hi) >> 1); int(t.first[m+1]) <= item {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}
