package storm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv"
)

// stock is a service that says on which shelf an item is.
type stock func(ctx context.Context, item string) (shelf string, err error)

func splitOrder(find stock) bolt.ExecuteFunc {
	return func(ctx context.Context, order *killick.Tuple, out killick.Emitter) error {
		for item := range strings.SplitSeq(string(order.Bytes()), ",") {
			shelf, err := find(ctx, item)
			if err != nil {
				return killick.FailTree(err) // Storm's fail; err alone would try this one tuple again
			}
			out.Emit(killick.Message{Key: order.Key(), Bytes: []byte(item + " from " + shelf)}) // anchored
		}
		return nil // Storm's ack; what was emitted leaves now
	}
}

func picking(find stock) *killick.Topology {
	t := killick.New("picking")
	t.Spout("orders", spout.Kafka("orders"))
	t.Bolt("split", bolt.Func(splitOrder(find))).Shuffle("orders").
		Retry(killick.Retry{Attempts: 10, Min: 2 * time.Millisecond, Max: 10 * time.Second})
	t.Bolt("out", bolt.Kafka("picks")).Local("split")
	return t
}

func Example_split() {
	calls := map[string]int{}
	find := func(_ context.Context, item string) (string, error) {
		if calls[item]++; item == "ink" && calls[item] == 1 {
			return "", errors.New("the stock service is busy")
		}
		return "shelf " + item[:1], nil
	}
	r := testenv.RunReal(tb{}, picking(find), testenv.Feed("orders", killick.Message{Bytes: []byte("paper,ink,pens")}))
	for _, m := range r.Written("picks") {
		fmt.Printf("%s\n", m.Bytes)
	}
	fmt.Println("tries:", r.Attempts("split")["orders/0/0"], "- searches for paper:", calls["paper"])
	// Output:
	// paper from shelf p
	// ink from shelf i
	// pens from shelf p
	// tries: 2 - searches for paper: 2
}
