package bolt_test

import (
	"bytes"
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

// line is a topology of one bolt between a spout and a sink.
func line(f killick.BoltFactory, in, out killick.Codec) (*killick.Topology, *killick.BoltDecl) {
	top := killick.New("line")
	top.Spout("in", spout.KafkaSource{Topics: []string{"in"}, Codec: in})
	d := top.Bolt("b", f).Shuffle("in")
	if out != nil {
		d.Stream("", out)
	}
	top.Bolt("out", bolt.Kafka("out")).Shuffle("b")
	return top, d
}

func noop(context.Context, *killick.Tuple, killick.Emitter) error { return nil }
