package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/internal/outbox"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

const dlq = "in.t.dlq"

// headers returns a record's headers by key; our own are there once each.
func headers(t *testing.T, r *kgo.Record) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, h := range r.Headers {
		if _, twice := m[h.Key]; twice && strings.HasPrefix(h.Key, "killick-") {
			t.Errorf("header %s is there twice", h.Key)
		}
		m[h.Key] = string(h.Value)
	}
	return m
}

// same compares what a dead letter keeps of its record, nil and empty being different.
func same(t *testing.T, got, want *kgo.Record) {
	t.Helper()
	if !bytes.Equal(got.Key, want.Key) || (got.Key == nil) != (want.Key == nil) {
		t.Errorf("key %q (nil: %v), want %q (nil: %v)", got.Key, got.Key == nil, want.Key, want.Key == nil)
	}
	if !bytes.Equal(got.Value, want.Value) || (got.Value == nil) != (want.Value == nil) {
		t.Errorf("value %.40q (nil: %v), want %.40q (nil: %v)", got.Value, got.Value == nil, want.Value, want.Value == nil)
	}
	for i, h := range want.Headers {
		if i >= len(got.Headers) || got.Headers[i].Key != h.Key || !bytes.Equal(got.Headers[i].Value, h.Value) {
			t.Errorf("header %d of %d is not %q", i, len(got.Headers), h.Key)
			return
		}
	}
}

// A record that fails for good is tried as often as the policy says, beside the others, and then
// becomes a dead letter with its own bytes.
// FC-23: dapr/components-contrib #2227.
func TestPoisonRecord(t *testing.T) {
	tell(t, func(s *story) {
		poison := &kgo.Record{Topic: "in", Partition: 1, Key: []byte{0, 0xff}, Value: []byte("poison"),
			Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte{}}, {Key: "a", Value: []byte("2")}}}
		s.produce("in", 1, numbers(0, 10)...)
		if err := s.b.Produce(s.ctx(), poison); err != nil {
			t.Fatal(err)
		}
		s.produce("in", 1, numbers(10, 20)...)
		var c tally
		broken := errors.New("this one cannot be paid")
		r := s.start(counting(&c, spout.Kafka("in"), func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if string(in.Bytes()) == "poison" {
				return broken
			}
			return nil
		}))
		s.drained("in")
		r.end()
		if c.of("poison") != 5 || c.total() != 25 {
			t.Errorf("the poison ran %d times of %d", c.of("poison"), c.total())
		}
		got := s.read(dlq)
		if len(got) != 1 {
			t.Fatalf("%d dead letters", len(got))
		}
		same(t, got[0], poison)
		h := headers(t, got[0])
		for k, want := range map[string]string{outbox.HeaderTopic: "in", outbox.HeaderPartition: "1", outbox.HeaderOffset: "10",
			outbox.HeaderGroup: "g", outbox.HeaderTopology: "t", outbox.HeaderComponent: "count", outbox.HeaderTask: "0",
			outbox.HeaderReason: "error", outbox.HeaderAttempt: "5", outbox.HeaderErrorType: "*errors.errorString",
			outbox.HeaderError: broken.Error(), outbox.HeaderTimestamp: fmt.Sprint(poison.Timestamp.UnixMilli())} {
			if h[k] != want {
				t.Errorf("%s is %q, want %q", k, h[k], want)
			}
		}
		if got[0].Partition != 1 {
			t.Errorf("it is in partition %d", got[0].Partition)
		}
		if !got[0].Timestamp.Equal(poison.Timestamp) {
			t.Errorf("its time is %v, that of the record %v", got[0].Timestamp, poison.Timestamp)
		}
	}, embedded.Topic("in", 2))
}

// What cannot be decoded is dead at once, without a try, and its bytes are kept: whatever they are.
func TestUndecodableRecordsKeepTheirBytes(t *testing.T) {
	tell(t, func(s *story) {
		many := make([]kgo.RecordHeader, 10000)
		for i := range many {
			many[i] = kgo.RecordHeader{Key: fmt.Sprintf("h%d", i%100), Value: []byte{byte(i), 0xff}} // 100 of each
		}
		bad := []*kgo.Record{
			{Key: nil, Value: []byte("{")},
			{Key: []byte{}, Value: []byte{}}, // empty is no JSON; nil below is no value
			{Key: []byte{0xff, 0xfe}, Value: []byte{0xc3, 0x28, 0}},
			{Key: []byte("k"), Value: []byte("no json"), Headers: many},
			{Key: bytes.Repeat([]byte("k"), 1<<10), Value: bytes.Repeat([]byte("x"), 900_000)},
		}
		for _, r := range bad {
			r.Topic = "in"
		}
		all := append([]*kgo.Record{{Topic: "in", Value: []byte(`{"id":1}`)}, {Topic: "in", Key: []byte("k")}}, bad...)
		if err := s.b.Produce(s.ctx(), all...); err != nil {
			t.Fatal(err)
		}
		var c tally
		r := s.start(counting(&c, spout.KafkaSource{Topics: []string{"in"}, Codec: killick.JSON[struct{ ID int }]()}, nil))
		s.drained("in")
		r.end()
		if c.total() != 2 {
			t.Errorf("%d executions; only the good one and the tombstone reach the bolt", c.total())
		}
		got := s.read(dlq)
		if len(got) != len(bad) {
			t.Fatalf("%d dead letters, want %d", len(got), len(bad))
		}
		for i := range bad {
			same(t, got[i], bad[i])
			if h := headers(t, got[i]); h[outbox.HeaderReason] != "decode" || h[outbox.HeaderAttempt] != "1" || h[outbox.HeaderComponent] != "in" {
				t.Errorf("reason %q, attempt %q, component %q", h[outbox.HeaderReason], h[outbox.HeaderAttempt], h[outbox.HeaderComponent])
			}
		}
	}, embedded.Topic("in", 1))
}

// While the dead-letter topic cannot be written, the offset of the dead record stays and readiness
// says which topic it is; other partitions go on; when it can be written again all drains.
func TestDeadLetterTopicDownAndUp(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		r := s.start(counting(&c, spout.Kafka("in"), func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if string(in.Bytes()) == "3" {
				return killick.Permanent(errors.New("no"))
			}
			return nil
		}))
		s.drained("in")
		down := s.failWrites(dlq, kerr.NotEnoughReplicas, -1)
		s.produce("in", 0, numbers(0, 10)...)
		s.produce("in", 1, numbers(10, 20)...)
		s.until("readiness is red", func() bool { ok, _ := r.ready("dead-letters"); return !ok })
		if _, text := r.ready("dead-letters"); !contains(text, dlq) {
			t.Errorf("readiness does not name the topic: %s", text)
		}
		s.pass(2 * time.Minute)
		if got := s.committed("in"); got[0] != 3 || got[1] != 10 {
			t.Errorf("committed %v while the dead letter waits, want 3 and 10", got)
		}
		down.Remove()
		s.drained("in")
		s.until("readiness is green", func() bool { ok, _ := r.Ready(); return ok })
		if got := s.read(dlq); len(got) != 1 {
			t.Errorf("%d dead letters", len(got))
		}
		if n := len(s.logs.lines("dead letter could not be written")); n == 0 || n > 100 {
			t.Errorf("%d lines about it", n)
		}
		r.end()
	}, embedded.Topic("in", 2))
}

// Readiness tells of a dead-letter topic that cannot be written, also while others can.
func TestOneOfTwoDeadLetterTopicsDown(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		r := s.start(counting(&c, spout.Kafka("in", "other"), func(context.Context, *killick.Tuple, killick.Emitter) error {
			return killick.Permanent(errors.New("no"))
		}))
		s.drained("in")
		s.drained("other")
		down := s.failWrites(dlq, kerr.NotEnoughReplicas, -1)
		s.produce("in", 0, "1")
		s.until("readiness is red", func() bool { ok, _ := r.ready("dead-letters"); return !ok })
		for i := range 20 {
			s.produce("other", 0, fmt.Sprint(i))
			s.drained("other")
			if ok, text := r.ready("dead-letters"); ok || !contains(text, dlq) {
				t.Fatalf("after %d dead letters of the other topic readiness is %v: %s", i+1, ok, text)
			}
		}
		down.Remove()
		s.drained("in")
		s.until("readiness is green", func() bool { ok, _ := r.Ready(); return ok })
		r.end()
	}, embedded.Topic("in", 1), embedded.Topic("other", 1))
}

// failWrites answers the next n produce requests to one topic with an error, all if n is negative.
func (s *story) failWrites(topic string, with *kerr.Error, n int) *kfake.FaultHandle {
	return s.b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: with, Count: n})
}

// A dead-letter topic that somebody deletes is made again.
func TestDeadLetterTopicDeleted(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		r := s.start(counting(&c, spout.Kafka("in"), func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			return killick.Permanent(errors.New("no"))
		}))
		s.drained("in")
		s.produce("in", 0, "a")
		s.drained("in")
		if err := s.b.Cluster().DeleteTopic(dlq); err != nil {
			t.Fatal(err)
		}
		s.produce("in", 0, "b")
		s.drained("in")
		if got := s.read(dlq); len(got) != 1 || string(got[0].Value) != "b" {
			t.Errorf("dead letters %v", got)
		}
		r.end()
	}, embedded.Topic("in", 1))
}

// A dead letter that is too large for its topic loses our own headers first and becomes a pointer
// at last.
// FC-24: spring-projects/spring-kafka #1994, monoscope-tech/monoscope PR #442.
func TestDeadLetterTooLarge(t *testing.T) {
	tell(t, func(s *story) {
		// Incompressible. The largest record that a client writes by default stays whole.
		values := [][]byte{noise(1_000_000 - 100), noise(500_000)}
		long := strings.Repeat("what went wrong ", 60)
		for _, v := range values {
			if err := s.b.Produce(s.ctx(), &kgo.Record{Topic: "in", Key: []byte("k"), Value: v}); err != nil {
				t.Fatal(err)
			}
		}
		// What is too large with all our headers, with some of them, and by itself.
		sizes := []int{8192 - 1200, 8192 - 350, 20_000}
		if err := s.b.Cluster().CreateTopic("small", 1, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.b.Cluster().CreateTopic("small.t.dlq", 1, map[string]string{"max.message.bytes": "8192"}); err != nil {
			t.Fatal(err)
		}
		for _, n := range sizes {
			if err := s.b.Produce(s.ctx(), &kgo.Record{Topic: "small", Key: []byte("k"), Value: noise(n)}); err != nil {
				t.Fatal(err)
			}
		}
		var c tally
		r := s.start(counting(&c, spout.Kafka("in", "small"), func(context.Context, *killick.Tuple, killick.Emitter) error {
			return killick.Permanent(errors.New(long))
		}), func(c *worker.Config) { c.Compression = "none" })
		s.drained("in")
		s.drained("small")
		r.end()
		got := s.read(dlq)
		if len(got) != len(values) {
			t.Fatalf("%d dead letters", len(got))
		}
		for i, r := range got {
			h := headers(t, r)
			if !bytes.Equal(r.Value, values[i]) || h[outbox.HeaderOffset] != fmt.Sprint(i) {
				t.Errorf("%d: %d bytes at offset %s", i, len(r.Value), h[outbox.HeaderOffset])
			}
			if h[outbox.HeaderCut] != "" || h[outbox.HeaderError] != long {
				t.Errorf("%d: cut: %q", i, h[outbox.HeaderCut])
			}
		}
		small := s.read("small.t.dlq")
		if len(small) != len(sizes) {
			t.Fatalf("%d dead letters of small", len(small))
		}
		for i, cut := range []string{"tuple key and value, error text", "error and tuple headers", "value and headers"} {
			h := headers(t, small[i])
			if !strings.HasPrefix(h[outbox.HeaderCut], cut) || h[outbox.HeaderTopic] != "small" || h[outbox.HeaderOffset] != fmt.Sprint(i) {
				t.Errorf("%d: cut %q, topic %s, offset %s", i, h[outbox.HeaderCut], h[outbox.HeaderTopic], h[outbox.HeaderOffset])
			}
			if i < 2 && !bytes.Equal(small[i].Value, noise(sizes[i])) || i == 2 && small[i].Value != nil {
				t.Errorf("%d: %d bytes of value", i, len(small[i].Value))
			}
		}
	}, embedded.Topic("in", 1))
}

// noise is n bytes that no codec makes smaller.
func noise(n int) []byte {
	b := make([]byte, n)
	x := uint64(88172645463325252)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}

// A dead letter that is driven back again and again does not grow, and knows its first failure.
// FC-24: spring-projects/spring-kafka #1994, monoscope-tech/monoscope PR #442.
func TestDeadLetterRedriven(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		r := s.start(counting(&c, spout.Kafka("in"), func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			return killick.Permanent(fmt.Errorf("failure number %d of %s", c.total(), in.ID()))
		}))
		next := &kgo.Record{Topic: "in", Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "mine", Value: []byte("x")}}}
		n, first := 0, ""
		for i := range 50 {
			if err := s.b.Produce(s.ctx(), next); err != nil {
				t.Fatal(err)
			}
			s.drained("in")
			all := s.read(dlq)
			if len(all) != i+1 {
				t.Fatalf("%d dead letters after %d failures", len(all), i+1)
			}
			got := all[i]
			h := headers(t, got)
			if i == 0 {
				n, first = len(got.Headers), h[outbox.HeaderFailed]
			}
			if len(got.Headers) != n || h[outbox.HeaderFailed] != first || h["mine"] != "x" || h[outbox.HeaderOffset] != fmt.Sprint(i) {
				t.Fatalf("round %d: %d headers, want %d; first failed %s, want %s", i, len(got.Headers), n, h[outbox.HeaderFailed], first)
			}
			next = &kgo.Record{Topic: "in", Key: got.Key, Value: got.Value, Headers: got.Headers}
			s.pass(time.Second)
		}
		r.end()
	}, embedded.Topic("in", 1))
}

// Timestamps that a broker refuses, or that say nothing, do not hold a record up: its dead letter
// takes the time of its writing instead and carries the record's in a header.
// FC-45: KAFKA-14991, KAFKA-6482, zendesk/ruby-kafka PR #706, bakdata/kafka-error-handling PR #28.
func TestOddTimestamps(t *testing.T) {
	tell(t, func(s *story) {
		var times []time.Time
		for _, ms := range []int64{-1, 0, time.Now().AddDate(-10, 0, 0).UnixMilli(), time.Now().AddDate(100, 0, 0).UnixMilli()} {
			times = append(times, time.UnixMilli(ms))
		}
		for i, at := range times {
			if err := s.b.Produce(s.ctx(), &kgo.Record{Topic: "in", Value: fmt.Append(nil, i), Timestamp: at}); err != nil {
				t.Fatal(err)
			}
		}
		// The broker refuses the far future in both outputs, as Kafka does since 3.6
		// (message.timestamp.after.max.ms, KIP-937).
		top := killick.New("t")
		top.Spout("in", spout.Kafka("in"))
		top.Bolt("pass", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			if string(in.Bytes()) == "3" {
				s.failWrites(dlq, kerr.InvalidTimestamp, 1)
				return killick.Permanent(errors.New("no"))
			}
			out.Emit(in.Message())
			return nil
		})).Shuffle("in")
		top.Bolt("out", bolt.Kafka("out")).Shuffle("pass")
		r := s.start(top)
		s.drained("in")
		r.end()
		out := s.read("out")
		if len(out) != 3 {
			t.Fatalf("%d outputs", len(out))
		}
		for i, o := range out {
			if !o.Timestamp.Equal(times[i]) {
				t.Errorf("output %d has the time %v, its record %v", i, o.Timestamp, times[i])
			}
		}
		dead := s.read(dlq)
		if len(dead) != 1 {
			t.Fatalf("%d dead letters", len(dead))
		}
		if at := headers(t, dead[0])[outbox.HeaderTimestamp]; at != fmt.Sprint(times[3].UnixMilli()) {
			t.Errorf("the header says %s", at)
		}
		if d := time.Since(dead[0].Timestamp); d < 0 || d > time.Minute {
			t.Errorf("the dead letter's time is %v", dead[0].Timestamp)
		}
	}, embedded.Topic("in", 1), embedded.Topic("out", 1))
}
