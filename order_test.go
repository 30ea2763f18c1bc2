package killick_test

import (
	"testing"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
)

// A spout's order is its own, else the topology's; NoOrder said at the spout counts, too.
func TestOrderDefaults(t *testing.T) {
	for _, c := range []struct {
		topology, spout killick.Order // -1: not said
		want            killick.Order
	}{
		{-1, -1, killick.NoOrder},
		{-1, killick.PerKey, killick.PerKey},
		{killick.PerKey, -1, killick.PerKey},
		{killick.PerKey, killick.PerPartition, killick.PerPartition},
		{killick.PerPartition, killick.NoOrder, killick.NoOrder},
	} {
		top := killick.New("t")
		if c.topology >= 0 {
			top.Order(c.topology)
		}
		s := top.Spout("in", spout.Kafka("in"))
		if c.spout >= 0 {
			s.Order(c.spout)
		}
		top.Bolt("b", bolt.Func(noop)).Shuffle("in")
		spec, err := top.Spec()
		if err != nil {
			t.Fatal(err)
		}
		if got := spec.Spouts[0].Order; got != c.want {
			t.Errorf("topology %d, spout %d: %v, want %v", c.topology, c.spout, got, c.want)
		}
	}
}

func TestOrderMistakes(t *testing.T) {
	var w wanted
	top := killick.New("t").Order(7)
	w.above("", "Order(7) is no order; use NoOrder, PerKey or PerPartition")
	top.Spout("in", spout.Kafka("in")).Order(-1)
	w.above("in", "Order(-1) is no order")
	top.Bolt("b", bolt.Func(noop)).Shuffle("in")
	w.check(t, top)
}

func TestOrderNames(t *testing.T) {
	for o, want := range map[killick.Order]string{killick.NoOrder: "none", killick.PerKey: "per key", killick.PerPartition: "per partition", 3: "Order(3)"} {
		if o.String() != want {
			t.Errorf("%q, want %q", o, want)
		}
	}
}
