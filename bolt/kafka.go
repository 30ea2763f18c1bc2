package bolt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/killick-io/killick"
)

// KafkaSink writes its inputs to Kafka: key, value and headers as they come, nil and empty ones
// different. An input is acked when its record is durable (acks=all, idempotent); a record that
// the broker refuses is a failed try. Records with a key go to the partition that Java's default
// partitioner picks (murmur2).
//
// The timestamp is the input's in milliseconds, whatever it is: -1 (none) and the far future
// too, so a topic whose retention goes by time may drop old ones at once. Now is the other
// choice.
type KafkaSink struct {
	// Topic is where records go. It must exist, unless the brokers create topics.
	Topic string
	// TopicOf chooses the topic of each input instead. "" is a permanent failure.
	TopicOf func(*killick.Tuple) string
	// Codec encodes the values. Default: the input's bytes are written as they are: what was
	// read from Kafka unchanged, an emitted value as its stream's codec makes it. Without one
	// those are bytes and strings; other values fail permanently, and where their type is known the
	// topology's validation refuses the sink.
	Codec killick.Codec
	// Now stamps records with the time of writing, instead of the input's timestamp.
	Now bool
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
	info := killick.BoltInfo{Sink: &killick.SinkInfo{Topic: s.k.Topic, TopicOf: s.k.TopicOf, Codec: s.k.Codec}}
	if s.k.Codec == nil {
		info.Raw = true
	} else {
		info.In = s.k.Codec.Type()
	}
	return info, err
}

// Execute emits the input on the default stream, which the engine writes to Kafka.
func (s sink) Execute(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
	m := in.Message()
	if s.k.Codec == nil {
		m.Value, m.Bytes = nil, in.Bytes()
	}
	if s.k.Now {
		m.Time = time.Now()
	}
	out.Emit(m)
	return nil
}
