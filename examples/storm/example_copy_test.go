package storm_test

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

func copyTopic(from spout.KafkaSource, to string) *killick.Topology {
	t := killick.New("copy")
	t.Spout("in", from)
	t.Bolt("out", bolt.Kafka(to)).Local("in") // acked when the record is durable
	return t
}

// A program is worker.Main(copyTopic(spout.Kafka("orders"), "orders-copy")). This one ends at the
// end of the log, and shows what has been committed.
func Example_copy() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	b, err := embedded.New(embedded.Topic("orders", 1), embedded.Topic("orders-copy", 1))
	if err != nil {
		panic(err)
	}
	defer b.Close()
	for _, v := range []string{"one", "two", "three"} {
		if err := b.Produce(ctx, &kgo.Record{Topic: "orders", Key: []byte("k"), Value: []byte(v)}); err != nil {
			panic(err)
		}
	}

	orders := spout.KafkaSource{Topics: []string{"orders"}, Until: spout.Latest()}
	err = worker.Run(ctx, copyTopic(orders, "orders-copy"), worker.Config{Bootstrap: b.Addrs(), HTTP: "off", LogLevel: "off"})
	if err != nil {
		panic(err)
	}

	copies, err := b.ReadAll(ctx, "orders-copy")
	if err != nil {
		panic(err)
	}
	for _, r := range copies {
		fmt.Printf("%s: %s\n", r.Key, r.Value)
	}
	at, err := b.Committed(ctx, "killick.copy", "orders")
	if err != nil {
		panic(err)
	}
	fmt.Println("committed:", at[0].Offset)
	// Output:
	// k: one
	// k: two
	// k: three
	// committed: 3
}
