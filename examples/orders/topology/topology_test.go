package topology_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/examples/orders/check"
	"github.com/killick-io/killick/examples/orders/data"
	"github.com/killick-io/killick/examples/orders/topology"
	"github.com/killick-io/killick/testenv"
)

// book is the gateway's book in memory, written to by all its connections.
type book struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *book) connect(delay time.Duration) func(context.Context) (topology.Gateway, error) {
	return func(context.Context) (topology.Gateway, error) {
		return &topology.Simulated{Book: b, Delay: delay}, nil
	}
}

func (b *book) payments(t *testing.T) []check.Payment {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	ps, err := check.ReadPayments(bytes.NewReader(b.buf.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

func input(t *testing.T) []killick.Message {
	t.Helper()
	rs, err := data.Records()
	if err != nil {
		t.Fatal(err)
	}
	ms := make([]killick.Message, len(rs))
	for i, r := range rs {
		ms[i] = killick.Message{Key: r.Key, Bytes: r.Value, Headers: []killick.Header{{Key: "source", Value: []byte("web")}}}
	}
	return ms
}

// TestStory runs all records without a broker and holds the result against the rules. There are no commits here: the
// one sample that the checker asks for says that all has ended, and demands every effect.
func TestStory(t *testing.T) {
	var b book
	in := input(t)
	top := topology.New(topology.Config{Connect: b.connect(5 * time.Millisecond)})
	r := testenv.Run(t, top, testenv.Feed("orders", in...))
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	rep, err := check.Check(history(in, r, b.payments(t)))
	if err != nil {
		t.Fatal(err)
	}
	if !rep.OK {
		var text strings.Builder
		if err := rep.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		t.Fatal(text.String())
	}
	// The table of README.md.
	if want := (check.Ways{Paid: 5676, Rejected: 310, PaymentFailed: 12, Poison: 1, GatewayDown: 1}); rep.Ways != want {
		t.Errorf("ways %+v, want %+v", rep.Ways, want)
	}
	got := []int{rep.Records, rep.Trees, rep.Tries, rep.Retries, rep.Notifications, rep.DeadLetters, rep.Duplicates.Roots}
	want := []int{6000, 6000, 5960, 271, 5998, 2, 0}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("records, trees, tries, retries, notifications, dead letters, duplicates: %d, want %d", got, want)
			break
		}
	}
	if n := r.Acked("orders"); n != 5998 {
		t.Errorf("%d trees ended well, want 5998", n)
	}
	tries := 0
	for _, n := range r.Attempts("pay") {
		tries += n
	}
	if tries != 5960 {
		t.Errorf("pay ran %d times, want 5960", tries)
	}
}

// history is what a worker on Kafka would have left behind.
func history(in []killick.Message, r *testenv.Result, payments []check.Payment) check.History {
	const orders, notifications, dead = "orders", "notifications", "orders.orders.dlq"
	h := check.History{InputTopic: orders, OutputTopic: notifications, DeadLetterTopic: dead, Payments: payments}
	for i, m := range in {
		h.Inputs = append(h.Inputs, record(orders, i, m))
	}
	for i, m := range r.Written(notifications) {
		h.Outputs = append(h.Outputs, record(notifications, i, m))
	}
	for i, d := range r.DeadLetters() {
		rec := record(dead, i, d.Message)
		rec.Time = time.Time{} // of the bubble's clock, which the input does not know
		rec.Headers = append(rec.Headers,
			check.Header{Key: "killick-dlq-topic", Value: []byte(d.Origin.Topic)},
			check.Header{Key: "killick-dlq-partition", Value: []byte(strconv.Itoa(int(d.Origin.Partition)))},
			check.Header{Key: "killick-dlq-offset", Value: []byte(strconv.FormatInt(d.Origin.Offset, 10))})
		h.DeadLetters = append(h.DeadLetters, rec)
	}
	end := int64(len(in))
	h.LogEnds = []check.End{{Topic: orders, Offset: end}}
	h.Samples = []check.Sample{{At: time.Now(), Offset: end, Ends: []check.End{
		{Topic: notifications, Offset: int64(len(h.Outputs))}, {Topic: dead, Offset: int64(len(h.DeadLetters))},
	}}}
	return h
}

func record(topic string, offset int, m killick.Message) check.Record {
	r := check.Record{Topic: topic, Offset: int64(offset), Key: m.Key, Value: m.Bytes, Time: m.Time}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, check.Header(h))
	}
	return r
}

// TestDead: why the two records are dead letters, and that a record without a value is one, too.
func TestDead(t *testing.T) {
	var b book
	in := input(t)
	some := []killick.Message{in[1414], in[2000], {Key: []byte("DTW")}}
	r := testenv.Run(t, topology.New(topology.Config{Connect: b.connect(0)}), testenv.Feed("orders", some...))
	got := map[int64]string{}
	for _, d := range r.DeadLetters() {
		got[d.Origin.Offset] = d.Component
		if d.Origin.Offset == 0 && (d.Attempts != 5 || !errors.Is(d.Err, topology.ErrGateway)) {
			t.Errorf("order 104242 is dead of %v after %d tries, want %v after 5", d.Err, d.Attempts, topology.ErrGateway)
		}
		if d.Origin.Offset == 2 && d.Attempts != 1 {
			t.Errorf("the record without a value was tried %d times, want once", d.Attempts)
		}
	}
	if want := map[int64]string{0: "pay", 1: "orders", 2: "fraud"}; !maps.Equal(got, want) {
		t.Errorf("given up by %v, want %v", got, want)
	}
	if len(got) != 3 || len(b.payments(t)) != 5 {
		t.Errorf("%d dead letters and %d payment calls, want 3 and 5", len(got), len(b.payments(t)))
	}
}

// TestRejectedSkipsPay: a rejected order goes past the payment, and the notification has key, header and no other field.
func TestRejectedSkipsPay(t *testing.T) {
	var b book
	m := killick.Message{Key: []byte("K"), Bytes: []byte(`{"id":7,"customer":"K","item":"I","cents":25001}`)}
	r := testenv.Run(t, topology.New(topology.Config{Connect: b.connect(0)}), testenv.Feed("orders", m))
	out := r.Written("notifications")
	const want = `{"order":7,"customer":"K","item":"I","cents":25001,"status":"rejected"}`
	if len(out) != 1 || string(out[0].Bytes) != want || string(out[0].Key) != "K" {
		t.Fatalf("written %+v, want one with key K and value %s", out, want)
	}
	if hs := out[0].Headers; len(hs) != 1 || hs[0].Key != "order-origin" || string(hs[0].Value) != "orders/0/0" {
		t.Errorf("headers %q, want order-origin orders/0/0", hs)
	}
	if n := len(b.payments(t)); n != 0 {
		t.Errorf("%d payment calls for a rejected order", n)
	}
	if n := len(r.Emitted("fraud/rejected")); n != 1 {
		t.Errorf("%d tuples on fraud/rejected, want 1", n)
	}
}

type strange struct{}

func (strange) Charge(context.Context, topology.Charge) (topology.Outcome, error) {
	return "maybe", nil
}

// TestBadGateway: an answer that nobody knows is dead at once, and a missing gateway stops the worker.
func TestBadGateway(t *testing.T) {
	m := killick.Message{Key: []byte("K"), Bytes: []byte(`{"id":7,"customer":"K","item":"I","cents":1}`)}
	r := testenv.Run(t, topology.New(topology.Config{
		Connect: func(context.Context) (topology.Gateway, error) { return strange{}, nil },
	}), testenv.Feed("orders", m))
	if d := r.DeadLetters(); len(d) != 1 || d[0].Attempts != 1 || !strings.Contains(d[0].Err.Error(), `"maybe"`) {
		t.Errorf("dead letters %+v, want one after one try that names the answer", d)
	}
	r = testenv.Run(t, topology.New(topology.Config{}), testenv.Feed("orders", m))
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "Config.Connect") {
		t.Errorf("without a gateway: %v, want an error that names Config.Connect", err)
	}
}
