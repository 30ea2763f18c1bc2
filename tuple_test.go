package killick_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv"
)

// byteCases are the values in which nil and empty must stay different.
var byteCases = [][]byte{nil, {}, []byte("v"), {0xff, 0x00}}

func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func TestTupleOfBytes(t *testing.T) {
	at := time.UnixMilli(1700000000123)
	for _, key := range byteCases {
		for _, value := range byteCases {
			for _, hs := range [][]killick.Header{nil, {}, {{Key: "a", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "", Value: []byte("x")}}} {
				for _, m := range []killick.Message{
					{Key: key, Bytes: value, Headers: hs, Time: at},
					{Key: key, Value: value, Headers: hs, Time: at}, // counts as Bytes
				} {
					in := testenv.Tuple(m)
					if !same(in.Key(), key) || !same(in.Bytes(), value) {
						t.Errorf("%q %q became %q %q", key, value, in.Key(), in.Bytes())
					}
					if v := in.Value(); value == nil && v != nil {
						t.Errorf("a null value is %#v", v)
					} else if value != nil && !same(v.([]byte), value) {
						t.Errorf("%q is %#v", value, v)
					}
					if got := in.Headers(); len(got) != len(hs) || (got == nil) != (hs == nil) {
						t.Errorf("headers %v became %v", hs, got)
					} else {
						for i := range got {
							if got[i].Key != hs[i].Key || !same(got[i].Value, hs[i].Value) {
								t.Errorf("header %v became %v", hs[i], got[i])
							}
						}
						for i := range got {
							got[i] = killick.Header{} // a copy: the tuple's stay
						}
						if len(hs) > 0 && in.Headers()[2].Key != hs[2].Key {
							t.Error("Headers is not a copy")
						}
					}
					if got := in.Time(); !got.Equal(at) || got.Location() != time.UTC {
						t.Errorf("time %v", got)
					}
					if out := in.Message(); !same(out.Key, key) || !same(out.Bytes, value) || out.Value != nil || !out.Time.Equal(at) {
						t.Errorf("message %+v", out)
					}
				}
			}
		}
	}
}

func TestTupleOfValue(t *testing.T) {
	in := testenv.Tuple(killick.Message{Value: "text"})
	if in.Value() != "text" || string(in.Bytes()) != "text" {
		t.Errorf("%v %q", in.Value(), in.Bytes())
	}
	if m := in.Message(); m.Value != "text" || m.Bytes != nil {
		t.Errorf("%+v", m)
	}
	if c, s := in.Source(); c != "testenv" || s != "" {
		t.Errorf("source %q %q", c, s)
	}
	if in.Attempt() != 1 {
		t.Errorf("attempt %d", in.Attempt())
	}
	o, ok := in.Origin()
	if !ok || o.Topic != "testenv" {
		t.Errorf("origin %v %v", o, ok)
	}
}

// Times are in milliseconds wherever a tuple comes from, as they are behind Kafka.
func TestTimeIsInMilliseconds(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_999_999, time.FixedZone("x", 3600))
	want := time.Date(2026, 1, 2, 2, 4, 5, 678_000_000, time.UTC)
	if got := testenv.Tuple(killick.Message{Time: at}).Time(); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	var got []time.Time
	note := func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
		got = append(got, in.Time(), in.Message().Time)
		out.Emit(killick.Message{}) // with its input's time
		return nil
	}
	top := killick.New("times")
	top.Spout("in", spout.Slice(killick.Message{Time: at}))
	top.Bolt("a", bolt.Func(note)).Shuffle("in")
	top.Bolt("b", bolt.Func(note)).Shuffle("a")
	testenv.Run(t, top)
	if len(got) != 4 {
		t.Fatalf("%v", got)
	}
	for i, g := range got {
		if g != want {
			t.Errorf("%d: %v, want %v", i, g, want)
		}
	}
}

// What a tuple is called, and where it comes from, on its way through a topology.
func TestIDAndSource(t *testing.T) {
	type seen struct{ id, component, stream string }
	var got []seen
	note := func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		c, s := in.Source()
		got = append(got, seen{in.ID(), c, s})
		if o, ok := in.Origin(); ok != (in.ID() != "") || ok && o != (killick.Origin{Topic: "t", Offset: 1}) && o != (killick.Origin{Topic: "t"}) {
			t.Errorf("%s: origin %v %v", in.ID(), o, ok)
		}
		return nil
	}
	build := func() *killick.Topology {
		top := killick.New("ids")
		top.Spout("in", spout.Kafka("t"))
		top.Bolt("split", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			out.Emit(in.Message())
			out.EmitTo("odd", in.Message())
			out.Emit(in.Message())
			if o, _ := in.Origin(); o.Offset == 1 && in.Attempt() == 1 {
				return errors.New("again") // the replay names its outputs as the first try did
			}
			return nil
		})).Shuffle("in").Stream("odd", nil)
		top.Bolt("note", bolt.Func(note)).Global("split").Global("split/odd")
		return top
	}
	for range 2 {
		got = nil
		r := testenv.Run(t, build(), testenv.Feed("in", killick.Message{}, killick.Message{}))
		if r.Acked("in") != 2 {
			t.Fatalf("acked %d", r.Acked("in"))
		}
		want := map[seen]bool{}
		for _, o := range []string{"t/0/0", "t/0/1"} {
			want[seen{o + ":split.0", "split", ""}] = true
			want[seen{o + ":split/odd.1", "split", "odd"}] = true
			want[seen{o + ":split.2", "split", ""}] = true
		}
		for _, s := range got {
			if !want[s] {
				t.Errorf("not expected, or twice: %+v", s)
			}
			delete(want, s)
		}
		if len(want) > 0 {
			t.Errorf("missing: %v", want)
		}
	}
}

// A tuple that is kept after Execute is found, at least in tests and under -race.
func TestKeptTuple(t *testing.T) {
	var kept *killick.Tuple
	_, err := testenv.Execute(t.Context(), bolt.ExecuteFunc(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		kept = in
		return nil
	}), killick.Message{Key: []byte("k")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if p := recover(); p == nil || !strings.Contains(p.(string), "use Hold to keep it") {
			t.Errorf("panic %v", p)
		}
	}()
	kept.Key()
}

// The zero values of handles do nothing, and do not panic.
func TestZeroHandles(t *testing.T) {
	var out killick.Emitter
	out.Emit(killick.Message{})
	out.EmitTo("s", killick.Message{})
	out.EmitUntracked("s", killick.Message{})
	for _, h := range []*killick.Held{nil, out.Hold()} {
		if h.Ack() || h.Fail(nil) || h.Extend(time.Hour) || h.Tuple() != nil {
			t.Error("a verdict on nothing counts")
		}
		h.Settle(nil)
		if err := h.Emit(killick.Message{}); !errors.Is(err, killick.ErrFinished) {
			t.Errorf("Emit: %v", err)
		}
		if err := h.EmitTo("s", killick.Message{}, nil); !errors.Is(err, killick.ErrFinished) {
			t.Errorf("EmitTo: %v", err)
		}
		if ctx := h.Context(); ctx.Err() == nil || !errors.Is(context.Cause(ctx), killick.ErrFinished) {
			t.Error("the context of nothing has not ended")
		}
	}
}

// The limit of one execution's outputs counts bytes and text wherever a message has them.
func TestOutputsAreWeighed(t *testing.T) {
	big := make([]byte, 3<<20)
	for name, m := range map[string]killick.Message{
		"key":      {Key: big},
		"bytes":    {Bytes: big},
		"value":    {Value: big},
		"text":     {Value: string(big)},
		"headers":  {Headers: []killick.Header{{Key: "h", Value: big}}},
		"one item": {Value: struct{}{}}, // of unknown size
	} {
		r, err := testenv.Execute(t.Context(), bolt.Func(func(_ context.Context, _ *killick.Tuple, out killick.Emitter) error {
			for range 3 {
				out.Emit(m)
			}
			return nil
		})(), killick.Message{})
		if tooMuch := name != "one item"; killick.IsPermanent(err) != tooMuch || (len(r.Emitted("")) == 0) != tooMuch {
			t.Errorf("%s: %v, %d left", name, err, len(r.Emitted("")))
		}
	}
}

// Both ways to give the payload at once are a mistake, wherever it is made.
func TestBytesAndValue(t *testing.T) {
	both := killick.Message{Bytes: []byte("b"), Value: "v"}
	top := killick.New("both")
	top.Spout("in", spout.Slice(both, killick.Message{Value: "fine"}))
	top.Bolt("b", bolt.Func(func(_ context.Context, _ *killick.Tuple, out killick.Emitter) error {
		out.Emit(both)
		return nil
	})).Shuffle("in")
	top.Bolt("c", bolt.Func(noop)).Shuffle("b")
	r := testenv.Run(t, top)
	if r.Acked("in") != 0 || len(r.Attempts("b")) != 1 || len(r.Attempts("c")) != 0 {
		t.Errorf("acked %d, b %v, c %v", r.Acked("in"), r.Attempts("b"), r.Attempts("c"))
	}
	for id, n := range r.Attempts("b") {
		if n != 1 {
			t.Errorf("%s was tried %d times: the failure is permanent", id, n)
		}
	}
}
