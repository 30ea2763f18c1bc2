package bolt

import (
	"context"
	"errors"
	"fmt"

	"github.com/killick-io/killick"
)

// KafkaSink writes its inputs to Kafka: key, value, headers and time as they come. An input is
// acked when its record is durable (acks=all, idempotent); a record that the broker refuses is a
// failed try. Records with a key go to the partition that Java's default partitioner picks
// (murmur2). The timestamp is the input's, not the time of writing.
type KafkaSink struct {
	// Topic is where records go. It must exist, unless the brokers create topics.
	Topic string
	// TopicOf chooses the topic of each input instead. "" is a permanent failure.
	TopicOf func(*killick.Tuple) string
	// Codec encodes the values. Default: the input stream's; without one, bytes and strings.
	Codec killick.Codec
}

// Kafka is a sink for one topic.
func Kafka(topic string) killick.BoltFactory { return KafkaSink{Topic: topic}.New }

// New makes the bolt of one task; it is a [killick.BoltFactory].
func (k KafkaSink) New() killick.Bolt { return sink{k} }

type sink struct{ k KafkaSink }

func (s sink) BoltInfo() (killick.BoltInfo, error) {
	var err error
	switch {
	case s.k.Topic == "" && s.k.TopicOf == nil:
		err = errors.New("bolt.KafkaSink: set Topic or TopicOf")
	case s.k.Topic != "" && s.k.TopicOf != nil:
		err = fmt.Errorf("bolt.KafkaSink: both Topic (%q) and TopicOf are set", s.k.Topic)
	}
	return killick.BoltInfo{Sink: &killick.SinkInfo{Topic: s.k.Topic, TopicOf: s.k.TopicOf, Codec: s.k.Codec}}, err
}

// Execute emits the input on the default stream, which the engine writes to Kafka.
func (s sink) Execute(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
	out.Emit(in.Message())
	return nil
}
