package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv"
)

// TestRawBytesStayOverRetries: Bytes is the record's raw value in every try and in a held tuple,
// not what the codec would make of the value.
func TestRawBytesStayOverRetries(t *testing.T) {
	type order struct{ ID int }
	const raw = `{ "ID" : 7, "unknown": true }`
	var seen []string
	top := killick.New("raw")
	top.Spout("in", spout.KafkaSource{Topics: []string{"in"}, Codec: killick.JSON[order]()})
	top.Bolt("b", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
		seen = append(seen, string(in.Bytes()))
		if in.Value().(order).ID != 7 {
			t.Errorf("the value is %v", in.Value())
		}
		if in.Attempt() == 1 {
			return errors.New("not yet")
		}
		h := out.Hold()
		seen = append(seen, string(h.Tuple().Bytes()))
		h.Ack()
		return nil
	})).Shuffle("in")
	testenv.Run(t, top, testenv.Feed("in", killick.Message{Bytes: []byte(raw)}))
	if len(seen) != 3 {
		t.Fatalf("seen %q", seen)
	}
	for i, s := range seen {
		if s != raw {
			t.Errorf("%d: %q", i, s)
		}
	}
}
