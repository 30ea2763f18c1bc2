package worker_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/internal/outbox"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// Roots that end in the reverse of their order move the committed offset once, at the end.
// KILLICK_FULL=1 takes 100,000.
func TestEndsInReverse(t *testing.T) {
	n := 10_000
	if os.Getenv("KILLICK_FULL") == "1" {
		n = 100_000
	}
	tell(t, func(s *story) {
		s.produce("in", 0, numbers(0, n)...)
		var mu sync.Mutex
		var all []*killick.Held
		held := func() int { mu.Lock(); defer mu.Unlock(); return len(all) }
		top := killick.New("t")
		top.Spout("in", spout.Kafka("in")).Pending(n, 64<<20)
		top.Bolt("hold", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, out.Hold())
			return nil
		})).Shuffle("in").Timeout(time.Hour)
		r := s.start(top)
		s.until("all have started", func() bool { return held() == n })
		for i := len(all) - 1; i > 0; i-- {
			all[i].Ack()
			if i%(n/10) == 0 {
				s.pass(2 * time.Second) // a commit or two
				if got := s.committed("in")[0]; got != 0 {
					s.Fatalf("committed %d when record 0 has not ended", got)
				}
			}
		}
		all[0].Ack()
		s.drained("in")
		r.end()
		for _, c := range s.b.Commits() {
			if c.Accepted() && c.Offset != 0 && c.Offset != int64(n) {
				s.Errorf("offset %d was committed on the way", c.Offset)
			}
		}
	}, embedded.Topic("in", 1))
}

// damage is a decompressor that fails at batches which have a word in them, so many times; the client meets
// a compression that it does not know, or a wrong checksum, in the same way.
type damage struct {
	kgo.Decompressor
	left  atomic.Int64
	tries atomic.Int64
}

var errDamaged = errors.New("this is no batch")

func (d *damage) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	out, err := d.Decompressor.Decompress(src, codec)
	if err == nil && bytes.Contains(out, []byte("damaged")) {
		d.tries.Add(1)
		if d.left.Add(-1) >= 0 {
			return nil, errDamaged
		}
	}
	return out, err
}

// A batch that cannot be read stops its partition, after a few tries, and is named; others go on. What is
// whole at the next fetch is as if nothing had been.
func TestDamagedBatch(t *testing.T) {
	for name, times := range map[string]int64{"for good": 1 << 40, "on the way": 2} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				d := &damage{Decompressor: kgo.DefaultDecompressor()}
				d.left.Store(times)
				write, err := kgo.NewClient(s.b.ClientOpts(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.GzipCompression()))...)
				if err != nil {
					s.Fatal(err)
				}
				defer write.Close()
				filler := bytes.Repeat([]byte(" "), 200) // so that it is compressed
				put := func(p int32, values ...string) {
					for _, v := range values { // a batch of each
						if err := write.ProduceSync(s.ctx(), &kgo.Record{Topic: "in", Partition: p, Key: filler, Value: []byte(v)}).FirstErr(); err != nil {
							s.Fatal(err)
						}
					}
				}
				put(0, "a", "b", "damaged", "c")
				put(1, "d", "e")
				var c tally
				r := s.start(counting(&c, spout.Kafka("in"), nil), func(cfg *worker.Config) { cfg.Kafka = append(cfg.Kafka, kgo.WithDecompressor(d)) })
				if times < 10 {
					s.drained("in")
					r.end()
					c.once(t, "a", "b", "c", "d", "e", "damaged")
					return
				}
				s.until("the partition has stopped", func() bool { return r.metric("killick_stopped_partitions") == 1 })
				if ok, text := r.ready("partitions"); ok || !contains(text, "in/0 has stopped", "offset 2", errDamaged.Error()) {
					s.Errorf("readiness: %s", text)
				}
				s.pass(time.Minute)
				put(1, "f", "g")
				s.until("the other partition is committed", func() bool { return s.committed("in")[1] == 4 })
				if got := s.committed("in")[0]; got != 2 {
					s.Errorf("committed %d, want 2", got)
				}
				if n := d.tries.Load(); n > 10 {
					s.Errorf("it was fetched %d times", n)
				}
				if n := len(s.logs.lines("cannot be read")); n > 4 {
					s.Errorf("%d lines about it", n)
				}
				r.end()
				c.once(t, "a", "b", "d", "e", "f", "g")
			}, embedded.Topic("in", 2))
		})
	}
}

// Who may not read a topic any more ends, by an error that names it, and nothing is lost.
func TestRightToReadIsTaken(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		s.produce("in", 0, numbers(0, 10)...)
		r := s.start(counting(&c, spout.Kafka("in"), nil))
		s.drained("in")
		s.b.Fail(kmsg.Fetch, kerr.TopicAuthorizationFailed, -1)
		s.produce("in", 0, numbers(10, 20)...)
		err := r.wait()
		if err == nil || worker.ExitCode(err) != 1 || !contains(err.Error(), `not allowed to read topic "in" in group "g"`, "TOPIC_AUTHORIZATION_FAILED") {
			s.Errorf("exit code %d: %v", worker.ExitCode(err), err)
		}
		if got := s.committed("in")[0]; got != 10 {
			s.Errorf("committed %d", got)
		}
	}, embedded.Topic("in", 1))
}

// registry is a schema registry as a program has one: it knows schemas by number, and may be down.
type registry struct {
	down  atomic.Bool
	asked atomic.Int64
}

var (
	errDown   = errors.New("the registry is down")
	errSchema = errors.New("no schema of this number")
)

// decode reads a record in Confluent's framing: a zero, the number of the schema, and the text.
func (r *registry) decode(b []byte) (string, error) {
	if len(b) < 5 || b[0] != 0 {
		return "", killick.Permanent(errors.New("no framing"))
	}
	r.asked.Add(1)
	if r.down.Load() {
		return "", errDown
	}
	if id := binary.BigEndian.Uint32(b[1:]); id != 7 {
		return "", killick.Permanent(fmt.Errorf("%w: %d", errSchema, id))
	}
	return string(b[5:]), nil
}

func framed(id uint32, text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, id), text...)
}

// A bolt that decodes with a schema registry tells what will never be decoded from what cannot be now:
// the one is a dead letter at once, with its bytes and the reason, the other waits until the
// registry is back, and none of it is lost.
func TestSchemaRegistry(t *testing.T) {
	tell(t, func(s *story) {
		var reg registry
		var c tally
		top := killick.New("t")
		top.Spout("in", spout.Kafka("in"))
		top.Bolt("decode", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			text, err := reg.decode(in.Bytes())
			if err != nil {
				return err
			}
			c.add(text)
			return nil
		})).Shuffle("in").Retry(killick.Retry{Attempts: 1000, Min: time.Second, Max: 10 * time.Second})
		bad := []*kgo.Record{{Topic: "in", Key: []byte("k"), Value: framed(8, "x\xff")}, {Topic: "in", Value: []byte("no framing")}}
		good := func(values ...string) {
			for _, v := range values {
				if err := s.b.Produce(s.ctx(), &kgo.Record{Topic: "in", Value: framed(7, v)}); err != nil {
					s.Fatal(err)
				}
			}
		}
		good("a")
		if err := s.b.Produce(s.ctx(), bad...); err != nil {
			s.Fatal(err)
		}
		r := s.start(top)
		s.drained("in")
		dead := s.read(dlq)
		if len(dead) != 2 {
			s.Fatalf("%d dead letters, want 2", len(dead))
		}
		for i := range bad {
			same(t, dead[i], bad[i])
			if h := headers(t, dead[i]); h[outbox.HeaderReason] != "permanent" || h[outbox.HeaderAttempt] != "1" || h[outbox.HeaderComponent] != "decode" || h[outbox.HeaderError] == "" {
				s.Errorf("dead letter %d: %v", i, h)
			}
		}
		reg.down.Store(true)
		good("b", "c")
		s.pass(2 * time.Minute)
		if got := s.committed("in")[0]; got != 3 || len(s.read(dlq)) != 2 {
			s.Errorf("while the registry is down %d is committed, and there are %d dead letters", got, len(s.read(dlq)))
		}
		if n := reg.asked.Load(); n > 100 {
			s.Errorf("it was asked %d times", n)
		}
		reg.down.Store(false)
		s.drained("in")
		r.end()
		c.once(t, "a", "b", "c")
	}, embedded.Topic("in", 1))
}

// The smallest limits that can be set, with records that are larger by far: one at a time goes through.
func TestSmallestLimits(t *testing.T) {
	tell(t, func(s *story) {
		var want []string
		for p := range int32(3) {
			for i := range 20 {
				v := fmt.Sprint(p, "/", i)
				want = append(want, v)
				if err := s.b.Produce(s.ctx(), &kgo.Record{Topic: "in", Partition: p, Key: noise(50_000), Value: []byte(v)}); err != nil {
					s.Fatal(err)
				}
			}
		}
		var c tally
		top := killick.New("t")
		top.Spout("in", spout.Kafka("in")).Pending(1, 1)
		top.Bolt("count", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			c.add(string(in.Bytes()))
			return nil
		})).Shuffle("in")
		r := s.start(top, func(c *worker.Config) { c.FetchMaxBytes = 1 << 10 })
		s.drained("in")
		r.end()
		c.once(t, want...)
	}, embedded.Topic("in", 3))
}

// What is large or strange comes through whole, to a topic and to the dead letters: a key of nearly a megabyte, a header as
// large, 10,000 headers, bytes that are no text.
func TestLargeAndStrangeRecords(t *testing.T) {
	tell(t, func(s *story) {
		many := make([]kgo.RecordHeader, 10_000)
		for i := range many {
			many[i] = kgo.RecordHeader{Key: fmt.Sprintf("h%d", i%100), Value: []byte{byte(i), 0xff}}
		}
		in := []*kgo.Record{
			{Topic: "in", Key: noise(900_000), Value: []byte("large key")},
			{Topic: "in", Value: []byte("large header"), Headers: []kgo.RecordHeader{{Key: "h", Value: noise(900_000)}}},
			{Topic: "in", Value: []byte("headers"), Headers: many},
			{Topic: "in", Key: []byte("\xff\x00\xed\xa0\x80"), Value: []byte("a\xc3\x00\xff"), Headers: []kgo.RecordHeader{{Key: "\xfe\x00", Value: []byte("\xff")}}},
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
			}
		}
	}, embedded.Topic("in", 1), embedded.Topic("out", 1))
}
