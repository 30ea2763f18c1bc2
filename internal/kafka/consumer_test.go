package kafka

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/killick-io/killick/testenv/embedded"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestConsumerOptions(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("in", 1))
	c := Cluster{Seeds: b.Addrs(), Topology: "orders"}
	cl, err := NewConsumer(c, Consumer{Group: "g", Topics: []string{"in"}, Start: atStart(), InstanceID: "slot"})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for _, want := range []struct {
		name  string
		opt   any
		value any
	}{
		{"ClientID", kgo.ClientID, "killick.orders.consumer"},
		{"SessionTimeout", kgo.SessionTimeout, 10 * time.Second},
		{"HeartbeatInterval", kgo.HeartbeatInterval, 500 * time.Millisecond},
		{"RebalanceTimeout", kgo.RebalanceTimeout, 30 * time.Second},
		{"FetchMaxWait", kgo.FetchMaxWait, 50 * time.Millisecond},
		{"FetchMaxBytes", kgo.FetchMaxBytes, int32(16 << 20)},
		{"MaxDecompressBatchBytes", kgo.MaxDecompressBatchBytes, 128 << 20},
		{"MetadataMaxAge", kgo.MetadataMaxAge, time.Minute},
		{"InstanceID", kgo.InstanceID, "slot"},
		{"DisableAutoCommit", kgo.DisableAutoCommit, true},
		{"BlockRebalanceOnPoll", kgo.BlockRebalanceOnPoll, false},
		{"KeepControlRecords", kgo.KeepControlRecords, true},
		{"AlwaysRetryEOF", kgo.AlwaysRetryEOF, true},
		{"FetchIsolationLevel", kgo.FetchIsolationLevel, int8(1)},
		{"ConsumeResetOffset", kgo.ConsumeResetOffset, kgo.NoResetOffset()},
		{"ConsumeStartOffset", kgo.ConsumeStartOffset, *atStart()},
	} {
		if got := cl.OptValue(want.opt); got != want.value {
			t.Errorf("%s = %v, want %v", want.name, got, want.value)
		}
	}
}

// Extra options that break a guarantee are refused by name, all at once.
// FC-44: segmentio/kafka-go #659.
func TestConsumerRefusesUnsafeExtras(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("in", 1))
	for name, opt := range map[string]kgo.Opt{
		"BlockRebalanceOnPoll": kgo.BlockRebalanceOnPoll(),
		"FetchIsolationLevel":  kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		"ConsumeResetOffset":   kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()),
		"ConsumeStartOffset":   kgo.ConsumeStartOffset(kgo.NewOffset().AtEnd()),
		"ConsumerGroup":        kgo.ConsumerGroup("other"),
	} {
		c := cluster(b)
		c.Extra = append(c.Extra, opt)
		cl, err := NewConsumer(c, Consumer{Group: "g", Topics: []string{"in"}, Start: atStart()})
		if err == nil {
			cl.Close()
			t.Errorf("%s was accepted", name)
			continue
		}
		if !strings.Contains(err.Error(), "kgo."+name) {
			t.Errorf("%s: the error does not name it: %v", name, err)
		}
	}
	c := cluster(b)
	c.Extra = append(c.Extra, kgo.BlockRebalanceOnPoll(), kgo.FetchIsolationLevel(kgo.ReadUncommitted()))
	if _, err := NewConsumer(c, Consumer{Group: "g", Topics: []string{"in"}, Start: atStart()}); err == nil ||
		!strings.Contains(err.Error(), "BlockRebalanceOnPoll") || !strings.Contains(err.Error(), "FetchIsolationLevel") {
		t.Errorf("two at once: %v", err)
	}
	// kgo finds contradictions by itself.
	c.Extra = []kgo.Opt{kgo.AutoCommitMarks()}
	if _, err := NewConsumer(c, Consumer{Group: "g", Topics: []string{"in"}, Start: atStart()}); err == nil {
		t.Error("AutoCommitMarks was accepted")
	}
}

func TestConsumerMistakes(t *testing.T) {
	t.Parallel()
	good := Consumer{Group: "g", Topics: []string{"in"}, Start: atStart()}
	for want, change := range map[string]func(*Consumer){
		"group is empty":      func(k *Consumer) { k.Group = "" },
		"reads no topic":      func(k *Consumer) { k.Topics = nil },
		"both Topics and":     func(k *Consumer) { k.Pattern = "a.*" },
		"topic name is empty": func(k *Consumer) { k.Topics = []string{"a", ""} },
		`pattern "("`:         func(k *Consumer) { k.Topics, k.Pattern = nil, "(" },
		`pattern "["`:         func(k *Consumer) { k.Topics, k.Pattern, k.Exclude = nil, "a", []string{"["} },
		"without a Pattern":   func(k *Consumer) { k.Exclude = []string{"a"} },
		"no Start":            func(k *Consumer) { k.Start = nil },
		"more than a third":   func(k *Consumer) { k.HeartbeatInterval = 4 * time.Second },
		"SessionTimeout is -1s": func(k *Consumer) {
			k.SessionTimeout = -time.Second
		},
		"FetchMaxWait is -1ns": func(k *Consumer) { k.FetchMaxWait = -1 },
	} {
		k := good
		change(&k)
		_, err := NewConsumer(Cluster{Seeds: []string{"127.0.0.1:1"}, Topology: "t"}, k)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	short := good
	short.SessionTimeout = 300 * time.Millisecond
	if k := short.withDefaults(); k.HeartbeatInterval != 100*time.Millisecond || k.validate() != nil {
		t.Errorf("a short session gets heartbeat %v, %v", k.HeartbeatInterval, k.validate())
	}
}

func TestConsumerPattern(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("orders", 1), embedded.Topic("orders.eu", 1), embedded.Topic("orders.eu.dlq", 1),
		embedded.Topic("my-orders", 1))
	_, lease := member(t, b, Consumer{Group: "g", Pattern: `orders(\..*)?`, Exclude: []string{`.*\.dlq`}})
	as := b.Assignments()
	a := as[len(as)-1]
	if a.Member != lease.Member || len(a.Partitions) != 2 || a.Partitions["orders"] == nil || a.Partitions["orders.eu"] == nil {
		t.Errorf("assigned %v, want orders and orders.eu", a.Partitions)
	}
}

// An aborted tail: the consumer delivers its marker, so a position can pass it;
// and no commit is ever sent by the client itself.
// FC-05: twmb/franz-go #57.
func TestConsumerSeesMarkersAndNeverCommits(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("in", 1))
	ctx := limited(t)
	p, err := kgo.NewClient(b.ClientOpts(kgo.TransactionalID("x"), kgo.DefaultProduceTopic("in"))...)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		if err := p.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := p.ProduceSync(ctx, kgo.StringRecord([]string{"kept", "gone"}[i])).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := p.EndTransaction(ctx, end); err != nil {
			t.Fatal(err)
		}
	}
	fetched := make(chan *kmsg.OffsetFetchResponse, 16)
	cl, _ := member(t, b, Consumer{Group: "g", Topics: []string{"in"},
		OnOffsetsFetched: func(_ context.Context, _ *kgo.Client, r *kmsg.OffsetFetchResponse) error {
			fetched <- r
			return nil
		}})
	select {
	case <-fetched:
	case <-ctx.Done():
		t.Fatal("OnOffsetsFetched was not called")
	}
	var got []string
	for last := int64(-1); last < 3; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			last = r.Offset
			if r.Attrs.IsControl() {
				got = append(got, "marker")
			} else {
				got = append(got, string(r.Value))
			}
		})
	}
	if want := []string{"kept", "marker", "marker"}; !slices.Equal(got, want) {
		t.Errorf("delivered %q, want %q", got, want)
	}
	cl.Close()
	if cs := b.Commits(); len(cs) != 0 {
		t.Errorf("the client committed by itself: %+v", cs)
	}
}

// A committed offset out of range is an error, not a silent reset.
func TestConsumerNeverResets(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("in", 1))
	ctx := limited(t)
	produce(t, b, "in", 0, "a", "b")
	cl, lease := member(t, b, Consumer{Group: "g", Topics: []string{"in"}})
	rs, err := Commit(ctx, cl, "g", lease, []Position{{Topic: "in", TopicID: topicID(b, "in"), Offset: 500, LeaderEpoch: -1}})
	if err != nil || rs[0].Err != nil {
		t.Fatal(err, rs)
	}
	cl.Close()
	cl, _ = member(t, b, Consumer{Group: "g", Topics: []string{"in"}})
	for {
		fs := cl.PollFetches(ctx)
		if fs.NumRecords() > 0 {
			t.Fatalf("records were delivered: %v", fs.Records())
		}
		if errs := fs.Errors(); len(errs) > 0 {
			if errs[0].Topic != "in" || !strings.Contains(errs[0].Err.Error(), "OFFSET_OUT_OF_RANGE") {
				t.Errorf("poll error: %+v", errs[0])
			}
			return
		}
	}
}
