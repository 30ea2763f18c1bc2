package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
)

// keys writes records "key value" into a partition, with those keys; key "-" is none.
func (s *story) keys(p int32, records ...string) {
	s.Helper()
	var rs []*kgo.Record
	for _, r := range records {
		k, _, _ := strings.Cut(r, " ")
		rec := &kgo.Record{Topic: "in", Partition: p, Key: []byte(k), Value: []byte(r)}
		if k == "-" {
			rec.Key = nil
		}
		rs = append(rs, rec)
	}
	if err := s.b.Produce(s.ctx(), rs...); err != nil {
		s.Fatal(err)
	}
}

// effects are what has succeeded, in that order.
type effects struct {
	mu  sync.Mutex
	all []string
	at  map[string]time.Time
}

func (e *effects) add(v string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at == nil {
		e.at = map[string]time.Time{}
	}
	e.all, e.at[v] = append(e.all, v), time.Now()
}

// of returns the effects of one key.
func (e *effects) of(key string) (out []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, v := range e.all {
		if strings.HasPrefix(v, key+" ") {
			out = append(out, v)
		}
	}
	return out
}

// A record that waits for its retry holds up those behind it of its key, or partition, and nobody else,
// however the bolts run; without an order it holds up nobody (FC-26, and see apache/pulsar #15317).
func TestOrderOverRetries(t *testing.T) {
	shapes := map[string]func(top *killick.Topology, f bolt.ExecuteFunc){
		"one task": func(top *killick.Topology, f bolt.ExecuteFunc) { top.Bolt("b", bolt.Func(f)).Shuffle("in") },
		"four tasks": func(top *killick.Topology, f bolt.ExecuteFunc) {
			top.Bolt("b", bolt.Func(f)).Tasks(4).Shuffle("in")
		},
		"asynchronous": func(top *killick.Topology, f bolt.ExecuteFunc) { top.Bolt("b", bolt.Async(16, f)).Shuffle("in") },
		"behind another bolt": func(top *killick.Topology, f bolt.ExecuteFunc) {
			top.Bolt("a", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
				out.Emit(in.Message())
				return nil
			})).Shuffle("in")
			top.Bolt("b", bolt.Func(f)).Tasks(2).Shuffle("a")
		},
		"replays of the tree": func(top *killick.Topology, f bolt.ExecuteFunc) {
			top.Bolt("b", bolt.Func(f)).Shuffle("in").Retry(killick.Retry{Tree: true})
		},
		"held": func(top *killick.Topology, f bolt.ExecuteFunc) {
			top.Bolt("b", bolt.Func(func(ctx context.Context, in *killick.Tuple, out killick.Emitter) error {
				h := out.Hold()
				go func() {
					if err := f(ctx, h.Tuple(), killick.Emitter{}); err != nil {
						h.Fail(err)
					} else {
						h.Ack()
					}
				}()
				return nil
			})).Shuffle("in")
		},
	}
	for _, order := range []killick.Order{killick.NoOrder, killick.PerKey, killick.PerPartition} {
		for name, shape := range shapes {
			t.Run(order.String()+", "+name, func(t *testing.T) {
				tell(t, func(s *story) {
					var e effects
					top := killick.New("t").Order(killick.PerPartition) // the spout's own counts
					top.Spout("in", spout.Kafka("in")).Order(order)
					shape(top, func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
						if string(in.Bytes()) == "k 0" && in.Attempt() == 1 {
							return killick.RetryAfter(5*time.Second, errors.New("not yet"))
						}
						e.add(string(in.Bytes()))
						return nil
					})
					s.keys(0, "k 0", "other 0", "k 1", "k 2", "- 0", "other 1", "k 3", "k 4")
					begin := time.Now()
					r := s.start(top)
					s.drained("in")
					r.end()
					got, want := e.of("k"), []string{"k 0", "k 1", "k 2", "k 3", "k 4"}
					if order == killick.NoOrder {
						if len(got) != 5 || got[4] != "k 0" {
							s.Errorf("without an order: %v, want k 0 last", got)
						}
					} else if !slices.Equal(got, want) {
						s.Errorf("the key's effects are %v", got)
					}
					for _, v := range []string{"other 0", "other 1", "- 0"} {
						waited := e.at[v].Sub(begin) > 3*time.Second
						if waited != (order == killick.PerPartition) {
							s.Errorf("%s came after %v", v, e.at[v].Sub(begin))
						}
					}
				}, embedded.Topic("in", 1))
			})
		}
	}
}

// While a key waits, records of other keys go on until a window of the key's own waits behind it; those
// bound what is looked at. Other partitions are not concerned at all.
func TestOrderIsBoundedByTheWindow(t *testing.T) {
	tell(t, func(s *story) {
		var e effects
		top := killick.New("t")
		top.Spout("in", spout.Kafka("in")).Order(killick.PerKey).Pending(10, 1<<20)
		top.Bolt("b", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
			if string(in.Bytes()) == "k 0" && in.Attempt() == 1 {
				return killick.RetryAfter(5*time.Minute, errors.New("not yet"))
			}
			e.add(string(in.Bytes()))
			return nil
		})).Shuffle("in")
		var rs []string
		for i := range 30 {
			rs = append(rs, fmt.Sprintf("k %d", i), fmt.Sprintf("other%d 0", i))
		}
		s.keys(0, rs...)
		s.keys(1, rs[1], "third 1")
		r := s.start(top)
		s.until("the other partition is done", func() bool { return s.committed("in")[1] == 2 })
		s.pass(2 * time.Minute)
		// k 1 to k 10 wait: nobody looks behind k 10.
		e.mu.Lock()
		n := len(e.all)
		e.mu.Unlock()
		if n != 10+2 {
			s.Errorf("%d have ended, want 10 here and 2 in the other partition", n)
		}
		s.drained("in")
		r.end()
		if got := e.of("k"); len(got) != 30 || !slices.IsSortedFunc(got, byNumber) {
			s.Errorf("the key's effects: %v", got)
		}
	}, embedded.Topic("in", 2))
}

func byNumber(a, b string) int { return number(a) - number(b) }

// number is n of "key n".
func number(v string) int {
	_, n, _ := strings.Cut(v, " ")
	i, err := strconv.Atoi(n)
	if err != nil {
		panic(err)
	}
	return i
}

// Records that are given up come into the dead-letter topic in their order, and what follows them
// starts when their dead letters are durable, though writing fails now and then.
func TestOrderOfDeadLetters(t *testing.T) {
	for _, order := range []killick.Order{killick.PerKey, killick.PerPartition} {
		t.Run(order.String(), func(t *testing.T) {
			tell(t, func(s *story) {
				var e effects
				var rs []string
				for i := range 40 {
					rs = append(rs, fmt.Sprintf("%s %d", []string{"a", "b", "c"}[i%3], i))
				}
				top := killick.New("t")
				top.Spout("in", spout.Kafka("in")).Order(order)
				down := func(n int) { s.failWrites(dlq, kerr.NotEnoughReplicas, n) }
				top.Bolt("b", bolt.Async(8, func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
					v := string(in.Bytes())
					if number(v)%2 == 1 {
						e.add(v)
						return nil
					}
					if in.Attempt() < 3 {
						return errors.New("again")
					}
					if number(v)%4 == 0 {
						down(3) // the dead letter, and perhaps others, have to wait
					}
					return killick.Permanent(errors.New("never"))
				})).Shuffle("in").Retry(killick.Retry{Max: time.Second})
				s.keys(0, rs...)
				r := s.start(top)
				s.drained("in")
				r.end()
				dead := map[string][]string{}
				for _, d := range s.read(dlq) {
					dead[string(d.Key)] = append(dead[string(d.Key)], string(d.Value))
					e.mu.Lock()
					for v, at := range e.at {
						k, _, _ := strings.Cut(v, " ")
						if (k == string(d.Key) || order == killick.PerPartition) && number(v) > number(string(d.Value)) && !at.After(d.Timestamp) {
							s.Errorf("%q was effective before %q was dead", v, d.Value)
						}
					}
					e.mu.Unlock()
				}
				n := 0
				for k, got := range dead {
					n += len(got)
					if !slices.IsSortedFunc(got, byNumber) {
						s.Errorf("dead letters of %s: %v", k, got)
					}
				}
				for _, k := range []string{"a", "b", "c"} {
					if got := e.of(k); !slices.IsSortedFunc(got, byNumber) {
						s.Errorf("effects of %s: %v", k, got)
					}
				}
				if n != 20 {
					s.Errorf("%d dead letters", n)
				}
			}, embedded.Topic("in", 1))
		})
	}
}

// Partitions move between workers, which fail every third try: a key's effects stay in order, none
// comes twice, and no two records of a key are ever worked on at a time.
func TestOrderOverMoves(t *testing.T) {
	for _, order := range []killick.Order{killick.PerKey, killick.PerPartition} {
		t.Run(order.String(), func(t *testing.T) {
			tell(t, func(s *story) {
				const partitions, keys = 3, 5
				var e effects
				var mu sync.Mutex
				busy := map[string]string{}
				rng := rand.New(rand.NewPCG(1, uint64(order)))
				top := func() *killick.Topology {
					top := killick.New("t").Order(order).Retry(killick.Retry{Attempts: 100, Min: 10 * time.Millisecond, Max: time.Second})
					top.Spout("in", spout.Kafka("in"))
					top.Bolt("b", bolt.Async(32, func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
						v := string(in.Bytes())
						lane := string(in.Key())
						if order == killick.PerPartition {
							o, _ := in.Origin()
							lane = fmt.Sprint(o.Partition)
						}
						mu.Lock()
						if other := busy[lane]; other != "" {
							s.Errorf("%q runs beside %q", v, other)
						}
						busy[lane] = v
						wait, fails := time.Duration(rng.IntN(20))*time.Millisecond, rng.IntN(3) == 0
						mu.Unlock()
						s.pass(wait)
						mu.Lock()
						delete(busy, lane)
						mu.Unlock()
						if fails {
							return errors.New("now and then")
						}
						e.add(v)
						return nil
					})).Shuffle("in")
					return top
				}
				a := s.start(top())
				s.share(map[*running]int{a: partitions})
				n := 0
				feed := func() {
					for p := range int32(partitions) {
						for k := range keys {
							s.keys(p, fmt.Sprintf("%d.%d %d", p, k, n), fmt.Sprintf("%d.%d %d", p, k, n+1))
						}
					}
					n += 2
				}
				for range 3 {
					feed()
					b := s.start(top())
					feed()
					s.until("both have some", func() bool {
						feed()
						return len(b.parts("in")) > 0 && len(a.parts("in"))+len(b.parts("in")) == partitions
					})
					feed()
					b.stop()
					// Records whose retry fails in the stop are left to the next owner.
					if err := b.wait(); err != nil && !strings.Contains(err.Error(), "retry failed again") {
						s.Errorf("the worker ended with: %v", err)
					}
					s.share(map[*running]int{a: partitions})
				}
				s.drained("in")
				a.end()
				for p := range partitions {
					for k := range keys {
						key := fmt.Sprintf("%d.%d", p, k)
						got := e.of(key)
						if len(got) != n || !slices.IsSortedFunc(got, byNumber) {
							s.Errorf("%d effects of key %s, want %d in order: %v", len(got), key, n, got)
						}
					}
				}
			}, embedded.Topic("in", 3))
		})
	}
}
