package killick

import "fmt"

// Order says which records of a spout wait for each other. It is kept where they start: the next
// record of a key starts when the tuple tree of the one before it has ended, well or by a policy. So it
// holds over retries, replays, asynchronous bolts and dead letters, whatever the topology does with a
// record's tuples, and when a partition moves to another worker.
//
// What it costs: at any time one record of a key (or partition) is under way, so a key is as fast as its
// records one after the other, dead letters written and back-offs waited for. Records that wait for
// their turn are bounded like those that are started ([SpoutDecl.Pending]): a key with more of them than
// that holds up its partition. A record costs 100 to 500 ns more to start and end (BenchmarkOrder); and records are handed
// to bolts in runs that end where a key comes again, so few keys make short runs. NoOrder costs nothing.
//
// Keys are those of the spout's records, of one partition: it is the producer who brings all records of
// a key to one partition. Tuples that a bolt emits are part of the tree; untracked ones are in no order.
type Order int

const (
	// NoOrder lets records of a partition overtake each other: one that waits for its retry does not
	// hold up those behind it. It is the default.
	NoOrder Order = iota
	// PerKey keeps the records of a key in order. Other keys do not wait. Records without a key are
	// in order among themselves; the empty key is another one.
	PerKey
	// PerPartition keeps the records of a partition in order (of a task, for a spout other than
	// Kafka): one at a time.
	PerPartition
)

var orderNames = [...]string{"none", "per key", "per partition"}

// String returns "none", "per key" or "per partition".
func (o Order) String() string {
	if o >= 0 && int(o) < len(orderNames) {
		return orderNames[o]
	}
	return fmt.Sprintf("Order(%d)", int(o))
}

func (o Order) check() error {
	if o < 0 || int(o) >= len(orderNames) {
		return fmt.Errorf("%v is no order; use NoOrder, PerKey or PerPartition", o)
	}
	return nil
}

// Order sets the default order of all spouts. See [SpoutDecl.Order].
func (t *Topology) Order(o Order) *Topology {
	t.check(o.check())
	t.order, t.orderWhere = o, callerAbove(2)
	return t
}

// Order says which records wait for each other. Default: the topology's, [NoOrder].
func (d *SpoutDecl) Order(o Order) *SpoutDecl {
	d.wrong(o.check())
	d.order, d.orderWhere = o, callerAbove(2)
	return d
}
