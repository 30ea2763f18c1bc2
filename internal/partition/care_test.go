package partition

import (
	"io"
	"testing"

	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/offsets"
)

// taken opens a partition whose state is committed already.
func taken(t *testing.T, f *Feed, s offsets.State) *Partition {
	t.Helper()
	s.TakenOver = true
	p := f.Open("in", 0, 0, offsets.Map{Held: s}, false)
	m, ok := p.Position()
	if !ok || m.Held != s {
		t.Fatalf("it would commit %+v, want %+v", m.Held, s)
	}
	p.Stored(m)
	return p
}

// pick picks what must be there.
func pick(t *testing.T, p *Partition, off int64, is Picked) {
	t.Helper()
	if got, what := p.Pick(); got != off || what != is {
		t.Fatalf("picked %d, %v; want %d, %v", got, what, off, is)
	}
}

// Nothing starts before the mark of the owner is committed, or cannot be.
func TestTakeOverComesFirst(t *testing.T) {
	f := NewFeed("s", 1000, 1<<20, Hooks{})
	p := f.Open("in", 0, 0, offsets.Map{Held: offsets.State{TakenOver: true, Suspect: offsets.None}}, false)
	deliver(t, p, records(0, 10, 10))
	nothing(t, f)
	p.Stored(offsets.Map{Held: offsets.State{Suspect: offsets.None}}) // of an owner before
	nothing(t, f)
	p.Unmarked()
	if r := nextRun(t, f); r.To != 10 {
		t.Errorf("run %+v", r)
	}
	p.Leave()
	if m, _ := p.Position(); m.Held.TakenOver {
		t.Error("it has left, and says that it is at work")
	}
}

// After a death records start up to the horizon above what is committed, and a commit is asked for in
// time; it ends when the broker knows that what was open has passed.
func TestHorizon(t *testing.T) {
	for _, order := range []string{"none", "key"} {
		t.Run(order, func(t *testing.T) {
			asked := 0
			f := NewFeed("s", 10_000, 1<<20, Hooks{Commit: func(*Partition) { asked++ }})
			if order == "key" {
				f.Keep(core.PerKey)
			}
			p := taken(t, f, offsets.State{Deaths: 1, Suspect: offsets.None, Until: 400})
			deliver(t, p, records(0, 1000, 10))
			end := func(upTo int64) {
				t.Helper()
				for at := p.Status().Floor; at < upTo; {
					r := nextRun(t, f)
					r.Chunk.EndRun(r.From, r.To)
					at = int64(r.To)
				}
				nothing(t, f)
			}
			end(offsets.Horizon)
			if floor := p.Status().Floor; floor != offsets.Horizon || asked == 0 {
				t.Errorf("ended up to %d, asked for %d commits", floor, asked)
			}
			m, _ := p.Position()
			p.Stored(m)
			end(2 * offsets.Horizon)
			if floor := p.Status().Floor; floor != 2*offsets.Horizon { // above 400, but the broker does not know yet
				t.Errorf("ended up to %d", floor)
			}
			m, _ = p.Position()
			if m.Held.Deaths != 0 || m.Held.Until != 0 {
				t.Errorf("behind what was open: %+v", m.Held)
			}
			p.Stored(m)
			end(1000)
		})
	}
}

// One root after the other, each named before it starts; a granted one is all that passes the gate.
func TestPick(t *testing.T) {
	for _, order := range []string{"none", "key"} {
		t.Run(order, func(t *testing.T) {
			f := NewFeed("s", 1000, 1<<20, Hooks{})
			g := NewGate()
			f.Share(g)
			if order == "key" {
				f.Keep(core.PerKey)
			}
			p := taken(t, f, offsets.State{Deaths: 4, Suspect: 5, Strikes: 1, Until: 8})
			g.Close()
			pick(t, p, 5, Awaited)
			deliver(t, p, records(0, 20, 10))
			nothing(t, f)
			for _, off := range []int64{5, 0, 1, 2, 3, 4, 6, 7} { // the accused first, and once
				pick(t, p, off, Suspected)
				if m, _ := p.Position(); m.Held.Suspect != off || (m.Held.Strikes == 1) != (off == 5) {
					t.Errorf("at %d it would commit %+v", off, m.Held)
				}
				nothing(t, f)
				if _, is := p.Pick(); is != NoRoot {
					t.Errorf("picked beside %d", off)
				}
				p.Grant()
				r := nextRun(t, f)
				if r.To-r.From != 1 || r.Chunk.Origin(r.From).Offset != off || !p.Runs(true) {
					t.Errorf("run %+v for %d", r, off)
				}
				r.Chunk.EndRun(r.From, r.To)
				if p.Runs(false) {
					t.Errorf("%d runs on", off)
				}
			}
			if p.Careful() {
				t.Error("still careful behind what was open")
			}
			nothing(t, f) // the gate
			g.Open()
			m, _ := p.Position()
			p.Stored(m)
			if r := nextRun(t, f); r.Chunk.Origin(r.From).Offset != 8 {
				t.Errorf("run %+v", r)
			}
		})
	}
}

// An accused record whose spout is paused stays accused, and is not to blame for a death meanwhile.
func TestPickWhilePaused(t *testing.T) {
	f := NewFeed("s", 1000, 1<<20, Hooks{})
	f.Pause(true)
	p := taken(t, f, offsets.State{Deaths: 4, Suspect: 5, Strikes: 1, Waits: true, Until: 8})
	pick(t, p, 5, Paused)
	deliver(t, p, records(0, 20, 10))
	pick(t, p, 5, Paused)
	if m, _ := p.Position(); m.Held.Suspect != 5 || m.Held.Strikes != 1 || !m.Held.Waits || !p.Accused() {
		t.Errorf("while it is paused: %+v", m.Held)
	}
	f.Pause(false)
	pick(t, p, 5, Suspected)
	if m, _ := p.Position(); m.Held.Suspect != 5 || m.Held.Strikes != 1 || m.Held.Waits {
		t.Errorf("before it runs: %+v", m.Held)
	}
	p.Grant()
	r := nextRun(t, f)
	r.Chunk.EndRun(r.From, r.To)
	pick(t, p, 0, Suspected)
	if m, _ := p.Position(); m.Held.Strikes != 0 || m.Held.Waits {
		t.Errorf("the next one: %+v", m.Held)
	}
}

// Nor is it acquitted while the mark of the owner cannot be committed: nothing else could run, either.
func TestPickBeforeTheMark(t *testing.T) {
	f := NewFeed("s", 1000, 1<<20, Hooks{})
	p := f.Open("in", 0, 0, offsets.Map{Held: offsets.State{TakenOver: true, Deaths: 4, Suspect: 5, Strikes: 1, Waits: true, Until: 8}}, false)
	deliver(t, p, records(0, 20, 10))
	pick(t, p, 5, Taking)
	m, _ := p.Position()
	p.Stored(m)
	pick(t, p, 5, Suspected)
}

// An accused record that has to wait in its lane keeps its strikes: others run meanwhile, each under its own
// name, and it is named again when its turn has come.
func TestPickBehindItsKey(t *testing.T) {
	for strikes, is := range map[int]Picked{1: Suspected, 2: Convicted} {
		f := NewFeed("s", 1000, 1<<20, Hooks{Dead: func(Dead) {}})
		f.Keep(core.PerKey)
		p := taken(t, f, offsets.State{Deaths: 4, Suspect: 5, Strikes: strikes, Waits: true, Until: 8})
		rs := records(0, 20, 10)
		for i, r := range rs {
			r.Key = []byte{byte(i)}
		}
		deliver(t, p, rs)
		lane := p.lanes.Of([]byte{5})
		p.lanes.Enter(lane, place{})
		held := func(off int64, strikes int, waits bool) {
			t.Helper()
			if m, _ := p.Position(); m.Held.Suspect != off || m.Held.Strikes != strikes || m.Held.Waits != waits || !p.Careful() && off == 5 {
				t.Errorf("it would commit %+v", m.Held)
			}
		}
		if _, is := p.Pick(); is != NoRoot {
			t.Fatalf("picked behind its key: %v", is)
		}
		held(5, strikes, true)
		for off := range int64(3) {
			if p.Accused() {
				t.Error("it has the turn of others")
			}
			pick(t, p, off, Suspected)
			held(off, 0, false)
			p.Grant()
			r := nextRun(t, f)
			if off == 1 { // it waits for something else
				p.Unname(false)
				held(5, strikes, true)
			}
			r.Chunk.EndRun(r.From, r.To)
			held(5, strikes, true)
		}
		p.lanes.Leave(lane)
		if !p.Accused() {
			t.Error("it does not come first when its turn has come")
		}
		pick(t, p, 5, is)
		held(5, strikes, false)
		if is == Convicted {
			continue
		}
		p.Grant()
		r := nextRun(t, f)
		r.Chunk.EndRun(r.From, r.To)
		held(offsets.None, 0, false)
		pick(t, p, 3, Suspected)
	}
}

// Who is named at two deaths is not executed; it holds its state until the dead letter is durable.
func TestConvict(t *testing.T) {
	var dead []Dead
	told := 0
	f := NewFeed("s", 1000, 1<<20, Hooks{Dead: func(d Dead) { dead = append(dead, d) }, Convicted: func(d Dead) {
		if told++; d.Offset() != 3 || len(dead) != 0 {
			t.Errorf("told of %d, after %d dead letters", d.Offset(), len(dead))
		}
	}})
	p := taken(t, f, offsets.State{Deaths: 2, Suspect: 3, Strikes: 2, Until: 8})
	deliver(t, p, records(0, 5, 10))
	nothing(t, f)
	pick(t, p, 3, Convicted)
	p.Convict()
	if told != 1 || len(dead) != 1 || dead[0].Offset() != 3 || dead[0].Cause.Reason != ReasonWorkerDeath || dead[0].Cause.Policy != ack.DeadLetter {
		t.Fatalf("%+v", dead)
	}
	p.Unname(false) // its letter takes long, and it was not handed out
	if m, _ := p.Position(); m.Held.Strikes != 2 || p.Started() != 1 || !p.Careful() {
		t.Errorf("while the letter is written: %+v", m.Held)
	}
	dead[0].Done()
	if m, _ := p.Position(); m.Held.Suspect != offsets.None || p.Careful() {
		t.Errorf("after it: %+v", m.Held)
	}
	ran := 0
	for ran < 4 {
		r := nextRun(t, f)
		for i := r.From; i < r.To; i++ {
			if r.Chunk.Origin(i).Offset == 3 {
				t.Error("it was executed")
			}
		}
		ran += r.To - r.From
		r.Chunk.EndRun(r.From, r.To)
	}
	if s := p.Status(); s.Floor != 5 || s.Started != 0 {
		t.Errorf("%+v", s)
	}
}

// The end of a bounded run waits for the root that is named and has not started: the last record runs
// alone, too.
func TestPickAndUntil(t *testing.T) {
	f := NewFeed("s", 1000, 1<<20, Hooks{})
	g := NewGate()
	f.Share(g)
	f.Bound(map[Key]int64{{"in", 0}: 2})
	p := taken(t, f, offsets.State{Deaths: 3, Suspect: offsets.None, Until: 8})
	g.Close()
	deliver(t, p, records(0, 5, 10))
	for _, off := range []int64{0, 1} {
		pick(t, p, off, Suspected)
		nothing(t, f) // its commit is under way
		if p.Status().Finished {
			t.Errorf("finished before %d has started", off)
		}
		p.Grant()
		r := nextRun(t, f)
		r.Chunk.EndRun(r.From, r.To)
	}
	if err := f.Next(t.Context(), new(engine.Run)); err != io.EOF || !p.Status().Finished {
		t.Errorf("the end of the run: %v, %+v", err, p.Status())
	}
}

// Where positions cannot be committed the horizon would never move: records start without it, until they
// can be again.
func TestHorizonThatCannotBeCommitted(t *testing.T) {
	for _, order := range []core.Order{core.NoOrder, core.PerKey} {
		f := NewFeed("s", 10_000, 1<<20, Hooks{})
		f.Keep(order)
		p := f.Open("in", 0, 0, offsets.Map{Held: offsets.State{TakenOver: true, Deaths: 1, Suspect: offsets.None, Until: 900}}, false)
		deliver(t, p, records(0, 600, 10))
		p.Unmarked()
		end := func(upTo int64) {
			t.Helper()
			for at := p.Status().Floor; at < upTo; {
				r := nextRun(t, f)
				r.Chunk.EndRun(r.From, r.To)
				at = p.Status().Floor
			}
			nothing(t, f)
		}
		end(600)
		m, _ := p.Position()
		p.Stored(m)
		deliver(t, p, records(600, 1000, 10))
		end(600 + offsets.Horizon)
		p.Unmarked()
		end(1000)
	}
}

// A root that waits for something else is not the suspect any more; one that a stop has kept from
// starting is its next owner's.
func TestUnname(t *testing.T) {
	f := NewFeed("s", 1000, 1<<20, Hooks{})
	p := taken(t, f, offsets.State{Deaths: 3, Suspect: offsets.None, Until: 8})
	deliver(t, p, records(0, 10, 10))
	pick(t, p, 0, Suspected)
	p.Grant()
	first := nextRun(t, f)
	p.Unname(false)
	if m, _ := p.Position(); m.Held.Suspect != offsets.None {
		t.Errorf("%+v", m.Held)
	}
	pick(t, p, 1, Suspected)
	if p.Started() != 2 {
		t.Errorf("%d are started", p.Started())
	}
	p.Unname(true)
	if p.Started() != 1 {
		t.Errorf("%d are started", p.Started())
	}
	first.Chunk.EndRun(first.From, first.To)
	m, _ := p.Position()
	if m.Base != 1 || m.Held.Suspect != offsets.None {
		t.Errorf("%+v", m)
	}
	p.Leave()
	p.Accuse(0) // it has come back
	if m, _ := p.Position(); m.Held.TakenOver || m.Held.Suspect != offsets.None {
		t.Errorf("%+v", m.Held)
	}
	p.Accuse(1)
	if m, _ := p.Position(); !m.Held.TakenOver || m.Held.Suspect != 1 || m.Held.Strikes != 0 {
		t.Errorf("%+v", m.Held)
	}
}
