package storm_test

import (
	"context"
	"fmt"
	"strconv"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv"
)

func large(_ context.Context, amount string) (bool, error) {
	n, err := strconv.Atoi(amount)
	if err != nil {
		return false, killick.Permanent(err) // no better on another try: a dead letter at once
	}
	return n >= 1000, nil
}

func largeAmounts() *killick.Topology {
	t := killick.New("large-amounts")
	t.Spout("amounts", spout.KafkaSource{Topics: []string{"amounts"}, Codec: killick.String()})
	t.Bolt("large", bolt.Filter(large)).Local("amounts").Stream("", killick.String())
	t.Bolt("out", bolt.Kafka("large-amounts")).Local("large")
	return t
}

func Example_filter() {
	r := testenv.RunReal(tb{}, largeAmounts(), testenv.Feed("amounts",
		killick.Message{Bytes: []byte("12")},
		killick.Message{Bytes: []byte("4000")},
		killick.Message{Bytes: []byte("a lot")}))
	for _, m := range r.Written("large-amounts") {
		fmt.Printf("passed on: %s\n", m.Bytes)
	}
	for _, d := range r.DeadLetters() {
		fmt.Printf("dead letter: %s (%s)\n", d.Bytes, d.Reason)
	}
	fmt.Println(r.Acked("amounts"), "acked")
	// Output:
	// passed on: 4000
	// dead letter: a lot (permanent)
	// 2 acked
}
