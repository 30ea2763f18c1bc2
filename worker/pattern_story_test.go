package worker_test

import (
	"context"
	"strings"
	"testing"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// TestTwoPatternsOnOneTopic: that two patterns match one topic shows only on the cluster, and is
// refused at start, naming both spouts. A pointer to a source does as well as the source.
func TestTwoPatternsOnOneTopic(t *testing.T) {
	b := embedded.Start(t, embedded.Topic("ev.a", 1))
	top := killick.New("patterns")
	top.Spout("one", &spout.KafkaSource{Pattern: `ev\..*`})
	top.Spout("two", spout.KafkaSource{Pattern: `.*\.a`})
	top.Bolt("sink", bolt.Filter(func(context.Context, []byte) (bool, error) { return false, nil })).Shuffle("one").Shuffle("two")
	err := worker.Run(t.Context(), top, worker.Config{Bootstrap: b.Addrs(), HTTP: "off", LogLevel: "off"})
	if err == nil {
		t.Fatal("the topology was run")
	}
	for _, want := range []string{`"ev.a"`, `"one"`, `"two"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
}
