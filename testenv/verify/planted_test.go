package verify

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A small run with one fault each: it is found, as what it is and where it is, and nothing else is.

// basic is a run of one partition of 20 records, done and committed up to 10.
func basic() (*book, *bookLog, *bookFile) {
	b := newBook()
	in := b.input("in", 3)
	in.many(20)
	w := b.worker("w", 1)
	w.effects(in, 0, 10)
	w.commit(in, 10, 0)
	return b, in, w
}

// rest ends it well.
func rest(in *bookLog, w *bookFile) {
	w.effects(in, 10, 20)
	w.commit(in, 20, 0)
	w.write(line{Kind: "end"})
}

// again repeats the effect of a record in a second life after the first has been killed.
func again(b *book, in *bookLog, w *bookFile, offset int64) *bookFile {
	b.kill(w)
	w2 := b.worker("w", 2)
	w2.effect(in, offset)
	return w2
}

func TestLossFound(t *testing.T) {
	b, in, w := basic()
	w.effects(in, 10, 14)
	w.effects(in, 15, 20)
	w.commit(in, 20, 0)
	rep := finds(t, b, byValue(), at{Loss, "in", 3, 14})
	if e := rep.Findings[0].Evidence; !strings.Contains(e, "commit of 20 (w-1.jsonl:23") {
		t.Error(e)
	}
	// Without any knowledge of commits the end of the run tells.
	b.stored, b.store, b.files[0].lines = nil, false, b.files[0].lines[:0]
	w.write(line{Kind: "start"})
	w.effects(in, 0, 14)
	w.effects(in, 15, 20)
	rep = finds(t, b, byValue(), at{Loss, "in", 3, 14})
	if len(rep.Unchecked) == 0 {
		t.Error("nothing was committed, and the report does not say that it could not look")
	}
	r := byValue()
	r.Running = true
	clean(t, b, r)
}

func TestEarlyCommitFound(t *testing.T) {
	t.Run("line", func(t *testing.T) {
		b, in, w := basic()
		w.effects(in, 11, 20)
		x := w.send(in, 20, 0)
		w.effect(in, 10)
		b.keep(in, 20, "")
		w.answer(x, "")
		rep := finds(t, b, byValue(), at{EarlyCommit, "in", 3, 10})
		if e := rep.Findings[0].Evidence; !strings.Contains(e, "w-1.jsonl:23") || !strings.Contains(e, "its effect came at") {
			t.Error(e)
		}
	})
	t.Run("of another process", func(t *testing.T) {
		b, in, w := basic()
		v := b.worker("v", 1)
		v.effects(in, 10, 19)
		x := w.send(in, 20, 0)
		v.effect(in, 19)
		b.keep(in, 20, "")
		w.answer(x, "")
		finds(t, b, byValue(), at{EarlyCommit, "in", 3, 19})
	})
	t.Run("at the same moment", func(t *testing.T) { // of another process: which came first is not known
		for _, first := range []bool{false, true} { // in the list of files
			b, in, w := basic()
			v := b.worker("v", 1)
			if first {
				b.files = []*bookFile{v, w}
			}
			v.effects(in, 10, 20)
			x := w.send(in, 20, 0)
			v.lines[len(v.lines)-1].At = b.now
			b.keep(in, 20, "")
			w.answer(x, "")
			clean(t, b, byValue())
		}
	})
	t.Run("in the map", func(t *testing.T) {
		b, in, w := basic()
		w.effects(in, 12, 20)
		w.send(in, 10, 20, 10) // 11 is named as done
		w.effects(in, 10, 12)
		w.commit(in, 20, 0)
		finds(t, b, byValue(), at{EarlyCommit, "in", 3, 11})
	})
	t.Run("sample", func(t *testing.T) {
		b, in, w := basic()
		b.keep(in, 11, "")
		b.look()
		b.store, b.stored = false, nil
		w.effects(in, 10, 20)
		b.keep(in, 20, "")
		b.look()
		b.store = false
		finds(t, b, byValue(), at{EarlyCommit, "in", 3, 10})
	})
	t.Run("stored", func(t *testing.T) {
		b, in, w := basic()
		b.keep(in, 11, "")
		b.tick()
		rest(in, w)
		finds(t, b, byValue(), at{EarlyCommit, "in", 3, 10})
	})
	t.Run("output", func(t *testing.T) {
		b := newBook()
		in, out := b.input("in", 0), b.output("out", 0)
		in.many(4)
		w := b.worker("w", 1)
		for o := range int64(3) {
			out.add("", fmt.Sprint(o))
		}
		w.commit(in, 4, 0)
		b.look()
		out.add("", "3")
		r := Rules{Want: func(r *kgo.Record) Want { return Want{Outputs: []Output{{"out", []byte(""), r.Value}}} }}
		finds(t, b, r, at{EarlyCommit, "in", 0, 3})
	})
	t.Run("dead letter", func(t *testing.T) {
		b := newBook()
		in, dlq := b.input("in", 0), b.letter("dlq", 0)
		in.many(2)
		w := b.worker("w", 1)
		w.commit(in, 2, 0)
		b.look()
		letter(dlq, in, 0)
		w.effect(in, 1)
		r := Rules{Want: func(r *kgo.Record) Want { return Want{Dead: r.Offset == 0} }}
		finds(t, b, r, at{EarlyCommit, "in", 0, 0})
	})
	t.Run("timed", func(t *testing.T) {
		b := newBook()
		in, out := b.input("in", 0), b.output("out", 0)
		in.many(2)
		w := b.worker("w", 1)
		out.add("", "0").Timestamp = timeOf(b.tick())
		x := w.send(in, 2, 0)
		b.tick()
		out.add("", "1").Timestamp = timeOf(b.tick())
		b.keep(in, 2, "")
		w.answer(x, "")
		r := Rules{Timed: true, Want: func(r *kgo.Record) Want { return Want{Outputs: []Output{{"out", []byte(""), r.Value}}} }}
		finds(t, b, r, at{EarlyCommit, "in", 0, 1})
	})
}

func TestDuplicatesFound(t *testing.T) {
	t.Run("one life", func(t *testing.T) {
		b, in, w := basic()
		w.effects(in, 10, 20)
		w.effect(in, 12)
		w.commit(in, 20, 0)
		w.write(line{Kind: "end"})
		rep := finds(t, b, byValue(), at{Duplicate, "in", 3, 12})
		if rep.Totals.Duplicates != 1 || rep.Totals.Repeated != 1 || rep.Totals.OtherDuplicates != 1 {
			t.Errorf("%+v", rep.Totals)
		}
		r := byValue()
		r.Duplicates.Other = 1
		clean(t, b, r)
		r.Duplicates.Other = -1
		clean(t, b, r)
	})
	t.Run("while it is killed", func(t *testing.T) { // a crash excuses others, not what dies
		b, in, w := basic()
		w.effect(in, 10)
		b.kill(w)
		w.effect(in, 10)
		w2 := b.worker("w", 2)
		w2.effects(in, 11, 20)
		w2.commit(in, 20, 0)
		r := byValue()
		r.Duplicates.PerCrash = 9
		finds(t, b, r, at{Duplicate, "in", 3, 10})
	})
	t.Run("planned", func(t *testing.T) {
		b, in, w := basic()
		w.effect(in, 10)
		w.write(line{Kind: "end"})
		v := b.worker("v", 1)
		rest(in, v)
		r := byValue()
		r.Duplicates.PerCrash = 100 // nobody has crashed
		finds(t, b, r, at{Duplicate, "in", 3, 10})
	})
	t.Run("per crash", func(t *testing.T) {
		b, in, w := basic()
		w.effects(in, 10, 15)
		b.kill(w)
		w2 := b.worker("w", 2)
		rest(in, w2)
		r := byValue()
		r.Duplicates.PerCrash = 5
		rep := clean(t, b, r)
		if len(rep.Crashes) != 1 || rep.Crashes[0] != (Crash{Life: "w-1", Duplicates: 5}) {
			t.Error(rep.Crashes)
		}
		if len(rep.Repeats) != 5 || rep.Repeats[4].Offset != 14 || !strings.Contains(rep.String(), "again: in/3@14: w-2.jsonl:6: ") {
			t.Error(rep)
		}
		r.Duplicates.PerCrash = 4
		finds(t, b, r, at{Duplicate, "in", 3, 10}, at{Duplicate, "in", 3, 11}, at{Duplicate, "in", 3, 12}, at{Duplicate, "in", 3, 13}, at{Duplicate, "in", 3, 14})
		r.Listed = 2
		rep = judge(t, b, r)
		if len(rep.Findings) != 2 || rep.Count(Duplicate) != 5 || !strings.Contains(rep.String(), "duplicate: and 3 more") {
			t.Error(rep)
		}
	})
	t.Run("frozen", func(t *testing.T) {
		b, in, w := basic()
		w.effects(in, 10, 12)
		b.runner("stop", w)
		v := b.worker("v", 1)
		v.effects(in, 10, 20)
		b.runner("cont", w)
		w.effect(in, 12) // it had it in hand
		v.commit(in, 20, 0)
		r := byValue()
		r.Duplicates.PerCrash = 3
		rep := clean(t, b, r)
		if len(rep.Crashes) != 1 || rep.Crashes[0] != (Crash{Life: "w-1", Frozen: true, Duplicates: 3}) {
			t.Error(rep.Crashes)
		}
	})
	t.Run("without a runner", func(t *testing.T) {
		b, in, w := basic()
		w.effect(in, 10) // and its file ends
		w2 := b.worker("w", 2)
		rest(in, w2)
		r := byValue()
		r.Duplicates.PerCrash = 1
		clean(t, b, r)
	})
	t.Run("output", func(t *testing.T) {
		b := newBook()
		in, out := b.input("in", 0), b.output("out", 0)
		in.many(2)
		for _, v := range []string{"0", "1", "0"} {
			out.add("", v)
		}
		r := Rules{Want: func(r *kgo.Record) Want { return Want{Outputs: []Output{{"out", []byte(""), r.Value}}} }}
		finds(t, b, r, at{Duplicate, "in", 0, 0})
		r.Duplicates.Outputs = 1
		clean(t, b, r)
	})
	t.Run("dead letter", func(t *testing.T) {
		b := newBook()
		in, dlq := b.input("in", 0), b.letter("dlq", 0)
		in.many(1)
		letter(dlq, in, 0)
		letter(dlq, in, 0)
		r := Rules{Want: func(r *kgo.Record) Want { return Want{Dead: true} }}
		finds(t, b, r, at{Duplicate, "in", 0, 0})
		r.Duplicates.DeadLetters = 1
		clean(t, b, r)
	})
}

func TestRerunFound(t *testing.T) {
	r := byValue()
	r.Duplicates.PerCrash = -1
	t.Run("committed", func(t *testing.T) {
		b, in, w := basic()
		rest(in, again(b, in, w, 9))
		finds(t, b, r, at{Rerun, "in", 3, 9})
	})
	t.Run("in the map", func(t *testing.T) {
		b, in, w := basic()
		w.effects(in, 12, 20)
		w.commit(in, 10, 20, 10, 11)
		w2 := again(b, in, w, 15)
		w2.effects(in, 10, 12)
		w2.commit(in, 20, 0)
		finds(t, b, r, at{Rerun, "in", 3, 15})
	})
	t.Run("forgotten", func(t *testing.T) { // a later commit remembers less
		b, in, w := basic()
		w.effects(in, 12, 20)
		w.commit(in, 10, 20, 10, 11)
		w.commit(in, 10, 14, 10, 11)
		w2 := again(b, in, w, 15)
		w2.effects(in, 10, 12)
		w2.commit(in, 20, 0)
		clean(t, b, r)
	})
	t.Run("unknown commit", func(t *testing.T) { // it may have landed, with less in its map
		b, in, w := basic()
		w.effects(in, 12, 20)
		w.commit(in, 10, 20, 10, 11)
		w.send(in, 10, 14, 10, 11)
		w2 := again(b, in, w, 15)
		w2.effects(in, 10, 12)
		w2.commit(in, 20, 0)
		clean(t, b, r)
	})
	t.Run("forgotten since", func(t *testing.T) { // by a commit after it had started, and before it took over
		b, in, w := basic()
		w.effects(in, 12, 20)
		w.commit(in, 10, 20, 10, 11)
		w2 := b.worker("w", 2)
		w.commit(in, 10, 14, 10, 11)
		b.kill(w)
		w2.effect(in, 15)
		w2.effects(in, 10, 12)
		w2.commit(in, 20, 0)
		clean(t, b, r)
	})
	t.Run("got back", func(t *testing.T) { // from one who had forgotten
		b, in, w := basic()
		w.effects(in, 12, 20)
		w.commit(in, 10, 20, 10, 11)
		b.kill(w)
		w2, v := b.worker("w", 2), b.worker("v", 1)
		w2.effect(in, 10)
		v.commit(in, 10, 14, 11)
		w2.effect(in, 15)
		w2.effect(in, 11)
		w2.commit(in, 20, 0)
		clean(t, b, r)
	})
	t.Run("zombie", func(t *testing.T) { // it started before the commit
		b, in, w := basic()
		z := b.worker("z", 1)
		z.effect(in, 15)
		rest(in, w)
		z.effect(in, 16)
		r := r
		r.Duplicates.Other = -1
		clean(t, b, r)
	})
}

// TestSelect judges one of two bolts that have effects.
func TestSelect(t *testing.T) {
	b, in, w := basic()
	rest(in, w)
	for i := range w.lines {
		if w.lines[i].Kind == "effect" {
			id := "a" + *w.lines[i].ID
			w.lines[i].ID = &id
			second := w.lines[i]
			id2 := "b" + id[1:]
			second.ID = &id2
			w.lines = append(w.lines, second)
		}
	}
	// The second bolt was late for the commits.
	end := w.lines[len(w.lines)-21]
	w.lines = append(append(w.lines[:len(w.lines)-21], w.lines[len(w.lines)-20:]...), end)
	bolt := func(name string) Rules {
		return Rules{ID: func(r *kgo.Record) string { return name + string(r.Value) }, Select: func(ev *Event) bool { return string(ev.ID[:1]) == name }}
	}
	if got := clean(t, b, bolt("a")).Totals; got.Effects != 20 {
		t.Errorf("%+v", got)
	}
	if rep := judge(t, b, bolt("b")); rep.Count(EarlyCommit) != 20 || len(rep.Counts) != 1 {
		t.Error(rep)
	}
}

// TestNoEffectsWanted: effects are not judged where no record wants one; where others do, they are unexpected.
func TestNoEffectsWanted(t *testing.T) {
	b, in, w := basic()
	w.effect(in, 4)
	rest(in, w)
	clean(t, b, Rules{Want: func(*kgo.Record) Want { return Want{} }})
	finds(t, b, Rules{Want: func(r *kgo.Record) Want { return Want{Effect: r.Offset != 3} }, Duplicates: Duplicates{Other: 1}}, at{Unexpected, "in", 3, 3})
}

// TestManyCrashes: only who was killed, frozen, or failed explains what is repeated.
func TestManyCrashes(t *testing.T) {
	for name, end := range map[string]func(b *book, w *bookFile){
		"killed": func(b *book, w *bookFile) { b.kill(w) },
		"frozen": func(b *book, w *bookFile) { b.runner("stop", w) },
		"by a signal": func(b *book, w *bookFile) {
			b.runner("exit", w)
			b.files[len(b.files)-1].lines[0].Signal = "segmentation fault"
		},
		"exit code":    func(b *book, w *bookFile) { b.runner("exit", w); b.files[len(b.files)-1].lines[0].Code = 6 },
		"ended with 6": func(b *book, w *bookFile) { w.write(line{Kind: "end", Code: 6}) },
		"":             func(b *book, w *bookFile) { w.write(line{Kind: "end"}) },
		"asked to end": func(b *book, w *bookFile) { b.runner("term", w); b.runner("exit", w) },
	} {
		t.Run(name, func(t *testing.T) {
			b, in, w := basic()
			w.effect(in, 10)
			end(b, w)
			v := b.worker("v", 1)
			rest(in, v)
			r := byValue()
			r.Duplicates.PerCrash = 1
			if name == "" || name == "asked to end" {
				finds(t, b, r, at{Duplicate, "in", 3, 10})
			} else {
				clean(t, b, r)
			}
		})
	}
}
