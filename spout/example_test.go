package spout_test

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv"
)

// queue is a source that can redeliver: what is not done goes back.
type queue struct{ jobs chan string }

// Next blocks until there is a job. done tells how its tree has ended, once.
func (q *queue) Next(ctx context.Context) (killick.Message, func(error), error) {
	select {
	case <-ctx.Done():
		return killick.Message{}, nil, ctx.Err()
	case job, ok := <-q.jobs:
		if !ok {
			return killick.Message{}, nil, io.EOF
		}
		return killick.Message{Value: job}, func(err error) {
			if err != nil {
				fmt.Printf("%s goes back: it was not done\n", job)
				return
			}
			fmt.Printf("%s is done\n", job)
		}, nil
	}
}

// A spout of one's own, for what is not in Kafka.
func ExampleNew() {
	jobs := make(chan string, 2)
	t := killick.New("jobs")
	t.Spout("jobs", spout.New(func() killick.Spout { return &queue{jobs} })).Pending(10, 1<<20)
	t.Bolt("work", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		if in.Value() == "impossible" {
			return killick.Permanent(fmt.Errorf("cannot do %v", in.Value()))
		}
		return nil
	})).Shuffle("jobs")

	jobs <- "sweep"
	jobs <- "impossible"
	close(jobs)
	testenv.RunReal(tb{}, t)
	// Unordered output:
	// sweep is done
	// impossible goes back: it was not done
}

func ExampleSeq() {
	squares := func(yield func(killick.Message) bool) {
		for i := 1; i <= 3; i++ {
			if !yield(killick.Message{Value: i * i}) {
				return
			}
		}
	}
	t := killick.New("squares")
	t.Spout("squares", spout.Seq(squares))
	t.Bolt("print", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		fmt.Println(in.Value())
		return nil
	})).Shuffle("squares")
	testenv.RunReal(tb{}, t)
	// Output:
	// 1
	// 4
	// 9
}

func ExampleSlice() {
	letters := slices.Values([]string{"a", "b"})
	var ms []killick.Message
	for l := range letters {
		ms = append(ms, killick.Message{Value: l})
	}
	t := killick.New("letters")
	t.Spout("letters", spout.Slice(ms...))
	t.Bolt("print", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		fmt.Println(in.ID(), in.Value())
		return nil
	})).Shuffle("letters")
	testenv.RunReal(tb{}, t)
	// Output:
	// letters/0/0 a
	// letters/0/1 b
}
