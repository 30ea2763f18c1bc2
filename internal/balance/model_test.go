package balance

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// The model is a group of up to seven processes under an adversary: members join, stop, are killed, come
// back under their place, sleep past their session and wake with old claims, miss an assignment that
// was computed with them, close what they are asked for in any order. Each assignment is compared with
// the rules of the package comment, and after a while without faults everything must be even.
//
// Steps per run are set by KILLICK_MODEL_STEPS; a soak is
//
//	KILLICK_MODEL_STEPS=1000000 go test ./internal/balance -run TestModel -timeout 30m

const modelSteps = 8_000 // without KILLICK_MODEL_STEPS

func stepsWanted(t *testing.T) int {
	s := os.Getenv("KILLICK_MODEL_STEPS")
	if s == "" {
		return modelSteps
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("KILLICK_MODEL_STEPS=%q: want a number of steps, at least 1", s)
	}
	return n
}

// proc is a process with its client.
type proc struct {
	id       string
	instance string
	alive    bool // it runs
	in       bool // the coordinator counts it among the members
	zombie   bool // it was thrown out and has not noticed
	stale    bool // it joined again with claims from before, and has had no assignment since
	unread   bool // it is of a version that leaders cannot read
	deaf     bool // nor can it read them: it gives nothing away
	facts    Facts
	topics   []string

	// current is what the client thinks that it owns, as of generation; closed what of that the
	// worker has released; asks what it should release.
	current    map[Part]bool
	closed     map[Part]bool
	asks       map[Part]bool
	generation int32
}

func (p *proc) open() []Part {
	var out []Part
	for q := range p.current {
		if !p.closed[q] {
			out = append(out, q)
		}
	}
	slices.SortFunc(out, compareParts)
	return out
}

func (p *proc) member() Member {
	f := p.facts
	f.Released = slices.SortedFunc(maps.Keys(p.closed), compareParts)
	if p.unread {
		f = Unread(p.facts.Single)
	}
	return Member{ID: p.id, Topics: p.topics, Owned: p.open(), Generation: p.generation, Facts: f}
}

type model struct {
	procs      []*proc
	counts     map[string]int32
	topics     []string
	generation int32
	shapes     []string
	single     bool
	mixed      bool // of versions
	born       int
	faults     bool // something has closed uncleanly, or an assignment was missed
}

func newModel(t *rapid.T) *model {
	m := &model{counts: map[string]int32{}, single: rapid.IntRange(0, 7).Draw(t, "single") == 0}
	for i := range rapid.IntRange(1, 3).Draw(t, "topics") {
		name := fmt.Sprintf("t%d", i)
		m.counts[name] = int32(rapid.IntRange(1, 7).Draw(t, "partitions"))
		m.topics = append(m.topics, name)
	}
	m.mixed = rapid.IntRange(0, 3).Draw(t, "versions") == 0
	m.shapes = []string{"a"}
	if rapid.IntRange(0, 3).Draw(t, "shapes") == 0 {
		m.shapes = []string{"a", "b"}
	}
	return m
}

func (m *model) pick(t *rapid.T, f func(*proc) bool) *proc {
	var some []*proc
	for _, p := range m.procs {
		if f(p) {
			some = append(some, p)
		}
	}
	if len(some) == 0 {
		t.Skip()
	}
	return rapid.SampledFrom(some).Draw(t, "who")
}

func (m *model) join(t *rapid.T) {
	if len(m.procs) >= 7 {
		t.Skip()
	}
	m.born++
	p := &proc{id: fmt.Sprintf("m%02d", rapid.IntRange(0, 99).Draw(t, "id")), alive: true, in: true, generation: -1, topics: m.topics,
		current: map[Part]bool{}, closed: map[Part]bool{}, asks: map[Part]bool{},
		facts: Facts{Number: NoNumber, Shape: rapid.SampledFrom(m.shapes).Draw(t, "shape"), Single: m.single}}
	p.id += fmt.Sprint("-", m.born)
	if rapid.Bool().Draw(t, "static") {
		p.instance = fmt.Sprint("place-", m.born)
	}
	if m.mixed {
		p.unread = rapid.Bool().Draw(t, "unread")
		p.deaf = p.unread && rapid.Bool().Draw(t, "deaf")
	}
	m.procs = append(m.procs, p)
}

func (m *model) remove(p *proc) {
	m.procs = slices.DeleteFunc(m.procs, func(o *proc) bool { return o == p })
}

func (m *model) stop(t *rapid.T) {
	m.pick(t, func(p *proc) bool { return p.alive && !p.zombie && !p.facts.Stopping }).facts.Stopping = true
}

// end: a stopping member that has nothing open leaves.
func (m *model) end(t *rapid.T) {
	m.remove(m.pick(t, func(p *proc) bool { return p.facts.Stopping && len(p.open()) == 0 }))
}

// kill ends a process. Its membership lasts until its session ends.
func (m *model) kill(t *rapid.T) {
	p := m.pick(t, func(p *proc) bool { return p.alive })
	p.alive, m.faults = false, true
	if p.zombie {
		m.remove(p)
	}
}

// expire ends the session of a dead process.
func (m *model) expire(t *rapid.T) {
	m.remove(m.pick(t, func(p *proc) bool { return !p.alive }))
}

// restart brings a static member back: it has its old assignment, and opens it anew.
func (m *model) restart(t *rapid.T) {
	p := m.pick(t, func(p *proc) bool { return !p.alive && p.in && p.instance != "" })
	p.alive, p.closed, p.asks, p.facts.Stopping = true, map[Part]bool{}, map[Part]bool{}, false
}

// freeze ends the session of a process that lives.
func (m *model) freeze(t *rapid.T) {
	p := m.pick(t, func(p *proc) bool { return p.alive && p.in })
	p.in, p.zombie, m.faults = false, true, true
}

// thaw lets it notice, and join again: with nothing, or, as no client should, with its old claims.
func (m *model) thaw(t *rapid.T) {
	p := m.pick(t, func(p *proc) bool { return p.zombie })
	p.in, p.zombie, p.stale = true, false, true
	if rapid.IntRange(0, 3).Draw(t, "old claims") > 0 {
		p.current, p.closed, p.asks, p.generation = map[Part]bool{}, map[Part]bool{}, map[Part]bool{}, -1
	}
}

// release closes something that a member was asked for, or anything if it is stopping.
func (m *model) release(t *rapid.T) {
	can := func(p *proc) []Part {
		if p.facts.Stopping {
			return p.open()
		}
		return slices.DeleteFunc(p.open(), func(q Part) bool { return !p.asks[q] })
	}
	p := m.pick(t, func(p *proc) bool { return p.alive && !p.zombie && len(can(p)) > 0 })
	p.closed[rapid.SampledFrom(can(p)).Draw(t, "part")] = true
}

// grow adds a partition. The leader may not know of it when others do.
func (m *model) grow(t *rapid.T) {
	topic := rapid.SampledFrom(m.topics).Draw(t, "topic")
	if m.counts[topic] < 9 {
		m.counts[topic]++
	}
}

// forget deletes a topic, and makes it anew at times with fewer partitions. Claims on it stay.
func (m *model) forget(t *rapid.T) {
	topic := rapid.SampledFrom(m.topics).Draw(t, "topic")
	m.counts[topic] = int32(rapid.IntRange(0, 3).Draw(t, "partitions"))
}

// rebalance computes an assignment, and gives it to those who are there; some may miss it. Dead
// members whose session lasts take part with what they joined with last.
func (m *model) rebalance(t *rapid.T) {
	missed := map[*proc]bool{}
	for _, p := range m.procs {
		if p.in && rapid.IntRange(0, 15).Draw(t, "missed") == 0 {
			missed[p] = true
			m.faults = true
		}
	}
	counts := maps.Clone(m.counts)
	if rapid.IntRange(0, 15).Draw(t, "old metadata") == 0 {
		delete(counts, m.topics[0])
	}
	m.assign(t, counts, missed, int64(rapid.IntRange(0, 1<<20).Draw(t, "order")))
}

func (m *model) assign(t *rapid.T, counts map[string]int32, missed map[*proc]bool, order int64) map[string]Grant {
	var ms []Member
	echo := map[string]Echo{}
	for _, p := range m.procs {
		if p.in {
			o := p.member()
			ms, echo[p.id] = append(ms, o), o.Facts.Echo()
		}
	}
	m.generation++
	grants := Plan(ms, counts)
	checkPlan(t, ms, counts, grants)
	// The order in which members are listed does not matter.
	shuffled := slices.Clone(ms)
	for i := range shuffled {
		j := int(order) % (i + 1)
		shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
	}
	if other := Plan(shuffled, counts); fmt.Sprint(grants) != fmt.Sprint(other) {
		t.Fatalf("another order of members gives another plan:\n%v\n%v", grants, other)
	}
	for _, p := range m.procs {
		if !p.in || !p.alive && p.instance == "" {
			continue
		}
		if missed[p] {
			continue
		}
		g := grants[p.id]
		if want := echo[p.id]; want != g.Echo || want.Blind() != p.unread {
			t.Fatalf("%s is %+v, and its grant echoes %+v", p.id, want, g.Echo)
		}
		now := map[Part]bool{}
		for _, q := range g.Parts {
			now[q] = true
		}
		maps.DeleteFunc(p.closed, func(q Part, _ bool) bool { return !now[q] })
		p.current, p.generation, p.facts.Number, p.stale = now, m.generation, g.Number, false
		p.asks = map[Part]bool{}
		for _, q := range g.Asks {
			p.asks[q] = !p.deaf
		}
	}
	// Nobody works on what another one works on, but for those who have been thrown out and do not
	// know yet what they have lost.
	owner := map[Part]string{}
	for _, p := range m.procs {
		if p.zombie || p.stale || !p.alive {
			continue
		}
		for _, q := range p.open() {
			if o := owner[q]; o != "" {
				t.Fatalf("%v is open at %s and at %s", q, o, p.id)
			}
			owner[q] = p.id
		}
	}
	return grants
}

// checkPlan compares a plan with what holds for every plan. It knows nothing of how plans are made.
func checkPlan(t *rapid.T, ms []Member, counts map[string]int32, grants map[string]Grant) {
	if len(grants) != len(ms) {
		t.Fatalf("%d grants for %d members", len(grants), len(ms))
	}
	got := map[Part]string{}
	numbers := map[int32]string{}
	for _, m := range ms {
		g := grants[m.ID]
		for _, p := range g.Parts {
			if o := got[p]; o != "" {
				t.Fatalf("%v is granted to %s and to %s", p, o, m.ID)
			}
			got[p] = m.ID
			if !slices.Contains(m.Owned, p) {
				switch {
				case m.Stopping:
					t.Fatalf("%v is new at %s, which is stopping", p, m.ID)
				case g.Standby != "":
					t.Fatalf("%v is new at %s, which stands by: %s", p, m.ID, g.Standby)
				case slices.Contains(m.Released, p):
					t.Fatalf("%v comes back to %s, which has just released it", p, m.ID)
				case p.ID >= counts[p.Topic]:
					t.Fatalf("%v is granted, and does not exist", p)
				}
			}
		}
		for _, p := range g.Asks {
			if !slices.Contains(g.Parts, p) || !slices.Contains(m.Owned, p) {
				t.Fatalf("%s is asked for %v, which it has not", m.ID, p)
			}
		}
		if g.Number < 0 || int(g.Number) >= len(ms)+claimedAbove(ms) {
			t.Fatalf("%s has the number %d", m.ID, g.Number)
		}
		if o := numbers[g.Number]; o != "" {
			t.Fatalf("the number %d is granted to %s and to %s", g.Number, o, m.ID)
		}
		numbers[g.Number] = m.ID
	}
	// What is claimed stays.
	best := map[Part]int32{}
	high := map[int32]int32{}
	for _, m := range ms {
		if m.Generation < 0 {
			continue
		}
		for _, p := range m.Owned {
			best[p] = max(best[p], m.Generation)
		}
		if m.Number >= 0 {
			high[m.Number] = max(high[m.Number], m.Generation)
		}
	}
	for p, g := range best {
		if !slices.ContainsFunc(ms, func(m Member) bool { return m.Generation == g && slices.Contains(m.Owned, p) && got[p] == m.ID }) {
			t.Fatalf("%v was taken from its owner of generation %d; %q has it", p, g, got[p])
		}
	}
	for n, g := range high {
		if !slices.ContainsFunc(ms, func(m Member) bool { return m.Generation == g && m.Number == n && numbers[n] == m.ID }) {
			t.Fatalf("the number %d was taken from its owner of generation %d; %q has it", n, g, numbers[n])
		}
	}
	minimal(t, ms, counts, grants)
	known(t, ms, grants)
}

// known checks that who cannot be read works only where nobody else does or is about to, and that those
// who can be read say so then.
func known(t *rapid.T, ms []Member, grants map[string]Grant) {
	claims, stays, claimed := false, false, false
	for _, m := range ms {
		owns := m.Generation >= 0 && slices.ContainsFunc(m.Owned, func(p Part) bool { return slices.Contains(grants[m.ID].Parts, p) })
		claimed = claimed || owns
		claims = claims || owns && m.Shape != ""
		stays = stays || !m.Stopping && m.Shape != ""
	}
	for _, m := range ms {
		g := grants[m.ID]
		if m.Shape == "" && g.Standby == "" && (claims || !claimed && stays) {
			t.Fatalf("%s, which cannot be read, works beside others: %v", m.ID, grants)
		}
		if m.Shape == "" && len(g.Asks) > 0 && g.Standby == "" {
			t.Fatalf("%s, which cannot be read, works, and is asked for %v: what it closes is not seen", m.ID, g.Asks)
		}
		if m.Shape != "" && claimed && !claims && g.Standby == "" {
			t.Fatalf("%s works beside such that cannot be read: %v", m.ID, grants)
		}
	}
}

// claimedAbove is by how much numbers may exceed the count of members: kept ones may be high.
func claimedAbove(ms []Member) int {
	n := 0
	for _, m := range ms {
		n = max(n, int(m.Number)+1)
	}
	return n
}

// existing is those of parts that exist.
func existing(parts []Part, counts map[string]int32) (out []Part) {
	for _, p := range parts {
		if p.ID < counts[p.Topic] {
			out = append(out, p)
		}
	}
	return out
}

// minimal checks that as few partitions are asked for as even it out. It only looks at plans among
// members that are all alike, and may all work and be given everything.
func minimal(t *rapid.T, ms []Member, counts map[string]int32, grants map[string]Grant) {
	total, had, asked := 0, []int{}, 0
	for _, m := range ms {
		if m.Stopping || m.Single || m.Shape == "" || len(m.Released) > 0 || m.Shape != ms[0].Shape || grants[m.ID].Standby != "" {
			return
		}
		n := len(existing(grants[m.ID].Parts, counts))
		total += n
		had = append(had, n)
		asked += len(grants[m.ID].Asks)
	}
	slices.SortFunc(had, func(a, b int) int { return b - a })
	want := 0
	for i, n := range had {
		quota := total / len(had)
		if i < total%len(had) {
			quota++
		}
		want += max(0, n-quota)
	}
	if asked != want {
		t.Fatalf("%d partitions are asked for, %d would do: %v", asked, want, had)
	}
}

// settle lets faults end, and counts the assignments until everything is even.
func (m *model) settle(t *rapid.T) {
	for _, p := range slices.Clone(m.procs) {
		switch {
		case !p.alive, p.facts.Stopping: // it releases everything, and leaves
			m.remove(p)
		case p.zombie:
			p.in, p.zombie = true, false
			p.current, p.closed, p.asks, p.generation = map[Part]bool{}, map[Part]bool{}, map[Part]bool{}, -1
		}
		if p.deaf { // it ends as well, if only it is in the way
			m.remove(p)
		}
	}
	if len(m.procs) == 0 {
		return
	}
	for round := 1; ; round++ {
		moved := false
		before := map[string]string{}
		for _, p := range m.procs {
			before[p.id] = fmt.Sprint(p.current)
		}
		grants := m.assign(t, m.counts, nil, 0)
		for _, p := range m.procs {
			moved = moved || before[p.id] != fmt.Sprint(p.current)
			for q := range p.asks {
				p.closed[q] = true
				moved = true
			}
		}
		if !moved {
			m.even(t, grants)
			return
		}
		if round > 3 {
			t.Fatalf("after %d assignments something still moves: %v", round, grants)
		}
	}
}

// even checks a state in which nothing moves any more.
func (m *model) even(t *rapid.T, grants map[string]Grant) {
	least, most, total, able := 1<<30, 0, 0, 0
	for _, p := range m.procs {
		g := grants[p.id]
		parts := existing(g.Parts, m.counts)
		total += len(parts)
		if g.AllStop {
			t.Fatal("all stop, it says, and nobody is stopping")
		}
		if g.Standby != "" {
			if len(g.Parts) > 0 {
				t.Fatalf("%s stands by, and has %v", p.id, g.Parts)
			}
			continue
		}
		able++
		least, most = min(least, len(parts)), max(most, len(parts))
	}
	want := 0
	for _, n := range m.counts {
		want += int(n)
	}
	if unread := slices.ContainsFunc(m.procs, func(p *proc) bool { return p.unread && grants[p.id].Standby == "" }); unread {
		least = most // they share what is free, and are not asked for anything
	}
	if total != want || able == 0 || most-least > 1 {
		t.Fatalf("%d of %d partitions are granted, to %d members, from %d to %d each: %v", total, want, able, least, most, grants)
	}
	if m.single && able != 1 {
		t.Fatalf("%d members work on a topology for one", able)
	}
}

func TestModel(t *testing.T) {
	want, steps := stepsWanted(t), 0
	for steps < want && !t.Failed() {
		rapid.Check(t, func(rt *rapid.T) {
			if steps >= want {
				return
			}
			m := newModel(rt)
			for range 4 {
				rt.Repeat(map[string]func(*rapid.T){
					"join":       m.join,
					"stop":       m.stop,
					"end":        m.end,
					"kill":       m.kill,
					"expire":     m.expire,
					"restart":    m.restart,
					"freeze":     m.freeze,
					"thaw":       m.thaw,
					"release":    m.release,
					"release2":   m.release,
					"grow":       m.grow,
					"forget":     m.forget,
					"rebalance":  m.rebalance,
					"rebalance2": m.rebalance,
					"":           func(*rapid.T) { steps++ },
				})
				m.settle(rt)
			}
		})
	}
	t.Logf("%d steps", steps)
}
