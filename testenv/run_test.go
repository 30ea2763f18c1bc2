package testenv_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv"
)

func msgs(n int) []killick.Message {
	ms := make([]killick.Message, n)
	for i := range ms {
		ms[i] = killick.Message{Key: fmt.Appendf(nil, "k%d", i%10), Bytes: fmt.Appendf(nil, "%d", i)}
	}
	return ms
}

func TestRunLine(t *testing.T) {
	for _, tasks := range []int{1, 4} {
		top := killick.New("line")
		top.Spout("in", spout.Kafka("in"))
		top.Bolt("upper", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			m := in.Message()
			m.Bytes = append([]byte("x"), in.Bytes()...)
			out.Emit(m)
			return nil
		})).Tasks(tasks).Shuffle("in")
		top.Bolt("out", bolt.Kafka("out")).Shuffle("upper")
		r := testenv.Run(t, top, testenv.Feed("in", msgs(3000)...))
		if r.Acked("in") != 3000 || len(r.Written("out")) != 3000 || r.Err() != nil {
			t.Errorf("tasks %d: acked %d, written %d, err %v", tasks, r.Acked("in"), len(r.Written("out")), r.Err())
		}
	}
}

func TestRunRetries(t *testing.T) {
	top := killick.New("retries")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("split", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
		for range 3 {
			out.Emit(in.Message())
		}
		return nil
	})).Shuffle("in")
	top.Bolt("leaf", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
		o, _ := in.Origin()
		switch {
		case o.Offset%7 == 0 && in.Attempt() < 3:
			return errors.New("not yet")
		case o.Offset == 20:
			return killick.Permanent(errors.New("never"))
		case o.Offset == 30:
			panic("boom")
		}
		return nil
	})).Shuffle("split")
	start := time.Now()
	r := testenv.Run(t, top, testenv.Feed("in", msgs(100)...))
	if r.Acked("in") != 98 || r.Err() != nil {
		t.Errorf("acked %d, %v", r.Acked("in"), r.Err())
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %v: back-off is virtual", took)
	}
	dead := map[int64]testenv.DeadLetter{}
	for _, d := range r.DeadLetters() {
		dead[d.Origin.Offset] = d
	}
	if d := dead[20]; d.Component != "leaf" || d.Reason != "permanent" || d.Attempts != 1 || d.Err.Error() != "never" || string(d.Bytes) != "20" || d.Origin.Topic != "in" {
		t.Errorf("20: %+v", d)
	}
	if d := dead[30]; d.Component != "leaf" || d.Reason != "panic" || d.Attempts != 5 || !strings.Contains(d.Err.Error(), "boom") {
		t.Errorf("30: %+v", d)
	}
	if len(dead) != 2 || len(r.DeadLetters()) != 2 {
		t.Errorf("dead: %+v", r.DeadLetters())
	}
	if n := len(r.Emitted("split")); n != 300 {
		t.Errorf("split emitted %d", n)
	}
	// Only the failed tuple is tried again: not its siblings, nor what it came from.
	for id, n := range r.Attempts("split") {
		if n != 1 {
			t.Errorf("%s: %d tries", id, n)
		}
	}
	for i := range 100 {
		if i == 20 || i == 30 {
			continue // siblings of a dead tuple may have been skipped
		}
		want := 1
		if i%7 == 0 {
			want = 3
		}
		for k := range 3 {
			if id := fmt.Sprintf("in/0/%d:split.%d", i, k); r.Attempts("leaf")[id] != want {
				t.Errorf("%s: %d tries, want %d", id, r.Attempts("leaf")[id], want)
			}
		}
	}
}

// The policies of a root that is given up. By default nothing is dropped silently, as Storm's
// spout did after its retry limit (PR 1131): the root is a dead letter.
func TestRunAfter(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		after                killick.After
		dead, skipped, acked int
		stops                bool
	}{
		{killick.After{}, 1, 0, 19, false},
		{killick.DeadLetter(), 1, 0, 19, false},
		{killick.Skip(), 0, 1, 19, false},
		{killick.Stop(), 0, 0, 19, true},
	} {
		top := killick.New("after").Retry(killick.Retry{Attempts: 3, After: c.after})
		top.Spout("in", spout.Kafka("in"))
		top.Bolt("b", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if string(in.Bytes()) == "9" {
				return boom
			}
			return nil
		})).Shuffle("in")
		r := testenv.Run(t, top, testenv.Feed("in", msgs(20)...))
		if len(r.DeadLetters()) != c.dead || r.Skipped("in") != c.skipped || r.Acked("in") != c.acked || errors.Is(r.Err(), boom) != c.stops {
			t.Errorf("%v: dead %v, skipped %d, acked %d, err %v", c.after, r.DeadLetters(), r.Skipped("in"), r.Acked("in"), r.Err())
		}
		if n := r.Attempts("b")["in/0/9"]; n != 3 {
			t.Errorf("%v: %d tries", c.after, n)
		}
	}
}

// Streams with a codec are encoded and decoded, so that what a bolt gets is nobody else's.
func TestRunRoundTrips(t *testing.T) {
	type doc struct{ Tags []string }
	shared := &doc{Tags: []string{"a"}}
	var got []*doc
	top := killick.New("round")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("a", bolt.Func(func(_ context.Context, _ *killick.Tuple, out killick.Emitter) error {
		out.Emit(killick.Message{Value: shared})
		return nil
	})).Shuffle("in").Stream("", killick.JSON[*doc]())
	top.Bolt("b", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		got = append(got, in.Value().(*doc))
		return nil
	})).Shuffle("a")
	r := testenv.Run(t, top, testenv.Feed("in", killick.Message{}))
	if r.Acked("in") != 1 || len(got) != 1 || got[0] == shared || got[0].Tags[0] != "a" {
		t.Errorf("%v, dead %+v", got, r.DeadLetters())
	}
	if m := r.Emitted("a"); len(m) != 1 || m[0].Value != any(shared) {
		t.Errorf("emitted %+v", m)
	}
}

func TestFeedsAddUp(t *testing.T) {
	var got []string
	top := killick.New("feeds")
	top.Spout("one", spout.Kafka("one", "two"))
	top.Spout("pattern", spout.KafkaSource{Pattern: "^p", Codec: killick.String()})
	top.Bolt("b", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		got = append(got, in.ID()+"="+string(in.Bytes()))
		return nil
	})).Shuffle("one").Shuffle("pattern")
	r := testenv.Run(t, top, testenv.Feed("one", killick.Message{Value: "a"}), testenv.Feed("pattern", killick.Message{Value: "x"}),
		testenv.Feed("one", killick.Message{Value: []byte("b")}, killick.Message{Bytes: []byte("c")}))
	slices.Sort(got)
	if want := []string{"one/0/0=a", "one/0/1=b", "one/0/2=c", "pattern/0/0=x"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if r.Acked("one") != 3 || r.Acked("pattern") != 1 || r.Acked("none") != 0 || r.Attempts("none") != nil || r.Written("none") != nil {
		t.Errorf("acked %d, %d", r.Acked("one"), r.Acked("pattern"))
	}
}

// A held tuple that nobody decides about times out, in virtual time, and is tried again.
func TestRunTimesOut(t *testing.T) {
	start := time.Now()
	top := killick.New("timeout")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("b", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
		h := out.Hold()
		if in.Attempt() == 3 {
			h.Ack()
		}
		return nil
	})).Shuffle("in").Timeout(5 * time.Minute)
	r := testenv.Run(t, top, testenv.Feed("in", killick.Message{}))
	if r.Acked("in") != 1 || r.Attempts("b")["in/0/0"] != 3 || r.Err() != nil {
		t.Errorf("acked %d, tries %v, %v", r.Acked("in"), r.Attempts("b"), r.Err())
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("ten minutes took %v", took)
	}
}
