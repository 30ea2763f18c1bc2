package embedded_test

import (
	"context"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/killick-io/killick/testenv/bubble"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A broker in a program that is not a test.
func Example() {
	ctx := context.Background()
	b, err := embedded.New(embedded.Topic("names", 2))
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	err = b.Produce(ctx,
		&kgo.Record{Topic: "names", Partition: 0, Value: []byte("ada")},
		&kgo.Record{Topic: "names", Partition: 1, Value: []byte("grace")},
	)
	if err != nil {
		log.Fatal(err)
	}

	records, err := b.ReadAll(ctx, "names")
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range records {
		fmt.Printf("%s/%d@%d %s\n", r.Topic, r.Partition, r.Offset, r.Value)
	}
	// Output:
	// names/0@0 ada
	// names/1@0 grace
}

// A consumer group at work, and what it committed as the broker saw it.
func ExampleBroker_Commits() {
	ctx := context.Background()
	b, err := embedded.New(embedded.Topic("names", 1))
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	if err := b.Produce(ctx, &kgo.Record{Topic: "names", Value: []byte("ada")}); err != nil {
		log.Fatal(err)
	}

	cl, err := kgo.NewClient(b.ClientOpts(kgo.ConsumerGroup("greeters"), kgo.ConsumeTopics("names"), kgo.DisableAutoCommit())...)
	if err != nil {
		log.Fatal(err)
	}
	defer cl.Close()
	fetches := cl.PollFetches(ctx)
	if err := cl.CommitRecords(ctx, fetches.Records()...); err != nil {
		log.Fatal(err)
	}

	for _, c := range b.Commits() {
		fmt.Printf("%s committed %s/%d up to %d: %s\n", c.Group, c.Topic, c.Partition, c.Offset, c.Outcome)
	}
	fmt.Println("by non-owners:", len(b.CommitsByNonOwners()))
	// Output:
	// greeters committed names/0 up to 1: accepted
	// by non-owners: 0
}

// A test in virtual time: the hour passes at once.
func ExampleStartVirtual() {
	// TestQuietHour would be an ordinary test function.
	TestQuietHour := func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			b := embedded.StartVirtual(t, embedded.Topic("names", 1))
			cl, err := kgo.NewClient(b.ClientOpts(kgo.ConsumeTopics("names"))...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(cl.Close) // before the broker's cleanup

			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			for ctx.Err() == nil {
				cl.PollFetches(ctx)
			}
			t.Log("waited", time.Since(start)) // 1h0m0s
		})
	}
	_ = TestQuietHour
}
