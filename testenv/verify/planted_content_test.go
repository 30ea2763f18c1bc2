package verify

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// letter writes a dead letter as killick does.
func letter(dlq, in *bookLog, offset int64) *kgo.Record {
	for _, e := range in.entries {
		if e.Offset != offset {
			continue
		}
		r := dlq.put(Visible, &kgo.Record{Key: e.Key, Value: e.Value, Headers: append([]kgo.RecordHeader(nil), e.Headers...)})
		for _, h := range [][2]string{{"topic", in.topic}, {"partition", fmt.Sprint(in.id)}, {"offset", fmt.Sprint(offset)}, {"reason", "permanent"}} {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "killick-dlq-" + h[0], Value: []byte(h[1])})
		}
		return r
	}
	panic("no such record")
}

func TestSwapFound(t *testing.T) {
	t.Run("id", func(t *testing.T) {
		b, in, w := basic()
		rest(in, w)
		id := "14"
		for i := range w.lines {
			if o := w.lines[i].Offset; o != nil && *o == 16 {
				w.lines[i].ID = &id
			}
		}
		rep := finds(t, b, byValue(), at{Swap, "in", 3, 16})
		if !strings.Contains(rep.Findings[0].Evidence, "in/3@14") {
			t.Error(rep.Findings[0])
		}
	})
	t.Run("unknown id", func(t *testing.T) {
		b, in, w := basic()
		rest(in, w)
		id := "none"
		w.lines[1].ID = &id
		finds(t, b, byValue(), at{Altered, "in", 3, 0})
	})
	t.Run("key", func(t *testing.T) {
		b, in, w := basic()
		rest(in, w)
		key := "2"
		w.lines[1].Key = &key
		finds(t, b, byValue(), at{Swap, "in", 3, 0})
	})
	made := func(out *kgo.Record) (Made, error) {
		var m Made
		_, err := fmt.Sscanf(string(out.Key), "in/%d@%d", &m.Partition, &m.Offset)
		m.Topic, m.Value = "in", out.Value
		return m, err
	}
	r := Rules{Made: made, Want: func(r *kgo.Record) Want { return Want{Outputs: []Output{{Topic: "out", Value: r.Value}}} }}
	outputs := func(values ...string) *book {
		b := newBook()
		in, out := b.input("in", 0), b.output("out", 0)
		in.many(3)
		for i, v := range values {
			out.add(fmt.Sprintf("in/0@%d", i), v)
		}
		return b
	}
	t.Run("output", func(t *testing.T) {
		clean(t, outputs("0", "1", "2"), r)
		finds(t, outputs("0", "2", "1"), r, at{Swap, "in", 0, 1}, at{Swap, "in", 0, 2})
		finds(t, outputs("0", "1", "1"), r, at{Swap, "in", 0, 2})
	})
	t.Run("altered output", func(t *testing.T) {
		finds(t, outputs("0", "9", "2"), r, at{Altered, "in", 0, 1})
		finds(t, outputs("0", "", "2"), r, at{Altered, "in", 0, 1})
	})
	t.Run("foreign output", func(t *testing.T) {
		finds(t, outputs("0", "1", "2", "3"), r, at{Foreign, "out", 0, 3})
		b := outputs("0", "1", "2")
		b.outs[0].add("who", "0")
		finds(t, b, r, at{Foreign, "out", 0, 3})
		by := r
		by.Made = nil
		by.Want = func(r *kgo.Record) Want {
			return Want{Outputs: []Output{{Topic: "out", Key: fmt.Appendf(nil, "in/0@%d", r.Offset), Value: r.Value}}}
		}
		finds(t, b, by, at{Foreign, "out", 0, 3})
	})
	t.Run("lost output", func(t *testing.T) {
		finds(t, outputs("0", "1"), r, at{Loss, "in", 0, 2})
	})
	t.Run("unexpected output", func(t *testing.T) {
		r := r
		r.Want = func(r *kgo.Record) Want {
			if r.Offset == 2 {
				return Want{}
			}
			return Want{Outputs: []Output{{Topic: "out", Value: r.Value}}}
		}
		finds(t, outputs("0", "1", "2"), r, at{Unexpected, "in", 0, 2})
	})
}

func TestOrderFound(t *testing.T) {
	r := byValue()
	r.Order = PerKey // keys are the offset mod 3
	t.Run("key", func(t *testing.T) {
		b, in, w := basic()
		for _, o := range []int64{11, 10, 12, 16, 13, 14, 15, 17, 18, 19} {
			w.effect(in, o)
		}
		w.commit(in, 20, 0)
		clean(t, b, byValue())
		finds(t, b, r, at{Order, "in", 3, 13})
		r := r
		r.Order = PerPartition
		finds(t, b, r, at{Order, "in", 3, 10}, at{Order, "in", 3, 13}, at{Order, "in", 3, 14}, at{Order, "in", 3, 15})
	})
	t.Run("repeated", func(t *testing.T) {
		b, in, w := basic()
		w.effects(in, 10, 20)
		w2 := again(b, in, w, 10)
		w2.effect(in, 14)
		w2.effect(in, 13) // another key
		w2.effect(in, 11) // the key of 14
		w2.commit(in, 20, 0)
		r := r
		r.Duplicates.PerCrash = -1
		finds(t, b, r, at{Order, "in", 3, 11})
	})
	t.Run("a new turn", func(t *testing.T) { // lost and got back in another generation
		b, in, w := basic()
		w.effects(in, 10, 20)
		w.gen++
		w.commit(in, 10, 0)
		w.effects(in, 10, 20)
		w.commit(in, 20, 0)
		r := r
		r.Duplicates.Other = -1
		clean(t, b, r)
	})
	t.Run("no key", func(t *testing.T) {
		b := newBook()
		in := b.input("in", 0)
		in.put(Visible, &kgo.Record{Value: []byte("0")})
		in.put(Visible, &kgo.Record{Value: []byte("1")})
		w := b.worker("w", 1)
		w.effect(in, 1)
		w.effect(in, 0)
		clean(t, b, r)
	})
	t.Run("outputs", func(t *testing.T) {
		b := newBook()
		in, out, other := b.input("in", 0), b.output("out", 0), b.output("out", 1)
		in.many(6)
		for _, v := range []string{"1", "3", "0"} {
			out.add("", v)
		}
		for _, v := range []string{"5", "4", "2"} {
			other.add("", v)
		}
		r := Rules{Order: PerKey, Want: func(r *kgo.Record) Want { return Want{Outputs: []Output{{"out", []byte(""), r.Value}}} }}
		finds(t, b, r, at{Order, "in", 0, 0}, at{Order, "in", 0, 2})
		r.Order = PerPartition
		finds(t, b, r, at{Order, "in", 0, 0}, at{Order, "in", 0, 2}, at{Order, "in", 0, 4})
	})
}

func TestForeignFound(t *testing.T) {
	b, in, w := basic()
	w.effects(in, 10, 20)
	in.hole(2)
	in.many(1)
	w.effect(in, 22)
	w.commit(in, 23, 0)
	w.write(line{Kind: "end"})
	clean(t, b, byValue())
	for _, o := range []int64{20, 23, -1} {
		b, in, w := b, in, w
		n := len(w.lines)
		w.effect(in, o)
		finds(t, b, byValue(), at{Foreign, "in", 3, o})
		r := byValue()
		r.Holes = true
		if o == 20 {
			if rep := clean(t, b, r); rep.Totals.Unplaced != 1 {
				t.Errorf("%+v", rep.Totals)
			}
		} else {
			finds(t, b, r, at{Foreign, "in", 3, o})
		}
		w.lines = w.lines[:n]
	}
	w.act("effect", &bookLog{topic: "other"}, 0)
	finds(t, b, byValue(), at{Foreign, "other", 0, 0})
	w.lines = w.lines[:len(w.lines)-1]
	in.start, in.entries = 5, in.entries[5:] // deleted since: not known
	if rep := clean(t, b, byValue()); rep.Totals.Unplaced != 5 || rep.Totals.Holes != 2 {
		t.Errorf("%+v", rep.Totals)
	}
}

func TestTransactionsFound(t *testing.T) {
	// 0 1 committed, 2 marker, 3 4 aborted, 5 marker, 6 plain
	build := func() (*book, *bookLog, *bookFile) {
		b := newBook()
		in := b.input("in", 0)
		in.txn(Visible, 7, "a")
		in.txn(Visible, 7, "b")
		in.marker(7, true)
		in.txn(Aborted, 7, "c")
		in.txn(Aborted, 7, "d")
		in.marker(7, false)
		in.add("", "e")
		w := b.worker("w", 1)
		w.effects(in, 0, 2)
		w.effect(in, 6)
		return b, in, w
	}
	b, in, w := build()
	w.commit(in, 7, 0)
	if got := clean(t, b, byValue()).Totals; got.Inputs != 3 || got.Aborted != 2 || got.Markers != 2 || got.Holes != 0 {
		t.Errorf("%+v", got)
	}
	t.Run("processed", func(t *testing.T) {
		b, in, w := build()
		w.act("begin", in, 3)
		w.effect(in, 3)
		w.commit(in, 7, 0)
		finds(t, b, byValue(), at{AbortedRead, "in", 0, 3})
	})
	t.Run("read uncommitted", func(t *testing.T) {
		b, in, w := build()
		w.effects(in, 3, 5)
		w.commit(in, 7, 0)
		r := byValue()
		r.ReadUncommitted = true
		clean(t, b, r)
	})
	t.Run("taken for committed", func(t *testing.T) {
		b, in, w := build()
		in.entries[3].State, in.entries[4].State = Visible, Visible
		w.effects(in, 3, 5)
		w.commit(in, 7, 0)
		finds(t, b, byValue(), at{AbortedRead, "in", 0, 3})
	})
	t.Run("taken for aborted", func(t *testing.T) {
		b, in, w := build()
		in.entries[1].State = Aborted
		w.lines = append(w.lines[:2], w.lines[3:]...) // nobody has seen it
		w.commit(in, 7, 0)
		finds(t, b, byValue(), at{HiddenCommit, "in", 0, 1})
	})
	t.Run("open", func(t *testing.T) {
		b, in, w := build()
		in.txn(Open, 8, "f")
		in.stable = 7
		w.commit(in, 7, 0)
		finds(t, b, byValue(), at{OpenTransaction, "in", 0, -1})
		w.effect(in, 7)
		r := byValue()
		r.Running = true
		finds(t, b, r, at{AbortedRead, "in", 0, 7})
	})
	t.Run("made from aborted", func(t *testing.T) {
		b, in, w := build()
		w.commit(in, 7, 0)
		out := b.output("out", 0)
		out.add("3", "c")
		r := byValue()
		r.Made = func(out *kgo.Record) (m Made, err error) {
			m.Topic = "in"
			_, err = fmt.Sscan(string(out.Key), &m.Offset)
			return m, err
		}
		finds(t, b, r, at{AbortedRead, "in", 0, 3})
	})
}

func TestExactlyOnceFound(t *testing.T) {
	r := Rules{Guarantee: ExactlyOnce, Order: PerPartition, Want: func(r *kgo.Record) Want {
		return Want{Outputs: []Output{{"a", []byte(""), r.Value}, {"b", []byte(""), r.Value}}}
	}}
	build := func() (b *book, in, x, y *bookLog, w *bookFile) {
		b = newBook()
		in, x, y = b.input("in", 0), b.output("a", 0), b.output("b", 0)
		in.many(4)
		w = b.worker("w", 1)
		for _, l := range []*bookLog{x, y} {
			l.txn(Aborted, 1, "0").Key = []byte("")
			l.marker(1, false)
			for _, v := range []string{"0", "1"} {
				l.txn(Visible, 1, v).Key = []byte("")
			}
			l.marker(1, true)
		}
		w.commit(in, 2, 0)
		return
	}
	more := func(l *bookLog, state State, v string) {
		l.txn(state, 1, v).Key = []byte("")
		l.marker(1, state == Visible)
	}
	t.Run("clean", func(t *testing.T) {
		b, in, x, y, w := build()
		for _, v := range []string{"2", "3"} {
			more(x, Visible, v)
			more(y, Visible, v)
		}
		w.commit(in, 4, 0)
		if got := clean(t, b, r).Totals; got.Outputs != 8 || got.Leftovers != 2 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("torn", func(t *testing.T) {
		b, in, x, y, w := build()
		more(x, Visible, "2")
		more(x, Visible, "3")
		more(y, Aborted, "2")
		more(y, Visible, "3")
		w.commit(in, 4, 0)
		finds(t, b, r, at{Torn, "in", 0, 2})
	})
	t.Run("only aborted", func(t *testing.T) {
		b, in, x, y, w := build()
		more(x, Visible, "2")
		more(y, Visible, "2")
		more(x, Aborted, "3")
		more(y, Aborted, "3")
		w.commit(in, 4, 0)
		finds(t, b, r, at{Loss, "in", 0, 3})
	})
	t.Run("twice", func(t *testing.T) {
		b, in, x, y, w := build()
		for _, v := range []string{"2", "2", "3"} {
			more(x, Visible, v)
		}
		for _, v := range []string{"2", "3"} {
			more(y, Visible, v)
		}
		w.commit(in, 4, 0)
		finds(t, b, r, at{Duplicate, "in", 0, 2})
	})
	t.Run("ahead", func(t *testing.T) {
		b, _, x, y, _ := build()
		more(x, Visible, "2")
		more(y, Visible, "2")
		r := r
		r.Running = true
		finds(t, b, r, at{Ahead, "in", 0, 2})
	})
	t.Run("open", func(t *testing.T) {
		b, in, x, y, w := build()
		for _, v := range []string{"2", "3"} {
			more(x, Visible, v)
			more(y, Visible, v)
		}
		w.commit(in, 4, 0)
		y.stable = y.next
		y.txn(Open, 2, "9")
		finds(t, b, r, at{OpenTransaction, "b", 0, -1})
	})
}

func TestDeadLettersFound(t *testing.T) {
	r := byValue()
	r.Want = func(in *kgo.Record) Want {
		switch in.Offset {
		case 12:
			return Want{Dead: true}
		case 13, 14:
			return Want{Effect: true, MayDie: true}
		}
		return Want{Effect: true}
	}
	build := func() (b *book, in, dlq *bookLog, w *bookFile) {
		b, in, w = basic()
		dlq = b.letter("dlq", 0)
		in.entries[12].Headers = []kgo.RecordHeader{{Key: "h", Value: []byte("x")}, {Key: "killick-attempt", Value: []byte("9")}}
		w.effects(in, 10, 12)
		w.effects(in, 14, 20)
		letter(dlq, in, 13)
		return
	}
	t.Run("clean", func(t *testing.T) {
		b, in, dlq, w := build()
		letter(dlq, in, 12)
		w.commit(in, 20, 0)
		if got := clean(t, b, r).Totals; got.DeadLetters != 2 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("of a new topic", func(t *testing.T) { // which the sample does not know yet: nothing can be said
		b, in, dlq, w := build()
		letter(dlq, in, 12)
		w.commit(in, 20, 0)
		b.look()
		s := &b.samples[0]
		s.Ends = slices.DeleteFunc(s.Ends, func(e End) bool { return e.Topic == "dlq" })
		clean(t, b, r)
	})
	t.Run("missing", func(t *testing.T) {
		b, in, _, w := build()
		w.commit(in, 20, 0)
		finds(t, b, r, at{DeadLetterMissing, "in", 3, 12})
		b.letters = nil
		finds(t, b, r, at{Loss, "in", 3, 13}, at{DeadLetterMissing, "in", 3, 12})
	})
	t.Run("altered", func(t *testing.T) {
		for _, alter := range []func(r *kgo.Record){
			func(r *kgo.Record) { r.Value = nil },
			func(r *kgo.Record) { r.Key = []byte("1") },
			func(r *kgo.Record) { r.Headers = r.Headers[1:] },
			func(r *kgo.Record) { r.Headers = append(r.Headers, kgo.RecordHeader{Key: "more"}) },
		} {
			b, in, dlq, w := build()
			alter(letter(dlq, in, 12))
			w.commit(in, 20, 0)
			finds(t, b, r, at{DeadLetterAltered, "in", 3, 12})
		}
	})
	t.Run("pointer", func(t *testing.T) {
		b, in, dlq, w := build()
		p := letter(dlq, in, 12)
		p.Value, p.Headers = nil, append(p.Headers[1:], kgo.RecordHeader{Key: "killick-dlq-cut"})
		w.commit(in, 20, 0)
		if got := clean(t, b, r).Totals; got.Pointers != 1 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("unexpected", func(t *testing.T) {
		b, in, dlq, w := build()
		letter(dlq, in, 12)
		letter(dlq, in, 5)
		w.commit(in, 20, 0)
		finds(t, b, r, at{Unexpected, "in", 3, 5})
	})
	t.Run("done, too", func(t *testing.T) {
		b, in, dlq, w := build()
		letter(dlq, in, 12)
		w.effect(in, 12)
		w.commit(in, 20, 0)
		finds(t, b, r, at{Unexpected, "in", 3, 12})
	})
	t.Run("foreign", func(t *testing.T) {
		b, in, dlq, w := build()
		letter(dlq, in, 12)
		dlq.add("", "stranger")
		letter(dlq, in, 12).Headers[2].Value = []byte("many")
		w.commit(in, 20, 0)
		finds(t, b, r, at{Foreign, "dlq", 0, 2}, at{Foreign, "dlq", 0, 3})
	})
	t.Run("another format", func(t *testing.T) {
		b, in, dlq, w := build()
		dlq.entries, dlq.next = nil, 0
		dlq.add("in/3/12", "12")
		dlq.add("in/3/13", "14")
		w.commit(in, 20, 0)
		r := r
		r.Letter = func(r *kgo.Record) (m Made, err error) {
			m.Topic = "in"
			_, err = fmt.Sscanf(string(r.Key), "in/%d/%d", &m.Partition, &m.Offset)
			m.Key, m.Value = fmt.Append(nil, m.Offset%3), r.Value
			return m, err
		}
		finds(t, b, r, at{DeadLetterAltered, "in", 3, 13})
	})
}
