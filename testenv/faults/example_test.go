package faults_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/testenv/faults"
	"github.com/killick-io/killick/testenv/verify"
)

// The answer to a commit is lost: the broker has it, the client does not know and commits again.
func ExampleProxy() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	broker, err := embedded.New(embedded.Topic("orders", 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer broker.Close()
	proxy, err := faults.NewProxy(faults.ProxyConfig{Brokers: broker.Addrs()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer proxy.Close()
	lost, err := proxy.Inject(faults.Rule{Do: faults.CutAfter, Keys: []kmsg.Key{kmsg.OffsetCommit}, Topics: []string{"orders"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := kgo.NewClient(broker.ClientOpts(kgo.SeedBrokers(proxy.Addrs()...), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("orders"))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	if err := broker.Produce(ctx, &kgo.Record{Topic: "orders", Value: []byte("one")}, &kgo.Record{Topic: "orders", Value: []byte("two")}); err != nil {
		fmt.Println(err)
	}
	records := client.PollRecords(ctx, 2).Records()
	fmt.Println("committed:", client.CommitRecords(ctx, records...))
	fmt.Println("answers lost:", lost.Hits())
	fmt.Println("commits that the broker has got:", len(broker.Commits()))
	// Output:
	// committed: <nil>
	// answers lost: 1
	// commits that the broker has got: 2
}

// A broker that is cut off from the network, and comes back.
func ExampleLink_BlackHole() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	broker, err := embedded.New(embedded.Topic("orders", 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer broker.Close()
	proxy, err := faults.NewProxy(faults.ProxyConfig{Brokers: broker.Addrs()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer proxy.Close()
	client, err := kgo.NewClient(broker.ClientOpts(kgo.SeedBrokers(proxy.Addrs()...))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	link, err := proxy.Link(broker.Addrs()[0])
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := link.BlackHole(); err != nil {
		fmt.Println(err)
	}
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	fmt.Println("reachable:", client.Ping(short) == nil)
	if err := link.Heal(); err != nil {
		fmt.Println(err)
	}
	link.Cut() // what has lost something stays in the hole
	fmt.Println("reachable:", client.Ping(ctx) == nil)
	// Output:
	// reachable: false
	// reachable: true
}

// What a process notes of what it does.
func ExampleLog() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	log, err := faults.CreateLog(dir, "w1", 1) // a process of Processes calls OpenLog
	if err != nil {
		fmt.Println(err)
		return
	}
	err = errors.Join(
		log.Effect(faults.Record{Topic: "orders", Partition: 3, Offset: 17, ID: "order-17", Attempt: 1}),
		log.End(0))
	fmt.Println(err)
	files, _ := verify.EventDir(dir)
	for _, f := range files {
		r, err := f.Open()
		if err != nil {
			fmt.Println(err)
			return
		}
		defer r.Close()
		for ev, err := range verify.Events(r, f.Name) {
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Printf("%s %d %s %q\n", f.Name, ev.Seq, ev.Kind, ev.ID)
		}
	}
	// Output:
	// <nil>
	// w1-1.jsonl 1 start ""
	// w1-1.jsonl 2 effect "order-17"
	// w1-1.jsonl 3 end ""
}

// The same seed gives the same plan.
func ExampleNewPlan() {
	plan, err := faults.NewPlan(42, faults.PlanConfig{Procs: []string{"w1", "w2"}, For: 4 * time.Second, Kill: 2, Freeze: 1, Up: 1})
	fmt.Println(plan, err)
	// Output:
	// seed 42
	// 1.346s freeze w1
	// 1.607s thaw w1
	// 2.156s kill w1
	// 2.632s start w1
	// 2.799s kill w1
	// 3.558s start w1 <nil>
}
