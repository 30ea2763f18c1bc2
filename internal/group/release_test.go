package group

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/balance"
	"github.com/killick-io/killick/internal/partition"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// alone is a reader whose client has no broker: its poll loop runs, and the test does by hand what the
// group would do.
func alone(t *testing.T) *Reader {
	t.Helper()
	feed := partition.NewFeed("in", 1000, 1<<20, partition.Hooks{})
	r, err := New(Config{Sources: []*Source{{Spec: &killick.SpoutSpec{Name: "in", Info: killick.SourceInfo{Topics: []string{"in"}}}, Feed: feed}}})
	if err != nil {
		t.Fatal(err)
	}
	if r.cl, err = kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.running.Store(true)
	go r.loop(ctx)
	t.Cleanup(func() { cancel(); <-r.done; r.cl.Close() })
	return r
}

// opens opens a partition as an assignment does.
func (r *Reader) opens(k partition.Key) *partition.Partition {
	var p *partition.Partition
	r.tell("test", func() {
		r.openOne(&opening{key: k, src: r.cfg.Sources[0], had: committed{offset: -1}})
		if o := r.open[k]; o != nil {
			p = o.p
		}
	})
	return p
}

// asks is what a plan that asks for partition k does, up to the next look of the release loop.
func (r *Reader) asks(k partition.Key) {
	r.rel.ask([]balance.Part{{Topic: k.Topic, ID: k.ID}})
	r.rel.begin()
}

// A partition that stops while it is being released is given away all the same: the group has asked for
// it, and will not ask again before somebody comes or goes.
func TestReleaseOfAPartitionThatStops(t *testing.T) {
	r, k := alone(t), partition.Key{Topic: "in", ID: 1}
	p := r.opens(k)
	r.asks(k)
	if !p.Status().Releasing {
		t.Fatal("it is not being released")
	}
	r.tell("test", func() { r.halt(k, "its log is gone") })
	r.rel.end(t.Context())
	r.rel.begin()
	if !r.proto.isClosed(k) {
		t.Error("it is claimed still")
	}
	if r.rel.news.IsZero() {
		t.Error("the group is not told")
	}
	if n := len(r.rel.asked) + len(r.rel.under); n > 0 {
		t.Errorf("%d releases are left", n)
	}
}

// So is one that has to open anew meanwhile, since its position has left the log.
func TestReleaseOfAPartitionThatOpensAnew(t *testing.T) {
	r, k := alone(t), partition.Key{Topic: "in", ID: 1}
	r.opens(k)
	r.asks(k)
	p := r.opens(k)
	r.rel.end(t.Context())
	r.rel.begin()
	if !p.Status().Releasing {
		t.Error("it is not being released")
	}
}

// One that was lost while it was being released, and is back and asked for, is released anew.
func TestReleaseAfterALoss(t *testing.T) {
	r, k := alone(t), partition.Key{Topic: "in", ID: 1}
	r.opens(k)
	r.asks(k)
	r.lost(t.Context(), r.cl, map[string][]int32{"in": {1}})
	p := r.opens(k)
	r.asks(k)
	if !p.Status().Releasing {
		t.Error("it is not being released")
	}
	// And a loss is no reason to give anything away.
	r.lost(t.Context(), r.cl, map[string][]int32{"in": {1}})
	r.rel.end(t.Context())
	r.rel.begin()
	if r.proto.isClosed(k) || len(r.rel.asked)+len(r.rel.under) > 0 {
		t.Errorf("after a loss: closed %v, %d asked for, %d under way", r.proto.isClosed(k), len(r.rel.asked), len(r.rel.under))
	}
}

// What is out of the claims does not open any more, although the client counts it among its own until the
// next assignment: another member may have it by then.
func TestNothingOpensThatIsGivenAway(t *testing.T) {
	r, k := alone(t), partition.Key{Topic: "in", ID: 1}
	r.tell("test", func() { r.openOne(&opening{key: k, had: committed{offset: -1}, wait: "it has no leader"}) })
	l := r.late[k]
	if l == nil {
		t.Fatal("it does not wait")
	}
	r.asks(k)
	if !r.proto.isClosed(k) {
		t.Fatal("a partition that waits is not given away")
	}
	r.tell("test", func() { r.arrive(&opening{key: k, src: r.cfg.Sources[0], had: committed{offset: -1}}, l) })
	if len(r.open) > 0 {
		t.Error("it has opened when its leader was back")
	}
	if p := r.opens(k); p != nil {
		t.Error("it has opened")
	}
	r.revoked(t.Context(), r.cl, map[string][]int32{"in": {1}})
	if p := r.opens(k); p == nil {
		t.Error("it does not open when it is assigned again")
	}
}
