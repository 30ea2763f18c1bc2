package storm_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv"
)

// join holds what comes first of an order and its payment until the other is there.
type join struct{ waiting map[string]*killick.Held }

func (j *join) Prepare(context.Context, killick.Task) error {
	j.waiting = map[string]*killick.Held{}
	return nil
}

func (j *join) Execute(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
	key, second := string(in.Key()), out.Hold() // from here on nil does not ack: the handle does
	first := j.waiting[key]
	if first == nil || first.Context().Err() != nil { // none, or it has timed out meanwhile
		j.waiting[key] = second
		return nil
	}
	delete(j.waiting, key)
	both := fmt.Appendf(nil, "%s + %s", first.Tuple().Bytes(), second.Tuple().Bytes())
	if err := second.Emit(killick.Message{Key: in.Key(), Bytes: both}, first); err != nil { // two anchors
		return err
	}
	first.Ack()
	second.Ack()
	return nil
}

func paidOrders(ship bolt.ExecuteFunc) *killick.Topology {
	t := killick.New("paid-orders")
	t.Spout("orders", spout.Kafka("orders"))
	t.Spout("payments", spout.Kafka("payments"))
	t.Bolt("join", func() killick.Bolt { return &join{} }).Tasks(4).
		Fields("orders", nil).Fields("payments", nil) // nil: by the record's key
	t.Bolt("ship", bolt.Func(ship)).Shuffle("join")
	return t
}

func Example_join() {
	tries := 0
	ship := func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		if tries++; tries == 1 {
			return killick.FailTree(errors.New("no van")) // both roots are replayed
		}
		fmt.Printf("order %s shipped: %s\n", in.Key(), in.Bytes())
		return nil
	}
	r := testenv.RunReal(tb{}, paidOrders(ship),
		testenv.Feed("orders", killick.Message{Key: []byte("7"), Bytes: []byte("two books")}),
		testenv.Feed("payments", killick.Message{Key: []byte("7"), Bytes: []byte("two books")}))
	fmt.Println("joined as often as", r.Attempts("join")["orders/0/0"], "and", r.Attempts("join")["payments/0/0"])
	fmt.Println("acked:", r.Acked("orders"), "order,", r.Acked("payments"), "payment")
	// Output:
	// order 7 shipped: two books + two books
	// joined as often as 2 and 2
	// acked: 1 order, 1 payment
}
