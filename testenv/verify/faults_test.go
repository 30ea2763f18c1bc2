package verify

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// planted is a fault in a history that had none. do reports where it must be found, or false if the history has no place
// for it. also are kinds that the same fault may show as well.
type planted struct {
	name string
	do   func(m *model) (at, bool)
	also []Kind
}

func (m *model) onlyEffect(in *bookLog, e Entry) bool {
	if e.State != Visible {
		return false
	}
	w := m.want(e.Record)
	return w.Effect && !w.MayDie
}

var faults = []planted{
	{"loss", func(m *model) (at, bool) {
		in, e, ok := m.record(m.onlyEffect)
		if ok {
			m.without(func(l *line) bool { return about(l, in, e.Offset) })
		}
		return at{Loss, "in", in.part(), e.offset()}, ok
	}, nil},
	{"early commit", func(m *model) (at, bool) {
		if m.order != Unordered {
			return at{}, false
		}
		by := m.effectsOf()
		in, e, ok := m.record(func(in *bookLog, e Entry) bool {
			return m.onlyEffect(in, e) && len(by[fmt.Sprintf("%d/%d", in.id, e.Offset)]) == 1
		})
		if !ok {
			return at{}, false
		}
		m.without(func(l *line) bool { return about(l, in, e.Offset) })
		f := m.alive[0]
		end := f.lines[len(f.lines)-1]
		f.lines = f.lines[:len(f.lines)-1]
		f.effect(in, e.Offset)
		end.At = m.now
		f.lines = append(f.lines, end)
		return at{EarlyCommit, "in", in.id, e.Offset}, true
	}, nil},
	{"duplicate", func(m *model) (at, bool) {
		for _, ls := range m.effectsOf() {
			k := ls[len(ls)-1]
			f := m.files[k[0]]
			if !slices.Contains(m.alive, f) {
				continue // crashed, or frozen: that explains it
			}
			l := f.lines[k[1]]
			if m.crashes > 0 && len(ls) > 1 {
				continue
			}
			f.insert(k[1], l)
			return at{Duplicate, "in", *l.Partition, *l.Offset}, true
		}
		return at{}, false
	}, nil},
	{"swapped id", func(m *model) (at, bool) {
		_, other, ok := m.record(m.onlyEffect)
		for _, f := range m.files {
			for i := range f.lines {
				if l := &f.lines[i]; ok && l.Kind == "effect" && *l.ID != string(other.Value) {
					id := string(other.Value)
					l.ID = &id
					return at{Swap, "in", *l.Partition, *l.Offset}, true
				}
			}
		}
		return at{}, false
	}, nil},
	{"regress", func(m *model) (at, bool) {
		sent := map[int64]bool{}
		for _, f := range m.files {
			for _, l := range f.lines {
				if l.Next != nil {
					sent[*l.Next] = true
				}
			}
		}
		for i, s := range m.stored {
			later := slices.ContainsFunc(m.stored[i+1:], func(x Stored) bool { return x.Commit.Partition == s.Commit.Partition && x.Commit.Next > s.Commit.Next })
			if next := s.Commit.Next - 1; next >= 0 && later && !sent[next] {
				c := *s.Commit
				c.Next, c.Metadata = next, ""
				s.Commit = &c
				m.stored = slices.Insert(m.stored, i+1, s)
				return at{Regress, "in", c.Partition, next}, true
			}
		}
		return at{}, false
	}, nil},
	{"foreign", func(m *model) (at, bool) {
		in := m.parts[0].in
		for _, f := range m.alive {
			for i := range f.lines {
				if f.lines[i].Kind == "effect" {
					l := f.lines[i]
					o := in.next + m.rng.Int64N(3)
					if k := slices.IndexFunc(in.entries, func(e Entry) bool { return e.State == Marker }); k >= 0 {
						o = in.entries[k].Offset
					}
					l.Partition, l.Offset = &in.id, &o
					f.insert(i, l)
					return at{Foreign, "in", in.id, o}, true
				}
			}
		}
		return at{}, false
	}, nil},
	{"aborted read", func(m *model) (at, bool) {
		in, e, ok := m.record(func(in *bookLog, e Entry) bool { return e.State == Aborted })
		if !ok {
			return at{}, false
		}
		m.alive[0].insert(0, line{Proc: m.alive[0].proc, Life: m.alive[0].life, PID: 1, Kind: "effect", Topic: &in.topic, Partition: &in.id, Offset: &e.Record.Offset})
		return at{AbortedRead, "in", in.id, e.Offset}, true
	}, nil},
	{"dead letter missing", func(m *model) (at, bool) {
		in, e, ok := m.record(func(in *bookLog, e Entry) bool { return e.State == Visible && m.want(e.Record).Dead })
		if !ok {
			return at{}, false
		}
		m.dead.entries = slices.DeleteFunc(m.dead.entries, func(x Entry) bool {
			made, err := killickLetter(x.Record)
			return err == nil && made.Partition == in.id && made.Offset == e.Offset
		})
		return at{DeadLetterMissing, "in", in.id, e.Offset}, true
	}, nil},
	{"dead letter altered", func(m *model) (at, bool) {
		if len(m.dead.entries) == 0 {
			return at{}, false
		}
		r := m.dead.entries[m.rng.IntN(len(m.dead.entries))].Record
		r.Value = append([]byte("x"), r.Value...)
		made, err := killickLetter(r)
		return at{DeadLetterAltered, "in", made.Partition, made.Offset}, err == nil
	}, nil},
	{"lost output", func(m *model) (at, bool) {
		in, e, ok := m.record(func(in *bookLog, e Entry) bool { return m.onlyEffect(in, e) && len(m.want(e.Record).Outputs) > 0 })
		if !ok {
			return at{}, false
		}
		for _, l := range m.outs {
			l.entries = slices.DeleteFunc(l.entries, func(x Entry) bool { return string(x.Key) == fmt.Sprintf("in/%d@%d", in.id, e.Offset) })
		}
		return at{Loss, "in", in.id, e.Offset}, true
	}, nil},
	{"altered output", func(m *model) (at, bool) {
		in, e, ok := m.record(func(in *bookLog, e Entry) bool { return len(m.outsOf(in, e.Offset)) == 1 })
		if !ok || m.content {
			return at{}, false
		}
		m.outsOf(in, e.Offset)[0].Value = []byte("what nobody wants")
		return at{Altered, "in", in.id, e.Offset}, true
	}, nil},
	{"foreign output", func(m *model) (at, bool) {
		if !m.outputs {
			return at{}, false
		}
		r := m.outs[0].add("stranger", "x")
		return at{Foreign, "out", 0, r.Offset}, true
	}, nil},
	{"swapped output", func(m *model) (at, bool) {
		one := func(in *bookLog, e Entry) bool { return len(m.outsOf(in, e.Offset)) == 1 }
		in, e, ok := m.record(one)
		_, other, ok2 := m.record(one)
		if !ok || !ok2 || m.content || string(e.Value) == string(other.Value) {
			return at{}, false
		}
		m.outsOf(in, e.Offset)[0].Value = append([]byte("made of "), other.Value...)
		// The key is the content, too, and tells whose it is.
		return at{Altered, "in", in.id, e.Offset}, true
	}, nil},
	{"output again", func(m *model) (at, bool) {
		in, e, ok := m.record(func(in *bookLog, e Entry) bool { return len(m.outsOf(in, e.Offset)) == 1 })
		if !ok || m.crashes > 0 {
			return at{}, false
		}
		r := m.outsOf(in, e.Offset)[0]
		m.outs[r.Partition].add(string(r.Key), string(r.Value))
		return at{Duplicate, "in", in.id, e.Offset}, true
	}, nil},
	{"past the end", func(m *model) (at, bool) {
		s := m.stored[len(m.stored)-1].Commit
		in := m.parts[s.Partition].in
		m.stored[len(m.stored)-1].Commit = &Commit{Topic: "in", Partition: in.id, Next: in.next + 1}
		return at{PastEnd, "in", in.id, in.next + 1}, true
	}, nil},
	{"metadata", func(m *model) (at, bool) {
		i := m.rng.IntN(len(m.stored))
		c := *m.stored[i].Commit
		if c.Metadata == "" {
			return at{}, false
		}
		c.Metadata = c.Metadata[:len(c.Metadata)-1] + "~"
		m.stored[i].Commit = &c
		return at{Metadata, "in", c.Partition, c.Next}, true
	}, nil},
	{"order", func(m *model) (at, bool) {
		if m.order == Unordered {
			return at{}, false
		}
		by := m.effectsOf()
		for _, f := range m.files {
			for i := 1; i < len(f.lines); i++ {
				a, b := &f.lines[i-1], &f.lines[i]
				if a.Kind != "effect" || b.Kind != "effect" || *a.Partition != *b.Partition || *a.Offset >= *b.Offset {
					continue
				}
				if m.order == PerKey && (a.Key == nil || b.Key == nil || *a.Key != *b.Key) {
					continue
				}
				if *a.Offset*7%11 == 2 { // it may have had its turn as a dead letter
					continue
				}
				if len(by[fmt.Sprintf("%d/%d", *a.Partition, *a.Offset)]) > 1 || len(by[fmt.Sprintf("%d/%d", *b.Partition, *b.Offset)]) > 1 {
					continue
				}
				found := at{Order, "in", *a.Partition, *a.Offset}
				a.Offset, b.Offset, a.ID, b.ID, a.Key, b.Key = b.Offset, a.Offset, b.ID, a.ID, b.Key, a.Key
				return found, true
			}
		}
		return at{}, false
	}, nil},
	{"accepted from a zombie", func(m *model) (at, bool) {
		for _, f := range m.files {
			for i := range f.lines {
				if l := &f.lines[i]; l.Error == "ILLEGAL_GENERATION" {
					l.Error = ""
					return at{NonOwner, "in", *l.Partition, *l.Next}, true
				}
			}
		}
		return at{}, false
	}, []Kind{Regress}},
}

func (l *bookLog) part() int32 {
	if l == nil {
		return 0
	}
	return l.id
}

func (e *Entry) offset() int64 {
	if e.Record == nil {
		return 0
	}
	return e.Record.Offset
}

// TestModel: a random history without fault has no findings. With one, that is found, where it is, and nothing else is.
func TestModel(t *testing.T) {
	found := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		order := Ordering(rapid.IntRange(0, 2).Draw(rt, "order"))
		outputs, content, quiet := rapid.Bool().Draw(rt, "outputs"), rapid.Bool().Draw(rt, "content"), rapid.Bool().Draw(rt, "quiet")
		m := newModel(seed, order, outputs, content, quiet)
		rules := m.rules()
		rep, err := Check(rules, m.history())
		if err != nil {
			rt.Fatalf("%v\n%v", err, m)
		}
		if !rep.OK {
			rt.Fatalf("a history without fault:\n%v\n%v", rep, m)
		}
		if m.late != (rep.Totals.LateCommits > 0) {
			rt.Fatalf("%d commits were late, in the history: %v\n%v", rep.Totals.LateCommits, m.late, m)
		}
		f := faults[rapid.IntRange(0, len(faults)-1).Draw(rt, "fault")]
		want, ok := f.do(m)
		if !ok {
			return
		}
		rep, err = Check(rules, m.history())
		if err != nil {
			rt.Fatalf("%s: %v\n%v", f.name, err, m)
		}
		if !slices.ContainsFunc(rep.Findings, func(x Finding) bool { return at{x.Kind, x.Topic, x.Partition, x.Offset} == want }) {
			rt.Fatalf("%s: %v is not found:\n%v\n%v", f.name, want, rep, m)
		}
		for k, n := range rep.Counts {
			if k == want.kind && n == 1 || slices.Contains(f.also, k) {
				continue
			}
			rt.Fatalf("%s: want %v alone:\n%v\n%v", f.name, want, rep, m)
		}
		found[f.name]++
	})
	t.Log(found)
}

// TestFaultsArePlanted: each of the faults finds a place in some history, or it would test nothing.
func TestFaultsArePlanted(t *testing.T) {
	const steps = 60
	for _, f := range faults {
		n := 0
		for seed := range uint64(steps) {
			if _, ok := f.do(newModel(seed, Ordering(seed%3), true, seed%2 == 0, seed%5 == 0)); ok {
				n++
			}
		}
		if n < steps/10 {
			t.Errorf("%s: in %d of %d histories", f.name, n, steps)
		}
	}
}
