// Command hello greets: it reads names from the topic names and writes a greeting for each to the topic greetings.
//
// To try it, no Kafka is needed. In one terminal, at the root of this module:
//
//	go install ./cmd/killick
//	killick dev --topics names:2,greetings:2 -- go run ./examples/hello
//
// In another one:
//
//	echo Ada | killick dev produce names
//	killick dev consume greetings -n 1
//
// which prints "hello Ada". Without --topics both topics are made when hello asks for them at its start: killick dev does
// so, as a broker out of the box would for a Java client. On any other Kafka the two topics must exist, since killick never
// makes a topic of yours: a mistyped name is to be an error. There it is
//
//	go run ./examples/hello --bootstrap host:port
//
// Each name is committed when its greeting is durable, not before; a name that cannot be greeted is tried again and ends in
// the topic names.hello.dlq.
package main

import (
	"bytes"
	"context"
	"errors"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/worker"
)

func main() { worker.Main(topology()) }

func topology() *killick.Topology {
	t := killick.New("hello")
	t.Spout("names", spout.Kafka("names"))
	t.Bolt("greet", bolt.Func(greet)).Shuffle("names")
	t.Bolt("greetings", bolt.Kafka("greetings")).Local("greet")
	return t
}

// greet emits a greeting, anchored to the name.
func greet(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
	name := bytes.TrimSpace(in.Bytes())
	if len(name) == 0 {
		return killick.Permanent(errors.New("nobody to greet: the name is empty")) // no use to try again: a dead letter
	}
	out.Emit(killick.Message{Key: in.Key(), Bytes: append([]byte("hello "), name...)})
	return nil // acks the name, once the greeting is durable
}
