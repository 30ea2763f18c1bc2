package offsets

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What a new owner makes of what it finds.
func TestTakeOver(t *testing.T) {
	const end = 1000
	at := func(base int64, s State) Map {
		return Map{Base: base, Next: base + 50, Open: []int64{base, base + 10, base + 20}, Held: s}
	}
	for name, tt := range map[string]struct {
		m    Map
		own  bool
		want State
	}{
		"nothing committed":                  {Map{}, false, State{TakenOver: true, Suspect: None}},
		"a clean release":                    {at(100, State{Suspect: None}), false, State{TakenOver: true, Suspect: None}},
		"a death":                            {at(100, State{TakenOver: true, Suspect: None}), false, State{TakenOver: true, Deaths: 1, Suspect: None, Until: end}},
		"its own mark":                       {at(100, State{TakenOver: true, Suspect: None}), true, State{TakenOver: true, Suspect: None}},
		"a death with nothing to read":       {at(end, State{TakenOver: true, Suspect: None}), false, State{TakenOver: true, Suspect: None}},
		"the second, under a horizon":        {at(100, State{TakenOver: true, Deaths: 1, Suspect: None, Until: end}), false, State{TakenOver: true, Deaths: 2, Suspect: None, Until: 100 + Horizon}},
		"the third, of less":                 {at(100, State{TakenOver: true, Deaths: 2, Suspect: None, Until: 130}), false, State{TakenOver: true, Deaths: 3, Suspect: None, Until: 130}},
		"behind what was open before":        {at(500, State{TakenOver: true, Deaths: 2, Suspect: None, Until: 500}), false, State{TakenOver: true, Deaths: 1, Suspect: None, Until: 500 + Horizon}},
		"a clean release amid a hunt":        {at(100, State{Deaths: 3, Suspect: None, Until: 130}), false, State{TakenOver: true, Deaths: 3, Suspect: None, Until: 130}},
		"who was named and did not kill":     {at(100, State{Deaths: 3, Suspect: 110, Until: 130}), false, State{TakenOver: true, Deaths: 3, Suspect: None, Until: 130}},
		"who was named at a death":           {at(100, State{TakenOver: true, Deaths: 3, Suspect: 110, Until: 130}), false, State{TakenOver: true, Deaths: 4, Suspect: 110, Strikes: 1, Waits: true, Until: 130}},
		"who was named and had ended":        {at(100, State{TakenOver: true, Deaths: 3, Suspect: 111, Until: 130}), false, State{TakenOver: true, Deaths: 4, Suspect: None, Until: 130}},
		"who was named at two":               {at(100, State{TakenOver: true, Deaths: 4, Suspect: 110, Strikes: 1, Until: 130}), false, State{TakenOver: true, Deaths: 5, Suspect: 110, Strikes: 2, Waits: true, Until: 130}},
		"accused, and not run here":          {at(100, State{Deaths: 4, Suspect: 110, Strikes: 1, Until: 130}), false, State{TakenOver: true, Deaths: 4, Suspect: 110, Strikes: 1, Waits: true, Until: 130}},
		"accused, and a death before it ran": {at(100, State{TakenOver: true, Deaths: 4, Suspect: 110, Strikes: 1, Waits: true, Until: 130}), false, State{TakenOver: true, Deaths: 5, Suspect: 110, Strikes: 1, Waits: true, Until: 130}},
		"accused, had ended, and a death":    {at(100, State{TakenOver: true, Deaths: 4, Suspect: 111, Strikes: 1, Waits: true, Until: 130}), false, State{TakenOver: true, Deaths: 5, Suspect: None, Until: 130}},
		"stuck, nobody had died before":      {at(100, State{TakenOver: true, Suspect: 100}), false, State{TakenOver: true, Deaths: 1, Suspect: 100, Strikes: 1, Waits: true, Until: end}},
		"a fresh group's owner has died":     {Map{Held: State{TakenOver: true, Suspect: None}}, false, State{TakenOver: true, Deaths: 1, Suspect: None, Until: end}},
		"named at the first record of all":   {Map{Held: State{TakenOver: true, Suspect: 0}}, false, State{TakenOver: true, Deaths: 1, Suspect: 0, Strikes: 1, Waits: true, Until: end}},
	} {
		got := tt.m.TakeOver(end, tt.own)
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if careful := got.Deaths >= 3 || got.Strikes > 0; got.Careful() != careful || got.Convicted() != (got.Strikes == 2) || got.Watched() != (got.Deaths > 0) {
			t.Errorf("%s: careful %v, convicted %v, watched %v", name, got.Careful(), got.Convicted(), got.Watched())
		}
	}
	// How far an owner without a horizon may have come is bounded by the log and by what it can read.
	far := Map{Base: 10, Next: 500, Held: State{TakenOver: true, Suspect: None}}
	if s := far.TakeOver(1<<40, false); s.Until != 500+reach {
		t.Errorf("until %d", s.Until)
	}
}

func TestPassed(t *testing.T) {
	s := State{TakenOver: true, Deaths: 3, Suspect: 110, Strikes: 1, Until: 130}
	if d := cmp.Diff(s, s.Passed(110)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(State{TakenOver: true, Deaths: 3, Suspect: None, Until: 130}, s.Passed(111)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(State{TakenOver: true, Suspect: None}, s.Passed(130)); d != "" {
		t.Error(d)
	}
}

// lives is a topic whose worker dies again and again: of records that kill, and of other reasons.
type lives struct {
	t       *testing.T
	rng     *rand.Rand
	end     int64
	killers map[[2]int64]bool // partition and offset

	text    []string // committed, with base
	base    []int64
	done    []map[int64]bool
	letters map[[2]int64]bool
	deaths  int
	others  int // deaths of other reasons that are still to come
}

// TestLivesModel: whatever the order in which records run and commits are made, each record that kills is
// set aside after few deaths, everything else ends, and nobody else is set aside: not even if the worker dies
// of something else before an accused could run.
func TestLivesModel(t *testing.T) {
	worst := 0
	for n := range 60 {
		rng := rand.New(rand.NewPCG(7, uint64(n)))
		l := &lives{t: t, rng: rng, end: 1 + rng.Int64N(1500), killers: map[[2]int64]bool{}, letters: map[[2]int64]bool{}, others: rng.IntN(5)}
		parts, external := 1+rng.IntN(4), l.others
		for range parts {
			l.text, l.base, l.done = append(l.text, ""), append(l.base, 0), append(l.done, map[int64]bool{})
		}
		for range 1 + rng.IntN(3) {
			l.killers[[2]int64{int64(rng.IntN(parts)), rng.Int64N(l.end)}] = true
		}
		for l.life() {
			if l.deaths++; l.deaths > 200 {
				t.Fatalf("seed %d: no end of deaths; killers %v, set aside %v", n, l.killers, l.letters)
			}
		}
		if d := cmp.Diff(l.killers, l.letters); d != "" {
			t.Fatalf("seed %d: set aside (-want +got):\n%s", n, d)
		}
		for p := range l.done {
			if int64(len(l.done[p])) != l.end {
				t.Fatalf("seed %d: %d of %d have ended in partition %d", n, len(l.done[p]), l.end, p)
			}
		}
		// Each killer costs three deaths until records run alone, and two then. Records that run beside one
		// another, and floors that move meanwhile, cost a few more.
		most := (l.deaths - external + len(l.killers) - 1) / len(l.killers)
		worst = max(worst, most)
	}
	t.Logf("at most %d deaths for each record that kills", worst)
	if worst > 8 {
		t.Errorf("up to %d deaths for each record that kills", worst)
	}
}

// floor is the first offset that is open.
func (l *lives) floor(p int, from int64) int64 {
	for l.done[p][from] {
		from++
	}
	return from
}

// life is a worker's. It reports whether it died.
func (l *lives) life() (died bool) {
	parts := len(l.text)
	states, horizon := make([]State, parts), make([]int64, parts)
	commit := func(p int) {
		base := l.floor(p, l.base[p])
		states[p] = states[p].Passed(base)
		next := base
		var open []int64
		for o := range l.done[p] {
			next = max(next, o+1)
		}
		for o := base; o < next; o++ {
			if !l.done[p][o] {
				open = append(open, o)
			}
		}
		l.base[p], l.text[p] = base, Encode(Map{Base: base, Next: next, Open: open, Held: states[p]})
		if horizon[p] = l.end; states[p].Watched() {
			horizon[p] = base + Horizon
		}
	}
	for p := range parts {
		m, err := Decode(l.text[p], l.base[p])
		if err != nil && l.text[p] != "" {
			l.t.Fatal(err)
		}
		states[p] = m.TakeOver(l.end, false)
		if !states[p].Careful() {
			// What has ended since the last commit runs again; the model forgets it the easy way.
			for o := range l.done[p] {
				if !m.Done(o) && o >= m.Base && !l.letters[[2]int64{int64(p), o}] {
					delete(l.done[p], o)
				}
			}
		}
		commit(p)
	}
	if l.others > 0 && slices.ContainsFunc(states, State.Accused) && l.rng.IntN(3) == 0 {
		l.others--
		return true // before the accused could run
	}
	careful := func() bool { return slices.ContainsFunc(states, State.Careful) }
	left := -1
	if l.others > 0 && !careful() {
		left = l.rng.IntN(300)
	}
	for {
		if left--; left == 0 && !careful() {
			l.others--
			return true
		}
		p := l.rng.IntN(parts)
		for q := range states {
			if states[q].Accused() {
				p = q
			}
		}
		off := int64(-1)
		switch {
		case states[p].Accused():
			off = states[p].Suspect
		case careful():
			off = l.floor(p, l.base[p])
		default: // any of a window of 100
			from := l.floor(p, l.base[p])
			for o := from; o < min(from+100, l.end, horizon[p]); o++ {
				if !l.done[p][o] && (off < 0 || l.rng.IntN(20) == 0) {
					off = o
				}
			}
		}
		if off < 0 || off >= l.end {
			commit(p)
			all := true
			for q := range parts {
				all = all && l.floor(q, l.base[q]) == l.end
			}
			if all {
				return false
			}
			continue
		}
		at := [2]int64{int64(p), off}
		if careful() {
			if states[p].Suspect != off {
				states[p].Suspect, states[p].Strikes = off, 0
			}
			states[p].Waits = false
			if states[p].Convicted() {
				l.letters[at] = true
			} else {
				for q := range parts {
					commit(q)
				}
				if l.killers[at] {
					return true
				}
			}
			l.done[p][off] = true
			states[p] = states[p].Dropped()
			continue
		}
		if l.killers[at] {
			return true
		}
		l.done[p][off] = true
		if l.rng.IntN(40) == 0 {
			commit(p)
		}
	}
}
