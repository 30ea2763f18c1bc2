package testenv_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/testenv"
)

// collector is a bolt with state: it holds its inputs until the test decides.
type collector struct{ held []*killick.Held }

func (c *collector) Execute(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
	out.Emit(killick.Message{Bytes: append([]byte("before "), in.Bytes()...)})
	h := out.Hold()
	if out.Hold() != h && out.Hold().Tuple() != h.Tuple() {
		return errors.New("Hold gave another handle")
	}
	out.Emit(killick.Message{Bytes: append([]byte("after "), in.Bytes()...)})
	out.EmitUntracked("log", killick.Message{Bytes: in.Bytes()})
	c.held = append(c.held, h)
	return nil
}

func text(ms []killick.Message) string {
	var s []string
	for _, m := range ms {
		s = append(s, string(m.Bytes))
	}
	return strings.Join(s, ",")
}

func execute(t *testing.T, b killick.Bolt, value string) *testenv.Recorder {
	t.Helper()
	r, err := testenv.Execute(t.Context(), b, killick.Message{Bytes: []byte(value)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func verdict(t *testing.T, r *testenv.Recorder, ended bool, want error) {
	t.Helper()
	if is, err := r.Verdict(); is != ended || !errors.Is(err, want) || (err == nil) != (want == nil) {
		t.Errorf("verdict %v, %v; want %v, %v", is, err, ended, want)
	}
}

func TestExecute(t *testing.T) {
	boom := errors.New("boom")
	f := bolt.ExecuteFunc(func(ctx context.Context, in *killick.Tuple, out killick.Emitter) error {
		out.Emit(killick.Message{Bytes: []byte("1")})
		out.EmitTo("side", killick.Message{Bytes: []byte("2")})
		out.EmitUntracked("", killick.Message{Bytes: []byte("3")})
		switch string(in.Bytes()) {
		case "error":
			return boom
		case "panic":
			panic(boom)
		case "both":
			out.Emit(killick.Message{Bytes: []byte("4"), Value: 4})
		case "much":
			for range 20_000 {
				out.Emit(killick.Message{})
			}
		}
		return nil
	})
	r := execute(t, f, "fine")
	verdict(t, r, true, nil)
	if text(r.Emitted("")) != "1,3" || text(r.Emitted("side")) != "2" || r.Emitted("other") != nil {
		t.Errorf("%q %q", r.Emitted(""), r.Emitted("side"))
	}
	select {
	case <-r.Done():
	default:
		t.Error("Done is not closed")
	}
	for value, want := range map[string]string{"error": "boom", "panic": "panic: boom", "both": "both Bytes and a Value", "much": "more than 10000 messages"} {
		r, err := testenv.Execute(t.Context(), f, killick.Message{Bytes: []byte(value)})
		if err == nil || !strings.Contains(err.Error(), want) || killick.IsPermanent(err) != (value == "both" || value == "much") {
			t.Errorf("%s: %v", value, err)
		}
		verdict(t, r, true, err)
		if len(r.Emitted(""))+len(r.Emitted("side")) != 0 {
			t.Errorf("%s: a failed try leaves nothing behind: %q", value, r.Emitted(""))
		}
		if value == "panic" && !strings.Contains(err.Error(), "execute_test.go") {
			t.Errorf("no stack: %v", err)
		}
	}
	if _, err := testenv.Execute(t.Context(), f, killick.Message{Bytes: []byte("a"), Value: "b"}); err == nil {
		t.Error("an input with Bytes and a Value was accepted")
	}
}

// The context is the test's.
func TestExecuteContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := testenv.Execute(ctx, bolt.ExecuteFunc(func(ctx context.Context, _ *killick.Tuple, _ killick.Emitter) error { return ctx.Err() }), killick.Message{})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestExecuteHeld(t *testing.T) {
	boom := errors.New("boom")
	c := &collector{}
	r1, r2 := execute(t, c, "a"), execute(t, c, "b")
	verdict(t, r1, false, nil)
	if len(r1.Emitted("")) != 0 || len(r1.Emitted("log")) != 0 {
		t.Error("left before the verdict")
	}
	h1, h2 := c.held[0], c.held[1]
	if string(h1.Tuple().Bytes()) != "a" || string(h2.Tuple().Bytes()) != "b" {
		t.Error("held tuples do not stay valid")
	}
	if err := h1.Emit(killick.Message{Bytes: []byte("late")}); err != nil {
		t.Error(err)
	}
	if err := h1.EmitTo("side", killick.Message{Bytes: []byte("x")}); err != nil {
		t.Error(err)
	}
	ctx := h1.Context()
	if ctx.Err() != nil || !h1.Extend(time.Second) || !h1.Ack() {
		t.Error("an open handle was refused")
	}
	verdict(t, r1, true, nil)
	verdict(t, r2, false, nil)
	if text(r1.Emitted("")) != "before a,after a,late" || text(r1.Emitted("side")) != "x" || text(r1.Emitted("log")) != "a" {
		t.Errorf("%q %q %q", r1.Emitted(""), r1.Emitted("side"), r1.Emitted("log"))
	}
	if ctx.Err() == nil || !errors.Is(context.Cause(ctx), killick.ErrFinished) {
		t.Error("the context does not end with the verdict")
	}
	// The first verdict counts.
	if h1.Ack() || h1.Fail(boom) || h1.Extend(time.Second) || !errors.Is(h1.Emit(killick.Message{}), killick.ErrFinished) {
		t.Error("a second verdict counts")
	}
	h1.Settle(boom)
	verdict(t, r1, true, nil)
	if r1.Misuse() != 3 {
		t.Errorf("misuse %d", r1.Misuse())
	}
	if !h2.Fail(boom) {
		t.Error("Fail was refused")
	}
	verdict(t, r2, true, boom)
	if len(r2.Emitted("")) != 0 || len(r2.Emitted("log")) != 0 || r2.Misuse() != 0 {
		t.Errorf("left after a failure: %q %q", r2.Emitted(""), r2.Emitted("log"))
	}
	r3 := execute(t, c, "c")
	if !c.held[2].Fail(nil) {
		t.Error("Fail(nil) was refused")
	}
	if ended, err := r3.Verdict(); !ended || err == nil {
		t.Error("Fail(nil) is no failure")
	}
}

// An error after Hold counts as Fail, a verdict before the return as it is.
func TestExecuteHoldAndReturn(t *testing.T) {
	boom := errors.New("boom")
	var h *killick.Held
	r, err := testenv.Execute(t.Context(), bolt.ExecuteFunc(func(_ context.Context, _ *killick.Tuple, out killick.Emitter) error {
		h = out.Hold()
		return boom
	}), killick.Message{})
	if !errors.Is(err, boom) || h.Ack() {
		t.Errorf("%v", err)
	}
	verdict(t, r, true, boom)
	r, err = testenv.Execute(t.Context(), bolt.ExecuteFunc(func(_ context.Context, _ *killick.Tuple, out killick.Emitter) error {
		h := out.Hold()
		out.Emit(killick.Message{Bytes: []byte("1")})
		h.Ack()
		out.Emit(killick.Message{Bytes: []byte("2")}) // too late
		out.EmitUntracked("", killick.Message{Bytes: []byte("3")})
		return nil
	}), killick.Message{})
	if err != nil || text(r.Emitted("")) != "1,3" || r.Misuse() != 1 {
		t.Errorf("%v, %q, misuse %d", err, r.Emitted(""), r.Misuse())
	}
	verdict(t, r, true, nil)
	// An emitter that is used after Execute has returned changes nothing, and is counted.
	var kept killick.Emitter
	r = execute(t, bolt.ExecuteFunc(func(_ context.Context, _ *killick.Tuple, out killick.Emitter) error { kept = out; return nil }), "")
	kept.Emit(killick.Message{})
	if kept.Hold().Ack() || len(r.Emitted("")) != 0 || r.Misuse() != 2 {
		t.Errorf("%q, misuse %d", r.Emitted(""), r.Misuse())
	}
}

// Verdicts come from any goroutine; exactly one of many counts.
func TestExecuteVerdictsRace(t *testing.T) {
	c := &collector{}
	for range 50 {
		c.held = nil
		r := execute(t, c, "a")
		h := c.held[0]
		var wg sync.WaitGroup
		won := make(chan bool, 8)
		for i := range 8 {
			wg.Go(func() {
				_ = h.Emit(killick.Message{Bytes: []byte("x")})
				if i%2 == 0 {
					won <- h.Ack()
				} else {
					won <- h.Fail(errors.New("no"))
				}
			})
		}
		<-r.Done()
		wg.Wait()
		close(won)
		n := 0
		for w := range won {
			if w {
				n++
			}
		}
		if ended, _ := r.Verdict(); n != 1 || !ended {
			t.Fatalf("%d verdicts counted", n)
		}
	}
}

func TestExecuteJoins(t *testing.T) {
	c := &collector{}
	r1, r2, r3 := execute(t, c, "a"), execute(t, c, "b"), execute(t, c, "c")
	a, b, d := c.held[0], c.held[1], c.held[2]
	if err := a.Emit(killick.Message{Bytes: []byte("joined")}, a, b); err != nil {
		t.Fatal(err)
	}
	if !b.Ack() || !a.Ack() || text(r1.Emitted("")) != "before a,after a,joined" || text(r2.Emitted("")) != "before b,after b" {
		t.Errorf("%q %q", r1.Emitted(""), r2.Emitted(""))
	}
	if err := d.Emit(killick.Message{}, b); !errors.Is(err, killick.ErrFinished) {
		t.Errorf("joined with what has its verdict: %v", err)
	}
	verdict(t, r3, false, nil)
	// If the holder of a joint emit fails, what it was joined with cannot ack.
	r4 := execute(t, c, "d")
	e := c.held[3]
	if err := d.Emit(killick.Message{}, e); err != nil {
		t.Fatal(err)
	}
	d.Fail(errors.New("boom"))
	if e.Ack() {
		t.Error("acked, though what it was joined to is lost")
	}
	if ended, err := r4.Verdict(); !ended || err == nil || !strings.Contains(err.Error(), "joined") {
		t.Errorf("%v %v", ended, err)
	}
}

type ticker struct{ n int }

func (k *ticker) Execute(context.Context, *killick.Tuple, killick.Emitter) error { k.n++; return nil }
func (k *ticker) Tick(_ context.Context, out killick.Untracked) error {
	out.EmitUntracked("counts", killick.Message{Value: k.n})
	return nil
}

func TestRecorderTakesTicks(t *testing.T) {
	k := &ticker{}
	execute(t, k, "a")
	execute(t, k, "b")
	var r testenv.Recorder
	if err := k.Tick(t.Context(), &r); err != nil {
		t.Fatal(err)
	}
	if got := r.Emitted("counts"); len(got) != 1 || got[0].Value != 2 {
		t.Errorf("%v", got)
	}
}

func TestTuple(t *testing.T) {
	m := killick.Message{Key: []byte("k"), Value: map[string]int{"a": 1}}
	a, b := testenv.Tuple(m), testenv.Tuple(m)
	if a.ID() == "" || a.ID() != b.ID() {
		t.Errorf("IDs %q and %q of equal messages", a.ID(), b.ID())
	}
	if c := testenv.Tuple(killick.Message{Key: []byte("l"), Value: m.Value}); c.ID() == a.ID() {
		t.Errorf("ID %q of different messages", c.ID())
	}
	if testenv.Tuple(killick.Message{Bytes: []byte{}}).ID() == testenv.Tuple(killick.Message{}).ID() {
		t.Error("a null value and an empty one have the same ID")
	}
	if a.Time().IsZero() || time.Since(a.Time()) > time.Minute {
		t.Errorf("time %v", a.Time())
	}
	func() {
		defer func() {
			if p := recover(); p == nil || !strings.Contains(p.(string), "without a codec") {
				t.Errorf("Bytes of a map: %v", p)
			}
		}()
		a.Bytes()
	}()
	defer func() {
		if recover() == nil {
			t.Error("Bytes and a Value were accepted")
		}
	}()
	testenv.Tuple(killick.Message{Bytes: []byte("a"), Value: 1})
}
