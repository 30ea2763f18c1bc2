package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/spout"
)

// TestBadEmits: what a bolt emits wrongly fails its input for good, whole, and says what to do.
func TestBadEmits(t *testing.T) {
	type thing struct{ N int }
	panics := killick.NewCodec(func(string) ([]byte, error) { panic("boom") }, func([]byte) (string, error) { panic("boom") })
	broken := killick.NewCodec(func(string) ([]byte, error) { return nil, errNo }, func([]byte) (string, error) { return "", errNo })
	for _, c := range []struct {
		name      string
		codec     killick.Codec
		roundTrip bool
		emit      func(out killick.Emitter)
		want      string
	}{
		{"unknown stream", nil, false, func(out killick.Emitter) { out.EmitTo("nowhere", killick.Message{}) }, `declares no stream "nowhere"; add .Stream("nowhere", codec)`},
		{"untracked on an unknown stream", nil, false, func(out killick.Emitter) { out.EmitUntracked("nowhere", killick.Message{}) }, `declares no stream "nowhere"`},
		{"held on an unknown stream", nil, false, func(out killick.Emitter) {
			h := out.Hold()
			if err := h.EmitTo("nowhere", killick.Message{}); err == nil {
				t.Error("no error")
			}
			if h.Ack() {
				t.Error("acked")
			}
		}, `declares no stream "nowhere"`},
		{"unknown stream, then held", nil, false, func(out killick.Emitter) {
			out.EmitTo("nowhere", killick.Message{})
			if out.Hold().Ack() {
				t.Error("acked")
			}
		}, `declares no stream "nowhere"`},
		{"unknown stream after Hold", nil, false, func(out killick.Emitter) {
			h := out.Hold()
			out.EmitTo("nowhere", killick.Message{})
			if h.Ack() {
				t.Error("acked")
			}
		}, `declares no stream "nowhere"`},
		{"untracked on an unknown stream after Hold", nil, false, func(out killick.Emitter) {
			h := out.Hold()
			out.EmitUntracked("nowhere", killick.Message{})
			if h.Ack() {
				t.Error("acked")
			}
		}, `declares no stream "nowhere"`},
		{"too many, then held", nil, false, func(out killick.Emitter) {
			for range core.MaxEmits + 1 {
				out.Emit(killick.Message{})
			}
			if out.Hold().Ack() {
				t.Error("acked")
			}
		}, "more than 10000 messages"},
		{"both bytes and value", nil, false, func(out killick.Emitter) { out.Emit(killick.Message{Bytes: []byte("a"), Value: "b"}) }, "both Bytes and a Value"},
		{"both, bytes twice", nil, false, func(out killick.Emitter) { out.Emit(killick.Message{Bytes: []byte("a"), Value: []byte("b")}) }, "both Bytes and a Value"},
		{"another type", killick.String(), false, func(out killick.Emitter) { out.Emit(killick.Message{Value: thing{1}}) }, "carries string, but a engine_test.thing was emitted"},
		{"undecodable bytes", killick.String(), false, func(out killick.Emitter) { out.Emit(killick.Message{Bytes: []byte{0xff}}) }, "not valid UTF-8"},
		{"unencodable", broken, true, func(out killick.Emitter) { out.Emit(killick.Message{Value: "x"}) }, "cannot encode the value: no"},
		{"encoder panics", panics, true, func(out killick.Emitter) { out.Emit(killick.Message{Value: "x"}) }, "panic: boom"},
		{"decoder panics", panics, false, func(out killick.Emitter) { out.Emit(killick.Message{Bytes: []byte("x")}) }, "panic: boom"},
		{"too many", nil, false, func(out killick.Emitter) {
			for range core.MaxEmits + 1 {
				out.Emit(killick.Message{})
			}
		}, "more than 10000 messages"},
		{"too large", nil, false, func(out killick.Emitter) {
			for range 9 {
				out.Emit(killick.Message{Bytes: make([]byte, 1<<20)})
			}
		}, "8388608 bytes"},
		{"too many held", nil, false, func(out killick.Emitter) {
			h := out.Hold()
			for range core.MaxEmits + 1 {
				_ = h.Emit(killick.Message{})
			}
			if h.Ack() {
				t.Error("acked")
			}
		}, "more than 10000 messages"},
		{"too large held", nil, false, func(out killick.Emitter) {
			h := out.Hold()
			for range 9 {
				_ = h.Emit(killick.Message{Bytes: make([]byte, 1<<20)})
			}
			h.Ack()
		}, "8388608 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			top := topology()
			top.Bolt("a", fn(func(in *killick.Tuple, out killick.Emitter) error {
				out.EmitTo("good", killick.Message{})
				c.emit(out)
				return nil
			})).Stream("", c.codec).Stream("good", nil).Shuffle("in")
			top.Bolt("leaf", fn(null)).Shuffle("a").Shuffle("a/good")
			e := run(t, top, records("in", messages(2)...), with(func(k *config) { k.RoundTrip = c.roundTrip }))
			e.wantEnds(0, 2)
			d := e.dead("in")[0]
			if d.Component != "a" || d.Attempts != 1 || !strings.Contains(d.Err.Error(), c.want) {
				t.Errorf("cause %+v", d)
			}
			if e.total("leaf") != 0 {
				t.Error("an emit left, though its try failed")
			}
		})
	}
}

// TestMostEmits: the limit itself is allowed.
func TestMostEmits(t *testing.T) {
	top := topology()
	top.Bolt("a", fn(func(in *killick.Tuple, out killick.Emitter) error {
		for range core.MaxEmits {
			out.Emit(killick.Message{})
		}
		return nil
	})).Shuffle("in")
	run(t, top, records("in", messages(3)...)).wantEnds(3, 0)
}

// TestCodecs: values come as their stream's codec makes them, with and without a round trip; a
// null value passes by; a value that the reader cannot encode fails the reader.
func TestCodecs(t *testing.T) {
	type thing struct{ N int }
	for _, roundTrip := range []bool{false, true} {
		top := killick.New("codecs")
		top.Spout("in", spout.KafkaSource{Topics: []string{"in"}, Codec: killick.JSON[thing]()})
		top.Bolt("a", fn(func(in *killick.Tuple, out killick.Emitter) error {
			switch v := in.Value().(type) {
			case thing:
				if v.N == 8 {
					out.EmitTo("any", killick.Message{Value: make(chan int)})
					return nil
				}
				out.Emit(killick.Message{Value: v.N})
			case nil:
				out.Emit(killick.Message{})
				out.EmitTo("bytes", killick.Message{Value: []byte("raw")})
				out.EmitTo("bytes", killick.Message{Value: []byte(nil)})
			default:
				return fmt.Errorf("a %T", v)
			}
			return nil
		})).Stream("", killick.JSON[int]()).Stream("any", nil).Stream("bytes", killick.Bytes()).Shuffle("in")
		var mu sync.Mutex
		var got []string
		top.Bolt("b", fn(func(in *killick.Tuple, _ killick.Emitter) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprintf("%v %s", in.Value(), in.Bytes()))
			return nil
		})).Shuffle("a").Shuffle("a/bytes")
		top.Bolt("c", fn(func(in *killick.Tuple, _ killick.Emitter) error {
			if in.Value() == nil {
				t.Error("no value")
			}
			in.Bytes() // of a channel: no codec can
			return nil
		})).Shuffle("a/any")
		e := run(t, top, records("in", killick.Message{Bytes: []byte(`{"N":7}`)}, killick.Message{Bytes: []byte(`{"N":8}`)}, killick.Message{}, killick.Message{Bytes: []byte("{")}),
			with(func(k *config) { k.RoundTrip = roundTrip }))
		e.wantEnds(2, 2)
		slices.Sort(got)
		if want := []string{"7 7", "<nil> ", "<nil> ", "[114 97 119] raw"}; !slices.Equal(got, want) {
			t.Errorf("round trip %v: got %q", roundTrip, got)
		}
		var reasons []string
		for _, d := range e.dead("in") {
			reasons = append(reasons, d.Component+" "+d.Reason)
		}
		slices.Sort(reasons)
		if !slices.Equal(reasons, []string{"c codec", "in decode"}) {
			t.Errorf("dead of %q", reasons)
		}
	}
}

// TestMisuse: the emitter of a returned execution changes nothing; each use is counted, and told
// of with its place.
func TestMisuse(t *testing.T) {
	top := topology()
	var old []killick.Emitter
	top.Bolt("a", fn(func(in *killick.Tuple, out killick.Emitter) error {
		for _, o := range old {
			o.Emit(in.Message())
			o.EmitTo("nowhere", in.Message())
			o.EmitUntracked("", in.Message())
			h := o.Hold()
			if h.Tuple() != nil || h.Ack() || h.Fail(errNo) || h.Extend(time.Hour) || h.Context().Err() == nil || !errors.Is(h.Emit(in.Message()), killick.ErrFinished) {
				t.Error("the handle of a returned execution does something")
			}
			good := out.Hold()
			if !errors.Is(good.Emit(in.Message(), h), killick.ErrFinished) {
				t.Error("joined with the handle of a returned execution")
			}
			good.Ack()
		}
		old = append(old[:0], out)
		return nil
	})).Shuffle("in")
	top.Bolt("leaf", fn(null)).Shuffle("a")
	e := run(t, top, records("in", messages(11)...))
	e.wantEnds(11, 0)
	if n := e.stats("a").Misuse; n != 40 || e.total("leaf") != 0 {
		t.Errorf("%d misuses, %d leaves", n, e.total("leaf"))
	}
	evs := e.of(engine.Misuse)
	if len(evs) != 40 || !strings.Contains(evs[0].Err.Error(), "misuse_test.go:") || evs[3].Reason != "hold" {
		t.Errorf("%d events, %v", len(evs), evs[0].Err)
	}
}

// TestMisuseOfHeld: emits and verdicts after the verdict, and tuples that are held and forgotten, are
// told of with the line of code; the first few of a kind, then one a second. The counters are exact.
func TestMisuseOfHeld(t *testing.T) {
	const n = 40
	top := topology()
	top.Bolt("a", fn(func(in *killick.Tuple, out killick.Emitter) error {
		h := out.Hold() // the place of those that are forgotten
		if string(in.Bytes())[0]%2 == 0 {
			return nil
		}
		h.Ack()
		h.Ack()
		h.Fail(errNo)
		_ = h.Emit(in.Message())
		return nil
	})).Shuffle("in").Timeout(time.Second).Retry(killick.Retry{Attempts: 2, Min: time.Millisecond, Max: time.Millisecond})
	var ms []killick.Message
	for i := range n {
		ms = append(ms, killick.Message{Bytes: []byte{byte(i)}})
	}
	e := run(t, top, records("in", ms...))
	if got := e.stats("a"); got.Misuse != n/2 || got.Timeouts != n {
		t.Errorf("misuse %d, timeouts %d", got.Misuse, got.Timeouts)
	}
	if got := e.ignored()[0]; got != n {
		t.Errorf("%d double verdicts", got)
	}
	kinds := map[string]int{}
	for _, ev := range e.of(engine.Misuse) {
		kinds[ev.Reason]++
		if !strings.Contains(ev.Err.Error(), "misuse_test.go:") {
			t.Errorf("no place: %v", ev.Err)
		}
	}
	for _, kind := range []string{"late_emit", "double_verdict"} {
		if k := kinds[kind]; k < 8 || k > 12 {
			t.Errorf("%s was told of %d times", kind, k)
		}
	}
	named := 0
	for _, ev := range e.of(engine.TupleDead) {
		if ev.Reason != "timeout" {
			t.Errorf("dead of %q: %v", ev.Reason, ev.Err)
		} else if strings.Contains(ev.Err.Error(), "it was held at") && strings.Contains(ev.Err.Error(), "misuse_test.go:") {
			named++
		}
	}
	if named != n/2 {
		t.Errorf("%d of %d name the line that held them", named, n/2)
	}
}

// TestHold: twice gives the same handle; emits go over to it; an error after it is its failure,
// and one after the verdict is told of.
func TestHold(t *testing.T) {
	top := topology()
	top.Bolt("a", fn(func(in *killick.Tuple, out killick.Emitter) error {
		out.Emit(in.Message())
		out.EmitUntracked("", in.Message())
		h := out.Hold()
		if out.Hold() != h {
			t.Error("another handle")
		}
		out.Emit(in.Message())
		out.EmitUntracked("", in.Message())
		switch o := offset(in); {
		case o == 0 && in.Attempt() == 1:
			return errNo
		case o == 1:
			h.Ack()
			out.Emit(in.Message())              // misuse
			out.EmitUntracked("", in.Message()) // leaves all the same
			return errNo                        // changes nothing
		case o == 2:
			h.Ack()
			out.EmitUntracked("", in.Message())
			return nil
		}
		h.Ack()
		return nil
	})).Shuffle("in")
	top.Bolt("leaf", fn(null)).Shuffle("a")
	e := run(t, top, records("in", messages(3)...))
	e.wantEnds(3, 0)
	if e.total("a") != 4 || e.stats("a").Misuse != 1 || e.ignored() != [3]int64{} || len(e.of(engine.HookFailed)) != 1 {
		t.Errorf("%d executions, misuse %d, ignored %v, %d told", e.total("a"), e.stats("a").Misuse, e.ignored(), len(e.of(engine.HookFailed)))
	}
	// Tracked: 2 of each. Untracked: 2 of the first, 3 of the third; of the second, whose
	// execution returned an error, none but what had gone over to the handle: none.
	if n := e.total("leaf"); n != 6+2+3 {
		t.Errorf("%d leaves", n)
	}
}

// TestKeptTuple: under -race a bolt that uses its input after Execute has returned is found; a
// held one stays valid.
func TestKeptTuple(t *testing.T) {
	top := topology()
	var kept *killick.Tuple
	var held *killick.Held
	top.Bolt("a", fn(func(in *killick.Tuple, out killick.Emitter) error {
		if kept == nil {
			kept, held = in, out.Hold()
			return nil
		}
		if core.Race {
			defer func() {
				if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "after Execute had returned") {
					t.Errorf("the kept tuple: %v", p)
				}
			}()
		}
		if in := held.Tuple(); string(in.Key()) != "k0" || string(in.Bytes()) != "0" || in.ID() != "in/0/0" || in.Attempt() != 1 {
			t.Error("the held tuple changed")
		}
		held.Ack()
		if core.Race {
			kept.Key()
		}
		return nil
	})).Shuffle("in")
	run(t, top, records("in", messages(2)...)).wantEnds(2, 0)
}

// TestSinks: acked when durable; a refused record is a failed try; room is waited for without a
// clock; a sink that holds and joins ends all edges.
func TestSinks(t *testing.T) {
	refuse := map[string]int{"3": 2, "5": 100}
	var mu sync.Mutex
	full := false
	box := outboxFunc(func(o *engine.Output) error {
		mu.Lock()
		defer mu.Unlock()
		switch v := string(o.Value); {
		case v == "7" && !full:
			full = true
			return errors.New("no room") // Done will not be called
		case refuse[v] > 0:
			refuse[v]--
			time.AfterFunc(time.Second, func() { o.Done(errNo) })
		default:
			time.AfterFunc(time.Minute, func() { o.Done(nil) })
		}
		return nil
	})
	top := topology()
	top.Bolt("out", bolt.KafkaSink{TopicOf: func(in *killick.Tuple) string {
		switch string(in.Bytes()) {
		case "9":
			panic("boom")
		case "8":
			return ""
		}
		return "t" + string(in.Key())
	}}.New).Timeout(10 * time.Second).Shuffle("in")
	e := run(t, top, records("in", messages(10)...), with(func(c *config) { c.Outbox = box }))
	e.wantEnds(7, 3)
	var got []string
	for _, d := range e.dead("in") {
		got = append(got, fmt.Sprintf("%s %s %d %.30s", d.Value, d.Reason, d.Attempts, d.Err))
	}
	slices.Sort(got)
	want := []string{"5 produce 5 produce: no", `8 permanent 1 killick: the sink "out" has no`, "9 permanent 1 panic: boom\ngoroutine"}
	if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || !strings.HasPrefix(got[2], want[2][:20]) {
		t.Errorf("dead: %q", got)
	}
}

// TestHeldSink: a sink of one's own that holds and joins its inputs: the edges of a join end when
// its record is durable, and if it is refused the roots of all that were joined run again.
func TestHeldSink(t *testing.T) {
	for _, fails := range []bool{false, true} {
		top := topology()
		var first *killick.Held
		top.Bolt("out", func() killick.Bolt {
			return sinkFunc(func(_ *killick.Tuple, out killick.Emitter) error {
				h := out.Hold()
				if first == nil {
					first = h
					return nil
				}
				p := first
				first = nil
				if err := h.Emit(killick.Message{Bytes: []byte("x")}, p); err != nil {
					return err
				}
				p.Ack()
				h.Ack()
				return nil
			})
		}).Shuffle("in")
		var puts atomic.Int64
		e := run(t, top, records("in", messages(10)...), with(func(c *config) {
			c.Outbox = outboxFunc(func(o *engine.Output) error {
				var err error
				if n := puts.Add(1); fails && n == 2 {
					err = errNo
				}
				time.AfterFunc(time.Second, func() { o.Done(err) })
				return nil
			})
		}))
		e.wantEnds(10, 0)
		if want := map[bool]int{false: 5, true: 6}[fails]; int(puts.Load()) != want {
			t.Errorf("fails %v: %d puts", fails, puts.Load())
		}
	}
}

type outboxFunc func(o *engine.Output) error

func (f outboxFunc) Put(_ ctx, o *engine.Output) error { return f(o) }

type sinkFunc func(in *killick.Tuple, out killick.Emitter) error

func (f sinkFunc) Execute(_ ctx, in *killick.Tuple, out killick.Emitter) error { return f(in, out) }
func (f sinkFunc) BoltInfo() (killick.BoltInfo, error) {
	return killick.BoltInfo{Sink: &killick.SinkInfo{Topic: "t"}}, nil
}

// TestNew: what cannot be run is refused, by name.
func TestNew(t *testing.T) {
	for name, c := range map[string]struct {
		build func(top *killick.Topology)
		cfg   func(c *config)
		want  string
	}{
		"no feed":   {func(top *killick.Topology) { top.Bolt("a", fn(null)).Shuffle("in") }, func(c *config) { c.Feeds = nil }, `spout "in" has no feed`},
		"no outbox": {func(top *killick.Topology) { top.Bolt("out", bolt.Kafka("t")).Shuffle("in") }, func(c *config) { c.Outbox = nil }, `"out" is a sink, but there is no outbox`},
	} {
		top := topology()
		c.build(top)
		spec, err := top.Spec()
		if err != nil {
			t.Fatal(err)
		}
		cfg := config{Spec: spec, Feeds: map[string]engine.Feed{"in": newFeed(t, "in", 1, 1, nil)}, Outbox: outboxFunc(nil)}
		c.cfg(&cfg)
		if _, err := engine.New(cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// keeper checks that what it saw stays as it was.
type keeper struct {
	mu   sync.Mutex
	held []*killick.Held
	copy []string
}

func show(in *killick.Tuple) string {
	s := in.ID() + "|" + string(in.Key()) + "|" + string(in.Bytes())
	for _, h := range in.Headers() {
		s += "|" + h.Key + "|" + string(h.Value)
	}
	return s + "|" + strconv.FormatInt(in.Time().UnixMilli(), 10) + "|" + strconv.Itoa(in.Attempt())
}

func (k *keeper) check(t *testing.T) {
	t.Helper()
	for i, h := range k.held {
		if got := show(h.Tuple()); got != k.copy[i] {
			t.Fatalf("held tuple %d changed: %s, it was %s", i, got, k.copy[i])
		}
	}
}

// TestNullBytesValue: a nil []byte as Value is a null value for a sink, too: no codec sees it.
func TestNullBytesValue(t *testing.T) {
	codec := killick.NewCodec(func(b []byte) ([]byte, error) { return append([]byte("sealed "), b...), nil }, func(b []byte) ([]byte, error) { return b[7:], nil })
	top := topology()
	top.Bolt("out", func() killick.Bolt {
		return &codecSink{codec, func(in *killick.Tuple, out killick.Emitter) error {
			out.Emit(killick.Message{Value: []byte(nil)})
			out.Emit(killick.Message{Value: []byte{}})
			out.Emit(killick.Message{Value: in.Bytes()})
			return nil
		}}
	}).Shuffle("in")
	e := run(t, top, records("in", messages(1)...))
	e.wantEnds(1, 0)
	var got []string
	for _, o := range e.out {
		got = append(got, fmt.Sprintf("%q %v", o.Value, o.Value == nil))
	}
	if want := []string{`"" true`, `"sealed " false`, `"sealed 0" false`}; !slices.Equal(got, want) {
		t.Errorf("written: %q", got)
	}
}

type codecSink struct {
	codec killick.Codec
	f     func(in *killick.Tuple, out killick.Emitter) error
}

func (s *codecSink) Execute(_ ctx, in *killick.Tuple, out killick.Emitter) error { return s.f(in, out) }
func (s *codecSink) BoltInfo() (killick.BoltInfo, error) {
	return killick.BoltInfo{Sink: &killick.SinkInfo{Topic: "t", Codec: s.codec}}, nil
}
