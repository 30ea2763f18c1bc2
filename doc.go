// Package killick is a framework for processing Kafka reliably, in Apache Storm's
// model made native to Kafka.
//
// A [Topology] is a graph of spouts (sources) and bolts (steps). Every record that a
// spout emits is the root of a tuple tree: what a bolt emits while it executes a tuple
// is anchored to that tuple. The promise: a partition's committed offset passes a
// record only when its whole tree has ended well, or by a policy that you chose.
//
//	func greet(ctx context.Context, in *killick.Tuple, out killick.Emitter) error {
//		fmt.Printf("hello %s\n", in.Bytes())
//		return nil // nil acks; an error fails this try, and the tuple is tried again
//	}
//
//	t := killick.New("hello")
//	t.Spout("names", spout.Kafka("names"))
//	t.Bolt("greet", bolt.Func(greet)).Shuffle("names")
//	worker.Main(t)
//
// # What an error means
//
// A bolt that returns nil acks its input, and its emits leave. On an error the emits
// are dropped, and the try has failed: the same tuple is tried again by the bolt's
// [Retry] policy, while other tuples go on. [Permanent] gives up at once, [RetryAfter]
// names the wait, [FailTree] replays the root record as Storm's fail does. A panic is a
// failed try. An error that comes after ctx was cancelled by a shutdown is neither.
//
// # Time
//
// A tuple's clock runs only while user code has it: from the call of Execute to its
// return, or from Hold to the verdict. Waiting in a queue or for a retry does not count.
//
// This package holds the language only. Package spout has sources, bolt has adapters and
// sinks, worker runs a topology, testenv tests one without a broker.
package killick
