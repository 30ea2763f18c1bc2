// Package bolt has adapters that make bolts of functions, and sinks.
//
//	bolt.Func(f)                  a function over tuples
//	bolt.Map(f), FlatMap, Filter  functions over typed values
//	bolt.Async(n, f)              up to n executions of f at a time, for work that waits
//	bolt.Batch(max, wait, f)      many tuples at once, each with its own verdict
//	bolt.Kafka(topic)             writes its inputs; acked when durable
//
// A bolt with state is a struct that implements [killick.Bolt]; it needs nothing of this
// package.
package bolt
