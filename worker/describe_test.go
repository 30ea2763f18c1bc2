package worker

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
)

type idle struct{}

func (idle) Next(context.Context) (killick.Message, func(error), error) {
	return killick.Message{}, nil, io.EOF
}

// everything is a topology that has each thing that there is to describe.
func everything() *killick.Topology {
	pass := bolt.Func(func(context.Context, *killick.Tuple, killick.Emitter) error { return nil })
	t := killick.New("shop")
	t.Spout("orders", spout.KafkaSource{Topics: []string{"orders"}, Codec: killick.JSON[int](), Start: spout.Latest(),
		Until: spout.At(time.Unix(2e9, 0).UTC()), Lost: spout.Earliest()}).Pending(10, 1<<20)
	t.Spout("logs", &spout.KafkaSource{Pattern: `log\..*`}).Order(killick.PerKey)
	t.Spout("clock", spout.New(func() killick.Spout { return idle{} })).Tasks(2)
	t.Bolt("end", pass).Shuffle("orders").Stream("bad", killick.String()).Stream("lost", nil)
	t.Bolt("count", pass).Fields("end/bad", nil).PartialKey("logs", func(t *killick.Tuple) []byte { return t.Bytes() }).All("clock").
		Tasks(4).InFlight(8).Timeout(90 * time.Second).Retry(killick.Retry{Attempts: 1, After: killick.Skip()})
	t.Bolt("replay", pass).Global("logs").Retry(killick.Retry{Attempts: 3, Tree: true, After: killick.Stop()})
	t.Bolt("out", bolt.Kafka("audit")).Local("end/lost")
	return t
}

func TestDescribe(t *testing.T) {
	spec, err := everything().Spec()
	if err != nil {
		t.Fatal(err)
	}
	want := `topology shop, consumer group g

spout orders
  reads         topic orders, from latest until at 2033-05-18T03:33:20Z; where offsets are lost, goes on at earliest
  dead letters  orders.shop.dlq
  pending       10 records, 1MiB per partition
  emits         int -> end (shuffle)

spout logs
  reads         topics that match log\..*, from earliest
  dead letters  <topic>.shop.dlq
  pending       1024 records, 8MiB per partition
  order         per key
  emits         bytes -> count (partial-key of a function), replay (global)

spout clock
  source   spout.source, 2 tasks
  pending  1024 records, 8MiB per task
  emits    bytes -> count (all)

bolt end
  tasks       1, local: in each worker
  input       orders by shuffle
  time-out    30s
  retry       the tuple, 5 tries in all, waiting up to 100ms, doubled each time to at most 30s, then dead-letter
  emits bad   string -> count (fields of the key)
  emits lost  bytes -> out (local)

bolt count
  tasks      4, placed: in the topology
  input      end/bad by fields of the key
  input      logs by partial-key of a function
  input      clock by all
  in flight  8 executions per task
  time-out   1m30s
  retry      none, then skip

bolt replay
  tasks     1, placed: in the topology
  input     logs by global
  time-out  30s
  retry     the whole tree, 3 tries in all, waiting up to 100ms, doubled each time to at most 30s, then stop

bolt out
  tasks     1, local: in each worker
  input     end/lost by local
  time-out  30s
  retry     the tuple, 5 tries in all, waiting up to 100ms, doubled each time to at most 30s, then dead-letter
  writes    topic audit
`
	if d := cmp.Diff(want, describe(spec, Config{Group: "g"})); d != "" {
		t.Error(d)
	}
}

func TestMermaid(t *testing.T) {
	spec, err := everything().Spec()
	if err != nil {
		t.Fatal(err)
	}
	want := `flowchart LR
  c0(["orders<br/>Kafka spout"])
  t0[("orders")]
  t0 --> c0
  c1(["logs<br/>Kafka spout"])
  t1[("log#92;..*")]
  t1 --> c1
  c2(["clock<br/>2 tasks"])
  c3["end<br/>1 task, local"]
  c0 -- "shuffle" --> c3
  c4["count<br/>4 tasks, placed"]
  c3 -- "bad: fields" --> c4
  c1 -- "partial-key" --> c4
  c2 -- "all" --> c4
  c5["replay<br/>1 task, placed"]
  c1 -- "global" --> c5
  c6["out<br/>1 task, local"]
  c3 -- "lost: local" --> c6
  t2[("audit")]
  c6 --> t2
  t3[("orders.shop.dlq")]
  c0 -. dead letters .-> t3
  t4[("#lt;topic#gt;.shop.dlq")]
  c1 -. dead letters .-> t4
`
	if d := cmp.Diff(want, mermaid(spec)); d != "" {
		t.Error(d)
	}
}
