package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// copying makes a topology that writes every record of in to a sink.
func copying(sink killick.BoltFactory) *killick.Topology {
	top := killick.New("t")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("pass", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
		out.Emit(in.Message())
		return nil
	})).Shuffle("in")
	top.Bolt("out", sink).Shuffle("pass")
	return top
}

// An input is acked when its output is durable, and not before: while the broker's answers to
// produce requests are held, or say that too few replicas are there, the offset stays.
// FC-06: hazelcast/hazelcast-jet #605, STORM-826, apache/incubator-heron PR #3324.
func TestSinkAcksWhenDurable(t *testing.T) {
	tell(t, func(s *story) {
		r := s.start(copying(bolt.Kafka("out")))
		s.drained("in")
		gate := make(chan struct{})
		id := s.b.Cluster().TopicInfo("out").TopicID
		held := s.b.HoldAnswers(kmsg.Produce, gate, func(req kmsg.Request) bool {
			for _, t := range req.(*kmsg.ProduceRequest).Topics {
				if t.TopicID == id || t.Topic == "out" {
					return true
				}
			}
			return false
		})
		s.produce("in", 0, numbers(0, 200)...)
		s.pass(5 * time.Second)
		if got := s.committed("in")[0]; got != 0 || held.Hits() == 0 {
			t.Errorf("committed %d with %d answers held", got, held.Hits())
		}
		close(gate)
		held.Remove()
		s.drained("in")

		few := s.failWrites("out", kerr.NotEnoughReplicas, -1)
		s.produce("in", 0, numbers(200, 300)...)
		if err := few.Wait(s.ctx(), 3); err != nil {
			t.Fatal(err)
		}
		s.pass(10 * time.Second)
		if got := s.committed("in")[0]; got != 200 {
			t.Errorf("committed %d while no output of the last 100 is durable", got)
		}
		few.Remove()
		s.drained("in")
		r.end()
		if got := s.read("out"); len(got) != 300 {
			t.Errorf("%d outputs", len(got))
		}
		if len(s.read(dlq)) > 0 {
			t.Error("there are dead letters")
		}
	}, embedded.Topic("in", 1), embedded.Topic("out", 2))
}

// Outputs keep the time of their record, however old it is: a backlog of days is written like any
// other, also when a try has to be repeated.
func TestSinkWritesOldRecords(t *testing.T) {
	tell(t, func(s *story) {
		old := time.Now().Add(-72 * time.Hour)
		for i := range 100 {
			if err := s.b.Produce(s.ctx(), &kgo.Record{Topic: "in", Value: fmt.Append(nil, i), Timestamp: old.Add(time.Duration(i) * time.Minute)}); err != nil {
				t.Fatal(err)
			}
		}
		s.failWrites("out", kerr.NotLeaderForPartition, 2)
		r := s.start(copying(bolt.Kafka("out")))
		s.drained("in")
		r.end()
		got := s.read("out")
		if len(got) != 100 {
			t.Fatalf("%d outputs, %d dead letters", len(got), len(s.read(dlq)))
		}
		if s.logs.text() != "" && len(s.logs.lines("a try failed")) > 0 {
			t.Error("tries have failed")
		}
		if !got[0].Timestamp.Equal(old.Truncate(time.Millisecond)) {
			t.Errorf("the first output's time is %v, that of its record %v", got[0].Timestamp, old)
		}
	}, embedded.Topic("in", 1), embedded.Topic("out", 1))
}

// What cannot be delivered for the whole delivery timeout is a failed try, and is tried again.
func TestSinkDeliveryTimeout(t *testing.T) {
	tell(t, func(s *story) {
		r := s.start(copying(bolt.Kafka("out")), func(c *worker.Config) { c.DeliveryTimeout = 5 * time.Second })
		s.drained("in")
		few := s.failWrites("out", kerr.NotEnoughReplicas, -1)
		start := time.Now()
		s.produce("in", 0, "a")
		s.until("a try has failed", func() bool { return len(s.logs.lines("a try failed")) > 0 })
		if d := time.Since(start); d < 5*time.Second || d > 8*time.Second {
			t.Errorf("the try failed after %v, not 5 s", d)
		}
		if l := s.logs.lines("a try failed")[0]; !contains(fmt.Sprint(l["error"]), `topic "out"`, "not durable in time") {
			t.Errorf("it says: %v", l)
		}
		few.Remove()
		s.drained("in")
		r.end()
		if got := s.read("out"); len(got) != 1 {
			t.Errorf("%d outputs", len(got))
		}
	}, embedded.Topic("in", 1), embedded.Topic("out", 1))
}

// A topic that allows small batches only gets small batches, whether its name is known at the start
// or not; only what is too large by itself is dead.
func TestSinkKeepsToTheTopicsBatchSize(t *testing.T) {
	for name, sink := range map[string]killick.BoltFactory{
		"known":   bolt.Kafka("out"),
		"dynamic": bolt.KafkaSink{TopicOf: func(*killick.Tuple) string { return "out" }}.New,
	} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				if err := s.b.Cluster().CreateTopic("out", 1, map[string]string{"max.message.bytes": "20000"}); err != nil {
					t.Fatal(err)
				}
				var rs []*kgo.Record
				for range 500 {
					rs = append(rs, &kgo.Record{Topic: "in", Value: noise(3000)})
				}
				rs = append(rs, &kgo.Record{Topic: "in", Value: noise(30_000)})
				if err := s.b.Produce(s.ctx(), rs...); err != nil {
					t.Fatal(err)
				}
				r := s.start(copying(sink), func(c *worker.Config) { c.Compression = "none" })
				s.drained("in")
				r.end()
				if got := s.read("out"); len(got) < 500 || name == "known" && len(got) != 500 {
					t.Errorf("%d outputs of 500", len(got))
				}
				if dead := s.read(dlq); len(dead) != 1 || len(dead[0].Value) != 30_000 {
					t.Errorf("%d dead letters; only the large one may be", len(dead))
				}
			}, embedded.Topic("in", 1))
		})
	}
}

// A sink's topic that somebody deletes and makes again is written to again.
func TestSinkTopicMadeAnew(t *testing.T) {
	tell(t, func(s *story) {
		r := s.start(copying(bolt.Kafka("out")))
		s.produce("in", 0, "a")
		s.drained("in")
		if err := s.b.Cluster().DeleteTopic("out"); err != nil {
			t.Fatal(err)
		}
		if err := s.b.Cluster().CreateTopic("out", 1, nil); err != nil {
			t.Fatal(err)
		}
		s.pass(5 * time.Second) // the client's metadata
		s.produce("in", 0, numbers(0, 50)...)
		s.drained("in")
		r.end()
		if got := s.read("out"); len(got) != 50 {
			t.Errorf("%d outputs, %d dead letters", len(got), len(s.read(dlq)))
		}
	}, embedded.Topic("in", 1), embedded.Topic("out", 1))
}

// A refusal of the record itself makes it dead at once; one that may pass is tried again.
func TestSinkRecordErrors(t *testing.T) {
	for _, tt := range []struct {
		code *kerr.Error
		dead bool
	}{{kerr.InvalidRecord, true}, {kerr.InvalidTimestamp, true}, {kerr.TopicAuthorizationFailed, false}} {
		t.Run(tt.code.Message, func(t *testing.T) {
			tell(t, func(s *story) {
				r := s.start(copying(bolt.Kafka("out")))
				s.drained("in")
				s.failWrites("out", tt.code, 1)
				s.produce("in", 0, "a")
				s.drained("in")
				r.end()
				want := 1
				if tt.dead {
					want = 0
				}
				if got, dead := s.read("out"), s.read(dlq); len(got) != want || len(dead) != 1-want {
					t.Errorf("%d outputs, %d dead letters", len(got), len(dead))
				}
			}, embedded.Topic("in", 1), embedded.Topic("out", 1))
		})
	}
}
