package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"
)

type place struct{ topic string }

func (p place) Origin(i int) Origin { return Origin{p.topic, 3, int64(i)} }

func TestPathNamesTheWay(t *testing.T) {
	a, b := &Port{Component: "a"}, &Port{Component: "b", Stream: "odd"}
	var root Path
	one := root.Then(Step{Port: a, Ordinal: 2})
	two := one.Then(Step{Port: b})
	three := two.Then(Step{Port: a, Ordinal: 10}).Copied(0)
	for want, p := range map[string]*Path{
		"t/3/7":                    &root,
		"t/3/7:a.2":                &one,
		"t/3/7:a.2:b/odd.0":        &two,
		"t/3/7:a.2:b/odd.0:a.10~0": &three,
	} {
		var tup Tuple
		tup.Fill(nil, a, place{"t"}, 7, p, 1)
		if got := tup.ID(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if !root.Empty() || one.Empty() || root.Up() != nil || one.Up() != nil || two.Up() != &one {
		t.Error("Empty or Up is wrong")
	}
}

// Own makes a path independent of its parents' items, which are reused.
func TestPathOwn(t *testing.T) {
	port := &Port{Component: "a"}
	var slab []Path
	var owned []Path
	var want []string
	name := func(p *Path) string { return string(p.append(nil)) }
	for depth := range 20 {
		items := make([]Path, depth+1)
		for i := range items {
			if i == 0 {
				items[i] = (&Path{}).Then(Step{Port: port, Ordinal: int32(depth)})
			} else {
				items[i] = items[i-1].Then(Step{Port: port, Ordinal: int32(i)})
			}
		}
		want = append(want, name(&items[depth]))
		owned = append(owned, items[depth].Own(&slab))
		clear(items)
	}
	for i := range owned {
		if got := name(&owned[i]); got != want[i] {
			t.Errorf("depth %d: %s, want %s", i, got, want[i])
		}
	}
	other := (&Path{}).Then(Step{Port: port, Ordinal: 99})
	moved := owned[1].Under(&other)
	if got := name(&moved); got != ":a.99:a.1" {
		t.Error(got)
	}
}

func TestTupleIDs(t *testing.T) {
	port := &Port{Component: "a"}
	var tup Tuple
	tup.Fill(nil, port, nil, 0, nil, 1)
	if tup.ID() != "" {
		t.Errorf("no origin: %q", tup.ID())
	}
	if _, ok := tup.Origin(); ok {
		t.Error("an origin without a place")
	}
	tup.Fill(nil, port, place{"t"}, 4, nil, 2)
	tup.SetJoined()
	if _, ok := tup.Origin(); ok || tup.ID() != "t/3/4" {
		t.Errorf("a joined tuple has an ID, %q, but no single origin: %v", tup.ID(), ok)
	}
	tup.Fill(nil, port, place{"t"}, 4, nil, 2)
	tup.SetLoose()
	if tup.ID() != "" {
		t.Errorf("a loose tuple has the ID %q", tup.ID())
	}
	tup.SetValue(7)
	tup.Fill(nil, port, place{"t"}, 5, nil, 2)
	if _, typed := tup.Value(); typed || tup.ID() != "t/3/5" {
		t.Error("Fill leaves something of the tuple before")
	}
	if tup.Next(nil, 6); tup.ID() != "t/3/6" {
		t.Errorf("Next: %q", tup.ID())
	}
}

func TestPoison(t *testing.T) {
	var tup Tuple
	tup.Fill(nil, &Port{}, place{"t"}, 4, nil, 2)
	tup.SetValue(1)
	tup.Poison()
	if _, typed := tup.Value(); typed || tup.ID() != "" || tup.Port().Component != "(returned)" {
		t.Error("something is left")
	}
	for name, use := range map[string]func(){
		"Key": func() { tup.Rec().Key() }, "Bytes": func() { tup.Rec().Bytes() },
		"Headers": func() { tup.Rec().Headers() }, "Time": func() { tup.Rec().Time() },
	} {
		func() {
			defer func() {
				if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "use Hold to keep it") {
					t.Errorf("%s: %v", name, p)
				}
			}()
			use()
		}()
	}
}

// The mark against copies costs no room.
func TestNoCopyIsFree(t *testing.T) {
	if unsafe.Sizeof(Held{}) != unsafe.Sizeof(*new(Holder)) {
		t.Errorf("Held has %d bytes", unsafe.Sizeof(Held{}))
	}
}

// hook notes what an execution asks for.
type hook struct {
	x     *Execution[string]
	calls []string
}

func (h *hook) Hold() Holder {
	h.x.Held = true
	h.calls = append(h.calls, "hold")
	return holder{}
}
func (h *hook) HeldEmit(stream, m string) { h.calls = append(h.calls, "held "+stream+" "+m) }
func (h *hook) Misused(kind string, stale bool) {
	h.calls = append(h.calls, fmt.Sprint(kind, " ", stale))
}
func (h *hook) UnknownStream(s string) error   { return errors.New("unknown " + s) }
func (h *hook) TooMuch(emits, bytes int) error { return fmt.Errorf("too much: %d, %d", emits, bytes) }

type holder struct{}

func (holder) Tuple() *Tuple                    { return nil }
func (holder) Context() context.Context         { return context.Background() }
func (holder) Emit(string, any, []Holder) error { return nil }
func (holder) Ack() bool                        { return true }
func (holder) Decided() bool                    { return false }
func (holder) Fail(error) bool                  { return true }
func (holder) Extend(time.Duration) bool        { return true }

func newExecution(streams ...string) (*Execution[string], *hook) {
	x := &Execution[string]{Streams: streams}
	h := &hook{x: x}
	x.Hook = h
	return x, h
}

func emit(e Emitter[string], stream, m string, size int, loose bool) { e.Emit(stream, &m, size, loose) }

func TestEmitterCollects(t *testing.T) {
	x, h := newExecution("", "odd")
	e := x.Begin()
	emit(e, "", "1", 10, false)
	emit(e, "odd", "2", 5, true)
	emit(e, "", "3", 1, false)
	if fmt.Sprint(x.Out) != "[{0 false 1} {1 true 2} {0 false 3}]" || x.Bytes != 16 || x.Bad != nil || len(h.calls) != 0 {
		t.Errorf("%v, %d bytes, %v, %v", x.Out, x.Bytes, x.Bad, h.calls)
	}
	emit(e, "even", "4", 1, false)
	emit(e, "evn", "5", 1, false)
	if len(x.Out) != 3 || x.Bad == nil || x.Bad.Error() != "unknown even" {
		t.Errorf("%v, %v: the first mistake counts", x.Out, x.Bad)
	}
	out := x.Out
	x.Reset()
	if len(x.Out) != 0 || x.Bytes != 0 || x.Bad != nil {
		t.Error("Reset keeps something")
	}
	x.Clear()
	for i := range out {
		if out[i].M != "" {
			t.Error("Clear keeps something alive")
		}
	}
	if x.Current() != e {
		t.Error("Current is another execution's")
	}
}

// An emitter is good for its own execution only: no later one sees its outputs.
func TestEmitterIsStale(t *testing.T) {
	x, h := newExecution("")
	old := x.Begin()
	x.End()
	emit(old, "", "late", 1, false)
	if old.Hold() != nil {
		t.Error("Hold after the end gives a handle")
	}
	now := x.Begin()
	emit(old, "", "later", 1, true)
	emit(now, "", "fine", 1, false)
	if len(x.Out) != 1 || x.Out[0].M != "fine" {
		t.Errorf("%v", x.Out)
	}
	if got := strings.Join(h.calls, ", "); got != "emit true, hold true, emit true" {
		t.Error(got)
	}
	var zero Emitter[string]
	emit(zero, "", "x", 1, false)
	if zero.Hold() != nil {
		t.Error("the zero emitter holds something")
	}
}

func TestEmitterAfterHold(t *testing.T) {
	x, h := newExecution("", "s")
	e := x.Begin()
	emit(e, "", "before", 1, false)
	if e.Hold() == nil {
		t.Fatal("no handle")
	}
	emit(e, "s", "anchored", 1, false)
	emit(e, "", "loose", 1, true)
	if got := strings.Join(h.calls, ", "); got != "hold, held s anchored" {
		t.Error(got)
	}
	if fmt.Sprint(x.Out) != "[{0 false before} {0 true loose}]" {
		t.Errorf("%v", x.Out)
	}
}

func TestEmitterLimits(t *testing.T) {
	x, _ := newExecution("")
	e := x.Begin()
	for range MaxEmits {
		emit(e, "", "m", 1, false)
	}
	if len(x.Out) != MaxEmits || x.Bad != nil {
		t.Fatalf("%d, %v", len(x.Out), x.Bad)
	}
	emit(e, "", "m", 1, false)
	if len(x.Out) != MaxEmits || x.Bad == nil || x.Bad.Error() != "too much: 10001, 10001" {
		t.Errorf("%d, %v", len(x.Out), x.Bad)
	}
	x.Reset()
	e = x.Begin()
	emit(e, "", "m", MaxBytes, false)
	if len(x.Out) != 1 || x.Bad != nil {
		t.Errorf("exactly the limit: %v", x.Bad)
	}
	if emit(e, "", "m", 1, false); len(x.Out) != 1 || x.Bad == nil {
		t.Error("more than the limit was taken")
	}
}

// Without a topology around, streams are known when they are used.
func TestEmitterAnyStream(t *testing.T) {
	x, _ := newExecution("")
	x.Any = true
	e := x.Begin()
	for _, s := range []string{"b", "", "a", "b"} {
		emit(e, s, s, 1, false)
	}
	if strings.Join(x.Streams, ",") != ",b,a" || fmt.Sprint(x.Out) != "[{1 false b} {0 false } {2 false a} {1 false b}]" || x.Bad != nil {
		t.Errorf("%q %v %v", x.Streams, x.Out, x.Bad)
	}
}
