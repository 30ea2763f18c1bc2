package topology

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
)

const (
	// Pending is how many orders of one partition may be under way at a time. Those, and what has ended since the last
	// commit, are what may run again after a crash.
	Pending = 64
	// payTasks tasks take the orders, each those of its customers. Each makes one call at a time.
	payTasks = 8
	// originHeader is on every notification: topic/partition/offset of the order's record.
	originHeader = "order-origin"
)

// Config says where the orders come from and who takes the money.
type Config struct {
	// Name of the topology. Default: orders.
	Name string
	// Orders is the topic to read, Notifications the one to write. Both must exist. Default: orders and notifications.
	Orders, Notifications string
	// Until bounds the run. Default: it has no end.
	Until spout.Position
	// Connect opens a connection to the payment gateway. It is called when a task of the bolt pay starts, for each task,
	// and not when the topology is only validated. A gateway that is an io.Closer is closed when the task ends.
	Connect func(ctx context.Context) (Gateway, error)
}

// New builds the topology. What is wrong with c is told by its Validate, as for any topology.
func New(c Config) *killick.Topology {
	c = c.withDefaults()
	t := killick.New(c.Name)
	t.Spout("orders", spout.KafkaSource{Topics: []string{c.Orders}, Until: c.Until, Codec: killick.JSON[Order]()}).
		Pending(Pending, killick.DefaultPendingBytes)

	t.Bolt("fraud", bolt.Func(fraud)).Shuffle("orders").
		Stream("", killick.JSON[Order]()).
		Stream("rejected", killick.JSON[Settled]())

	// One customer's orders go to one task: a gateway would be called for one card by one connection only.
	t.Bolt("pay", func() killick.Bolt { return &payer{connect: c.Connect} }).Fields("fraud", nil).Tasks(payTasks).
		Retry(killick.Retry{Attempts: 5, Min: 150 * time.Millisecond, Max: 2 * time.Second}).
		Stream("", killick.JSON[Settled]())

	t.Bolt("notify", bolt.Func(notify)).Shuffle("pay").Shuffle("fraud/rejected").
		Stream("", killick.JSON[Notification]())

	t.Bolt("notifications", bolt.Kafka(c.Notifications)).Local("notify")
	return t
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "orders"
	}
	if c.Orders == "" {
		c.Orders = "orders"
	}
	if c.Notifications == "" {
		c.Notifications = "notifications"
	}
	return c
}

// fraud sends an order on to its payment, or past it.
func fraud(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
	o, ok := in.Value().(Order)
	if !ok { // a null value, which no codec sees
		return killick.Permanent(errors.New("the record has no value: want an order"))
	}
	if o.Cents > limitCents {
		out.EmitTo("rejected", killick.Message{Key: in.Key(), Value: Settled{o, Rejected}})
		return nil
	}
	out.Emit(killick.Message{Key: in.Key(), Value: o})
	return nil
}

// notify turns an outcome into what the customer is told.
func notify(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
	s := in.Value().(Settled)
	m := killick.Message{
		Key:   in.Key(),
		Value: Notification{s.Order.ID, s.Order.Customer, s.Order.Item, s.Order.Cents, s.Status},
	}
	if o, ok := in.Origin(); ok {
		m.Headers = []killick.Header{{Key: originHeader, Value: fmt.Appendf(nil, "%s/%d/%d", o.Topic, o.Partition, o.Offset)}}
	}
	out.Emit(m)
	return nil
}
