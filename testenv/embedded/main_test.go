package embedded

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

// Every test of the package must leave no goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limited is a context that ends long after anything here should take.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func client(t *testing.T, b *Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(b.ClientOpts(opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// commitRequest is a hand-made commit of one partition.
func commitRequest(b *Broker, group, member string, generation int32, topic string, partition int32, offset int64, metadata string) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = group, member, generation
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = topic
	if info := b.Cluster().TopicInfo(topic); info != nil {
		rt.TopicID = info.TopicID
	}
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset, rp.Metadata = partition, offset, &metadata
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// member joins a group and returns its client, member id and generation.
func member(t *testing.T, b *Broker, group, topic string, opts ...kgo.Opt) (*kgo.Client, string, int32) {
	t.Helper()
	assigned := make(chan struct{}, 16)
	opts = append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(100 * time.Millisecond), kgo.SessionTimeout(10 * time.Second),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
			if len(m) > 0 {
				select {
				case assigned <- struct{}{}:
				default:
				}
			}
		}),
	}, opts...)
	cl := client(t, b, opts...)
	select {
	case <-assigned:
	case <-limited(t).Done():
		t.Fatal("no assignment")
	}
	id, gen := cl.GroupMetadata()
	return cl, id, gen
}
