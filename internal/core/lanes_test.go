package core

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// naive is what Lanes does, as one would say it: one list, and a question about everything before.
type naive struct {
	all []naiveOne
}

type naiveOne struct {
	lane  uint64
	n     int
	state int // 0: waits, 1: may start, 2: under way, 3: has ended
}

// turns gives everyone a turn whose predecessors of the same lane have ended.
func (v *naive) turns() (fresh []int) {
	for i := range v.all {
		open := false
		for _, before := range v.all[:i] {
			open = open || before.lane == v.all[i].lane && before.state < 3
		}
		if !open && v.all[i].state == 0 {
			v.all[i].state = 1
			fresh = append(fresh, v.all[i].n)
		}
	}
	return fresh
}

func (v *naive) in(state int) (out []int) {
	for _, o := range v.all {
		if o.state == state {
			out = append(out, o.n)
		}
	}
	return out
}

// Whatever enters and leaves in whatever order, who may start is who the naive twin says, and their
// turns come in the order in which they were given.
func TestLanesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, v := NewLanes[int](), &naive{}
		var queue []int // whose turn has come, in the order of that
		n := 0
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				lane := rapid.Uint64Range(0, 4).Draw(t, "lane")
				v.all = append(v.all, naiveOne{lane: lane, n: n})
				fresh := v.turns()
				if got := l.Enter(lane, n); got != (len(fresh) == 1) {
					t.Fatalf("%d enters lane %d: may start: %v, the twin says %v", n, lane, got, fresh)
				}
				if len(fresh) == 1 {
					v.all[len(v.all)-1].state = 2
				}
				n++
			},
			"leave": func(t *rapid.T) {
				under := v.in(2)
				if len(under) == 0 {
					t.Skip()
				}
				who := rapid.SampledFrom(under).Draw(t, "who")
				v.all[who].state = 3
				fresh := v.turns()
				if got := l.Leave(v.all[who].lane); got != (len(fresh) == 1) {
					t.Fatalf("%d leaves: another one's turn: %v, the twin says %v", who, got, fresh)
				}
				queue = append(queue, fresh...)
			},
			"next": func(t *rapid.T) {
				got, ok := l.Next()
				if ok != (len(queue) > 0) || ok && got != queue[0] {
					t.Fatalf("next is %d, %v; the twin says %v", got, ok, queue)
				}
				if ok {
					v.all[got].state = 2
					queue = queue[1:]
				}
			},
			"": func(t *rapid.T) {
				if want := len(v.in(0)) + len(v.in(1)); l.Waiting() != want || l.Ready() != (len(queue) > 0) {
					t.Fatalf("%d wait, one is ready: %v; the twin says %d, %v", l.Waiting(), l.Ready(), want, queue)
				}
			},
		})
		// Whoever is left ends, and nothing is kept of it.
		for {
			for _, who := range v.in(2) {
				v.all[who].state = 3
				queue = append(queue, v.turns()...)
				l.Leave(v.all[who].lane)
			}
			got, ok := l.Next()
			if !ok {
				break
			}
			v.all[got].state = 2
		}
		if len(v.in(3)) != len(v.all) || l.Waiting() != 0 || len(l.busy) != 0 {
			t.Fatalf("%d of %d have ended, %d wait, %d lanes are kept", len(v.in(3)), len(v.all), l.Waiting(), len(l.busy))
		}
	})
}

// No key, the empty key and a key are three lanes.
func TestLaneOf(t *testing.T) {
	l := NewLanes[int]()
	seen := map[uint64]bool{}
	for _, key := range [][]byte{nil, {}, {0}, []byte("a"), []byte("b")} {
		if seen[l.Of(key)] {
			t.Errorf("key %v shares its lane", key)
		}
		seen[l.Of(key)] = true
		if l.Of(key) != l.Of(append([]byte(nil), key...)) && key != nil && len(key) > 0 {
			t.Errorf("key %v has two lanes", key)
		}
	}
}

// A lane that does not wait for anybody costs nothing after it has ended, and no allocation.
func TestLanesAllocs(t *testing.T) {
	if Race {
		t.Skip("the race detector allocates")
	}
	l := NewLanes[int]()
	keys := make([][]byte, 1000)
	for i := range keys {
		keys[i] = fmt.Append(nil, i%300)
	}
	turn := func() {
		for i, k := range keys {
			l.Enter(l.Of(k), i)
		}
		for _, k := range keys {
			l.Leave(l.Of(k))
			l.Next()
		}
	}
	turn()
	if n := testing.AllocsPerRun(10, turn); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if len(l.busy) != 0 || l.Waiting() != 0 {
		t.Errorf("%d lanes are kept, %d wait", len(l.busy), l.Waiting())
	}
}

func BenchmarkLanes(b *testing.B) {
	l := NewLanes[int]()
	keys := make([][]byte, 256)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key-%d", i)
	}
	for b.Loop() {
		for i, k := range keys {
			l.Enter(l.Of(k), i)
		}
		for _, k := range keys {
			l.Leave(l.Of(k))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/record")
}
