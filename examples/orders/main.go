// Command orders runs the order story as a worker on a Kafka that you have. README.md beside it says how to fill the
// topics; killick demo runs the same topology with a broker, data and a crash of its own.
//
//	KILLICK_KAFKA__BOOTSTRAP_SERVERS  the brokers; this and all else is as for any worker (--help lists it)
//	ORDERS_BOOK                       the file that the payment gateway writes. Default: payments.jsonl.
//	ORDERS_DELAY                      how long a payment call takes. Default: 5ms.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/killick-io/killick/examples/orders/topology"
	"github.com/killick-io/killick/worker"
)

func main() {
	book := "payments.jsonl"
	if s := os.Getenv("ORDERS_BOOK"); s != "" {
		book = s
	}
	delay := 5 * time.Millisecond
	if s := os.Getenv("ORDERS_DELAY"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			fmt.Fprintf(os.Stderr, "orders: ORDERS_DELAY=%q: want a duration from 0 on, such as 5ms\n", s)
			os.Exit(2)
		}
		delay = d
	}
	worker.Main(topology.New(topology.Config{
		Connect: func(context.Context) (topology.Gateway, error) { return topology.OpenBook(book, delay) },
	}))
}
