package verify

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick/offsets"
)

// model writes down the history of a small group that keeps its promises: records run in a window, their ends are
// committed with a map, owners are killed and frozen, commits are refused, lost and late, partitions move.
type model struct {
	*book
	rng     *rand.Rand
	order   Ordering
	outputs bool // records make outputs, too
	content bool // which are known by content alone
	parts   []*modelPart
	alive   []*bookFile
	frozen  []*zombie
	gen     int32
	lives   map[string]int64
	crashes int
	late    bool // some commit landed late
	dead    *bookLog
	outs    []*bookLog
}

// modelPart is a partition and the ledger of its owner.
type modelPart struct {
	in    *bookLog
	owner *bookFile
	next  int   // index of the entry that is delivered next
	open  []int // delivered and not ended
	skip  map[int64]bool
	pos   int64  // stored
	meta  string // likewise
	lost  []line // commits that never arrived
}

// zombie is a frozen process with what it had in hand.
type zombie struct {
	f    *bookFile
	p    *modelPart
	open []int
}

// newModel draws a history.
func newModel(seed uint64, order Ordering, outputs, content, quiet bool) *model {
	m := &model{book: newBook(), rng: rand.New(rand.NewPCG(seed, 2)), order: order, outputs: outputs, content: content, gen: 1, lives: map[string]int64{}}
	m.store = true
	m.dead = m.letter("dlq", 0)
	if outputs {
		m.outs = []*bookLog{m.output("out", 0), m.output("out", 1)}
	}
	for i := range 1 + m.rng.IntN(3) {
		p := &modelPart{in: m.input("in", int32(i)), pos: -1}
		m.fill(p.in)
		m.parts = append(m.parts, p)
	}
	m.alive = []*bookFile{m.begin("w1"), m.begin("w2")}
	for i, p := range m.parts {
		m.take(p, m.alive[i%2])
	}
	for range 30 + m.rng.IntN(200) {
		p := m.parts[m.rng.IntN(len(m.parts))]
		switch k := m.rng.IntN(40); {
		case k < 26:
			m.deliver(p)
			m.end(p)
		case k < 32:
			m.commit(p)
		case k < 36:
			m.look()
		case k < 37:
			m.move(p)
		case k < 39 && !quiet:
			m.crash(p.owner, k == 38)
		default:
			m.thaw()
		}
	}
	for len(m.frozen) > 0 {
		m.thaw()
	}
	for _, p := range m.parts {
		m.drain(p)
		if m.rng.IntN(2) == 0 {
			m.look()
		}
	}
	m.look()
	for _, f := range m.alive {
		f.write(line{Kind: "end"})
	}
	return m
}

// fill puts some of everything into a log.
func (m *model) fill(in *bookLog) {
	n := 10 + m.rng.IntN(50)
	for len(in.entries) < n {
		switch m.rng.IntN(12) {
		case 0:
			in.hole(1 + m.rng.Int64N(70))
		case 1:
			in.txn(Aborted, 5, fmt.Sprintf("%d/aborted", in.id))
			in.marker(5, false)
		case 2:
			in.txn(Visible, 5, fmt.Sprintf("%d/%d", in.id, in.next))
			in.marker(5, true)
		default:
			r := in.add("", fmt.Sprintf("%d/%d", in.id, in.next))
			if r.Key = nil; m.rng.IntN(4) > 0 {
				r.Key = []byte{byte('a' + m.rng.IntN(4))}
			}
		}
	}
}

// want is what the rules of the model say: by the offset alone.
func (m *model) want(in *kgo.Record) Want {
	var w Want
	switch in.Offset * 7 % 11 {
	case 0:
		return Want{}
	case 1:
		return Want{Dead: true}
	case 2:
		w.MayDie = true
	}
	w.Effect = true
	if m.outputs && in.Offset%3 > 0 {
		w.Outputs = []Output{m.made(in)}
	}
	return w
}

func (m *model) made(in *kgo.Record) Output {
	return Output{Topic: "out", Key: fmt.Appendf(nil, "%s/%d@%d", in.Topic, in.Partition, in.Offset), Value: append([]byte("made of "), in.Value...)}
}

func (m *model) rules() Rules {
	r := byValue()
	r.Want, r.Order = m.want, m.order
	if m.outputs && !m.content {
		r.Made = func(out *kgo.Record) (Made, error) {
			v := Made{Topic: "in", Key: out.Key, Value: out.Value}
			_, err := fmt.Sscanf(string(out.Key), "in/%d@%d", &v.Partition, &v.Offset)
			return v, err
		}
	}
	if m.crashes > 0 {
		r.Duplicates = Duplicates{PerCrash: -1, Outputs: -1, DeadLetters: -1}
	}
	return r
}

func (m *model) begin(proc string) *bookFile {
	m.lives[proc]++
	f := m.worker(proc, m.lives[proc])
	f.gen = m.gen
	return f
}

// take gives a partition to f, which begins where the stored position and its map say, and says so by a commit.
func (m *model) take(p *modelPart, f *bookFile) {
	m.gen++
	for _, a := range m.alive {
		a.gen = m.gen
	}
	f.gen = m.gen
	p.owner, p.open, p.skip, p.next, p.lost = f, nil, map[int64]bool{}, 0, nil // what the old owner sends is refused now
	done, err := offsets.Decode(p.meta, max(p.pos, 0))
	for i, e := range p.in.entries {
		if e.Offset < p.pos {
			p.next = i + 1
		}
		if err == nil && done.Done(e.Offset) {
			p.skip[e.Offset] = true
		}
	}
	next, end, open := p.floor()
	m.arrive(p, p.owner.send(p.in, next, end, open...), true)
}

// deliver delivers a few records.
func (m *model) deliver(p *modelPart) {
	for n := m.rng.IntN(4); n > 0 && len(p.open) < 8 && p.next < len(p.in.entries); p.next++ {
		if e := p.in.entries[p.next]; e.State == Visible && !p.skip[e.Offset] {
			p.open = append(p.open, p.next)
			n--
		}
	}
}

// end ends a record that may end now.
func (m *model) end(p *modelPart) {
	if len(p.open) == 0 {
		return
	}
	k := 0
	if m.order == Unordered {
		k = m.rng.IntN(len(p.open))
	}
	if m.order == PerKey {
		k = m.rng.IntN(len(p.open))
		if key := p.in.entries[p.open[k]].Key; key != nil {
			k = slices.IndexFunc(p.open, func(i int) bool { return string(p.in.entries[i].Key) == string(key) })
		}
	}
	m.outcome(p.owner, p.in, p.open[k])
	p.open = slices.Delete(p.open, k, k+1)
}

// outcome is what a record leaves behind.
func (m *model) outcome(f *bookFile, in *bookLog, i int) {
	e := in.entries[i]
	w := m.want(e.Record)
	if w.Dead || w.MayDie && m.rng.IntN(2) == 0 {
		letter(m.dead, in, e.Offset)
		return
	}
	if m.rng.IntN(4) == 0 {
		f.act("begin", in, e.Offset)
	}
	for _, o := range w.Outputs {
		m.outs[int(in.id)%2].add(string(o.Key), string(o.Value))
	}
	if w.Effect {
		f.effect(in, e.Offset)
	}
}

// floor is what the owner would commit.
func (p *modelPart) floor() (next, end int64, open []int64) {
	end = p.in.next
	for _, e := range p.in.entries[p.next:] {
		if e.State == Visible && !p.skip[e.Offset] {
			end = e.Offset
			break
		}
	}
	next = end
	for _, i := range p.open {
		open = append(open, p.in.entries[i].Offset)
	}
	slices.Sort(open)
	if len(open) > 0 {
		next = open[0]
	}
	return next, end, open
}

// commit commits, and something may happen to that.
func (m *model) commit(p *modelPart) {
	next, end, open := p.floor()
	if m.rng.IntN(3) == 0 {
		end = 0
	}
	x := p.owner.send(p.in, next, end, open...)
	switch m.rng.IntN(8) {
	case 0:
		p.owner.answer(x, "COORDINATOR_NOT_AVAILABLE")
	case 1: // stored, and the answer is lost
		m.stores(p, x)
	case 2:
		p.lost = append(p.lost, x)
	case 3:
		if len(p.lost) > 0 { // an old one lands, and this one repairs that
			old := p.lost[len(p.lost)-1]
			p.lost = p.lost[:len(p.lost)-1]
			m.late = m.late || *old.Next < p.pos
			m.stores(p, old)
		}
		m.arrive(p, x, true)
	default:
		m.arrive(p, x, true)
	}
}

func (m *model) stores(p *modelPart, x line) {
	p.pos, p.meta = *x.Next, x.Metadata
	m.keep(p.in, *x.Next, x.Metadata)
}

func (m *model) arrive(p *modelPart, x line, answer bool) {
	m.stores(p, x)
	if answer {
		p.owner.answer(x, "")
	}
}

// drain ends all of a partition and commits its end.
func (m *model) drain(p *modelPart) {
	for p.next < len(p.in.entries) || len(p.open) > 0 {
		m.deliver(p)
		m.end(p)
	}
	next, end, open := p.floor()
	m.arrive(p, p.owner.send(p.in, next, end, open...), true)
}

// move releases a partition, and the other process takes it.
func (m *model) move(p *modelPart) {
	for len(p.open) > 0 {
		m.end(p)
	}
	next, end, open := p.floor()
	m.arrive(p, p.owner.send(p.in, next, end, open...), true)
	m.take(p, m.other(p.owner))
}

func (m *model) other(f *bookFile) *bookFile {
	if m.alive[0] == f {
		return m.alive[1]
	}
	return m.alive[0]
}

// crash kills or freezes a process. A new life of it takes its place.
func (m *model) crash(f *bookFile, freeze bool) {
	m.crashes++
	if freeze {
		m.runner("stop", f)
		for _, p := range m.parts {
			if p.owner == f {
				m.frozen = append(m.frozen, &zombie{f, p, slices.Clone(p.open)})
			}
		}
	} else {
		m.kill(f)
		m.runner("exit", f)
	}
	again := m.begin(f.proc)
	if freeze { // it lives on, so this is another process
		m.files = m.files[:len(m.files)-1]
		m.lives[f.proc]--
		again = m.begin(fmt.Sprintf("x%d", m.crashes))
	}
	m.alive[slices.Index(m.alive, f)] = again
	for _, p := range m.parts {
		if p.owner == f {
			m.take(p, again)
		}
	}
}

// thaw lets a frozen process end what it has in hand; its commit is refused.
func (m *model) thaw() {
	if len(m.frozen) == 0 {
		return
	}
	z := m.frozen[0]
	m.frozen = m.frozen[1:]
	m.runner("cont", z.f)
	for n := m.rng.IntN(3); n > 0 && len(z.open) > 0; n-- {
		m.outcome(z.f, z.p.in, z.open[0])
		z.open = z.open[1:]
	}
	x := z.f.send(z.p.in, max(z.p.pos, 0), 0)
	z.f.answer(x, "ILLEGAL_GENERATION")
}

// effectsOf are the effect lines of each record: file and index.
func (m *model) effectsOf() map[string][][2]int {
	out := map[string][][2]int{}
	for k, f := range m.files {
		for i, l := range f.lines {
			if l.Kind == "effect" {
				name := fmt.Sprintf("%d/%d", *l.Partition, *l.Offset)
				out[name] = append(out[name], [2]int{k, i})
			}
		}
	}
	return out
}

// insert puts a line behind line i of a file, at the same moment.
func (f *bookFile) insert(i int, l line) {
	l.At = f.lines[i].At
	f.lines = slices.Insert(f.lines, i+1, l)
}

// rebuild leaves out lines of all files.
func (m *model) without(drop func(l *line) bool) {
	for _, f := range m.files {
		f.lines = slices.DeleteFunc(f.lines, func(l line) bool { return drop(&l) })
	}
}

// record draws an input record that fits.
func (m *model) record(fits func(in *bookLog, e Entry) bool) (in *bookLog, e Entry, ok bool) {
	type pick struct {
		in *bookLog
		e  Entry
	}
	var all []pick
	for _, p := range m.parts {
		for _, e := range p.in.entries {
			if fits(p.in, e) {
				all = append(all, pick{p.in, e})
			}
		}
	}
	if len(all) == 0 {
		return nil, Entry{}, false
	}
	k := all[m.rng.IntN(len(all))]
	return k.in, k.e, true
}

func about(l *line, in *bookLog, offset int64) bool {
	return (l.Kind == "effect" || l.Kind == "begin") && *l.Partition == in.id && *l.Offset == offset
}

// outsOf are the outputs of an input record.
func (m *model) outsOf(in *bookLog, offset int64) (out []*kgo.Record) {
	key := fmt.Sprintf("in/%d@%d", in.id, offset)
	for _, l := range m.outs {
		for _, e := range l.entries {
			if string(e.Key) == key {
				out = append(out, e.Record)
			}
		}
	}
	return out
}

func (m *model) String() string {
	var b strings.Builder
	for _, f := range m.files {
		for i, l := range f.lines {
			fmt.Fprintf(&b, "%s-%d:%d %s %s", f.proc, f.life, i+1, when(l.At), l.Kind)
			if l.Offset != nil {
				fmt.Fprintf(&b, " %d@%d", *l.Partition, *l.Offset)
			}
			if l.Next != nil {
				fmt.Fprintf(&b, " %d next %d request %d %s", *l.Partition, *l.Next, l.Request, l.Error)
			}
			if l.Target != nil {
				fmt.Fprintf(&b, " %s-%d", *l.Target, *l.LifeOf)
			}
			b.WriteByte('\n')
		}
	}
	for _, s := range m.stored {
		fmt.Fprintf(&b, "stored %s %d %d\n", when(s.At.UnixNano()), s.Commit.Partition, s.Commit.Next)
	}
	return b.String()
}
