package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Any plan: it is the same for the same seed, in order, within its bounds, never disturbs who is away,
// leaves enough of them up, and leaves nobody away at its end.
func TestPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "processes")
		ms := func(name string, lo, hi int) time.Duration {
			return time.Duration(rapid.IntRange(lo, hi).Draw(t, name)) * time.Millisecond
		}
		c := PlanConfig{For: ms("for", 1, 20_000), Every: ms("every", 1, 3000),
			Kill: rapid.IntRange(0, 2).Draw(t, "kill"), Term: rapid.IntRange(0, 2).Draw(t, "term"), Freeze: rapid.IntRange(0, 2).Draw(t, "freeze"),
			Up: rapid.IntRange(0, n-1).Draw(t, "up")}
		c.Away.Min, c.Frozen.Min = ms("away", 0, 1000), ms("frozen", 0, 1000)
		c.Away.Max, c.Frozen.Max = c.Away.Min+ms("longer", 0, 5000), c.Frozen.Min+ms("longer", 1, 5000)
		for i := range n {
			c.Procs = append(c.Procs, fmt.Sprintf("w%d", i))
		}
		seed := rapid.Uint64().Draw(t, "seed")
		p, err := NewPlan(seed, c)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := NewPlan(seed, c)
		if !slices.Equal(p.Moves, again.Moves) || p.Seed != seed {
			t.Fatal("another plan for the same seed")
		}
		if !slices.IsSortedFunc(p.Moves, func(a, b Move) int { return int(a.At - b.At) }) {
			t.Fatalf("not in order: %v", p)
		}
		away := map[string]Move{}
		faults := 0
		for _, m := range p.Moves {
			was, out := away[m.Proc]
			switch m.Do {
			case MoveKill, MoveTerm, MoveFreeze:
				if out {
					t.Fatalf("%v, after %v", m, was)
				}
				if m.At > c.For {
					t.Fatalf("%v is after %v", m, c.For)
				}
				away[m.Proc] = m
				faults++
				if up := n - len(away); up < c.Up {
					t.Fatalf("%v leaves %d up of %d", m, up, c.Up)
				}
				if m.Do == MoveKill && c.Kill == 0 && c.Term+c.Freeze > 0 || m.Do == MoveTerm && c.Term == 0 || m.Do == MoveFreeze && c.Freeze == 0 {
					t.Fatalf("%v has no share", m)
				}
				continue
			case MoveStart, MoveThaw:
				span := c.withDefaults().Away
				if m.Do == MoveThaw {
					span = c.withDefaults().Frozen
				}
				if !out || (m.Do == MoveThaw) != (was.Do == MoveFreeze) {
					t.Fatalf("%v, after %v", m, was)
				}
				if d := m.At - was.At; d < span.Min || d > span.Max {
					t.Fatalf("%v, after %v: %v", m, was, span)
				}
				delete(away, m.Proc)
			default:
				t.Fatalf("%v", m)
			}
		}
		if len(away) > 0 {
			t.Fatalf("left away: %v", away)
		}
		if most := int(2*c.For/c.Every) + 1; faults > most {
			t.Fatalf("%d faults in %v, one each %v", faults, c.For, c.Every)
		}
	})
}

// The shares are what they say, and the mean time between faults is.
func TestPlanShares(t *testing.T) {
	p, err := NewPlan(1, PlanConfig{Procs: []string{"a", "b"}, For: 1000 * time.Second, Every: 100 * time.Millisecond, Kill: 1, Term: 2, Freeze: 3,
		Away: Span{Max: time.Millisecond}, Frozen: Span{Max: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	n := map[MoveKind]float64{}
	for _, m := range p.Moves {
		n[m.Do]++
	}
	faults := float64(len(p.Moves) / 2)
	for do, share := range map[MoveKind]float64{MoveKill: 1. / 6, MoveTerm: 2. / 6, MoveFreeze: 3. / 6} {
		if got := n[do] / faults; got < share-0.03 || got > share+0.03 {
			t.Errorf("%s: %.3f of all, want %.3f", do, got, share)
		}
	}
	if faults < 9_000 || faults > 11_000 {
		t.Errorf("%v faults", faults)
	}
}

func TestWrongPlans(t *testing.T) {
	_, err := NewPlan(1, PlanConfig{Every: -1, Kill: -1, Away: Span{2, 1}, Up: 3})
	for _, want := range []string{"Procs is empty", "For is 0s", "Every is -1ns", "Kill, Term and Freeze are -1, 0 and 0", "Away is 2ns to 1ns", "Up is 3 of 0"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v has no %q", err, want)
		}
	}
	if _, err := NewPlan(1, PlanConfig{Procs: []string{"a", "a"}, For: 1, Up: 2}); err == nil || !strings.Contains(err.Error(), `"a" twice`) || !strings.Contains(err.Error(), "Up is 2 of 2") {
		t.Errorf("%v", err)
	}
}

func TestSeed(t *testing.T) {
	tb := &fakeTB{}
	t.Setenv(SeedVar, "")
	if a, b := Seed(tb), Seed(tb); a == b || !strings.Contains(tb.text(), fmt.Sprintf("%s=%d repeats", SeedVar, a)) {
		t.Errorf("%d, %d: %s", a, b, tb.text())
	}
	t.Setenv(SeedVar, "42")
	if got := Seed(tb); got != 42 {
		t.Errorf("%d", got)
	}
	t.Setenv(SeedVar, "x")
	func() {
		defer func() { _ = recover() }()
		Seed(tb)
	}()
	if !tb.failed || !strings.Contains(tb.text(), `KILLICK_TEST_SEED="x" is no seed`) {
		t.Errorf("%s", tb.text())
	}
}

// fakeTB is a test that may fail.
type fakeTB struct {
	lines    []string
	failed   bool
	cleanups []func()
}

func (f *fakeTB) Helper()          {}
func (f *fakeTB) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }
func (f *fakeTB) Failed() bool     { return f.failed }
func (f *fakeTB) Logf(format string, args ...any) {
	f.lines = append(f.lines, fmt.Sprintf(format, args...))
}
func (f *fakeTB) Errorf(format string, args ...any) { f.Logf(format, args...); f.failed = true }
func (f *fakeTB) Fatalf(format string, args ...any) { f.Errorf(format, args...); panic("fatal") }
func (f *fakeTB) text() string                      { return strings.Join(f.lines, "\n") }

// end is what package testing does at the end of a test.
func (f *fakeTB) end() {
	for _, c := range slices.Backward(f.cleanups) {
		c()
	}
}
