package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/killick-io/killick/testenv/embedded"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

// Every test of the package must leave no goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// cluster is how to reach an embedded broker, with its test-friendly options.
func cluster(b *embedded.Broker) Cluster {
	return Cluster{Seeds: b.Addrs(), Topology: "orders", Extra: b.ClientOpts()}
}

func admin(t *testing.T, b *embedded.Broker) *Admin {
	t.Helper()
	cl, err := NewAdminClient(cluster(b))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return NewAdmin(cl, "")
}

func atStart() *kgo.Offset {
	o := kgo.NewOffset().AtStart()
	return &o
}

// member joins a group through NewConsumer and returns the lease.
func member(t *testing.T, b *embedded.Broker, k Consumer) (*kgo.Client, Lease) {
	t.Helper()
	assigned := make(chan struct{}, 16)
	k.Start = atStart()
	k.HeartbeatInterval = 100 * time.Millisecond
	k.OnAssigned = func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
		if len(m) > 0 {
			select {
			case assigned <- struct{}{}:
			default:
			}
		}
	}
	cl, err := NewConsumer(cluster(b), k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	select {
	case <-assigned:
	case <-limited(t).Done():
		t.Fatal("no assignment")
	}
	id, gen := cl.GroupMetadata()
	l := Lease{Member: id, Generation: gen}
	if k.InstanceID != "" {
		l.Instance = &k.InstanceID
	}
	return cl, l
}

func produce(t *testing.T, b *embedded.Broker, topic string, partition int32, values ...string) {
	t.Helper()
	for _, v := range values {
		if err := b.Produce(limited(t), &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
}

func topicID(b *embedded.Broker, topic string) [16]byte { return b.Cluster().TopicInfo(topic).TopicID }
