package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv"
)

// insert writes many rows at once. It fails the rows that are refused; the others are acked
// when it returns nil, and tried again when it returns an error.
func insert(_ context.Context, in []*killick.Held) error {
	rows := 0
	for _, h := range in {
		if len(h.Tuple().Bytes()) == 0 {
			h.Fail(killick.Permanent(errors.New("an empty row")))
			continue
		}
		rows++
	}
	fmt.Printf("%d rows at once\n", rows)
	return nil
}

func ExampleBatch() {
	t := killick.New("rows")
	t.Spout("rows", spout.Kafka("rows"))
	t.Bolt("insert", bolt.Batch(3, time.Second, insert)).Shuffle("rows")

	var rows []killick.Message
	for _, s := range []string{"a", "b", "", "c", "d", "e", "f"} {
		rows = append(rows, killick.Message{Bytes: []byte(s)})
	}
	r := testenv.RunReal(tb{}, t, testenv.Feed("rows", rows...))
	fmt.Println(r.Acked("rows"), "acked,", len(r.DeadLetters()), "dead letter")
	// Output:
	// 2 rows at once
	// 3 rows at once
	// 1 rows at once
	// 6 acked, 1 dead letter
}
