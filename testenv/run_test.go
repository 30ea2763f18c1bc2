package testenv_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

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
	r := testenv.Run(t, top, testenv.Feed("in", msgs(100)...))
	if r.Acked("in") != 98 || len(r.DeadLetters()) != 2 {
		t.Errorf("acked %d, dead %v", r.Acked("in"), r.DeadLetters())
	}
	for id, n := range r.Attempts("leaf") {
		if n != 1 {
			t.Logf("%s %d", id, n)
		}
	}
}
