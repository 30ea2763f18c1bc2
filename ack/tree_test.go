package ack_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/killick-io/killick/ack"
)

// told is an owner that notes how its tree ended.
type told struct {
	ack.Tree
	mu     sync.Mutex
	causes []*ack.Cause
}

func (o *told) TreeEnded(_ *ack.Tree, c *ack.Cause) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.causes = append(o.causes, c)
}

func start(n int) *told {
	o := &told{}
	o.Start(&ack.Home{Epoch: new(ack.Epoch), Owner: o}, 0, 1, n)
	return o
}

// try is a tuple as the engine keeps one that user code decides about.
type try struct {
	word ack.Word
	on   ack.Anchors
}

func (t *try) decide(v ack.Verdict, c *ack.Cause, g *ack.Ignored) bool {
	won, was := t.word.Decide(v)
	switch {
	case !won:
		g.Count(was)
	case c == nil:
		t.on.End()
	default:
		t.on.Fail(c)
	}
	return won
}

// TestCases are the rows of Storm's case table that concern a tree alone. The comments say what
// Storm's acker does, which XORs edge ids.
func TestCases(t *testing.T) {
	dead, replay := &ack.Cause{Outcome: ack.Dead}, &ack.Cause{Outcome: ack.Replayed}
	for _, c := range []struct {
		name  string
		run   func(o *told, g *ack.Ignored)
		want  []*ack.Cause // how the tree was told to end
		wantG [3]int64     // double, late, lost
	}{
		{"zero destinations", func(o *told, g *ack.Ignored) { // immediate ack
			(&try{on: ack.On(&o.Tree)}).decide(ack.Ack, nil, g)
		}, []*ack.Cause{nil}, [3]int64{}},
		{"child ends before parent", func(o *told, g *ack.Ignored) { // any order of arrival
			p, c := &try{on: ack.On(&o.Tree)}, &try{on: ack.On(&o.Tree)}
			c.on.Open(1)
			c.decide(ack.Ack, nil, g)
			if len(o.causes) != 0 {
				t.Error("ended with the parent open")
			}
			p.decide(ack.Ack, nil, g)
		}, []*ack.Cause{nil}, [3]int64{}},
		{"acked three times, tree open", func(o *told, g *ack.Ignored) { // the ids cancel: never complete
			p, c := &try{on: ack.On(&o.Tree)}, &try{on: ack.On(&o.Tree)}
			c.on.Open(1)
			for range 3 {
				p.decide(ack.Ack, nil, g)
			}
			if len(o.causes) != 0 {
				t.Error("a second ack ended the child's edge")
			}
			c.decide(ack.Ack, nil, g)
		}, []*ack.Cause{nil}, [3]int64{2}},
		{"acked twice, tree closed", func(o *told, g *ack.Ignored) { // an orphan entry
			p := &try{on: ack.On(&o.Tree)}
			p.decide(ack.Ack, nil, g)
			p.decide(ack.Ack, nil, g)
		}, []*ack.Cause{nil}, [3]int64{1}},
		{"ack, then fail of one tuple", func(o *told, g *ack.Ignored) { // fails the tree
			p, c := &try{on: ack.On(&o.Tree)}, &try{on: ack.On(&o.Tree)}
			c.on.Open(1)
			p.decide(ack.Ack, nil, g)
			p.decide(ack.Failed, dead, g)
			c.decide(ack.Ack, nil, g)
		}, []*ack.Cause{nil}, [3]int64{1}},
		{"fail, then acks of siblings", func(o *told, g *ack.Ignored) { // told at once, then orphans
			a, b := &try{on: ack.On(&o.Tree)}, &try{on: ack.On(&o.Tree)}
			b.on.Open(1)
			a.decide(ack.Failed, dead, g)
			if b.on.Live() || len(o.causes) != 0 {
				t.Error("the sibling of a dead tuple must be skipped, and the tree end after it")
			}
			b.decide(ack.Ack, nil, g)
		}, []*ack.Cause{dead}, [3]int64{}},
		{"two failures", func(o *told, g *ack.Ignored) { // the first is the fate
			a, b := &try{on: ack.On(&o.Tree)}, &try{on: ack.On(&o.Tree)}
			b.on.Open(1)
			a.decide(ack.Failed, replay, g)
			b.decide(ack.Failed, dead, g)
		}, []*ack.Cause{replay}, [3]int64{}},
		{"ack after the time-out", func(o *told, g *ack.Ignored) {
			p := &try{on: ack.On(&o.Tree)}
			p.decide(ack.TimedOut, replay, g)
			p.decide(ack.Ack, nil, g)
		}, []*ack.Cause{replay}, [3]int64{0, 1, 0}},
		{"ack after the partition was lost", func(o *told, g *ack.Ignored) {
			p := &try{on: ack.On(&o.Tree)}
			p.word.Decide(ack.Left)
			p.decide(ack.Ack, nil, g)
		}, nil, [3]int64{0, 0, 1}},
		{"same anchor twice", func(o *told, g *ack.Ignored) { // two edges there, one here
			p := &try{on: ack.On(&o.Tree)}
			c := &try{on: p.on.Join(p.on)}
			c.on.Open(1)
			if c.on.Len() != 1 || o.Pending() != 2 {
				t.Errorf("%d anchors, %d edges", c.on.Len(), o.Pending())
			}
			c.decide(ack.Ack, nil, g)
			p.decide(ack.Ack, nil, g)
		}, []*ack.Cause{nil}, [3]int64{}},
		{"failed and complete at once", func(o *told, g *ack.Ignored) { // acked, since zero is tested first
			(&try{on: ack.On(&o.Tree)}).decide(ack.Failed, dead, g)
		}, []*ack.Cause{dead}, [3]int64{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, g := start(1), new(ack.Ignored)
			c.run(o, g)
			if len(o.causes) != len(c.want) || len(c.want) == 1 && o.causes[0] != c.want[0] {
				t.Errorf("told %v, want %v", o.causes, c.want)
			}
			if got := [3]int64{g.Double.Load(), g.Late.Load(), g.Lost.Load()}; got != c.wantG {
				t.Errorf("ignored double, late, lost %v, want %v", got, c.wantG)
			}
		})
	}
}

// TestJoinFails: the failure of a joined tuple passes to all its roots, also to one whose other
// branches succeeded.
func TestJoinFails(t *testing.T) {
	a, b, c := start(1), start(1), start(1)
	on := ack.On(&a.Tree).Join(ack.On(&b.Tree)).Join(ack.On(&c.Tree))
	on.Open(1)
	a.End()
	b.End()
	cause := &ack.Cause{Outcome: ack.Replayed, Err: errors.New("no")}
	on.Fail(cause)
	if len(a.causes) != 1 || a.causes[0] != cause || len(b.causes) != 1 || b.causes[0] != cause {
		t.Errorf("a was told %v, b %v", a.causes, b.causes)
	}
	if c.Live() || len(c.causes) != 0 {
		t.Error("c has an open edge: dead, but not ended")
	}
	c.End()
	if len(c.causes) != 1 || c.causes[0] != cause {
		t.Errorf("c was told %v", c.causes)
	}
}

// TestJoinHalfDead: a joined tuple runs as long as one of its roots lives.
func TestJoinHalfDead(t *testing.T) {
	a, b := start(2), start(2)
	on := ack.On(&a.Tree).Join(ack.On(&b.Tree))
	a.Fail(&ack.Cause{Outcome: ack.Dead})
	if !on.Live() {
		t.Error("b lives")
	}
	b.Fail(&ack.Cause{Outcome: ack.Dead})
	if on.Live() || on.Gone() {
		t.Error("both are dead, none is gone")
	}
	if !(ack.Anchors{}).Live() || (ack.Anchors{}).Gone() {
		t.Error("an untracked tuple always lives")
	}
}

// TestBrokenInvariants: what only a bug of the caller can do is loud.
func TestBrokenInvariants(t *testing.T) {
	for name, f := range map[string]func(){
		"edge opened on an ended tree": func() { o := start(1); o.End(); o.Open(1) },
		"more edges ended than opened": func() { o := start(1); o.End(); o.End() },
		"several at once":              func() { o := start(2); o.EndN(3) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// TestClosedEpoch: nothing happens to a tree whose partition is lost.
func TestClosedEpoch(t *testing.T) {
	e := new(ack.Epoch)
	o := &told{}
	o.Start(&ack.Home{Epoch: e, Owner: o}, 0, 1, 2)
	o.End()
	e.Close()
	if o.Live() || !o.Gone() {
		t.Error("it should be gone")
	}
	o.Fail(&ack.Cause{Outcome: ack.Dead})
	if len(o.causes) != 0 {
		t.Errorf("told %v", o.causes)
	}
}

// TestConcurrentEnds: of two verdicts for each tuple, from different goroutines, exactly one
// counts, and the tree ends once, after the last.
func TestConcurrentEnds(t *testing.T) {
	const tuples, workers, rounds = 500, 4, 20
	for range rounds {
		o := start(1)
		other := start(1)
		g := new(ack.Ignored)
		tries := make([]*try, tuples)
		for i := range tries {
			tries[i] = &try{on: ack.On(&o.Tree)}
			if i%3 == 0 {
				tries[i].on = tries[i].on.Join(ack.On(&other.Tree))
			}
			tries[i].on.Open(1)
		}
		o.End()
		other.End()
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := range tries {
					tr := tries[(i*7+w*31)%tuples]
					if i%5 == 0 && tr.word.Load() == ack.Open {
						tr.on.Live() // as a task does before it executes
					}
					tr.decide(ack.Ack, nil, g)
				}
			})
		}
		wg.Wait()
		if len(o.causes) != 1 || len(other.causes) != 1 || o.Pending() != 0 {
			t.Fatalf("told %v and %v, %d edges open", o.causes, other.causes, o.Pending())
		}
		if n := g.Double.Load(); n != tuples*(workers-1) {
			t.Fatalf("%d double verdicts, want %d", n, tuples*(workers-1))
		}
	}
}

func TestOutcomeNames(t *testing.T) {
	for o, want := range map[ack.Outcome]string{ack.Acked: "acked", ack.Dead: "dead", ack.Replayed: "replayed", 9: "unknown"} {
		if o.String() != want {
			t.Errorf("%d is %q", o, o)
		}
	}
}

// TestSets: unions of few trees and of many are what sets of them are.
func TestSets(t *testing.T) {
	trees := make([]ack.Tree, 60)
	home := &ack.Home{Epoch: new(ack.Epoch)}
	for i := range trees {
		trees[i].Start(home, i, 1, 1)
	}
	list := func(a ack.Anchors) (is []int) {
		a.Each(func(t *ack.Tree) { is = append(is, t.Index()) })
		slices.Sort(is)
		return is
	}
	for _, most := range []int{2, 8, 60} {
		rng := rand.New(rand.NewPCG(uint64(most), 1))
		for range 300 {
			var sets []ack.Anchors
			twins := []map[int]bool{}
			for range 1 + rng.IntN(5) {
				a, twin := ack.Anchors{}, map[int]bool{}
				for range rng.IntN(most) {
					i := rng.IntN(most)
					a, twin[i] = a.Join(ack.On(&trees[i])), true
				}
				if want := slices.Sorted(maps.Keys(twin)); !slices.Equal(list(a), want) || a.Len() != len(want) || a.Joined() != (len(want) > 1) {
					t.Fatalf("a set of %v is %v", want, list(a))
				}
				sets, twins = append(sets, a), append(twins, twin)
			}
			union, beyond := map[int]bool{}, map[int]bool{}
			for k, twin := range twins {
				for i := range twin {
					union[i] = true
					if k > 0 && !twins[0][i] {
						beyond[i] = true
					}
				}
			}
			before := list(sets[0])
			b := sets[0].Beyond(sets[1:]...)
			if !slices.Equal(list(b), slices.Sorted(maps.Keys(beyond))) {
				t.Fatalf("beyond %v: %v, want %v", before, list(b), beyond)
			}
			if u := sets[0].Join(b); !slices.Equal(list(u), slices.Sorted(maps.Keys(union))) || !slices.Equal(list(sets[0]), before) {
				t.Fatalf("union: %v, want %v", list(u), union)
			}
		}
	}
}
