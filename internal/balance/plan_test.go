package balance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// at makes a member that claims partitions of topic t.
func at(id string, generation int32, owned ...int32) Member {
	m := Member{ID: id, Topics: []string{"t"}, Generation: generation, Facts: Facts{Number: NoNumber, Shape: "s"}}
	for _, p := range owned {
		m.Owned = append(m.Owned, Part{"t", p})
	}
	return m
}

// brief is a grant as "0 1 2 asks 2 #0".
func brief(g Grant) string {
	var b strings.Builder
	for _, p := range g.Parts {
		fmt.Fprintf(&b, "%d ", p.ID)
	}
	if len(g.Asks) > 0 {
		b.WriteString("asks ")
		for _, p := range g.Asks {
			fmt.Fprintf(&b, "%d ", p.ID)
		}
	}
	fmt.Fprintf(&b, "#%d", g.Number)
	if g.AllStop {
		b.WriteString(" all stop")
	}
	if g.Standby != "" {
		b.WriteString(" stands by")
	}
	return b.String()
}

func TestPlan(t *testing.T) {
	t.Parallel()
	stopping := func(m Member) Member { m.Stopping = true; return m }
	numbered := func(n int32, m Member) Member { m.Number = n; return m }
	shaped := func(s string, m Member) Member { m.Shape = s; return m }
	single := func(m Member) Member { m.Single = true; return m }
	unread := func(m Member) Member { m.Facts = Unread(m.Single); return m }
	closed := func(m Member, ids ...int32) Member {
		for _, id := range ids {
			m.Released = append(m.Released, Part{"t", id})
		}
		return m
	}
	for _, c := range []struct {
		name    string
		members []Member
		want    map[string]string
	}{
		{"nobody", nil, map[string]string{}},
		{"the first member has all", []Member{at("a", -1)}, map[string]string{"a": "0 1 2 3 #0"}},
		{"two at once share", []Member{at("a", -1), at("b", -1)}, map[string]string{"a": "0 2 #0", "b": "1 3 #1"}},
		{"a second one: the first is asked", []Member{numbered(0, at("b", 1, 0, 1, 2, 3)), at("a", -1)},
			map[string]string{"b": "0 1 2 3 asks 2 3 #0", "a": "#1"}},
		{"what was released moves", []Member{numbered(0, closed(at("b", 2, 0, 1), 2, 3)), numbered(1, at("a", 2))},
			map[string]string{"b": "0 1 #0", "a": "2 3 #1"}},
		{"half released: the other half is asked for still", []Member{numbered(0, closed(at("b", 2, 0, 1, 2), 3)), numbered(1, at("a", 2))},
			map[string]string{"b": "0 1 2 asks 2 #0", "a": "3 #1"}},
		{"what was released does not come back at once", []Member{numbered(0, closed(at("b", 2, 0, 1), 2, 3))},
			map[string]string{"b": "0 1 #0"}},
		{"and then it does", []Member{numbered(0, at("b", 3, 0, 1))}, map[string]string{"b": "0 1 2 3 #0"}},
		{"one that dies", []Member{numbered(1, at("b", 2, 1, 3)), numbered(2, at("c", 2))},
			map[string]string{"b": "1 3 #1", "c": "0 2 #2"}},
		{"the higher generation counts", []Member{at("a", 3, 0, 1), at("b", 5, 1, 2)},
			map[string]string{"a": "0 3 #0", "b": "1 2 #1"}},
		{"claims without a generation do not count", []Member{at("a", -1, 0, 1, 2, 3), at("b", 1, 3)},
			map[string]string{"a": "0 1 #0", "b": "2 3 #1"}},
		{"of two with one number the higher generation counts", []Member{numbered(0, at("a", 1)), numbered(0, at("b", 2))},
			map[string]string{"a": "1 3 #1", "b": "0 2 #0"}},
		{"a stopping member is given nothing", []Member{stopping(at("a", 1, 0)), at("b", 1)}, map[string]string{"a": "0 #0", "b": "1 2 3 #1"}},
		{"it is asked for nothing", []Member{stopping(at("a", 1, 0, 1, 2, 3)), at("b", 1)}, map[string]string{"a": "0 1 2 3 #0", "b": "#1"}},
		{"all are stopping", []Member{stopping(at("a", 1)), stopping(at("b", 1))}, map[string]string{"a": "#0 all stop", "b": "#1 all stop"}},
		{"all are stopping, and one is not done", []Member{stopping(at("a", 1, 2)), stopping(at("b", 1))}, map[string]string{"a": "2 #0", "b": "#1"}},
		{"the shape of the newest claim works", []Member{shaped("z", at("a", 2, 0)), shaped("s", at("b", 1, 1)), shaped("s", at("c", -1))},
			map[string]string{"a": "0 2 3 #0", "b": "1 asks 1 #1 stands by", "c": "#2 stands by"}},
		{"without claims the smallest shape of those that stay", []Member{stopping(shaped("a", at("a", -1))), shaped("c", at("b", -1)), shaped("b", at("c", -1))},
			map[string]string{"a": "#0 stands by", "b": "#1 stands by", "c": "0 1 2 3 #2"}},
		{"a standby that stops is not counted as one that works", []Member{stopping(shaped("a", at("a", 1))), stopping(shaped("b", at("b", -1)))},
			map[string]string{"a": "#0 all stop", "b": "#1 all stop stands by"}},
		{"who cannot be read does not say what works: its claims may be the newest", []Member{unread(at("a", 9, 0)), at("b", 2, 1, 2, 3)},
			map[string]string{"a": "0 asks 0 #0 stands by", "b": "1 2 3 #1"}},
		{"nor does it without claims", []Member{unread(at("a", -1)), shaped("z", at("b", -1))}, map[string]string{"a": "#0 stands by", "b": "0 1 2 3 #1"}},
		{"if only such ones claim, they share and ours stand by", []Member{unread(at("a", 9, 0)), at("b", -1), unread(at("c", 9, 1, 2))},
			map[string]string{"a": "0 3 #0", "b": "#1 stands by", "c": "1 2 #2"}},
		{"claims of one that is stopping count as well", []Member{unread(at("a", 9, 0)), stopping(at("b", 2, 1))},
			map[string]string{"a": "0 #0 stands by", "b": "1 #1"}},
		{"when all of ours are stopping such ones take over", []Member{unread(at("a", -1)), stopping(at("b", 9))}, map[string]string{"a": "0 1 2 3 #0", "b": "#1 stands by"}},
		{"single: of such ones one works, too", []Member{unread(single(at("a", 9))), unread(single(at("b", 9, 1))), single(at("c", -1))},
			map[string]string{"a": "#0 stands by", "b": "0 1 2 3 #1", "c": "#2 stands by"}},
		{"single: the first works", []Member{single(at("a", -1)), single(at("b", -1))}, map[string]string{"a": "0 1 2 3 #0", "b": "#1 stands by"}},
		{"single: who works goes on", []Member{single(at("a", -1)), single(numbered(0, at("b", 1, 0, 1, 2, 3)))},
			map[string]string{"a": "#1 stands by", "b": "0 1 2 3 #0"}},
		{"single: while the old one stops nobody begins", []Member{single(numbered(1, at("a", 1))), stopping(single(numbered(0, at("b", 1, 2))))},
			map[string]string{"a": "#1 stands by", "b": "2 #0"}},
		{"single: then the next one does", []Member{single(numbered(1, at("a", 1))), stopping(single(numbered(0, at("b", 1))))},
			map[string]string{"a": "0 1 2 3 #1", "b": "#0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(c.members, map[string]int32{"t": 4})
			for id, g := range got {
				if b := brief(g); b != c.want[id] {
					t.Errorf("%s: %q, want %q", id, b, c.want[id])
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("%d grants, want %d", len(got), len(c.want))
			}
		})
	}
}

// Why a member stands by is said as it is, also where shapes are not known.
func TestStandbySaysWhy(t *testing.T) {
	t.Parallel()
	unread := func(m Member) Member { m.Facts = Unread(false); return m }
	for _, c := range []struct {
		name    string
		members []Member
		id      string
		want    []string
	}{
		{"another shape", []Member{at("a", 1, 0), func() Member { m := at("b", -1); m.Shape = "z"; return m }()}, "b", []string{"shape s", "has z"}},
		{"a newer version behind ours", []Member{at("a", 1, 0), unread(at("b", -1))}, "b", []string{"cannot be read", "shape s", "the same version"}},
		{"ours behind a newer version", []Member{at("a", -1), unread(at("b", 1, 0))}, "a", []string{"another version", "the same version"}},
	} {
		why := Plan(c.members, map[string]int32{"t": 2})[c.id].Standby
		for _, s := range c.want {
			if !strings.Contains(why, s) {
				t.Errorf("%s: %q lacks %q", c.name, why, s)
			}
		}
	}
}

// A leader whose metadata is older than a member's does not take from it what it does not know of.
func TestUnknownTopicStays(t *testing.T) {
	t.Parallel()
	got := Plan([]Member{at("a", 1, 0, 1), at("b", 1)}, nil)
	if b := brief(got["a"]); !strings.HasPrefix(b, "0 1 ") {
		t.Errorf("a has %q", b)
	}
}

// Partitions that do not exist any more stay with who claims them, and are no load: else that member would
// have less of the others for ever.
func TestClaimsOfDeletedTopics(t *testing.T) {
	t.Parallel()
	a, b := at("a", 1, 0, 1, 7), at("b", 1, 2, 3) // t has shrunk: it was made anew
	for id := range int32(8) {
		a.Owned = append(a.Owned, Part{"gone", id})
	}
	a.Topics, b.Topics = []string{"gone", "t"}, []string{"gone", "t"}
	counts := map[string]int32{"t": 6}
	got := Plan([]Member{a, b}, counts)
	for _, p := range a.Owned {
		if !slices.Contains(got["a"].Parts, p) {
			t.Errorf("%v was taken away", p)
		}
	}
	if n := len(got["a"].Parts); n != 12 || len(got["b"].Parts) != 3 {
		t.Errorf("of the new ones a and b do not have one each: %v", got)
	}
	for id, g := range got {
		if len(g.Asks) > 0 {
			t.Errorf("%s is asked for %v", id, g.Asks)
		}
	}
	// Nor are they load of who could have them when a member gives them up.
	a.Shape, a.Generation = "z", 0
	got = Plan([]Member{a, b, at("c", 1, 4, 5)}, counts)
	if len(got["a"].Asks) != 11 || len(got["b"].Asks)+len(got["c"].Asks) > 0 {
		t.Errorf("while a stands by: %v", got)
	}
}

// Members that subscribe to different topics get what they can read.
func TestSubscriptions(t *testing.T) {
	t.Parallel()
	a, b := at("a", -1), at("b", -1)
	b.Topics = []string{"u"}
	got := Plan([]Member{a, b}, map[string]int32{"t": 3, "u": 1, "v": 1})
	if !slices.Equal(got["a"].Parts, []Part{{"t", 0}, {"t", 1}, {"t", 2}}) || !slices.Equal(got["b"].Parts, []Part{{"u", 0}}) {
		t.Errorf("%v", got)
	}
	for id, g := range got {
		if len(g.Asks) > 0 {
			t.Errorf("%s is asked for %v", id, g.Asks)
		}
	}
}

// A topic is spread over the members, where the sums allow it.
func TestTopicsAreSpread(t *testing.T) {
	t.Parallel()
	var ms []Member
	for i := range 3 {
		m := at(fmt.Sprint("m", i), -1)
		m.Topics = []string{"t", "u"}
		ms = append(ms, m)
	}
	for id, g := range Plan(ms, map[string]int32{"t": 3, "u": 3}) {
		if len(g.Parts) != 2 || g.Parts[0].Topic == g.Parts[1].Topic {
			t.Errorf("%s has %v", id, g.Parts)
		}
	}
}

// Planning a group of 60 members and 2000 partitions must be nothing beside a rebalance.
func BenchmarkPlan(b *testing.B) {
	big := at("m00", 1)
	for p := range int32(2000) {
		big.Owned = append(big.Owned, Part{"t", p})
	}
	ms := []Member{big}
	for i := range 59 {
		ms = append(ms, at(fmt.Sprintf("m%02d", i+1), -1))
	}
	for b.Loop() {
		Plan(ms, map[string]int32{"t": 2000})
	}
}
