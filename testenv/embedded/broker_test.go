package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestProduceReadAllEnd(t *testing.T) {
	t.Parallel()
	b := Start(t, Topic("in", 3), Brokers(2))
	ctx := limited(t)
	if got := len(b.Addrs()); got != 2 {
		t.Fatalf("%d addresses, want 2", got)
	}
	rs := []*kgo.Record{
		{Topic: "in", Partition: 2, Value: []byte("a")},
		{Topic: "in", Partition: 0, Value: []byte("b")},
		{Topic: "in", Partition: 2, Value: nil, Key: []byte{}},
		{Topic: "in", Partition: -1, Key: []byte("21"), Value: []byte("hashed")},
	}
	if err := b.Produce(ctx, rs...); err != nil {
		t.Fatal(err)
	}
	// Java: toPositive(murmur2("21")) = -973932308 & 0x7fffffff = 1173551340; mod 3 = 0.
	if rs[3].Partition != 0 {
		t.Errorf("the keyed record went to partition %d, want 0 as with Java's client", rs[3].Partition)
	}
	got, err := b.ReadAll(ctx, "in")
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, r := range got {
		text = append(text, fmt.Sprintf("%d/%d %q nil=%t", r.Partition, r.Offset, r.Value, r.Value == nil))
	}
	want := []string{`0/0 "b" nil=false`, `0/1 "hashed" nil=false`, `2/0 "a" nil=false`, `2/1 "" nil=true`}
	if !slices.Equal(text, want) {
		t.Errorf("ReadAll = %q, want %q", text, want)
	}
	ends, err := b.End(ctx, "in")
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[int32]Ends{0: {0, 2, 2}, 1: {0, 0, 0}, 2: {0, 2, 2}} {
		if ends[p] != want {
			t.Errorf("End of partition %d = %+v, want %+v", p, ends[p], want)
		}
	}
}

func TestReadAllTransactions(t *testing.T) {
	t.Parallel()
	b := Start(t, Topic("t", 1))
	ctx := limited(t)
	cl := client(t, b, kgo.TransactionalID("x"), kgo.DefaultProduceTopic("t"))
	txn := func(commit kgo.TransactionEndTry, values ...string) {
		t.Helper()
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			if err := cl.ProduceSync(ctx, kgo.StringRecord(v)).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := cl.EndTransaction(ctx, commit); err != nil {
			t.Fatal(err)
		}
	}
	txn(kgo.TryCommit, "kept")
	txn(kgo.TryAbort, "gone", "gone too")
	// An open transaction behind: its records are above the stable offset.
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, kgo.StringRecord("open")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ends, err := b.End(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	if want := (Ends{Start: 0, Stable: 5, End: 6}); ends[0] != want {
		t.Errorf("End = %+v, want %+v", ends[0], want)
	}
	got, err := b.ReadAll(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || string(got[0].Value) != "kept" {
		t.Errorf("ReadAll = %v, want the committed record alone", got)
	}
	if err := cl.EndTransaction(ctx, kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
}

func TestReadAllCompactedTail(t *testing.T) {
	t.Parallel()
	b := Start(t)
	ctx := limited(t)
	policy, dirty := "compact", "0"
	if err := b.Cluster().CreateTopic("c", 1, map[string]string{"cleanup.policy": policy, "min.cleanable.dirty.ratio": dirty}); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		r := &kgo.Record{Topic: "c", Key: []byte(strconv.Itoa(i % 2)), Value: []byte(strconv.Itoa(i))}
		if err := b.Produce(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	b.Cluster().Compact()
	got, err := b.ReadAll(ctx, "c")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) >= 6 || len(got) == 0 {
		t.Fatalf("ReadAll returned %d records; compaction should have left fewer than 6", len(got))
	}
	if last := got[len(got)-1]; string(last.Value) != "5" {
		t.Errorf("the last record is %q, want 5", last.Value)
	}
}

func TestCommittedAndWait(t *testing.T) {
	t.Parallel()
	b := Start(t, Topic("in", 2))
	ctx := limited(t)
	got, err := b.Committed(ctx, "g", "in")
	if err != nil || len(got) != 0 {
		t.Fatalf("Committed of an unknown group = %v, %v; want none", got, err)
	}
	cl := client(t, b)
	done := make(chan error, 1)
	go func() { done <- b.WaitCommitted(ctx, "g", "in", map[int32]int64{1: 7}) }()
	for _, o := range []int64{5, 7} {
		if _, err := commitRequest(b, "g", "", -1, "in", 1, o, "meta").RequestWith(ctx, cl); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	got, err = b.Committed(ctx, "g", "in")
	if err != nil {
		t.Fatal(err)
	}
	if want := (Offset{Offset: 7, LeaderEpoch: -1, Metadata: "meta"}); len(got) != 1 || got[1] != want {
		t.Errorf("Committed = %+v, want {1: %+v}", got, want)
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	err = b.WaitCommitted(short, "g", "in", map[int32]int64{1: 8})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("WaitCommitted with a cancelled context: %v", err)
	}
}

func TestBadOptionsAreListedTogether(t *testing.T) {
	t.Parallel()
	_, err := New(Topic("", 1), Topic("a", 0), Topic("a", 1), Brokers(0), Ports(70000), DataDir(""),
		TLS(nil, nil), SASL("MD5", "u", "the-password"), RecordLimit(0))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"name is empty", `"a": 0 partitions`, `"a" is given twice`, "Brokers: 0", "70000",
		"DataDir", "TLS", `"MD5"`, "RecordLimit"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "the-password") {
		t.Errorf("the error shows the password: %v", err)
	}
	if _, err := New(Brokers(2), Ports(1000)); err == nil || !strings.Contains(err.Error(), "1 ports for 2 brokers") {
		t.Errorf("Ports against Brokers: %v", err)
	}
}

// fatals is a TB that notes Fatalf.
type fatals struct{ msg string }

func (*fatals) Helper()                        {}
func (*fatals) Cleanup(func())                 {}
func (f *fatals) Fatalf(s string, args ...any) { f.msg = fmt.Sprintf(s, args...) }

func TestStartFailsTheTest(t *testing.T) {
	t.Parallel()
	var f fatals
	if b := Start(&f, Brokers(-1)); b != nil || !strings.Contains(f.msg, "Brokers: -1") {
		t.Errorf("Start = %v, failed with %q", b, f.msg)
	}
}

func TestClosedBroker(t *testing.T) {
	t.Parallel()
	b, err := New(Topic("in", 1))
	if err != nil {
		t.Fatal(err)
	}
	ctx := limited(t)
	if err := b.Produce(ctx, &kgo.Record{Topic: "in"}); err != nil {
		t.Fatal(err)
	}
	b.Close()
	b.Close()
	if err := b.Produce(ctx, &kgo.Record{Topic: "in"}); !errors.Is(err, ErrClosed) {
		t.Errorf("Produce: %v, want ErrClosed", err)
	}
	if _, err := b.ReadAll(ctx, "in"); !errors.Is(err, ErrClosed) {
		t.Errorf("ReadAll: %v, want ErrClosed", err)
	}
	if err := b.Up(); !errors.Is(err, ErrClosed) {
		t.Errorf("Up: %v, want ErrClosed", err)
	}
	if len(b.Addrs()) != 1 {
		t.Error("Addrs is empty after Close")
	}
	if b.Commits() != nil {
		t.Error("Commits is not empty")
	}
}

func TestUnknownTopic(t *testing.T) {
	t.Parallel()
	b := Start(t)
	if _, err := b.End(limited(t), "nowhere"); err == nil || !strings.Contains(err.Error(), `"nowhere"`) {
		t.Errorf("End: %v, want an error that names the topic", err)
	}
	if _, err := b.ReadAll(limited(t), "nowhere"); err == nil {
		t.Error("ReadAll of an unknown topic returned no error")
	}
}

// A broker on the same directory and port goes on where the old one ended.
func TestDataDirRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx := limited(t)
	b, err := New(DataDir(dir), Topic("in", 2))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Produce(ctx, &kgo.Record{Topic: "in", Partition: 1, Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(b.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	n, _ := strconv.Atoi(port)
	b.Close()

	if _, err := New(DataDir(dir), Topic("in", 3)); err == nil || !strings.Contains(err.Error(), "has 2 partitions, not 3") {
		t.Errorf("reopening with another partition count: %v", err)
	}
	b = Start(t, DataDir(dir), Ports(n), Topic("in", 2), Topic("new", 1))
	got, err := b.ReadAll(ctx, "in")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || string(got[0].Value) != "v" {
		t.Errorf("after the restart: %v", got)
	}
	if err := b.Produce(ctx, &kgo.Record{Topic: "new"}); err != nil {
		t.Errorf("a topic added at the restart: %v", err)
	}
	if _, p, _ := net.SplitHostPort(b.Addrs()[0]); p != port {
		t.Errorf("port %s after the restart, want %s", p, port)
	}
}

func TestTLSAndSASL(t *testing.T) {
	t.Parallel()
	cert, err := SelfSigned()
	if err != nil {
		t.Fatal(err)
	}
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			b := Start(t, Topic("in", 1), TLS(cert.Server, cert.Client), SASL(mechanism, "u", "p"))
			ctx := limited(t)
			if err := b.Produce(ctx, &kgo.Record{Topic: "in", Value: []byte("v")}); err != nil {
				t.Fatal(err)
			}
			// The recorder reads inside TLS.
			if _, err := commitRequest(b, "g", "", -1, "in", 0, 1, "").RequestWith(ctx, client(t, b)); err != nil {
				t.Fatal(err)
			}
			if c := b.Commits(); len(c) != 1 || !c[0].Accepted() || c[0].Topic != "in" {
				t.Errorf("Commits = %+v", c)
			}
		})
	}
	b := Start(t, TLS(cert.Server, cert.Client))
	if _, err := tls.Dial("tcp", b.Addrs()[0], &tls.Config{}); err == nil {
		t.Error("a client that does not trust the certificate could connect")
	}
}
