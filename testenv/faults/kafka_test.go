//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/killick-io/killick/testenv/kafkaenv"
)

// The proxy before Apache Kafka: a broker that dies and comes back, requests by topic id, SASL, and an
// EndTxn that is delivered a second time in the next transaction. With KILLICK_FULL=1 there are three
// brokers, and work goes on while one is dead.
func TestProxyOnKafka(t *testing.T) {
	brokers := 1
	if os.Getenv("KILLICK_FULL") != "" {
		brokers = 3
	}
	k := kafkaenv.Start(t, kafkaenv.Brokers(brokers), kafkaenv.Topic("in", 6), kafkaenv.User("me", "canary-pa55word"))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p := StartProxy(t, k.Addrs()[0]) // the others are found
	var d dials
	open := func(opts ...kgo.Opt) *kgo.Client {
		t.Helper()
		cl, err := kgo.NewClient(k.ClientOpts(append([]kgo.Opt{kgo.SeedBrokers(p.Addrs()...), d.opt()}, opts...)...)...)
		must(t, err)
		t.Cleanup(cl.Close)
		return cl
	}
	out := open(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	in := open(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("in"), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	got := map[string]bool{}
	round := func(name string) {
		t.Helper()
		var rs []*kgo.Record
		for part := range int32(6) {
			rs = append(rs, &kgo.Record{Topic: "in", Partition: part, Value: fmt.Appendf(nil, "%s/%d", name, part)})
		}
		must(t, out.ProduceSync(ctx, rs...).FirstErr())
		for want := len(got) + 6; len(got) < want; {
			fs := in.PollFetches(ctx)
			fs.EachError(func(_ string, _ int32, err error) {
				var session *kgo.ErrGroupSession // while a broker is dead; the client joins again
				if !errors.As(err, &session) {
					t.Fatal(err)
				}
			})
			fs.EachRecord(func(r *kgo.Record) { got[string(r.Value)] = true })
		}
		must(t, in.CommitUncommittedOffsets(ctx))
	}
	round("first")
	var rules []*Fault
	for _, key := range []kmsg.Key{kmsg.Produce, kmsg.Fetch, kmsg.OffsetCommit} { // by id, in these versions
		rules = append(rules, Inject(t, p, Rule{Keys: []kmsg.Key{key}, Topics: []string{"in"}, Count: -1}))
	}
	lost := Inject(t, p, commitsOf("in", CutAfter, 1))
	round("by id")
	for i, f := range append(rules, lost) {
		if f.Hits() == 0 {
			t.Errorf("rule %d has fitted nothing", i)
		}
	}
	victim, err := k.Leader(ctx, "in", 3)
	must(t, err, victim.Kill())
	if brokers > 1 {
		round("one is dead")
	}
	must(t, victim.Start(ctx))
	round("it is back")
	d.mu.Lock()
	var links []string
	for id := range int32(brokers) {
		l, ok := p.Node(id + 1)
		if !ok {
			t.Fatalf("broker %d is not known", id+1)
		}
		links = append(links, l.Addr())
	}
	for a := range d.addrs {
		if !slices.Contains(links, a) {
			t.Errorf("a connection to %s, past %v", a, links)
		}
	}
	d.mu.Unlock()
	errs, _ := p.Errors()
	for _, err := range errs { // while it was dead
		if !errors.Is(err, ErrUnreachable) {
			t.Errorf("%v", err)
		}
	}

	// With transaction.version 2 a second EndTxn is of an older epoch by then: the next transaction stands.
	late := Inject(t, p, Rule{Do: DuplicateLater, Keys: []kmsg.Key{kmsg.EndTxn}})
	txn := open(kgo.TransactionalID("x"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range 2 {
		must(t, txn.BeginTransaction(), txn.ProduceSync(ctx, &kgo.Record{Topic: "in", Value: fmt.Append(nil, i)}).FirstErr())
		if i == 1 {
			late.Release()
			// A request behind it on another connection shows that it was taken; that it was answered does
			// not show to a client.
			must(t, txn.Ping(ctx))
		}
		must(t, txn.EndTransaction(ctx, kgo.TryCommit))
	}
	if late.Hits() != 1 {
		t.Errorf("%d hits", late.Hits())
	}
	reader := open(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"in": {0: kgo.NewOffset().AtStart()}}), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	for seen := map[string]bool{}; !seen["0"] || !seen["1"]; {
		fs := reader.PollFetches(ctx)
		must(t, fs.Err0())
		fs.EachRecord(func(r *kgo.Record) { seen[string(r.Value)] = true })
	}

	sp := StartProxy(t, k.AddrsOf(kafkaenv.SASL)...)
	count := Inject(t, sp, Rule{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, Count: -1})
	auth, err := kgo.NewClient(k.ClientOpts(kgo.SeedBrokers(sp.Addrs()...), kgo.SASL(scram.Auth{User: "me", Pass: "canary-pa55word"}.AsSha256Mechanism()))...)
	must(t, err)
	defer auth.Close()
	must(t, auth.ProduceSync(ctx, &kgo.Record{Topic: "in", Value: []byte("sasl")}).FirstErr())
	if count.Hits() < 2 {
		t.Errorf("%d authentications", count.Hits())
	}
	noErrors(t, sp)
}
