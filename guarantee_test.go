package killick_test

import (
	"testing"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
)

// What an at-most-once topology cannot have is named, all of it at once.
func TestAtMostOnceMistakes(t *testing.T) {
	var w wanted
	top := killick.New("t").Guarantee(killick.AtMostOnce)
	top.Retry(killick.Retry{Attempts: 3})
	w.above("", "no tuple is tried again and no dead letter is written: remove Retry")
	top.Order(killick.PerKey)
	w.above("", "its order cannot be kept: remove Order")
	s := top.Spout("in", spout.Kafka("in"))
	s.Order(killick.PerPartition)
	w.above("in", "its order cannot be kept: remove Order")
	b := top.Bolt("b", bolt.Func(noop)).Shuffle("in")
	b.Retry(killick.Retry{After: killick.Stop()})
	w.above("b", "no tuple is tried again and no dead letter is written: remove Retry")
	w.check(t, top)

	w = wanted{}
	top = killick.New("t").Guarantee(2)
	w.above("", "Guarantee(2) is no guarantee; use AtLeastOnce or AtMostOnce")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("b", bolt.Func(noop)).Shuffle("in")
	w.check(t, top)
}

func TestGuarantees(t *testing.T) {
	for g, name := range map[killick.Guarantee]string{killick.AtLeastOnce: "at least once", killick.AtMostOnce: "at most once"} {
		top := killick.New("t").Guarantee(g).Order(killick.NoOrder)
		top.Spout("in", spout.Kafka("in")).Order(killick.NoOrder)
		top.Bolt("b", bolt.Func(noop)).Shuffle("in")
		spec, err := top.Spec()
		if err != nil || spec.Guarantee != g || g.String() != name {
			t.Errorf("%q: %v, %v", g, spec, err)
		}
	}
	if got := killick.Guarantee(-1).String(); got != "Guarantee(-1)" {
		t.Error(got)
	}
}
