package storm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv"
)

// insert writes rows in one statement, each under its key: a second time changes nothing.
type insert func(ctx context.Context, rows map[string]string) error

func writeRows(to insert) *killick.Topology {
	t := killick.New("rows")
	t.Spout("rows", spout.Kafka("rows"))
	t.Bolt("write", bolt.Batch(100, time.Second, func(ctx context.Context, batch []*killick.Held) error {
		rows := map[string]string{}
		for _, h := range batch {
			rows[h.Tuple().ID()] = string(h.Tuple().Bytes())
		}
		return to(ctx, rows) // nil acks them all, an error fails them all; h.Fail is for a single one
	})).Shuffle("rows")
	return t
}

func Example_batch() {
	table, calls := map[string]string{}, 0
	to := func(_ context.Context, rows map[string]string) error {
		for id, row := range rows {
			table[id] = row
		}
		if calls++; calls == 1 {
			return errors.New("connection lost after the commit") // written, and tried again
		}
		return nil
	}
	var in []killick.Message
	for i := range 250 {
		in = append(in, killick.Message{Bytes: fmt.Appendf(nil, "row %d", i)})
	}
	r := testenv.RunReal(tb{}, writeRows(to), testenv.Feed("rows", in...))
	var tries []int
	for _, n := range r.Attempts("write") {
		tries = append(tries, n)
	}
	fmt.Println(r.Acked("rows"), "acked,", len(table), "rows; at most", slices.Max(tries), "tries")
	// Output: 250 acked, 250 rows; at most 2 tries
}
