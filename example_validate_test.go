package killick_test

import (
	"errors"
	"fmt"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
)

// All mistakes of a topology are named at once, each with its place in the code.
func ExampleTopology_Validate() {
	t := killick.New("orders")
	t.Spout("orders", spout.Kafka("orders"))
	t.Bolt("check", bolt.Func(greet)).Shuffle("order")
	t.Bolt("pay", bolt.Func(greet)).Fields("check/approved", nil).Tasks(0)

	for _, err := range t.Validate().(interface{ Unwrap() []error }).Unwrap() {
		var m *killick.Mistake
		if errors.As(err, &m) { // m.Where is file:line
			fmt.Printf("%s: %s\n", m.Component, m.What)
		}
	}
	// Output:
	// pay: Tasks(0): use between 1 and 32768
	// check: unknown input component "order"; did you mean "orders"?
	// pay: component "check" declares no stream "approved"; add .Stream("approved", codec) to it
	// orders: no bolt subscribes to the spout; its records would be acked unread
	// pay: no spout reaches the bolt: all its tuples would come from bolts that get none
}
