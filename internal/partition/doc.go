// Package partition holds what a worker knows of the Kafka partitions that it owns: what has been
// polled, which roots are started, what may be committed.
//
//	poll loop --Deliver--> Partition --Next--> dispatcher of the engine
//	                        |      ^
//	            ledger, window     '--EndRun, End-- ended trees
//	                        '--Position--> committer
//
// One type serves every partition that records are read from. A partition lives for one
// assignment (epoch); what comes late for a closed one changes nothing.
//
// # Order
//
// Where a spout has an order, who may start is decided here, when the dispatcher asks (order.go), and
// the end of a root's tree, dead letter included, gives the next one its turn. No bolt and no retry
// knows of it.
//
// # Locks
//
// Feed.mu (which partitions there are) is taken before Partition.mu (ledger and window), that
// before Partition.ends.mu (a queue). Trees that end on any goroutine only append to the queue,
// so nothing that ends an edge ever waits for a ledger; whoever needs the ledger next drains it.
package partition
