package verify_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/testenv/verify"
)

// events is an event file, as a process writes it line by line.
const events = `{"at":1790000000000000001,"seq":1,"proc":"w1","life":1,"pid":4242,"kind":"start"}
{"at":1790000000000000002,"seq":2,"proc":"w1","life":1,"pid":4242,"kind":"effect","topic":"in","partition":0,"offset":0,"id":"ada"}
{"at":1790000000000000003,"seq":3,"proc":"w1","life":1,"pid":4242,"kind":"commit","group":"g","topic":"in","partition":0,"next":3,"generation":1,"request":1}
{"at":1790000000000000004,"seq":4,"proc":"w1","life":1,"pid":4242,"kind":"committed","group":"g","topic":"in","partition":0,"next":3,"generation":1,"request":1}
{"at":1790000000000000005,"seq":5,"proc":"w1","life":1,"pid":4242,"kind":"effect","topic":"in","partition":0,"offset":1,"id":"grace"}
{"at":1790000000000000006,"seq":6,"proc":"w1","life":1,"pid":4242,"kind":"end","code":0}
`

// A history that is written down: three records, a commit behind all of them. One record was done too late, one never.
func ExampleCheck() {
	h := &verify.History{
		Inputs: []verify.Log{{Topic: "in", Stable: 3, End: 3, Entries: verify.Records(
			&kgo.Record{Topic: "in", Offset: 0, Value: []byte("ada")},
			&kgo.Record{Topic: "in", Offset: 1, Value: []byte("grace")},
			&kgo.Record{Topic: "in", Offset: 2, Value: []byte("edsger")},
		)}},
		Events: []verify.EventFile{{Name: "w1-1.jsonl", Open: func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(events)), nil
		}}},
	}
	report, err := verify.Check(verify.Rules{ID: func(in *kgo.Record) string { return string(in.Value) }}, h)
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range report.Findings {
		fmt.Println(f.Kind, f.Topic, f.Partition, f.Offset)
	}
	fmt.Println(report.Totals.Inputs, "inputs,", report.Totals.Effects, "effects")
	// Output:
	// loss in 0 2
	// early-commit in 0 1
	// 3 inputs, 2 effects
}

// A consumer on a broker, watched and judged. Its outcome is a record in another topic, so there are no event files.
func ExampleWatch() {
	ctx := context.Background()
	b, err := embedded.New(embedded.Topic("names", 2), embedded.Topic("greetings", 1))
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	for i, name := range []string{"ada", "grace", "edsger"} {
		if err := b.Produce(ctx, &kgo.Record{Topic: "names", Partition: int32(i % 2), Value: []byte(name)}); err != nil {
			log.Fatal(err)
		}
	}
	cl, err := kgo.NewClient(b.ClientOpts()...)
	if err != nil {
		log.Fatal(err)
	}
	defer cl.Close()
	w, err := verify.Watch(cl, verify.Target{Group: "greeter", Inputs: []string{"names"}, Outputs: []string{"greetings"}}, verify.WatchConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()

	// The program that is judged. It forgets somebody.
	consumer, err := kgo.NewClient(b.ClientOpts(kgo.ConsumerGroup("greeter"), kgo.ConsumeTopics("names"), kgo.DisableAutoCommit())...)
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	for seen := 0; seen < 3; {
		rs := consumer.PollFetches(ctx).Records()
		for _, r := range rs {
			if seen++; string(r.Value) == "grace" {
				continue
			}
			if err := b.Produce(ctx, &kgo.Record{Topic: "greetings", Value: append([]byte("hello "), r.Value...)}); err != nil {
				log.Fatal(err)
			}
		}
		if err := consumer.CommitRecords(ctx, rs...); err != nil {
			log.Fatal(err)
		}
	}

	h, err := w.Stop(ctx)
	if err != nil {
		log.Fatal(err)
	}
	report, err := verify.Check(verify.Rules{
		Want: func(in *kgo.Record) verify.Want {
			return verify.Want{Outputs: []verify.Output{{Topic: "greetings", Value: append([]byte("hello "), in.Value...)}}}
		},
	}, h)
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range report.Findings {
		fmt.Println(f)
	}
	// Output:
	// loss: names/1@0: 0 of 1 outputs; a commit covers it
}
