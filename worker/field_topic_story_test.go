package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
)

// TestOpenRootsOfATopicMadeAnew: a topic is deleted and made again while records of the old one are
// worked on. Their ends commit nothing to the new one, and the next start reads it from its beginning.
// FC-32: twmb/franz-go #908 and PR #1426, librdkafka #1582, streamnative/kop #530.
func TestOpenRootsOfATopicMadeAnew(t *testing.T) {
	tell(t, func(s *story) {
		s.cfg.Drain = 20 * time.Second
		s.produce("in", 0, numbers(0, 500)...)
		s.produce("in", 0, "hold")
		var h hands
		r := s.start(h.topology(time.Hour))
		s.until("all but the last is committed", func() bool { return s.committed("in")[0] == 500 })
		old := s.b.Cluster().TopicInfo("in").TopicID
		if err := s.b.Cluster().DeleteTopic("in"); err != nil {
			s.Fatal(err)
		}
		if err := s.b.Cluster().CreateTopic("in", 1, nil); err != nil {
			s.Fatal(err)
		}
		s.produceAnew("in", 0, numbers(1000, 1020)...)
		s.pass(10 * time.Second)
		h.of("hold").Ack()
		if err := r.wait(); err == nil || !contains(err.Error(), `topic "in" was deleted and created again`) {
			s.Errorf("the worker ended with: %v", err)
		}
		for _, m := range s.b.Commits() {
			if m.TopicID != ([16]byte{}) && m.TopicID != old {
				s.Errorf("a commit to the new topic: %+v", m)
			}
		}
		var c tally
		r = s.start(counting(&c, spout.Kafka("in"), nil))
		s.drained("in")
		r.end()
		c.once(s, numbers(1000, 1020)...)
	}, embedded.Topic("in", 1))
}

// TestOffsetsSetBackByHand: somebody sets a group's offset back. A worker that starts paused shows how
// much will run again, before anything does; what runs again has the IDs that it had, so that effects
// can be told from new ones; and a pause in the middle holds at once.
// FC-34: darshanturakhia.com/blog/kafka-offset-reset-duplicate-payments.
func TestOffsetsSetBackByHand(t *testing.T) {
	tell(t, func(s *story) {
		const n, from = 1500, 500
		var ids tally
		top := func() *killick.Topology {
			top := killick.New("t")
			top.Spout("in", spout.Kafka("in"))
			top.Bolt("pay", bolt.Func(func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
				ids.add(in.ID())
				return sleep(ctx, 2*time.Millisecond)
			})).Shuffle("in")
			return top
		}
		s.produce("in", 0, numbers(0, n)...)
		r := s.start(top())
		s.drained("in")
		r.end()
		s.commit("in", 0, from, "")
		r = s.start(top())
		if err := r.Pause(s.ctx(), "in"); err != nil {
			s.Fatal(err)
		}
		s.until("the lag is shown", func() bool { return r.lag("in", 0) == n-from })
		s.pass(time.Minute)
		if got := ids.total(); got != n {
			s.Errorf("%d payments were made again while the spout was paused", got-n)
		}
		if err := r.Resume("in"); err != nil {
			s.Fatal(err)
		}
		s.until("some are made again", func() bool { return ids.total() > n+200 })
		// Pause returns when what has started is over: with one task and 2 ms each, all of the window.
		paused := make(chan error, 1)
		go func() { paused <- r.Pause(s.ctx(), "in") }()
		if err := <-paused; err != nil {
			s.Fatal(err)
		}
		at, committed := ids.total(), s.committed("in")[0]
		if committed != int64(from+at-n) {
			s.Errorf("%d have run, committed is %d", at-n, committed)
		}
		s.pass(time.Minute)
		if ids.total() != at || s.committed("in")[0] != committed {
			s.Errorf("it went on: %d, then %d executions", at, ids.total())
		}
		if err := r.Resume("in"); err != nil {
			s.Fatal(err)
		}
		s.drained("in")
		r.end()
		for o := range n {
			want := 1
			if o >= from {
				want = 2
			}
			if got := ids.of(fmt.Sprint("in/0/", o)); got != want {
				s.Errorf("payment %d was made %d times, want %d", o, got, want)
			}
		}
	}, embedded.Topic("in", 1))
}

// TestNullIsNotEmpty: null and empty keys and values stay what they are, on the way from topic to topic
// and in dead letters, with and without headers.
// FC-43: dapr/components-contrib #3935, ag2ai/faststream PR #2933, mateusjunges/laravel-kafka #290,
// confluentinc/schema-registry #836. FC-23: dapr/components-contrib #2227.
func TestNullIsNotEmpty(t *testing.T) {
	tell(t, func(s *story) {
		var in []*kgo.Record
		for _, kv := range [][2][]byte{{[]byte("k"), nil}, {[]byte("k"), {}}, {nil, []byte("v")}, {nil, nil}, {{}, {}}} {
			for _, hs := range [][]kgo.RecordHeader{nil, {{Key: "trace", Value: []byte("1")}, {Key: "empty", Value: []byte{}}, {Key: "trace", Value: []byte("2")}}} {
				in = append(in, &kgo.Record{Topic: "in", Key: kv[0], Value: kv[1], Headers: hs})
			}
		}
		if err := s.b.Produce(s.ctx(), in...); err != nil {
			s.Fatal(err)
		}
		r := s.start(copying(bolt.Kafka("out")))
		s.drained("in")
		r.end()
		s.commit("in", 0, 0, "")
		r = s.start(counting(new(tally), spout.Kafka("in"), func(context.Context, *killick.Tuple, killick.Emitter) error {
			return killick.Permanent(errTry)
		}))
		s.drained("in")
		r.end()
		for _, topic := range []string{"out", dlq} {
			got := s.read(topic)
			if len(got) != len(in) {
				s.Fatalf("%d records in %s, want %d", len(got), topic, len(in))
			}
			for i := range in {
				same(t, got[i], in[i])
				foreign := slices.DeleteFunc(slices.Clone(got[i].Headers), func(h kgo.RecordHeader) bool { return strings.HasPrefix(h.Key, "killick-") })
				if len(foreign) != len(in[i].Headers) {
					s.Errorf("%s: %d headers became %d", topic, len(in[i].Headers), len(foreign))
				}
			}
		}
	}, embedded.Topic("in", 1), embedded.Topic("out", 1))
}
