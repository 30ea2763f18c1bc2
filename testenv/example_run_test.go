package testenv_test

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

// alarms is the topology under test: it forwards high temperatures.
func alarms() *killick.Topology {
	t := killick.New("alarms")
	t.Spout("readings", spout.KafkaSource{Topics: []string{"readings"}, Codec: killick.JSON[float64]()})
	t.Bolt("high", bolt.Filter(func(_ context.Context, celsius float64) (bool, error) {
		if celsius < -273.15 {
			return false, killick.Permanent(errors.New("below absolute zero"))
		}
		return celsius > 40, nil
	})).Shuffle("readings").Stream("", killick.JSON[float64]())
	t.Bolt("out", bolt.Kafka("alarms")).Shuffle("high").Timeout(time.Minute)
	return t
}

// A test of a whole topology. In a test it is testenv.Run(t, ...), in virtual time; an Example
// has no *testing.T.
func ExampleRunReal() {
	r := testenv.RunReal(tb{}, alarms(), testenv.Feed("readings",
		killick.Message{Key: []byte("kitchen"), Value: 21.5},
		killick.Message{Key: []byte("oven"), Value: 180.0},
		killick.Message{Key: []byte("broken"), Value: -500.0},
		killick.Message{Key: []byte("noise"), Bytes: []byte("?!")},
	))
	for _, m := range r.Written("alarms") {
		fmt.Printf("alarm: %s %s\n", m.Key, m.Bytes)
	}
	for _, d := range r.DeadLetters() {
		fmt.Printf("dead letter: %s, %s by %s\n", d.Key, d.Reason, d.Component)
	}
	fmt.Println(r.Acked("readings"), "acked, error:", r.Err())
	// Unordered output:
	// alarm: oven 180
	// dead letter: broken, permanent by high
	// dead letter: noise, decode by readings
	// 2 acked, error: <nil>
}
