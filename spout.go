package killick

import "context"

// Spout is a source other than Kafka. Next blocks until it has a message, ctx ends, or
// the source is exhausted (io.EOF); after another error it is called again, with
// back-off. done may be nil; else it is called once: nil when the message's tree has
// ended well, an error when it ended dead or the worker gave it up, and a source that
// can redeliver should. done must not block. Next is called on one goroutine, possibly
// before earlier messages have ended, up to the spout's pending limit.
type Spout interface {
	Next(ctx context.Context) (m Message, done func(error), err error)
}

// Source is what package spout makes and [Topology.Spout] takes.
type Source interface {
	SourceInfo() (SourceInfo, error)
}

// SourceInfo says what a source is: topics of Kafka, or a factory of spouts.
type SourceInfo struct {
	Topics  []string     // Kafka: the topics,
	Pattern string       // or a regular expression (RE2) that their names match
	New     func() Spout // another source: one spout per task
	Codec   Codec        // of its stream; nil: bytes
}
