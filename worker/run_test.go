package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

func TestRunBounded(t *testing.T) {
	b := embedded.Start(t, embedded.Topic("in", 4), embedded.Topic("out", 2))
	cl, err := kgo.NewClient(b.ClientOpts()...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var rs []*kgo.Record
	for i := range 10000 {
		rs = append(rs, &kgo.Record{Topic: "in", Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "%d", i)})
	}
	if err := cl.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	top := killick.New("t")
	top.Spout("in", spout.KafkaSource{Topics: []string{"in"}, Until: spout.Latest()})
	top.Bolt("pass", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
		out.Emit(in.Message())
		return nil
	})).Shuffle("in")
	top.Bolt("out", bolt.Kafka("out")).Shuffle("pass")
	log := zerolog.New(zerolog.NewTestWriter(t))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := worker.Run(ctx, top, worker.Config{Bootstrap: b.Addrs(), Logger: &log}); err != nil {
		t.Fatal(err)
	}
}
