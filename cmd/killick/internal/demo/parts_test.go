package demo

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/examples/orders/check"
	"github.com/killick-io/killick/examples/orders/data"
	"github.com/killick-io/killick/offsets"
	"github.com/killick-io/killick/testenv/embedded"
)

// open is a cluster of the demo on a fresh broker.
func open(t *testing.T, opts ...embedded.Option) (*embedded.Broker, *cluster) {
	t.Helper()
	b := embedded.Start(t, opts...)
	k, err := connect(t.Context(), b.Addrs()[0], newNames(""), b.ClientOpts())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.close)
	return b, k
}

// put writes one record, by a client that the demo does not know.
func put(t *testing.T, b *embedded.Broker, r *kgo.Record) {
	t.Helper()
	if err := b.Produce(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func make1(t *testing.T, k *cluster, topic string) {
	t.Helper()
	if _, err := k.adm.CreateTopic(t.Context(), partitions, -1, nil, topic); err != nil {
		t.Fatal(err)
	}
}

// TestEnds: a topic that does not exist yet has ends 0, and counts from the first look after it was made.
func TestEnds(t *testing.T) {
	b, k := open(t)
	ctx := t.Context()
	want := func(when string, p1 int64) {
		t.Helper()
		got, err := k.ends(ctx, k.notifications, k.dead)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		var all []check.End
		for _, topic := range []string{k.notifications, k.dead} {
			for p := range int32(partitions) {
				all = append(all, check.End{Topic: topic, Partition: p})
			}
		}
		all[partitions+1].Offset = p1
		if !slices.Equal(got, all) {
			t.Errorf("%s: %v, want %v", when, got, all)
		}
	}
	want("no topic", 0)
	make1(t, k, k.notifications)
	want("one topic", 0)
	make1(t, k, k.dead)
	put(t, b, &kgo.Record{Topic: k.dead, Partition: 1})
	want("at once after the first record", 1)

	if _, err := k.adm.CreateTopic(ctx, partitions+1, -1, nil, "wide"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.ends(ctx, "wide"); err == nil || !strings.Contains(err.Error(), "wide has 5 partitions, want 4") {
		t.Errorf("a topic with other partitions: %v", err)
	}
}

// TestRead: records come back as they were written, nil and empty apart, up to the end of every partition.
func TestRead(t *testing.T) {
	b, k := open(t, embedded.Topic("orders", partitions))
	at := time.UnixMilli(1767323045006)
	put(t, b, &kgo.Record{Topic: "orders", Partition: 3, Timestamp: at, Key: []byte{}, Value: []byte("v"),
		Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte{}}, {Key: "n"}}})
	put(t, b, &kgo.Record{Topic: "orders", Partition: 3, Timestamp: at})
	put(t, b, &kgo.Record{Topic: "orders", Partition: 0, Timestamp: at, Key: []byte("k"), Value: []byte{}})
	got, err := k.read(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b check.Record) int {
		return int(a.Partition)*100 + int(a.Offset) - int(b.Partition)*100 - int(b.Offset)
	})
	want := []check.Record{
		{Topic: "orders", Partition: 0, Offset: 0, Key: []byte("k"), Value: []byte{}, Time: at},
		{Topic: "orders", Partition: 3, Offset: 0, Key: []byte{}, Value: []byte("v"), Time: at,
			Headers: []check.Header{{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte{}}, {Key: "n"}}},
		{Topic: "orders", Partition: 3, Offset: 1, Time: at},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %#v\nwant %#v", got, want)
	}
	if got, err := k.read(t.Context(), "nowhere"); err != nil || got != nil {
		t.Errorf("a topic that does not exist: %v, %v; want nothing", got, err)
	}
	// Time of a topic whose broker sets it is not the record's.
	r := kgo.Record{Timestamp: at}
	if record(&r).Time.IsZero() {
		t.Error("the producer's timestamp is lost")
	}
}

// TestFill: what lies in the topic is the input, in the order of its lines within each partition.
func TestFill(t *testing.T) {
	_, k := open(t)
	rs, err := records(MinRecords)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.fill(t.Context(), rs); err != nil {
		t.Fatal(err)
	}
	got, err := k.read(t.Context(), k.orders)
	if err != nil {
		t.Fatal(err)
	}
	byValue := map[string]data.Record{}
	for _, r := range rs {
		byValue[string(r.Value)] = r
	}
	seen := map[int32]bool{}
	for _, r := range got {
		if in, ok := byValue[string(r.Value)]; !ok || string(in.Key) != string(r.Key) {
			t.Fatalf("%s-%d@%d is no input: %s", r.Topic, r.Partition, r.Offset, r.Value)
		}
		delete(byValue, string(r.Value))
		seen[r.Partition] = true
		if time.Since(r.Time) > time.Hour {
			t.Fatalf("%s-%d@%d has the time %v: a broker would delete it", r.Topic, r.Partition, r.Offset, r.Time)
		}
	}
	if len(got) != MinRecords || len(byValue) > 0 || len(seen) != partitions {
		t.Errorf("%d records in %d partitions, %d missing", len(got), len(seen), len(byValue))
	}
	if err := k.fill(t.Context(), rs); !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Errorf("filled twice: %v, want %v", err, kerr.TopicAlreadyExists)
	}
}

// TestObserver walks through a commit with a map, one without, and outputs between them.
func TestObserver(t *testing.T) {
	b, k := open(t)
	ctx := t.Context()
	for _, topic := range []string{k.orders, k.notifications, k.dead} {
		make1(t, k, topic)
	}
	o := observer{k: k}
	look := func() *round {
		t.Helper()
		r, err := o.look(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	commit := func(p int32, at int64, metadata string) {
		t.Helper()
		os := kadm.Offsets{}
		os.Add(kadm.Offset{Topic: k.orders, Partition: p, At: at, LeaderEpoch: -1, Metadata: metadata})
		if err := k.adm.CommitAllOffsets(ctx, k.group, os); err != nil {
			t.Fatal(err)
		}
	}

	r := look()
	if r.committed() || r.fresh || r.effects() != 0 || r.covered() != 0 || len(o.samples) != partitions {
		t.Errorf("at the start: %+v, %d samples", r, len(o.samples))
	}
	put(t, b, &kgo.Record{Topic: k.notifications})
	put(t, b, &kgo.Record{Topic: k.dead, Partition: 2})
	if r = look(); r.effects() != 2 || len(o.samples) != partitions {
		t.Errorf("two outputs: %d effects, %d samples", r.effects(), len(o.samples))
	}
	put(t, b, &kgo.Record{Topic: k.notifications})
	look()
	m := offsets.Map{Base: 10, Next: 15, Open: []int64{10, 12}, Held: offsets.State{Suspect: offsets.None}}
	commit(2, 10, offsets.Encode(m))
	r = look()
	if !r.fresh || !r.committed() || r.above() != 3 || r.covered() != 13 || !slices.Equal(r.named[2], []int64{11, 13, 14}) {
		t.Errorf("a commit with a map: %+v", r)
	}
	if o.before != 2 {
		t.Errorf("%d effects before the commit could be made up, want 2", o.before)
	}
	if s := o.samples[len(o.samples)-1]; len(o.samples) != partitions+1 || s.Partition != 2 || s.Offset != 10 ||
		!slices.Equal(s.Done, r.named[2]) || len(s.Ends) != 2*partitions || s.Metadata == "" {
		t.Errorf("%d samples, the last is %+v", len(o.samples), s)
	}
	if r = look(); r.fresh || r.above() != 3 {
		t.Errorf("nothing new: %+v", r)
	}
	commit(2, 15, "")
	if r = look(); !r.fresh || r.above() != 0 || r.covered() != 15 {
		t.Errorf("a commit without a map: %+v", r)
	}
	if _, err := o.settle(ctx); err != nil {
		t.Errorf("settle: %v", err)
	}
	// A map of another commit is a mistake of who wrote it.
	commit(2, 16, offsets.Encode(m))
	if _, err := o.look(ctx); !errors.Is(err, errMetadata) || !errors.Is(err, offsets.ErrBase) || !strings.Contains(err.Error(), "orders-2 at offset 16") {
		t.Errorf("a map of another offset: %v", err)
	}
}

// TestPatience: an answer that is no good is asked for again, but not for ever.
func TestPatience(t *testing.T) {
	b, k := open(t)
	o := observer{k: k, patience: time.Minute}
	f := b.Fail(kmsg.OffsetFetch, kerr.UnknownServerError, 2)
	r, err := o.look(t.Context())
	if err != nil || r.committed() || f.Hits() != 2 || len(o.samples) != partitions {
		t.Errorf("round %+v, error %v after %d bad answers; want a round after 2", r, err, f.Hits())
	}
	o.patience = time.Millisecond
	b.Fail(kmsg.OffsetFetch, kerr.UnknownServerError, -1)
	if _, err := o.look(t.Context()); !errors.Is(err, kerr.UnknownServerError) || !strings.Contains(err.Error(), k.group) {
		t.Errorf("error %v, want the broker's, with the group", err)
	}
}

// TestSettleEnds: settling ends with the caller's context, for its reason.
func TestSettleEnds(t *testing.T) {
	_, k := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&observer{k: k}).settle(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

func TestMoment(t *testing.T) {
	const none = -1
	for _, tt := range []struct {
		name      string
		effects   int64
		committed int64
		fresh     bool
		named     int
		now       bool
		err       string
	}{
		{"early", 290, 100, true, 100, false, ""},
		{"nothing committed", 500, none, false, 0, false, ""},
		{"a map worth showing", 450, 100, true, 10, true, ""},
		{"no map worth showing", 450, 100, true, 9, false, ""},
		{"before the preferred part", 449, 100, true, 100, false, ""},
		{"the commit is old", 500, 100, false, 100, false, ""},
		{"any commit", 600, 100, true, 0, true, ""},
		{"any commit, but it is old", 640, 100, false, 0, false, ""},
		{"now or never", 650, 100, false, 0, true, ""},
		{"just in time", 700, 100, false, 0, true, ""},
		{"too late", 710, 100, true, 100, false, "before the worker could be killed"},
		{"too late for a commit", 700, none, false, 0, false, "nothing is committed"},
	} {
		r := round{fresh: tt.fresh}
		for p := range r.commits {
			r.commits[p].offset = none
		}
		r.commits[1].offset = tt.committed
		r.named[1] = make([]int64, tt.named)
		r.ends = []check.End{{Offset: tt.effects - 1}, {Offset: 1}}
		now, err := moment(&r, 1000)
		if now != tt.now || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %t, %v; want %t, %q", tt.name, now, err, tt.now, tt.err)
		}
	}
}

// TestSetup: what the demo tells the worker arrives.
func TestSetup(t *testing.T) {
	s := setup{kafka: "127.0.0.1:9092", settings: true, prefix: "killick-demo-x", book: "/a b/c", delay: 3 * time.Millisecond}
	if got, err := parseSetup(s.args()); err != nil || got != s {
		t.Errorf("got %+v, %v; want %+v", got, err, s)
	}
	c, err := s.config([]string{"KILLICK_KAFKA__CLIENT_ID=me", "KILLICK_GROUP=other"})
	if err != nil || c.Group != "killick-demo-x" || c.ClientID != "me" || c.Place == "" || c.Bootstrap[0] != s.kafka {
		t.Errorf("config %v, %v", c, err)
	}
	s.settings, s.prefix = false, ""
	if c, err = s.config([]string{"KILLICK_KAFKA__CLIENT_ID=me"}); err != nil || c.Group != "killick.orders" || c.ClientID == "me" {
		t.Errorf("on the embedded broker the environment counts: %v, %v", c, err)
	}
}
