// Package spout has the sources of a topology.
//
//	spout.Kafka(topics...)        topics of Kafka, with defaults
//	spout.KafkaSource{...}        ... with a pattern, a start, an end, a codec
//	spout.Slice(ms...), Seq(it)   what the program has: for tests, backfills, demos
//	spout.New(f)                  whatever implements [killick.Spout]
//
// Each message of a source is a root: a partition's committed offset passes a record of Kafka
// only when its whole tree has ended, and a [killick.Spout] is told by done, once per message.
// Sources are descriptions; the worker does the reading. What is wrong with one is a mistake
// that the topology's validation names.
package spout
