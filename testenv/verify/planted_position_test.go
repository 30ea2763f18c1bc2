package verify

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestRegressFound(t *testing.T) {
	t.Run("stored", func(t *testing.T) {
		b, in, w := basic()
		b.keep(in, 7, "")
		rest(in, w)
		finds(t, b, byValue(), at{Regress, "in", 3, 7})
		r := byValue()
		r.Resets = []Reset{{"in", 3, 7}}
		clean(t, b, r)
		again := *b
		again.stored = append([]Stored(nil), b.stored...)
		again.keep(in, 7, "")
		again.keep(in, 20, "")
		finds(t, &again, r, at{Regress, "in", 3, 7}) // one reset explains one fall
		r.Resets = []Reset{{"in", 3, 6}, {"in", 2, 7}}
		finds(t, b, r, at{Regress, "in", 3, 7})
	})
	t.Run("lines", func(t *testing.T) {
		b, in, w := basic()
		w.commit(in, 7, 0)
		rest(in, w)
		b.store = false
		finds(t, b, byValue(), at{Regress, "in", 3, 7})
	})
	t.Run("samples", func(t *testing.T) {
		b, in, w := basic()
		b.look()
		b.keep(in, 7, "")
		b.look()
		rest(in, w)
		b.look()
		b.store = false
		finds(t, b, byValue(), at{Regress, "in", 3, 7})
	})
	t.Run("told once", func(t *testing.T) {
		b, in, w := basic()
		b.look()
		w.commit(in, 7, 0)
		b.look()
		rest(in, w)
		b.look()
		finds(t, b, byValue(), at{Regress, "in", 3, 7})
	})
	t.Run("gone", func(t *testing.T) {
		b, in, w := basic()
		b.keep(in, -1, "")
		rest(in, w)
		finds(t, b, byValue(), at{Regress, "in", 3, -1})
	})
	t.Run("late", func(t *testing.T) {
		b, in, w := basic()
		w.effects(in, 10, 15)
		w.send(in, 12, 0) // its answer is lost
		w.commit(in, 15, 0)
		b.keep(in, 12, "")
		w.effects(in, 15, 20)
		w.commit(in, 20, 0)
		w.write(line{Kind: "end"})
		rep := clean(t, b, byValue())
		if rep.Totals.LateCommits != 1 || rep.Totals.CommitsUnknown != 1 {
			t.Errorf("%+v", rep.Totals)
		}
	})
	t.Run("late and not repaired", func(t *testing.T) {
		b, in, w := basic()
		w.effects(in, 10, 20)
		w.send(in, 12, 0)
		w.commit(in, 20, 0)
		b.keep(in, 12, "")
		r := byValue()
		r.Running = true
		finds(t, b, r, at{Regress, "in", 3, 12})
	})
}

func TestPositionsFound(t *testing.T) {
	t.Run("past the end", func(t *testing.T) {
		b, in, w := basic()
		rest(in, w)
		w.lines = w.lines[:len(w.lines)-1]
		w.commit(in, 21, 0)
		finds(t, b, byValue(), at{PastEnd, "in", 3, 21})
	})
	t.Run("map past the end", func(t *testing.T) {
		b, in, w := basic()
		w.commit(in, 10, 22, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19)
		rest(in, w)
		finds(t, b, byValue(), at{PastEnd, "in", 3, 22})
	})
	t.Run("past the end of then", func(t *testing.T) {
		b, in, w := basic()
		b.keep(in, 21, "")
		b.look()
		b.stored = b.stored[:1]
		in.many(10)
		rest(in, w)
		w.effects(in, 20, 30)
		w.commit(in, 30, 0)
		r := Rules{Want: func(*kgo.Record) Want { return Want{} }}
		b.files = nil
		b.look()
		finds(t, b, r, at{PastEnd, "in", 3, 21})
	})
	t.Run("not at the end", func(t *testing.T) {
		b, in, w := basic()
		w.effects(in, 10, 20)
		finds(t, b, byValue(), at{NotAtEnd, "in", 3, 10})
		r := byValue()
		r.Running = true
		clean(t, b, r)
	})
	t.Run("metadata of another position", func(t *testing.T) {
		b, in, w := basic()
		x := w.send(in, 11, 15, 11)
		w.lines = w.lines[:len(w.lines)-1]
		b.keep(in, 10, x.Metadata)
		rest(in, w)
		finds(t, b, byValue(), at{Metadata, "in", 3, 10})
	})
	t.Run("metadata damaged", func(t *testing.T) {
		b, in, w := basic()
		x := w.send(in, 10, 15, 10)
		w.lines = w.lines[:len(w.lines)-1]
		b.keep(in, 10, x.Metadata[:len(x.Metadata)-1])
		rest(in, w)
		finds(t, b, byValue(), at{Metadata, "in", 3, 10})
	})
	t.Run("metadata too long", func(t *testing.T) {
		b, in, w := basic()
		b.keep(in, 10, strings.Repeat("x", 4095)+"\U0001F600")
		rest(in, w)
		rep := finds(t, b, byValue(), at{Metadata, "in", 3, 10})
		if rep.Totals.LongestMetadata != 4097 || rep.Totals.ForeignMetadata != 1 {
			t.Errorf("%+v", rep.Totals)
		}
	})
	t.Run("standing still", func(t *testing.T) {
		b, in, w := basic()
		b.look()
		b.now += 5e9
		b.look()
		rest(in, w)
		b.look()
		r := byValue()
		r.MaxStall = 6e9
		clean(t, b, r)
		r.MaxStall = 4e9
		finds(t, b, r, at{Stalled, "in", 3, 10})
	})
	t.Run("not healed", func(t *testing.T) {
		b, in, w := basic()
		b.look()
		heal := timeOf(b.tick())
		b.look()
		b.now += 5e9
		rest(in, w)
		b.look()
		r := byValue()
		r.Healed = []Healing{{heal, 6e9}}
		clean(t, b, r)
		r.Healed = []Healing{{heal, 4e9}}
		finds(t, b, r, at{Stalled, "in", 3, 20})
	})
}

func TestOwnersFound(t *testing.T) {
	t.Run("older generation", func(t *testing.T) {
		b, in, w := basic()
		v := b.worker("v", 1)
		v.gen = 2
		v.effects(in, 10, 15)
		v.commit(in, 15, 0)
		w.commit(in, 15, 0) // accepted, in generation 1
		v.effects(in, 15, 20)
		v.commit(in, 20, 0)
		finds(t, b, byValue(), at{NonOwner, "in", 3, 15})
	})
	t.Run("under way", func(t *testing.T) { // both at once: no order to tell
		b, in, w := basic()
		v := b.worker("v", 1)
		v.gen = 2
		v.effects(in, 10, 20)
		x := w.send(in, 10, 0)
		v.commit(in, 20, 0)
		w.answer(x, "")
		clean(t, b, byValue())
	})
	t.Run("not assigned", func(t *testing.T) {
		b, in, w := basic()
		v := b.worker("v", 1)
		b.generation(2, map[string][]Partition{w.member: {{"in", 3}}, v.member: {{"in", 2}}})
		w.gen, v.gen = 2, 2
		rest(in, w)
		v.commit(in, 20, 0)
		finds(t, b, byValue(), at{NonOwner, "in", 3, 20})
	})
	t.Run("effects", func(t *testing.T) {
		b, in, w := basic()
		v := b.worker("v", 1)
		v.commit(b.input("in", 2), 0, 0) // tells which member it is
		b.generation(2, map[string][]Partition{v.member: {{"in", 3}}})
		w.effect(in, 10) // v has not begun
		v.gen = 2
		v.commit(in, 10, 0)
		w.effect(in, 11)
		v.effects(in, 12, 20)
		v.commit(in, 20, 0)
		clean(t, b, byValue())
		r := byValue()
		r.Exclusive = true
		finds(t, b, r, at{NonOwner, "in", 3, 11})
	})
}

func TestAtMostOnceFound(t *testing.T) {
	r := byValue()
	r.Guarantee = AtMostOnce
	b := newBook()
	in := b.input("in", 0)
	in.many(10)
	w := b.worker("w", 1)
	w.commit(in, 5, 0)
	w.effects(in, 0, 4) // 4 is lost
	b.kill(w)
	w2 := b.worker("w", 2)
	w2.commit(in, 10, 0)
	w2.effects(in, 5, 10)
	finds(t, b, r, at{Loss, "in", 0, 4})
	r.MaxLost = 1
	if rep := clean(t, b, r); rep.Totals.Lost != 1 {
		t.Error(rep)
	}
	t.Run("too soon", func(t *testing.T) {
		b := newBook()
		in := b.input("in", 0)
		in.many(2)
		w := b.worker("w", 1)
		x := w.send(in, 1, 0)
		w.effect(in, 0)
		w.answer(x, "")
		b.keep(in, 1, "")
		w.commit(in, 2, 0)
		w.effect(in, 1)
		finds(t, b, r, at{TooSoon, "in", 0, 0})
	})
}

// TestCommitsOfAllKinds are commit lines that say little, or nothing of this run.
func TestCommitsOfAllKinds(t *testing.T) {
	t.Run("not of this run", func(t *testing.T) {
		b, in, w := basic()
		x := w.send(in, 20, 0)
		other := "other"
		w.lines[len(w.lines)-1].Group, x.Group = &other, &other
		w.answer(x, "")
		w.commit(&bookLog{topic: "inbox"}, 5, 0)
		b.stored = b.stored[:len(b.stored)-1]
		b.keep(&bookLog{topic: "inbox"}, 5, "")
		rest(in, w)
		if got := clean(t, b, byValue()).Totals; got.CommitsSent != 2 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("without request numbers", func(t *testing.T) {
		b, in, w := basic()
		w.effects(in, 10, 20)
		x, y := w.send(in, 15, 0), w.send(in, 20, 0)
		x.Request, y.Request = 0, 0
		for i := range w.lines {
			w.lines[i].Request = 0
		}
		b.keep(in, 20, "")
		w.answer(y, "")
		w.answer(x, "NOT_COORDINATOR")
		if got := clean(t, b, byValue()).Totals; got.CommitsSent != 3 || got.CommitsRefused != 1 || got.CommitsUnknown != 0 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("timed out", func(t *testing.T) { // stored all the same, and late
		b, in, w := basic()
		w.effects(in, 10, 15)
		x := w.send(in, 12, 0)
		w.answer(x, "REQUEST_TIMED_OUT")
		w.commit(in, 15, 0)
		b.keep(in, 12, "")
		w.effects(in, 15, 20)
		w.commit(in, 20, 0)
		if got := clean(t, b, byValue()).Totals; got.LateCommits != 1 || got.CommitsRefused != 1 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("of a transaction", func(t *testing.T) { // aborted, and the next one is lower
		b, in, w := basic()
		w.effects(in, 10, 20)
		for _, next := range []int64{20, 15} {
			x := w.send(in, next, 0)
			x.Txn = "t"
			w.lines[len(w.lines)-1].Txn = "t"
			w.answer(x, "")
		}
		w.commit(in, 20, 0)
		clean(t, b, byValue())
	})
	t.Run("of a tool", func(t *testing.T) { // without a generation, while the group is empty
		b, in, w := basic()
		w.effects(in, 10, 20)
		w.gen = -1
		w.commit(in, 15, 0)
		w.gen = 2
		w.commit(in, 20, 0)
		clean(t, b, byValue())
	})
	t.Run("overtaken", func(t *testing.T) { // the answer of an older one says nothing of the map
		b, in, w := basic()
		w.effects(in, 12, 20)
		x := w.send(in, 10, 20, 10, 11)
		y := w.send(in, 10, 14, 10, 11)
		b.keep(in, 10, x.Metadata)
		b.keep(in, 10, y.Metadata)
		w.answer(y, "")
		w.answer(x, "")
		w2 := again(b, in, w, 15)
		w2.effects(in, 10, 12)
		w2.commit(in, 20, 0)
		r := byValue()
		r.Duplicates.PerCrash = 1
		clean(t, b, r)
	})
	t.Run("seen by a proxy", func(t *testing.T) {
		b, in, w := basic()
		w.effects(in, 10, 20)
		x := w.send(in, 20, 0)
		proxy := b.file("proxy", 1)
		proxy.write(x)
		b.keep(in, 20, "")
		y := x
		proxy.answer(y, "")
		w.answer(x, "")
		if got := clean(t, b, byValue()).Totals; got.CommitsSent != 2 || got.Lives != 1 {
			t.Errorf("%+v", got)
		}
		proxy.send(in, 21, 0)
		finds(t, b, byValue(), at{PastEnd, "in", 3, 21})
	})
	t.Run("gone from the samples", func(t *testing.T) {
		b, in, w := basic()
		b.look()
		b.keep(in, -1, "")
		b.look()
		rest(in, w)
		b.look()
		b.store = false
		finds(t, b, byValue(), at{Regress, "in", 3, -1})
		r := byValue()
		r.Resets = []Reset{{"in", 3, -1}}
		clean(t, b, r)
	})
	t.Run("reset, seen later", func(t *testing.T) { // samples and lines see where it was when they looked
		b, in, w := basic()
		w.effects(in, 10, 20)
		w.commit(in, 20, 0)
		b.look()
		w.write(line{Kind: "end"})
		b.keep(in, 0, "")
		w2 := b.worker("w", 2)
		w2.effects(in, 0, 5)
		w2.commit(in, 5, 0)
		b.look()
		w2.effects(in, 5, 20)
		w2.commit(in, 20, 0)
		b.look()
		r := byValue()
		r.Duplicates.Other = 20
		r.Resets = []Reset{{"in", 3, 0}}
		clean(t, b, r)
		b.store = false
		clean(t, b, r)
		r.Resets = nil
		if rep := judge(t, b, r); rep.Count(Regress) != 1 || rep.Count(Rerun) != 5 || len(rep.Counts) != 2 {
			t.Error(rep)
		}
	})
}
