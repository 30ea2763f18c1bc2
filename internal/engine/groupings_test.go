package engine_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/killick-io/killick"
)

// TestGroupings: which task gets what.
func TestGroupings(t *testing.T) {
	const n, tasks = 1200, 4
	byKey := func(in *killick.Tuple) []byte { return in.Key() }
	for _, c := range []struct {
		name string
		in   func(b *killick.BoltDecl, from string)
		want func(t *testing.T, got []map[int]int, keys []map[string]bool)
	}{
		{"shuffle", func(b *killick.BoltDecl, from string) { b.Shuffle(from) }, even},
		{"local", func(b *killick.BoltDecl, from string) { b.Local(from) }, even},
		{"fields", func(b *killick.BoltDecl, from string) { b.Fields(from, nil) }, oneTaskPerKey},
		{"fields by function", func(b *killick.BoltDecl, from string) { b.Fields(from, byKey) }, oneTaskPerKey},
		{"partial key", func(b *killick.BoltDecl, from string) { b.PartialKey(from, nil) }, twoTasksPerKey},
		{"partial key by function", func(b *killick.BoltDecl, from string) { b.PartialKey(from, byKey) }, twoTasksPerKey},
		{"global", func(b *killick.BoltDecl, from string) { b.Global(from) }, func(t *testing.T, got []map[int]int, _ []map[string]bool) {
			if len(got[0]) != n {
				t.Errorf("task 0 got %d", len(got[0]))
			}
		}},
		{"all", func(b *killick.BoltDecl, from string) { b.All(from) }, func(t *testing.T, got []map[int]int, _ []map[string]bool) {
			for i := range got {
				if len(got[i]) != n {
					t.Errorf("task %d got %d", i, len(got[i]))
				}
			}
		}},
		{"by partition", func(b *killick.BoltDecl, from string) { b.ByPartition(from) }, func(t *testing.T, got []map[int]int, _ []map[string]bool) {
			for i := range got {
				for v := range got[i] {
					if v%6%tasks != i { // the v-th record is of partition v % 6
						t.Errorf("task %d got %d", i, v)
					}
				}
			}
		}},
		{"custom", func(b *killick.BoltDecl, from string) {
			b.Custom(from, func(dst []int, in *killick.Tuple, n int) []int {
				switch k := in.Key()[1] - '0'; {
				case k == 0:
					return dst // nowhere
				case k == 1:
					return append(dst, 2, 3)
				}
				return append(dst, 1)
			})
		}, func(t *testing.T, got []map[int]int, keys []map[string]bool) {
			if len(got[0]) != 0 || len(got[1]) != n*8/10 || len(got[2]) != n/10 || len(got[3]) != n/10 {
				t.Errorf("got %d %d %d %d", len(got[0]), len(got[1]), len(got[2]), len(got[3]))
			}
		}},
	} {
		for _, from := range []string{"in", "pass"} { // a spout's records, and what a bolt emits
			t.Run(c.name+" "+from, func(t *testing.T) {
				top := topology()
				top.Bolt("pass", fn(pass)).Shuffle("in")
				var mu sync.Mutex
				got, keys := make([]map[int]int, tasks), make([]map[string]bool, tasks)
				for i := range got {
					got[i], keys[i] = map[int]int{}, map[string]bool{}
				}
				ids := map[string]int{}
				b := top.Bolt("leaf", func() killick.Bolt {
					return &where{func(task int, in *killick.Tuple) {
						mu.Lock()
						defer mu.Unlock()
						var v int
						fmt.Sscan(string(in.Bytes()), &v)
						got[task][v]++
						keys[task][string(in.Key())] = true
						ids[in.ID()]++
					}, 0}
				}).Tasks(tasks)
				c.in(b, from)
				e := run(t, top, partitions("in", 6, messages(n)...))
				e.wantEnds(n, 0)
				c.want(t, got, keys)
				for id, k := range ids {
					if k != 1 {
						t.Fatalf("%s came %d times: siblings have IDs of their own", id, k)
					}
				}
				for i := range got {
					for v, k := range got[i] {
						if k != 1 {
							t.Errorf("task %d got %d %d times", i, v, k)
						}
					}
				}
			})
		}
	}
}

// where tells its task.
type where struct {
	f    func(task int, in *killick.Tuple)
	task int
}

func (w *where) Prepare(_ ctx, t killick.Task) error { w.task = t.Index; return nil }
func (w *where) Execute(_ ctx, in *killick.Tuple, _ killick.Emitter) error {
	w.f(w.task, in)
	return nil
}

func even(t *testing.T, got []map[int]int, _ []map[string]bool) {
	least, most := len(got[0]), len(got[0])
	for i := range got {
		least, most = min(least, len(got[i])), max(most, len(got[i]))
	}
	if most-least > 1 {
		t.Errorf("between %d and %d tuples per task", least, most)
	}
}

func oneTaskPerKey(t *testing.T, _ []map[int]int, keys []map[string]bool) { tasksPerKey(t, keys, 1) }

func twoTasksPerKey(t *testing.T, got []map[int]int, keys []map[string]bool) {
	tasksPerKey(t, keys, 2)
}

func tasksPerKey(t *testing.T, keys []map[string]bool, most int) {
	n := map[string]int{}
	for i := range keys {
		for k := range keys[i] {
			n[k]++
		}
	}
	seen := 0
	for k, v := range n {
		if v > most {
			t.Errorf("key %s has %d tasks", k, v)
		}
		seen = max(seen, v)
	}
	if len(n) != 10 || seen != most {
		t.Errorf("%d keys, at most %d tasks for one", len(n), seen)
	}
}

// TestBadPick: a custom grouping that picks a task that is not there fails the emitter's input
// for good; one that panics, too. At a spout the subscriber's policy decides.
func TestBadPick(t *testing.T) {
	for name, pick := range map[string]func([]int, *killick.Tuple, int) []int{
		"above":    func(dst []int, _ *killick.Tuple, n int) []int { return append(dst, 0, n) },
		"negative": func(dst []int, _ *killick.Tuple, _ int) []int { return append(dst, -1) },
		"panic":    func([]int, *killick.Tuple, int) []int { panic("boom") },
	} {
		for _, from := range []string{"in", "pass"} {
			t.Run(name+" "+from, func(t *testing.T) {
				top := topology()
				top.Bolt("pass", fn(pass)).Shuffle("in")
				top.Bolt("leaf", fn(null)).Tasks(2).Shuffle("in")
				top.Bolt("picked", fn(null)).Tasks(2).Custom(from, pick)
				e := run(t, top, records("in", messages(3)...))
				e.wantEnds(0, 3)
				if e.total("picked") != 0 {
					t.Error("a tuple left, though its try failed")
				}
				c := e.dead("in")[0]
				want := map[string]string{"above": "picked task 2; it has tasks 0 to 1", "negative": "picked task -1", "panic": "panic: boom"}[name]
				if !strings.Contains(c.Err.Error(), want) || c.Component != map[string]string{"in": "picked", "pass": "pass"}[from] {
					t.Errorf("%s: %v", c.Component, c.Err)
				}
			})
		}
	}
}

// TestBadPickPolicy: at a spout, nobody has executed anything yet.
func TestBadPickPolicy(t *testing.T) {
	for _, after := range []killick.After{killick.Skip(), killick.Stop()} {
		top := topology()
		top.Bolt("picked", fn(null)).Tasks(2).Fields("in", func(*killick.Tuple) []byte { panic("boom") }).Retry(killick.Retry{After: after})
		e := run(t, top, records("in", messages(2)...))
		if after.IsSkip() {
			e.wantEnds(0, 2)
		} else if e.err == nil || e.feeds["in"].Pending() != 2 || len(e.dead("in")) != 0 {
			t.Errorf("stop: %v, %d open", e.err, e.feeds["in"].Pending())
		}
	}
}

// TestPickTwice: copies have IDs of their own also at one task, and the same ones on a replay that
// picks other tasks.
func TestPickTwice(t *testing.T) {
	for _, from := range []string{"in", "pass"} {
		top := topology()
		top.Bolt("pass", fn(pass)).Shuffle("in")
		picks := 0
		top.Bolt("leaf", fn(func(in *killick.Tuple, _ killick.Emitter) error {
			if in.Attempt() == 1 {
				return killick.FailTree(errNo)
			}
			return nil
		})).Tasks(3).Custom(from, func(dst []int, _ *killick.Tuple, n int) []int {
			picks++
			return append(dst, picks%n, picks%n)
		})
		e := run(t, top, records("in", messages(2)...))
		e.wantEnds(2, 0)
		if got := e.ids("leaf"); len(got) != 4 {
			t.Errorf("from %s: IDs %q", from, got)
		}
	}
}
