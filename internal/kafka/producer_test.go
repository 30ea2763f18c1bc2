package kafka

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/killick-io/killick/testenv/embedded"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func producer(t *testing.T, b *embedded.Broker, p Producer) *kgo.Client {
	t.Helper()
	cl, err := NewProducer(cluster(b), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func TestProducerOptions(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t)
	for role, want := range map[Role][]struct {
		name  string
		opt   any
		value any
	}{
		Outputs: {
			{"ClientID", kgo.ClientID, "killick.orders.outputs"},
			{"ProducerLinger", kgo.ProducerLinger, 5 * time.Millisecond},
			{"MaxBufferedRecords", kgo.MaxBufferedRecords, int64(50_000)},
			{"MaxBufferedBytes", kgo.MaxBufferedBytes, int64(64 << 20)},
			{"RecordDeliveryTimeout", kgo.RecordDeliveryTimeout, time.Duration(0)},
			{"AlwaysRetryEOF", kgo.AlwaysRetryEOF, true},
		},
		DeadLetters: {
			{"ClientID", kgo.ClientID, "killick.orders.dead-letters"},
			{"ProducerLinger", kgo.ProducerLinger, time.Duration(0)},
			{"MaxBufferedRecords", kgo.MaxBufferedRecords, int64(1000)},
			{"MaxBufferedBytes", kgo.MaxBufferedBytes, int64(16 << 20)},
			{"RecordDeliveryTimeout", kgo.RecordDeliveryTimeout, time.Duration(0)},
			{"RequiredAcks", kgo.RequiredAcks, kgo.AllISRAcks()},
			{"DisableIdempotentWrite", kgo.DisableIdempotentWrite, false},
		},
	} {
		cl, err := NewProducer(Cluster{Seeds: b.Addrs(), Topology: "orders"}, Producer{Role: role})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		for _, w := range want {
			if got := cl.OptValue(w.opt); got != w.value {
				t.Errorf("%v: %s = %v (%T), want %v", role, w.name, got, got, w.value)
			}
		}
	}
}

func TestProducerMistakes(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]Producer{
		"role 0 is unknown":        {},
		"role 9 is unknown":        {Role: 9},
		"MaxRecords is -1":         {Role: Outputs, MaxRecords: -1},
		"less than MaxMessageByte": {Role: DeadLetters, MaxBytes: 10},
		"batch bytes":              {Role: Outputs, MaxMessageBytes: 1}, // kgo's own
	} {
		cl, err := NewProducer(Cluster{Seeds: []string{"127.0.0.1:1"}, Topology: "t"}, p)
		if err == nil {
			cl.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	b := embedded.Start(t)
	for name, opts := range map[string][]kgo.Opt{
		"RequiredAcks":                       {kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()},
		"DisableIdempotentWrite":             {kgo.DisableIdempotentWrite()},
		"AllowIdempotentProduceCancellation": {kgo.AllowIdempotentProduceCancellation()},
		"TransactionalID":                    {kgo.TransactionalID("x")},
		"ConsumerGroup":                      {kgo.ConsumerGroup("g")},
	} {
		c := cluster(b)
		c.Extra = append(c.Extra, opts...)
		cl, err := NewProducer(c, Producer{Role: Outputs})
		if err == nil {
			cl.Close()
			t.Errorf("%s was accepted", name)
		} else if !strings.Contains(err.Error(), "kgo."+name) {
			t.Errorf("%s: the error does not name it: %v", name, err)
		}
	}
	if s := Role(7).String(); s != "Role(7)" {
		t.Errorf("String of an unknown role: %q", s)
	}
}

// Partitions are chosen as by Java's client: toPositive(murmur2(key)) % n. The
// hashes but the empty key's are the ones of Apache Kafka's own UtilsTest.
func TestPartitionerIsJavas(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t)
	cl := producer(t, b, Producer{Role: Outputs})
	part := cl.OptValue(kgo.RecordPartitioner).(kgo.Partitioner).ForTopic("t").(kgo.TopicBackupPartitioner)
	for key, hash := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
		"":    275646681, // murmur2 of no bytes: an empty key is a key
	} {
		positive := int(hash & math.MaxInt32)
		for _, n := range []int{1, 2, 3, 7, 12, 100, math.MaxInt32} {
			r := &kgo.Record{Key: []byte(key)}
			if got, want := part.PartitionByBackup(r, n, nil), positive%n; got != want {
				t.Errorf("key %q of %d partitions: %d, Java's is %d", key, n, got, want)
			}
		}
		if !part.RequiresConsistency(&kgo.Record{Key: []byte(key)}) {
			t.Errorf("key %q may go elsewhere when its partition is not writable", key)
		}
	}
	if part.RequiresConsistency(&kgo.Record{}) {
		t.Error("a record without a key is hashed")
	}
}

// The same over the wire, with nil and empty keys kept apart.
func TestProducerByKeyAndManual(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("out", 3))
	ctx := limited(t)
	keyed := producer(t, b, Producer{Role: Outputs, Linger: -1})
	if err := keyed.ProduceSync(ctx,
		&kgo.Record{Topic: "out", Key: []byte("21"), Value: []byte("k")},
		&kgo.Record{Topic: "out", Key: []byte{}, Value: []byte{}},
		&kgo.Record{Topic: "out", Key: nil, Value: nil, Partition: 2},
	).FirstErr(); err != nil {
		t.Fatal(err)
	}
	manual := producer(t, b, Producer{Role: DeadLetters, ManualPartition: true})
	if err := manual.ProduceSync(ctx, &kgo.Record{Topic: "out", Key: []byte("21"), Partition: 1, Value: []byte("m")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	rs, err := b.ReadAll(ctx, "out")
	if err != nil || len(rs) != 4 {
		t.Fatalf("%d records, %v", len(rs), err)
	}
	for _, r := range rs {
		switch {
		case string(r.Value) == "k":
			if want := int32((-973932308 & math.MaxInt32) % 3); r.Partition != want {
				t.Errorf("key 21 is in partition %d, want %d", r.Partition, want)
			}
		case string(r.Value) == "m":
			if r.Partition != 1 {
				t.Errorf("the manual record is in partition %d, want 1", r.Partition)
			}
		case r.Key != nil:
			if len(r.Key) != 0 || r.Value == nil || r.Partition != 275646681%3 {
				t.Errorf("empty key: %+v", r)
			}
		default:
			if r.Value != nil {
				t.Errorf("nil key and value: %+v", r)
			}
		}
	}
}

func TestProducerTooLargeAndRetries(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("out", 1))
	ctx := limited(t)
	cl := producer(t, b, Producer{Role: DeadLetters})
	err := cl.ProduceSync(ctx, &kgo.Record{Topic: "out", Value: make([]byte, 2<<20)}).FirstErr()
	if !errors.Is(err, kerr.MessageTooLarge) {
		t.Errorf("2 MiB: %v, want MESSAGE_TOO_LARGE", err)
	}
	// Cut twice in a row, and stored once.
	f := b.LoseAnswers(kmsg.Produce, 2)
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "out", Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if rs, err := b.ReadAll(ctx, "out"); err != nil || len(rs) != 1 || f.Hits() != 2 {
		t.Errorf("%d records, %v, %d answers lost", len(rs), err, f.Hits())
	}
}
