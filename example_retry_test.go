package killick_test

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

// pay fails in the three ways that a bolt can choose from.
func pay(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
	switch string(in.Bytes()) {
	case "no such account":
		return killick.Permanent(errors.New("no such account")) // trying again does not help
	case "busy":
		if in.Attempt() == 1 {
			return killick.RetryAfter(20*time.Millisecond, errors.New("asked to come back later"))
		}
	case "flaky":
		if in.Attempt() < 4 {
			return errors.New("connection reset") // tried again, by the policy
		}
	case "broken":
		return errors.New("connection refused")
	}
	return nil
}

// Only the failed tuple is tried again; others go on meanwhile. Tries used up, or a permanent
// failure, make the root record a dead letter, unless the policy says Skip or Stop.
func ExampleRetry() {
	t := killick.New("payments")
	t.Spout("orders", spout.Kafka("orders"))
	t.Bolt("pay", bolt.Func(pay)).Shuffle("orders").
		Retry(killick.Retry{Attempts: 4, Min: time.Millisecond, Max: 10 * time.Millisecond})

	var in []killick.Message
	for _, s := range []string{"fine", "no such account", "busy", "flaky", "broken"} {
		in = append(in, killick.Message{Key: []byte(s), Bytes: []byte(s)})
	}
	r := testenv.RunReal(tb{}, t, testenv.Feed("orders", in...))
	for i, m := range in {
		fmt.Printf("%s: %d tries\n", m.Key, r.Attempts("pay")[fmt.Sprintf("orders/0/%d", i)])
	}
	for _, d := range r.DeadLetters() {
		fmt.Printf("dead letter: %s (%s)\n", d.Key, d.Reason)
	}
	// Output:
	// fine: 1 tries
	// no such account: 1 tries
	// busy: 2 tries
	// flaky: 4 tries
	// broken: 4 tries
	// dead letter: no such account (permanent)
	// dead letter: broken (error)
}

// The wait before a try is random between 0 and a ceiling that doubles.
func ExampleRetry_Ceiling() {
	r := killick.Retry{Min: 100 * time.Millisecond, Max: time.Second}
	for tries := 1; tries <= 6; tries++ {
		fmt.Print(r.Ceiling(tries), " ")
	}
	// Output: 100ms 200ms 400ms 800ms 1s 1s
}
