// Package demo runs the order story of examples/orders with a crash in the middle, watches it from outside and has the
// result judged.
//
//	this process                                   worker process 1        worker process 2
//	------------                                   ----------------        ----------------
//	broker (embedded, or a Kafka that you name)
//	topics, input
//	start ---------------------------------------> runs the topology
//	read committed offsets, output ends, ...       |
//	about half way: SIGKILL ---------------------> X
//	read the offsets that are left
//	start ----------------------------------------------------------------> goes on there
//	read committed offsets, output ends, ...                               | exits 0 at the end of the input
//	read all topics and the gateway's book
//	package check: does everything add up?
//
// The judge, package examples/orders/check, imports nothing from killick. This package hands it what Kafka and the file
// system say; of killick it uses only the decoding of the completion map (package offsets), and the worker itself.
//
// # Processes and goroutines
//
// One goroutine does everything in turn, so that samples of committed offsets are taken one after the other. Each worker
// process has one more goroutine, which waits for its end and is itself waited for. A worker ends when its standard
// input does: if this process dies in whatever way, no worker stays behind. Nothing is killed but by the handle of a
// process that was started here.
//
// # Failure handling
//
// [Run] returns an error when there is no verdict: [ErrUsage], [ErrUnreachable], or something that broke on the way, with
// the place of the worker's log. A verdict that says no is no error: see [Result].
package demo
