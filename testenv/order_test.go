package testenv_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv"
)

// A topology with an order is tested as it runs: records fail and die, and those behind them of their
// key, or all, wait for that.
func TestRunOrder(t *testing.T) {
	for _, order := range []killick.Order{killick.NoOrder, killick.PerKey, killick.PerPartition} {
		for _, window := range []int{1, 7, 1024} {
			var mu sync.Mutex
			ran := map[string][]int64{}
			top := killick.New("order").Order(order)
			top.Spout("in", spout.Kafka("in")).Pending(window, 1<<20)
			top.Bolt("b", bolt.Async(8, func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
				o, _ := in.Origin()
				switch {
				case o.Offset%20 == 7:
					return killick.Permanent(errors.New("never"))
				case o.Offset%3 == 0 && in.Attempt() < 3:
					return errors.New("not yet")
				}
				mu.Lock()
				defer mu.Unlock()
				lane := "all"
				if order == killick.PerKey {
					lane = string(in.Key())
				}
				ran[lane] = append(ran[lane], o.Offset)
				return nil
			})).Shuffle("in")
			r := testenv.Run(t, top, testenv.Feed("in", msgs(500)...))
			if r.Acked("in") != 475 || len(r.DeadLetters()) != 25 || r.Err() != nil {
				t.Errorf("%v, window %d: acked %d, %d dead letters, %v", order, window, r.Acked("in"), len(r.DeadLetters()), r.Err())
			}
			sorted := true
			for _, l := range ran {
				sorted = sorted && slices.IsSorted(l)
			}
			if want := order != killick.NoOrder || window == 1; sorted != want {
				t.Errorf("%v, window %d: in order: %v, want %v; %s", order, window, sorted, want, fmt.Sprint(ran)[:100])
			}
		}
	}
}
