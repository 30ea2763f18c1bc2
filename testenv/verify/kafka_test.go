package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/killick-io/killick/testenv/embedded"
)

// Every test of the package must leave no goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limited is a context that ends long after anything here should take.
func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// cluster is an embedded broker, or real ones.
type cluster interface {
	ClientOpts(...kgo.Opt) []kgo.Opt
}

func client(t testing.TB, b cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(b.ClientOpts(append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// transaction produces in one, and ends it.
func transaction(t testing.TB, cl *kgo.Client, end kgo.TransactionEndTry, rs ...*kgo.Record) {
	t.Helper()
	ctx := limited(t)
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := cl.EndTransaction(ctx, end); err != nil {
		t.Fatal(err)
	}
}

// lines writes a log as "offset state value".
func entries(t testing.TB, l *Log) (out []string, visible []int64) {
	t.Helper()
	for e, err := range l.Entries {
		if err != nil {
			t.Fatal(err)
		}
		switch e.State {
		case Marker:
			commit, ok := committing(e.Record)
			out = append(out, fmt.Sprintf("%d marker %v %v", e.Offset, commit, ok))
			continue
		case Visible:
			visible = append(visible, e.Offset)
		}
		out = append(out, fmt.Sprintf("%d %v %s", e.Offset, e.State, e.Value))
	}
	return out, visible
}

// TestReadLog reads a log that has all there is in logs: two producers' transactions that interleave, markers, a hole from
// compaction, and a transaction that has not ended.
func TestReadLog(t *testing.T) {
	ctx := limited(t)
	b := embedded.Start(t, embedded.Topic("in", 2))
	plain := client(t, b)
	put := func(v string) {
		t.Helper()
		if err := plain.ProduceSync(ctx, &kgo.Record{Topic: "in", Partition: 1, Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	rec := func(v string) *kgo.Record { return &kgo.Record{Topic: "in", Partition: 1, Value: []byte(v)} }
	x, y := client(t, b, kgo.TransactionalID("x")), client(t, b, kgo.TransactionalID("y"))
	put("a")
	transaction(t, x, kgo.TryCommit, rec("b"), rec("c"))
	transaction(t, x, kgo.TryAbort, rec("d"))
	if err := y.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := y.ProduceSync(ctx, rec("e")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	transaction(t, x, kgo.TryCommit, rec("f"))
	if err := y.EndTransaction(ctx, kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	put("g")
	if err := y.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := y.ProduceSync(ctx, rec("h")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	put("i")

	h, err := Read(ctx, plain, Target{Inputs: []string{"in"}})
	if err != nil {
		t.Fatal(err)
	}
	if l := h.Inputs[0]; l.End != 0 || l.Partition != 0 {
		t.Errorf("%+v", l)
	}
	l := &h.Inputs[1]
	got, visible := entries(t, l)
	want := []string{"0 visible a", "1 visible b", "2 visible c", "3 marker true true", "4 aborted d", "5 marker false true", "6 aborted e", "7 visible f",
		"8 marker true true", "9 marker false true", "10 visible g", "11 open h", "12 open i"}
	if !slices.Equal(got, want) || l.Start != 0 || l.Stable != 11 || l.End != 13 {
		t.Errorf("start %d, stable %d, end %d\n got %q\nwant %q", l.Start, l.Stable, l.End, got, want)
	}
	// The reader that franz-go has for read_committed sees the same.
	rs, err := b.ReadAll(ctx, "in")
	if err != nil {
		t.Fatal(err)
	}
	var other []int64
	for _, r := range rs {
		other = append(other, r.Offset)
	}
	if !slices.Equal(other, visible) {
		t.Errorf("visible are %v, franz-go says %v", visible, other)
	}
	target := Target{Group: "g", Inputs: []string{"in"}, DeadLetters: []string{"none"}}
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if err := Settle(short, plain, target); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := y.EndTransaction(ctx, kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	if err := Settle(ctx, plain, target); err != nil {
		t.Error(err)
	}
}

// TestReadCompacted reads behind holes, those at the end among them, and behind a deleted beginning.
func TestReadCompacted(t *testing.T) {
	ctx := limited(t)
	b := embedded.Start(t)
	cl := client(t, b)
	policy := "compact,delete"
	if _, err := kadm.NewClient(cl).CreateTopics(ctx, 1, 1, map[string]*string{"cleanup.policy": &policy, "min.cleanable.dirty.ratio": ptr("0"),
		"delete.retention.ms": ptr("0"), "min.compaction.lag.ms": ptr("0")}, "in"); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		r := &kgo.Record{Topic: "in", Key: fmt.Append(nil, i%3), Value: fmt.Append(nil, i)}
		if i == 19 {
			r.Value = nil
		}
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	b.Cluster().Compact()
	h, err := Read(ctx, cl, Target{Inputs: []string{"in"}})
	if err != nil {
		t.Fatal(err)
	}
	got, visible := entries(t, &h.Inputs[0])
	if len(visible) == 0 || len(visible) >= 20 || h.Inputs[0].End != 20 {
		t.Errorf("%q, end %d", got, h.Inputs[0].End)
	}
	if _, err := kadm.NewClient(cl).DeleteRecords(ctx, kadm.Offsets{"in": {0: {Topic: "in", At: 18}}}); err != nil {
		t.Fatal(err)
	}
	if h, err = Read(ctx, cl, Target{Inputs: []string{"in"}}); err != nil {
		t.Fatal(err)
	}
	got, _ = entries(t, &h.Inputs[0])
	if h.Inputs[0].Start != 18 || len(got) > 2 {
		t.Errorf("%q, start %d", got, h.Inputs[0].Start)
	}
}

// TestReadTail reads to the end of a log whose end was compacted away: an empty answer is believed from a leader who knows
// that end, and only then.
func TestReadTail(t *testing.T) {
	ctx := limited(t)
	b := embedded.Start(t, embedded.Topic("in", 1))
	cl := client(t, b)
	for i := range 4 {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "in", Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	h, err := Read(ctx, cl, Target{Inputs: []string{"in"}})
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	b.Cluster().ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		fr := req.(*kmsg.FetchRequest)
		if fr.Topics[0].Partitions[0].FetchOffset < 4 && asked == 0 {
			asked = 1
			return nil, nil, false
		}
		resp := fr.ResponseKind().(*kmsg.FetchResponse)
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = fr.Topics[0].Topic, fr.Topics[0].TopicID
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.HighWatermark, rp.LastStableOffset = 4, 4
		if asked++; asked > 3 {
			rp.HighWatermark, rp.LastStableOffset = 8, 6
		}
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	r := &logReader{ctx: ctx, cl: cl, topic: "in", id: b.Cluster().TopicInfo("in").TopicID, leader: -1}
	n := 0
	r.read(0, 6, 8, func(e Entry, err error) bool {
		if err != nil || e.Offset != int64(n) || e.State != Visible {
			t.Errorf("record %d: %v at %v, %v", n, e.State, e.Record, err)
		}
		n++
		return true
	})
	if n != 4 || asked < 5 {
		t.Errorf("%d records, %d fetches", n, asked)
	}
	asked = 0
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	r = &logReader{ctx: short, cl: cl, topic: "in", id: r.id, leader: -1}
	var last error
	r.read(0, 9, 9, func(e Entry, err error) bool { last = err; return true })
	if !errors.Is(last, context.DeadlineExceeded) || h.Inputs[0].End != 4 {
		t.Error(last)
	}
}

func ptr(s string) *string { return &s }

// TestReadMuch reads more than one fetch answer has, with brokers that fail in between.
func TestReadMuch(t *testing.T) {
	ctx := limited(t)
	b := embedded.Start(t, embedded.Topic("in", 1))
	cl := client(t, b)
	var rs []*kgo.Record
	for i := range 30 {
		rs = append(rs, &kgo.Record{Topic: "in", Value: append(fmt.Append(nil, i), make([]byte, 900<<10)...)})
	}
	if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	b.Fail(kmsg.Fetch, kerr.NotLeaderForPartition, 2)
	b.Drop(kmsg.Fetch, 1)
	h, err := Read(ctx, cl, Target{Inputs: []string{"in"}})
	if err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	for e, err := range h.Inputs[0].Entries {
		if err != nil || e.Offset != n || !strings.HasPrefix(string(e.Value), fmt.Sprint(n)) {
			t.Fatalf("record %d: offset %d, %v", n, e.Offset, err)
		}
		n++
	}
	if n != 30 {
		t.Errorf("%d records", n)
	}
	b.Fail(kmsg.Fetch, kerr.TopicAuthorizationFailed, -1)
	if h, err = Read(ctx, cl, Target{Inputs: []string{"in"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(Rules{}, h); !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), "in/0") {
		t.Error(err)
	}
}

func TestReadErrors(t *testing.T) {
	ctx := limited(t)
	b := embedded.Start(t, embedded.Topic("in", 1))
	cl := client(t, b)
	for want, target := range map[string]Target{
		"Target.Inputs: no topic":              {},
		`topic "in" is empty or given twice`:   {Inputs: []string{"in"}, Outputs: []string{"in"}},
		`topic "" is empty or given twice`:     {Inputs: []string{""}},
		`topic "out": UNKNOWN_TOPIC_OR_PARTIT`: {Inputs: []string{"in"}, Outputs: []string{"out"}},
	} {
		if _, err := Read(ctx, cl, target); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	h, err := Read(ctx, cl, Target{Group: "g", Inputs: []string{"in"}, DeadLetters: []string{"dlq"}})
	if err != nil || len(h.DeadLetters) > 0 || len(h.Notes) != 2 || h.Stored != nil {
		t.Errorf("%v, %+v", err, h)
	}
	if _, err := Watch(cl, Target{Inputs: []string{"in"}}, WatchConfig{Every: -1}); err == nil || !strings.Contains(err.Error(), "Target.Group") || !strings.Contains(err.Error(), "below 0") {
		t.Error(err)
	}
}

// TestStored reads a group's own log, which the embedded broker does not have: a topic of that name takes what Kafka
// writes there, plain and in transactions.
func TestStored(t *testing.T) {
	ctx := limited(t)
	b := embedded.Start(t, embedded.Topic(offsetsTopic, 50), embedded.Topic("in", 2))
	cl := client(t, b)
	x, y := client(t, b, kgo.TransactionalID("x")), client(t, b, kgo.TransactionalID("y"))
	at := time.UnixMilli(1_790_000_000_123)
	rec := func(key, value []byte) *kgo.Record {
		return &kgo.Record{Topic: offsetsTopic, Partition: int32(groupPartition("g", 50)), Key: key, Value: value, Timestamp: at}
	}
	commit := func(group string, partition int32, next int64, metadata string) *kgo.Record {
		k, v := kmsg.NewOffsetCommitKey(), kmsg.NewOffsetCommitValue()
		k.Version, k.Group, k.Topic, k.Partition = 1, group, "in", partition
		v.Version, v.Offset, v.Metadata = 3, next, metadata
		return rec(k.AppendTo(nil), v.AppendTo(nil))
	}
	put := func(r *kgo.Record) {
		t.Helper()
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	gone := commit("g", 1, 0, "")
	gone.Value = nil
	k, v := kmsg.NewGroupMetadataKey(), kmsg.NewGroupMetadataValue()
	k.Version, k.Group = 2, "g"
	v.Version, v.Generation = 3, 7
	a := kmsg.NewConsumerMemberAssignment()
	a.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: "in", Partitions: []int32{0, 1}}}
	m := kmsg.NewGroupMetadataValueMember()
	m.MemberID, m.Assignment = "m-1", a.AppendTo(nil)
	n := kmsg.NewGroupMetadataValueMember()
	n.MemberID = "m-2"
	v.Members = append(v.Members, m, n)

	put(commit("g", 0, 5, "meta"))
	put(commit("other", 0, 99, ""))
	put(rec(k.AppendTo(nil), v.AppendTo(nil)))
	put(rec([]byte{0, 9, 1}, nil)) // of another protocol
	transaction(t, x, kgo.TryAbort, commit("g", 0, 6, ""))
	if err := y.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := y.ProduceSync(ctx, commit("g", 0, 7, ""), commit("g", 1, 3, "")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	transaction(t, x, kgo.TryCommit, commit("g", 0, 8, "")) // written later: it stays
	if err := y.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	put(gone)

	h, err := Read(ctx, cl, Target{Group: "g", Inputs: []string{"in"}})
	if err != nil || h.Stored == nil {
		t.Fatal(err, h.Notes)
	}
	var got []string
	for s, err := range h.Stored {
		switch {
		case err != nil:
			t.Fatal(err)
		case s.Generation != nil:
			got = append(got, fmt.Sprintf("generation %d: %v", s.Generation.Number, s.Generation.Members))
			if !s.At.Equal(at) {
				t.Error(s.At)
			}
		default:
			got = append(got, fmt.Sprintf("%d at %d %q", s.Commit.Partition, s.Commit.Next, s.Commit.Metadata))
			if s.Commit.Metadata != "" && (!s.At.Equal(at.Add(time.Millisecond-1)) || !strings.HasPrefix(s.Ref, offsetsTopic+"/")) {
				t.Error(s.At, s.Ref)
			}
		}
	}
	want := []string{`0 at 5 "meta"`, "generation 7: map[m-1:[{in 0} {in 1}] m-2:[]]", `0 at 8 ""`, `1 at 3 ""`, `1 at -1 ""`}
	if !slices.Equal(got, want) {
		t.Errorf(" got %q\nwant %q", got, want)
	}
	// A broken record is an error that says where.
	put(rec([]byte{0, 1}, nil))
	if h, err = Read(ctx, cl, Target{Group: "g", Inputs: []string{"in"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(Rules{Want: func(*kgo.Record) Want { return Want{} }}, h); err == nil || !strings.Contains(err.Error(), offsetsTopic+"/") {
		t.Error(err)
	}
}

// TestGroupPartition compares with Java's hash of the name, without its sign.
func TestGroupPartition(t *testing.T) {
	for group, hash := range map[string]int{"": 0, "g": 103, "group": 98629247, "polygenelubricants": 0, "\U0001F600": 1772899, "hello world": 1794106052, "zzzzzz": 685785664, "duplicate.": 1402383229} {
		if got := groupPartition(group, 50); got != hash%50 {
			t.Errorf("%q: %d, want %d", group, got, hash%50)
		}
	}
}
