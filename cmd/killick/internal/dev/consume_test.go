package dev

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// put produces lines.
func put(t *testing.T, b *Broker, topic string, lines ...string) {
	t.Helper()
	n, err := Produce(limited(t), ProduceOptions{Kafka: Kafka{Bootstrap: b.Address()}, Topic: topic, Partition: -1, In: strings.NewReader(strings.Join(lines, "\n"))})
	if n != len(lines) || err != nil {
		t.Fatalf("%d of %d records, %v", n, len(lines), err)
	}
}

func TestConsumeFormats(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Topics: []Topic{{"t", 1}}})
	at := time.UnixMilli(1700000000123)
	c := open(t, b)
	for _, r := range []*kgo.Record{
		{Topic: "t", Timestamp: at, Key: []byte("k"), Value: []byte(`<"v">`), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte{0xff}}, {Key: "n"}}},
		{Topic: "t", Timestamp: at},
		{Topic: "t", Timestamp: at, Key: []byte{}, Value: []byte{0xff, 'x'}},
	} {
		if err := c.ProduceSync(limited(t), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"value":     "<\"v\">\n\n\xffx\n",
		"key-value": "k\t<\"v\">\n\t\n\t\xffx\n",
		"json": `{"topic":"t","partition":0,"offset":0,"time":"2023-11-14T22:13:20.123Z","key":"k","value":"<\"v\">","headers":[{"key":"h","value":"1"},{"key":"h","value":null,"value_base64":"/w=="},{"key":"n","value":null}]}
{"topic":"t","partition":0,"offset":1,"time":"2023-11-14T22:13:20.123Z","key":null,"value":null}
{"topic":"t","partition":0,"offset":2,"time":"2023-11-14T22:13:20.123Z","key":"","value":null,"value_base64":"/3g="}
`,
	} {
		f, err := ParseFormat(name)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if n, err := Consume(limited(t), ConsumeOptions{Kafka: Kafka{Bootstrap: b.Address()}, Topic: "t", Count: 3, Format: f, Out: &out}); n != 3 || err != nil || out.String() != want {
			t.Errorf("%s: %d, %v\n got %q\nwant %q", name, n, err, &out, want)
		}
	}
	if _, err := ParseFormat("xml"); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), `"xml"`) {
		t.Errorf("%v; want ErrUsage that names the value", err)
	}
}

// TestConsumeLatest: what is there already is left out, what comes once it is ready is not.
func TestConsumeLatest(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Topics: []Topic{{"t", 3}}})
	put(t, b, "t", "old", "older", "oldest")
	out := newBuffer()
	o := ConsumeOptions{Kafka: Kafka{Bootstrap: b.Address()}, Topic: "t", Latest: true, Count: 2, Out: out}
	o.Ready = func(string) { put(t, b, "t", "new", "newer") }
	if n, err := Consume(limited(t), o); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if got := strings.Fields(out.String()); !slices.Equal(got, []string{"new", "newer"}) {
		t.Errorf("%q", got)
	}
}

// TestConsumeGroup: a group goes on where it was, and exactly there.
func TestConsumeGroup(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Topics: []Topic{{"t", 1}}})
	put(t, b, "t", "1", "2", "3", "4", "5")
	for _, tt := range []struct {
		n    int
		want string
	}{{2, "1\n2\n"}, {3, "3\n4\n5\n"}} {
		var out strings.Builder
		n, err := Consume(limited(t), ConsumeOptions{Kafka: Kafka{Bootstrap: b.Address()}, Topic: "t", Group: "g", Count: tt.n, Out: &out})
		if n != tt.n || err != nil || out.String() != tt.want {
			t.Errorf("%d, %v: %q, want %q", n, err, &out, tt.want)
		}
	}
	offsets, err := b.emb.Committed(limited(t), "g", "t")
	if err != nil || offsets[0].Offset != 5 {
		t.Errorf("committed %+v, %v; want 5", offsets, err)
	}
	// A group without commits can begin at the end: nothing is printed until the interrupt, which is no error.
	ctx, interrupt := context.WithCancel(limited(t))
	o := ConsumeOptions{Kafka: Kafka{Bootstrap: b.Address()}, Topic: "t", Group: "late", Latest: true, Out: io.Discard}
	o.Ready = func(string) { interrupt() }
	if n, err := Consume(ctx, o); n != 0 || err != nil {
		t.Errorf("%d, %v; want nothing", n, err)
	}
}

// TestConsumeFollows: without a count it goes on until it is interrupted.
func TestConsumeFollows(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Topics: []Topic{{"t", 2}}})
	put(t, b, "t", "first")
	ctx, interrupt := context.WithCancel(limited(t))
	defer interrupt()
	out := newBuffer()
	done := make(chan error, 1)
	go func() {
		_, err := Consume(ctx, ConsumeOptions{Kafka: Kafka{Bootstrap: b.Address()}, Topic: "t", Out: out})
		done <- err
	}()
	out.wait(t, "first\n")
	put(t, b, "t", "second")
	out.wait(t, "second\n")
	interrupt()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestConsumeNoTopic: it is named, and not made.
func TestConsumeNoTopic(t *testing.T) {
	t.Parallel()
	b := start(t, Options{})
	at := Kafka{Bootstrap: b.Address()}
	_, err := Consume(limited(t), ConsumeOptions{Kafka: at, Topic: "greetnigs", Out: io.Discard})
	if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), `topic "greetnigs" does not exist at `+b.Address()+" (there are no topics)") {
		t.Errorf("%v; want ErrUsage that names the topic", err)
	}
	if _, err := Consume(limited(t), ConsumeOptions{Kafka: at, Topic: "", Out: io.Discard}); !errors.Is(err, ErrUsage) {
		t.Errorf("%v; want ErrUsage", err)
	}
	if n, _, err := open(t, b).partitions(limited(t), "greetnigs"); n != 0 || err != nil {
		t.Errorf("it has %d partitions, %v", n, err)
	}
	many := make([]Topic, 12)
	for i := range many {
		many[i] = Topic{Name: "topic-" + string(rune('a'+i)), Partitions: 1}
	}
	b = start(t, Options{Topics: many})
	if _, err := Consume(limited(t), ConsumeOptions{Kafka: Kafka{Bootstrap: b.Address()}, Topic: "x", Out: io.Discard}); err == nil || !strings.Contains(err.Error(), "topic-j and 2 more") {
		t.Errorf("%v; want ten names and a number", err)
	}
}

// TestConsumeBrokerEnds: a broker that goes away ends it, or it would wait for ever.
func TestConsumeBrokerEnds(t *testing.T) {
	t.Parallel()
	b, err := Start(limited(t), Options{Topics: []Topic{{"t", 1}}})
	if err != nil {
		t.Fatal(err)
	}
	o := ConsumeOptions{Kafka: Kafka{Bootstrap: b.Address()}, Topic: "t", Out: io.Discard, idle: 50 * time.Millisecond}
	o.Ready = func(string) {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := Consume(limited(t), o); !errors.Is(err, ErrUnreachable) {
		t.Errorf("%v; want ErrUnreachable", err)
	}
}

// broken is a pipe whose reader has gone.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestConsumeBrokenPipe(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Topics: []Topic{{"t", 1}}})
	put(t, b, "t", "1")
	if _, err := Consume(limited(t), ConsumeOptions{Kafka: Kafka{Bootstrap: b.Address()}, Topic: "t", Group: "g", Out: broken{}}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v; want the writer's error", err)
	}
	// What nobody has seen is not committed.
	if offsets, err := b.emb.Committed(limited(t), "g", "t"); len(offsets) != 0 || err != nil {
		t.Errorf("committed %+v, %v", offsets, err)
	}
}

// other is a balancer under a name that Consume does not know, as that of killick's workers.
type other struct{ kgo.GroupBalancer }

func (other) ProtocolName() string { return "other" }

// TestConsumeForeignGroup: a group whose members share out partitions in another way takes no reader; that is
// told by its name.
func TestConsumeForeignGroup(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Topics: []Topic{{"t", 1}}})
	put(t, b, "t", "1")
	member := open(t, b, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.Balancers(other{kgo.RangeBalancer()}))
	if fs := member.PollFetches(limited(t)); fs.NumRecords() != 1 {
		t.Fatal(fs.Err())
	}
	n, err := Consume(limited(t), ConsumeOptions{Kafka: Kafka{Bootstrap: b.Address()}, Topic: "t", Group: "g", Out: io.Discard})
	if n != 0 || !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "--group g: ") || !strings.Contains(err.Error(), "name another group") {
		t.Errorf("%d, %v; want ErrUsage that names the group and the way out", n, err)
	}
}
