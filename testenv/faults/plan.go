package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SeedVar is the environment variable that repeats a run.
const SeedVar = "KILLICK_TEST_SEED"

// Seed is what a test draws its random choices from: that of SeedVar if it is set, else another one each
// time. It is logged, so that a run can be repeated. (The choices are: what processes do meanwhile is not.)
func Seed(t TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv(SeedVar); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("faults: %s=%q is no seed: use a whole number, as in %s=42", SeedVar, s, SeedVar)
		}
	}
	t.Logf("%s=%d repeats the choices of this run", SeedVar, seed)
	return seed
}

// MoveKind is what a move does to a process.
type MoveKind string

// What a move can do.
const (
	MoveKill   MoveKind = "kill"   // SIGKILL
	MoveTerm   MoveKind = "term"   // SIGTERM; its end is waited for by the MoveStart that follows
	MoveFreeze MoveKind = "freeze" // SIGSTOP
	MoveThaw   MoveKind = "thaw"   // SIGCONT
	MoveStart  MoveKind = "start"  // the next life
)

// Move is a step of a plan.
type Move struct {
	At   time.Duration // since the begin
	Do   MoveKind
	Proc string
}

func (m Move) String() string {
	return fmt.Sprintf("%v %s %s", m.At.Round(time.Millisecond), m.Do, m.Proc)
}

// Plan is what is done to processes, and when: each that is killed or ended is started again, and each
// that is frozen thawed.
type Plan struct {
	Seed  uint64
	Moves []Move // in order
}

func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d", p.Seed)
	for _, m := range p.Moves {
		fmt.Fprintf(&b, "\n%v", m)
	}
	return b.String()
}

// Span is a time between two bounds.
type Span struct{ Min, Max time.Duration }

func (s Span) draw(r *rand.Rand) time.Duration {
	return s.Min + time.Duration(r.Int64N(int64(s.Max-s.Min)+1))
}

// PlanConfig says what a plan may hold.
type PlanConfig struct {
	// Procs are the processes that the plan is for.
	Procs []string
	// For is how long the plan goes on breaking things; what it has broken is mended after that.
	For time.Duration
	// Every is how much time passes between two faults on average, over all processes: each time
	// between half and one and a half of it. Default: 1s.
	Every time.Duration
	// Kill, Term and Freeze are the shares of the kinds of faults. Default: 1, 0, 0.
	Kill, Term, Freeze int
	// Away is how long a process that was killed or ended stays away. Default: 0 to 1s.
	Away Span
	// Frozen is how long a process is frozen. Default: 0 to 1s.
	Frozen Span
	// Up is how many processes are neither away nor frozen, at least. (One that is asked to end may take
	// its time, and is away from then on.) Default: 0.
	Up int
}

func (c PlanConfig) withDefaults() PlanConfig {
	if c.Every == 0 {
		c.Every = time.Second
	}
	if c.Kill == 0 && c.Term == 0 && c.Freeze == 0 {
		c.Kill = 1
	}
	for _, s := range []*Span{&c.Away, &c.Frozen} {
		if *s == (Span{}) {
			s.Max = time.Second
		}
	}
	return c
}

func (c *PlanConfig) validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("faults: plan: "+format, args...)) }
	if len(c.Procs) == 0 {
		fail("Procs is empty; name at least one process")
	}
	for i, p := range c.Procs {
		if slices.Contains(c.Procs[:i], p) {
			fail("Procs has %q twice", p)
		}
	}
	if c.For <= 0 {
		fail("For is %v; a plan needs time", c.For)
	}
	if c.Every < 0 {
		fail("Every is %v; it is a time between faults", c.Every)
	}
	if c.Kill < 0 || c.Term < 0 || c.Freeze < 0 {
		fail("Kill, Term and Freeze are %d, %d and %d; shares are not negative", c.Kill, c.Term, c.Freeze)
	}
	for name, s := range map[string]Span{"Away": c.Away, "Frozen": c.Frozen} {
		if s.Min < 0 || s.Max < s.Min {
			fail("%s is %v to %v; use two times in order", name, s.Min, s.Max)
		}
	}
	if c.Up < 0 || c.Up >= max(1, len(c.Procs)) {
		fail("Up is %d of %d processes; one of them, at least, must be there to be disturbed", c.Up, len(c.Procs))
	}
	return errors.Join(errs...)
}

// NewPlan draws a plan. The same seed and configuration give the same plan.
func NewPlan(seed uint64, c PlanConfig) (Plan, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return Plan{}, err
	}
	r := rand.New(rand.NewPCG(seed, 0x6b696c6c69636b))
	p := Plan{Seed: seed}
	back := map[string]time.Duration{} // until when a process is away
	for at := time.Duration(0); ; {
		at += c.Every/2 + time.Duration(r.Int64N(int64(c.Every)+1))
		if at > c.For {
			break
		}
		var free []string
		for _, proc := range c.Procs {
			if back[proc] < at {
				free = append(free, proc)
			}
		}
		if len(free) <= c.Up {
			continue
		}
		proc := free[r.IntN(len(free))]
		do, undo, span := MoveKill, MoveStart, c.Away
		switch n := r.IntN(c.Kill + c.Term + c.Freeze); {
		case n < c.Kill:
		case n < c.Kill+c.Term:
			do = MoveTerm
		default:
			do, undo, span = MoveFreeze, MoveThaw, c.Frozen
		}
		back[proc] = at + span.draw(r)
		p.Moves = append(p.Moves, Move{at, do, proc}, Move{back[proc], undo, proc})
	}
	slices.SortStableFunc(p.Moves, func(a, b Move) int { return int(min(1, max(-1, a.At-b.At))) })
	return p, nil
}
