package engine_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
)

// joiner holds its inputs until n have come of one key (nil key: of all), emits one tuple
// anchored to all, and acks them.
type joiner struct {
	n  int
	mu sync.Mutex
	by map[string][]*killick.Held
}

func (j *joiner) execute(in *killick.Tuple, out killick.Emitter) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.by == nil {
		j.by = map[string][]*killick.Held{}
	}
	key := string(in.Key())
	hs := append(j.by[key], out.Hold())
	j.by[key] = hs
	if len(hs) < j.n {
		return nil
	}
	delete(j.by, key)
	m := killick.Message{Key: []byte(key)}
	if err := hs[0].Emit(m, hs[1:]...); err != nil {
		return err
	}
	for _, h := range hs {
		h.Ack()
	}
	return nil
}

// TestAcking is Storm's: three spouts, branching 2, 4 and 1, a join of all, a branch, an end.
// Each root acks exactly when all its descendants have.
func TestAcking(t *testing.T) {
	for _, tasks := range []int{1, 2} {
		t.Run(fmt.Sprint(tasks), func(t *testing.T) {
			top := killick.New("acking")
			branch := func(n int) killick.BoltFactory {
				return fn(func(in *killick.Tuple, out killick.Emitter) error {
					for range n {
						out.Emit(in.Message())
					}
					return nil
				})
			}
			j := &joiner{n: 7}
			join := top.Bolt("join", fn(j.execute)).Tasks(tasks)
			for i, n := range []int{2, 4, 1} {
				name := fmt.Sprintf("in%d", i)
				top.Spout(name, spout.Kafka(name))
				top.Bolt("branch"+name, branch(n)).Tasks(tasks).Shuffle(name)
				join.Fields("branch"+name, nil)
			}
			top.Bolt("twice", branch(2)).Tasks(tasks).Shuffle("join")
			k := newKeep()
			top.Bolt("end", bolt.Func(k.execute)).Shuffle("twice")
			one := killick.Message{Key: []byte("k")}
			e := during(t, top, func(e *env) {
				acked := func(want int) {
					t.Helper()
					synctest.Wait()
					for i := range 3 {
						if n := e.acked(fmt.Sprintf("in%d", i)); n != want {
							t.Errorf("spout %d: %d acked, want %d", i, n, want)
						}
					}
				}
				a, b := <-k.held(), <-k.held()
				acked(0)
				a.Ack()
				acked(0)
				b.Ack()
				acked(1)
			}, records("in0", one), records("in1", one), records("in2", one))
			if e.err != nil || e.total("join") != 7 || e.total("end") != 2 {
				t.Errorf("run: %v; %d joined, %d ends", e.err, e.total("join"), e.total("end"))
			}
		})
	}
}

// TestAckBranching is Storm's diamond with a four-way join: nothing acked after the first
// record, both after the second.
func TestAckBranching(t *testing.T) {
	top := topology()
	j := &joiner{n: 4}
	top.Bolt("a", fn(pass)).Shuffle("in")
	top.Bolt("b", fn(pass)).Shuffle("in")
	top.Bolt("join", fn(func(in *killick.Tuple, out killick.Emitter) error { return j.execute(in, out) })).Shuffle("a").Shuffle("b")
	k := killick.Message{Key: []byte("k")}
	e := during(t, top, func(e *env) {
		e.feeds["in"].more(1)
		synctest.Wait()
		if n := e.acked("in"); n != 0 || e.total("join") != 2 {
			t.Errorf("after the first: %d acked, %d joined", n, e.total("join"))
		}
		e.feeds["in"].more(1)
		synctest.Wait()
		if n := e.acked("in"); n != 2 {
			t.Errorf("after the second: %d acked", n)
		}
	}, records("in", k, k), func(e *env, _ *config) { e.feeds["in"].hold = 0 })
	e.wantEnds(2, 0)
}

// TestSelfAnchor is Storm's testAckingSelfAnchor: the same anchor listed twice completes.
func TestSelfAnchor(t *testing.T) {
	top := topology()
	top.Bolt("a", fn(func(_ *killick.Tuple, out killick.Emitter) error {
		h := out.Hold()
		if err := h.Emit(killick.Message{}, h, h); err != nil {
			return err
		}
		h.Ack()
		return nil
	})).Shuffle("in")
	top.Bolt("end", fn(null)).Shuffle("a")
	e := run(t, top, records("in", messages(4)...))
	e.wantEnds(4, 0)
	if e.total("end") != 4 {
		t.Errorf("%d ends", e.total("end"))
	}
}

// TestJoinOfOneRoot: two tuples of one root are joined, and the second is failed after the first
// has acked. A new try of the second alone would never see the first again: the root is replayed.
func TestJoinOfOneRoot(t *testing.T) {
	top := topology()
	top.Bolt("twice", fn(func(in *killick.Tuple, out killick.Emitter) error {
		out.Emit(in.Message())
		out.Emit(in.Message())
		return nil
	})).Shuffle("in")
	var first *killick.Held
	rounds, joined := 0, 0
	top.Bolt("join", fn(func(_ *killick.Tuple, out killick.Emitter) error {
		h := out.Hold()
		if first == nil {
			first = h
			return nil
		}
		if err := h.Emit(killick.Message{}, first); err != nil {
			return err
		}
		first.Ack()
		first = nil
		if rounds++; rounds == 1 {
			return errNo
		}
		h.Ack()
		return nil
	})).Shuffle("twice")
	top.Bolt("end", fn(func(*killick.Tuple, killick.Emitter) error { joined++; return nil })).Shuffle("join")
	e := run(t, top, records("in", messages(1)...))
	e.wantEnds(1, 0)
	if joined != 1 || e.total("twice") != 2 || e.total("join") != 4 {
		t.Errorf("%d joins, %d and %d executions", joined, e.total("twice"), e.total("join"))
	}
}

// TestJoinPartnerOpen: the holder of a join fails while its partner is open. The partner cannot
// ack any more, and both are tried again.
func TestJoinPartnerOpen(t *testing.T) {
	top := topology()
	var first *killick.Held
	rounds := 0
	top.Bolt("join", fn(func(_ *killick.Tuple, out killick.Emitter) error {
		h := out.Hold()
		if first == nil {
			first = h
			return nil
		}
		p := first
		first = nil
		if err := h.Emit(killick.Message{}, p); err != nil {
			return err
		}
		if rounds++; rounds == 1 {
			h.Fail(errNo)
			if p.Ack() {
				t.Error("the partner acked, though its join was dropped")
			}
			return nil
		}
		p.Ack()
		h.Ack()
		return nil
	})).Shuffle("in")
	top.Bolt("end", fn(null)).Shuffle("join")
	e := run(t, top, records("in", messages(2)...))
	e.wantEnds(2, 0)
	if e.total("end") != 1 || e.total("join") != 4 {
		t.Errorf("%d joins, %d executions", e.total("end"), e.total("join"))
	}
}

// TestNilKeys: they go to one task, and stay different from empty ones; so do values.
func TestNilKeys(t *testing.T) {
	in := []killick.Message{
		{Key: []byte("k")}, {Key: []byte("k"), Bytes: []byte{}}, {Bytes: []byte("v")}, {}, {Key: []byte{}, Bytes: []byte{}},
	}
	top := topology()
	top.Bolt("pass", fn(pass)).Tasks(2).Fields("in", nil)
	top.Bolt("hold", fn(func(in *killick.Tuple, out killick.Emitter) error {
		h := out.Hold()
		_ = h.Emit(h.Tuple().Message())
		h.Ack()
		return nil
	})).Tasks(2).Fields("pass", nil)
	top.Bolt("out", bolt.Kafka("out")).Shuffle("hold")
	e := run(t, top, records("in", in...))
	e.wantEnds(len(in), 0)
	show := func(k, v []byte) string { return fmt.Sprintf("%q %v %q %v", k, k == nil, v, v == nil) }
	var want, got []string
	for _, m := range in {
		want = append(want, show(m.Key, m.Bytes))
	}
	for _, o := range e.out {
		got = append(got, show(o.Key, o.Value))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestIDs: equal on every replay, distinct for siblings, through queues and joins; and the same
// with one task or several.
func TestIDs(t *testing.T) {
	var want []string
	for _, tasks := range []int{1, 3} {
		top := topology()
		var fails atomic.Int64
		top.Bolt("split", fn(func(in *killick.Tuple, out killick.Emitter) error {
			for i := range 3 {
				if i == 1 {
					out.EmitTo("odd", in.Message())
				} else {
					out.Emit(in.Message())
				}
			}
			return nil
		})).Tasks(tasks).Stream("odd", nil).Shuffle("in")
		top.Bolt("mid", fn(pass)).Tasks(tasks).Shuffle("split").Shuffle("split/odd")
		top.Bolt("deep", fn(pass)).Tasks(tasks).Fields("mid", nil)
		top.Bolt("copies", fn(pass)).Tasks(2).All("deep")
		top.Bolt("leaf", fn(func(in *killick.Tuple, out killick.Emitter) error {
			h := out.Hold()
			if in.Attempt() == 1 && offset(in)%3 == 0 {
				fails.Add(1)
				if offset(in)%2 == 0 {
					h.Fail(killick.FailTree(errNo))
				} else {
					h.Fail(errNo)
				}
			}
			h.Settle(nil)
			return nil
		})).Tasks(tasks).Shuffle("copies")
		e := run(t, top, records("in", messages(9)...))
		e.wantEnds(9, 0)
		got := e.ids("leaf")
		if len(got) != 9*3*2 || fails.Load() == 0 {
			t.Fatalf("%d IDs, %d failures", len(got), fails.Load())
		}
		if want == nil {
			want = got
			if !slices.Contains(got, "in/0/4:split/odd.1:mid.0:deep.0~1:copies.0") {
				t.Errorf("IDs: %q", got[:6])
			}
		} else if !slices.Equal(got, want) {
			t.Errorf("with %d tasks: %q, want %q", tasks, got, want)
		}
	}
}

// TestUntracked: what is anchored to nothing has no bearing on the root, no ID and no origin; nor
// has what comes of it.
func TestUntracked(t *testing.T) {
	for _, tasks := range []int{1, 2} {
		top := topology()
		top.Bolt("a", fn(func(in *killick.Tuple, out killick.Emitter) error {
			out.EmitUntracked("", in.Message())
			return nil
		})).Tasks(tasks).Shuffle("in")
		top.Bolt("b", fn(pass)).Tasks(tasks).ByPartition("a")
		var bad, seen atomic.Int64
		top.Bolt("c", fn(func(in *killick.Tuple, out killick.Emitter) error {
			seen.Add(1)
			_, ok := in.Origin()
			if in.ID() != "" || ok || len(in.Bytes()) == 0 {
				bad.Add(1)
			}
			switch h := out.Hold(); {
			case in.Bytes()[0]%2 == 0:
				return killick.Permanent(errNo)
			case in.Attempt() == 1:
				h.Fail(errNo)
			default:
				_ = h.Emit(in.Message())
				h.Ack()
			}
			return nil
		})).Tasks(tasks).Shuffle("b")
		top.Bolt("d", fn(null)).Tasks(tasks).Shuffle("c")
		e := run(t, top, records("in", messages(10)...))
		e.wantEnds(10, 0)
		if seen.Load() != 15 || bad.Load() != 0 || e.total("d") != 5 {
			t.Errorf("%d seen, %d bad, %d came through", seen.Load(), bad.Load(), e.total("d"))
		}
	}
}

// TestPayloads: keys, values and headers come through chains and queues as they were.
func TestPayloads(t *testing.T) {
	for _, tasks := range []int{1, 2} {
		big := bytes.Repeat([]byte{0xff, 0}, 1<<19)
		var many []killick.Header
		for i := range 10_000 {
			many = append(many, killick.Header{Key: "h", Value: []byte{byte(i)}})
		}
		ms := []killick.Message{{Key: []byte{0, 0xff}, Bytes: big}, {Bytes: []byte("h"), Headers: many},
			{Headers: []killick.Header{{Key: "", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "a", Value: []byte("b")}}}}
		top := topology()
		top.Bolt("a", fn(pass)).Tasks(tasks).Shuffle("in")
		top.Bolt("b", fn(func(in *killick.Tuple, out killick.Emitter) error {
			if in.Attempt() == 1 {
				return errNo
			}
			return pass(in, out)
		})).Tasks(tasks).Shuffle("a")
		top.Bolt("out", bolt.Kafka("out")).Shuffle("b")
		e := run(t, top, records("in", ms...))
		e.wantEnds(3, 0)
		left := map[string]bool{}
		for _, m := range ms {
			left[fmt.Sprintf("%q %q %#v", m.Key, m.Bytes, m.Headers)] = true
		}
		for _, o := range e.out {
			var hs []killick.Header
			for _, h := range o.Headers {
				hs = append(hs, killick.Header(h))
			}
			delete(left, fmt.Sprintf("%q %q %#v", o.Key, o.Value, hs))
		}
		if len(left) != 0 {
			t.Errorf("%d messages changed: %.200q", len(left), slices.Collect(maps.Keys(left)))
		}
	}
}
