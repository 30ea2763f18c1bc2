package ack_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/killick-io/killick/ack"
)

// twin is a tree as the definition says it: a set of named edges. It shares nothing with Tree.
type twin struct {
	edges map[int]bool
	fate  *ack.Cause // of the first failed edge
	epoch int
	ended []*ack.Cause // what its owner must have been told; at most one
}

// world runs the package and the twins side by side.
type world struct {
	t      *rapid.T
	epochs []*ack.Epoch
	closed []bool
	trees  []*owned
	tuples []*tuple
	edge   int // last name given
	count  ack.Ignored
	want   struct{ double, late, lost int64 }
}

// owned is a tree and its twin.
type owned struct {
	ack.Tree
	twin  twin
	calls []*ack.Cause
}

func (o *owned) TreeEnded(_ *ack.Tree, c *ack.Cause) { o.calls = append(o.calls, c) }

// tuple is a delivery with its verdict, and its edges in the twins by tree index.
type tuple struct {
	word    ack.Word
	anchors ack.Anchors
	edges   map[int]int
	verdict ack.Verdict
}

// open returns the tuples without a verdict: only they may have children.
func (w *world) open() (ts []*tuple) {
	for _, t := range w.tuples {
		if t.verdict == ack.Open {
			ts = append(ts, t)
		}
	}
	return ts
}

func (w *world) root(*rapid.T) {
	e := rapid.IntRange(0, len(w.epochs)-1).Draw(w.t, "epoch")
	if w.closed[e] {
		w.epochs[e], w.closed[e] = new(ack.Epoch), false // the partition came back: trees of the old one stay gone
		for _, o := range w.trees {
			if o.twin.epoch == e {
				o.twin.epoch = -1
			}
		}
	}
	o := &owned{twin: twin{edges: map[int]bool{}, epoch: e}}
	o.Start(&ack.Home{Epoch: w.epochs[e], Owner: o}, len(w.trees), e, 1)
	if o.Index() != len(w.trees) || o.Attempt() != e || o.Owner() != ack.Owner(o) {
		w.t.Fatal("a tree forgot its root")
	}
	w.trees = append(w.trees, o)
	w.edge++
	o.twin.edges[w.edge] = true
	w.tuples = append(w.tuples, &tuple{anchors: ack.On(&o.Tree), edges: map[int]int{len(w.trees) - 1: w.edge}})
}

// emit anchors a new tuple to some open ones, perhaps to the same one twice.
func (w *world) emit(*rapid.T) {
	open := w.open()
	if len(open) == 0 {
		w.t.Skip("nothing open")
	}
	n := rapid.IntRange(1, 4).Draw(w.t, "anchors")
	child := &tuple{edges: map[int]int{}}
	for range n {
		p := rapid.SampledFrom(open).Draw(w.t, "parent")
		child.anchors = child.anchors.Join(p.anchors)
		for i := range p.edges {
			if _, has := child.edges[i]; !has {
				w.edge++
				child.edges[i] = w.edge
				w.trees[i].twin.edges[w.edge] = true
			}
		}
	}
	child.anchors.Open(1)
	w.tuples = append(w.tuples, child)
}

// burst opens several edges at once and ends them at once, as a batch of tuples does.
func (w *world) burst(*rapid.T) {
	open := w.open()
	if len(open) == 0 {
		w.t.Skip("nothing open")
	}
	p := rapid.SampledFrom(open).Draw(w.t, "parent")
	n := rapid.IntRange(0, 300).Draw(w.t, "n")
	p.anchors.Open(n)
	p.anchors.EndN(n)
}

func (w *world) verdict(*rapid.T) {
	if len(w.tuples) == 0 {
		w.t.Skip("no tuples")
	}
	t := rapid.SampledFrom(w.tuples).Draw(w.t, "tuple")
	v := rapid.SampledFrom([]ack.Verdict{ack.Ack, ack.Ack, ack.Failed, ack.TimedOut, ack.Left}).Draw(w.t, "verdict")
	w.decide(t, v, rapid.SampledFrom([]ack.Outcome{ack.Dead, ack.Replayed}).Draw(w.t, "outcome"))
}

func (w *world) decide(t *tuple, v ack.Verdict, o ack.Outcome) {
	won, was := t.word.Decide(v)
	if won != (t.verdict == ack.Open) || was != t.verdict {
		w.t.Fatalf("Decide(%d) = %v, %d; the twin had %d", v, won, was, t.verdict)
	}
	if !won {
		w.count.Count(was)
		switch was {
		case ack.TimedOut:
			w.want.late++
		case ack.Left:
			w.want.lost++
		default:
			w.want.double++
		}
		return
	}
	t.verdict = v
	if v == ack.Left {
		return // its edges stay open for ever
	}
	var c *ack.Cause
	if v == ack.Ack {
		t.anchors.End()
	} else {
		c = &ack.Cause{Outcome: o}
		t.anchors.Fail(c)
	}
	for i, e := range t.edges {
		tw := &w.trees[i].twin
		if !tw.edges[e] {
			w.t.Fatalf("edge %d ended twice", e)
		}
		delete(tw.edges, e)
		if c != nil && tw.fate == nil {
			tw.fate = c
		}
		if len(tw.edges) == 0 && !w.gone(i) {
			tw.ended = append(tw.ended, tw.fate)
		}
	}
}

func (w *world) gone(tree int) bool {
	e := w.trees[tree].twin.epoch
	return e < 0 || w.closed[e]
}

func (w *world) closeEpoch(*rapid.T) {
	e := rapid.IntRange(0, len(w.epochs)-1).Draw(w.t, "epoch")
	w.epochs[e].Close()
	w.closed[e] = true
}

// check compares all that can be seen.
func (w *world) check(*rapid.T) {
	for i, o := range w.trees {
		tw := &o.twin
		live := tw.fate == nil && !w.gone(i)
		if o.Pending() != len(tw.edges) || o.Live() != live || o.Gone() != w.gone(i) || o.Fate() != tw.fate || !slices.Equal(o.calls, tw.ended) {
			w.t.Fatalf("tree %d: pending %d live %v gone %v fate %v calls %v; the twin says %d %v %v %v %v", i,
				o.Pending(), o.Live(), o.Gone(), o.Fate(), o.calls, len(tw.edges), live, w.gone(i), tw.fate, tw.ended)
		}
	}
	for i, t := range w.tuples {
		live, gone := false, true
		for k := range t.edges {
			live = live || w.trees[k].twin.fate == nil && !w.gone(k)
			gone = gone && w.gone(k)
		}
		if t.anchors.Len() != len(t.edges) || t.anchors.Live() != live || t.anchors.Gone() != gone || t.anchors.Joined() != (len(t.edges) > 1) {
			w.t.Fatalf("tuple %d: %d trees, live %v gone %v; the twin says %d %v %v", i, t.anchors.Len(), t.anchors.Live(), t.anchors.Gone(), len(t.edges), live, gone)
		}
	}
	if d, l, g := w.count.Double.Load(), w.count.Late.Load(), w.count.Lost.Load(); d != w.want.double || l != w.want.late || g != w.want.lost {
		w.t.Fatalf("ignored verdicts: double %d late %d lost %d; want %+v", d, l, g, w.want)
	}
}

// finish acks what is open: every tree must end, or have been given up.
func (w *world) finish() {
	left := map[int]bool{}
	for _, t := range w.tuples {
		if t.verdict == ack.Open {
			w.decide(t, ack.Ack, ack.Dead)
		}
		if t.verdict == ack.Left {
			for i := range t.edges {
				left[i] = true
			}
		}
	}
	w.check(nil)
	for i, o := range w.trees {
		if want := !left[i] && o.Pending() == 0; !w.gone(i) && (len(o.calls) == 1) != want {
			w.t.Fatalf("tree %d: told %d times, want ended %v", i, len(o.calls), want)
		}
	}
}

// TestModel compares trees with sets of edges, step by step. KILLICK_MODEL_STEPS is how many
// steps it takes; a soak run takes a million and more.
func TestModel(t *testing.T) {
	want := 6_000
	if s := os.Getenv("KILLICK_MODEL_STEPS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("KILLICK_MODEL_STEPS is %q; it must be a positive number", s)
		}
		want = n
	}
	if err := flag.Set("rapid.steps", "120"); err != nil {
		t.Fatal(err)
	}
	steps := 0
	step := func(f func(*rapid.T)) func(*rapid.T) {
		return func(rt *rapid.T) { f(rt); steps++ }
	}
	for round := 0; steps < want; round++ {
		ok := t.Run(fmt.Sprint(round), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				w := &world{t: rt, epochs: []*ack.Epoch{{}, {}, {}}, closed: make([]bool, 3)}
				rt.Repeat(map[string]func(*rapid.T){
					"root": step(w.root), "emit": step(w.emit), "join": step(w.emit), "burst": step(w.burst),
					"verdict": step(w.verdict), "verdict2": step(w.verdict), "close": step(w.closeEpoch), "": w.check,
				})
				w.finish()
			})
		})
		if !ok {
			return
		}
	}
	t.Logf("%d steps", steps)
}
