package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/bubble"
)

// line is a spout of n messages with three keys and no key, by turns.
type line struct {
	task, next, n int
	done          func(task, i int)
}

func (l *line) Prepare(_ context.Context, t killick.Task) error { l.task = t.Index; return nil }

func (l *line) Next(context.Context) (m killick.Message, done func(error), err error) {
	if l.next == l.n {
		return m, nil, io.EOF
	}
	i := l.next
	l.next++
	m.Value = i
	if i%4 > 0 {
		m.Key = fmt.Append(nil, i%4)
	}
	return m, func(error) { l.done(l.task, i) }, nil
}

// A user's spout with an order has its messages worked on in that order, per task: over retries,
// deaths and asynchronous bolts, with a window that is smaller than what it has.
func TestSpoutOrder(t *testing.T) {
	for _, order := range []killick.Order{killick.NoOrder, killick.PerKey, killick.PerPartition} {
		for _, window := range []int{1, 5, 200} {
			t.Run(fmt.Sprintf("%v, window %d", order, window), func(t *testing.T) {
				const tasks, n = 2, 300
				var mu sync.Mutex
				ends, ran := map[string][]int{}, map[string][]int{}
				lane := func(task, i int) string {
					if order == killick.PerKey {
						return fmt.Sprint(task, "/", i%4)
					}
					return fmt.Sprint(task)
				}
				top := killick.New("spout")
				top.Spout("in", spout.New(func() killick.Spout {
					return &line{n: n, done: func(task, i int) {
						mu.Lock()
						defer mu.Unlock()
						ends[lane(task, i)] = append(ends[lane(task, i)], i)
					}}
				})).Tasks(tasks).Pending(window, 1<<20).Order(order)
				top.Bolt("a", bolt.Async(16, func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
					i, o := in.Value().(int), origin(in)
					<-time.After(time.Duration(i%7) * time.Millisecond)
					if i%5 == 0 && in.Attempt() == 1 {
						return errNo
					}
					if i%50 == 49 {
						return killick.Permanent(errNo)
					}
					mu.Lock()
					defer mu.Unlock()
					ran[lane(o, i)] = append(ran[lane(o, i)], i)
					return nil
				})).Shuffle("in")
				bubble.Test(t, func(t *testing.T) {
					spec, err := top.Spec()
					if err != nil {
						t.Fatal(err)
					}
					f := engine.NewSpoutFeed(&spec.Spouts[0], "spout", nil)
					e, err := engine.New(config{Spec: spec, Feeds: map[string]engine.Feed{"in": f}})
					if err != nil {
						t.Fatal(err)
					}
					errs := make(chan error, 1)
					go func() { errs <- f.Run(t.Context()) }()
					if err := errors.Join(e.Run(t.Context()), <-errs); err != nil {
						t.Error(err)
					}
					f.Close()
				})
				total, sorted := 0, true
				for _, l := range ends {
					total += len(l)
					sorted = sorted && slices.IsSorted(l)
				}
				for _, l := range ran {
					sorted = sorted && slices.IsSorted(l)
				}
				if total != tasks*n {
					t.Errorf("%d messages have ended, want %d", total, tasks*n)
				}
				if want := order != killick.NoOrder || window == 1; sorted != want {
					t.Errorf("in order: %v, want %v", sorted, want)
				}
			})
		}
	}
}

// origin returns the task that a message of a user's spout came from.
func origin(in *killick.Tuple) int {
	o, _ := in.Origin()
	return int(o.Partition)
}
