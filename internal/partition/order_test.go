package partition

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/offsets"
)

// keyed are records of the given keys, from an offset on. "-" is no key.
func keyed(from int64, keys ...string) (rs []*kgo.Record) {
	for i, k := range keys {
		r := &kgo.Record{Topic: "in", Offset: from + int64(i), Key: []byte(k), Value: []byte("v")}
		if k == "-" {
			r.Key = nil
		}
		rs = append(rs, r)
	}
	return rs
}

// begun takes everything that may start now, by offset.
func begun(t testing.TB, f *Feed) (out []int64, at map[int64]place) {
	at = map[int64]place{}
	for {
		f.Wake()
		var r engine.Run
		if err := f.Next(context.Background(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Chunk == nil {
			return out, at
		}
		for i := r.From; i < r.To; i++ {
			o := r.Chunk.Origin(i).Offset
			out = append(out, o)
			at[o] = place{r.Chunk.(*chunk), i}
		}
	}
}

// Who may start, in each order, while nothing ends, and after the first has ended.
func TestOrderTable(t *testing.T) {
	keys := []string{"a", "b", "a", "-", "", "b", "c", "-"}
	for _, c := range []struct {
		order       core.Order
		pending     int
		first, then []int64
	}{
		{core.NoOrder, 100, []int64{0, 1, 2, 3, 4, 5, 6, 7}, nil},
		{core.PerKey, 100, []int64{0, 1, 3, 4, 6}, []int64{2}},
		{core.PerKey, 3, []int64{0, 1, 3}, []int64{2}},
		{core.PerKey, 1, []int64{0}, []int64{1}}, // the window, not the order
		{core.PerPartition, 100, []int64{0}, []int64{1}},
	} {
		t.Run(fmt.Sprintf("%d, window %d", c.order, c.pending), func(t *testing.T) {
			f := NewFeed("s", c.pending, 1<<20, Hooks{})
			f.Keep(c.order)
			p := f.Open("in", 0, 0, offsets.Map{}, false)
			deliver(t, p, keyed(0, keys...))
			got, at := begun(t, f)
			if !slices.Equal(got, c.first) {
				t.Errorf("%v start, want %v", got, c.first)
			}
			at[0].c.End(at[0].i, nil)
			if got, _ = begun(t, f); !slices.Equal(got, c.then) {
				t.Errorf("then %v, want %v", got, c.then)
			}
		})
	}
}

// The next one of a key starts when the dead letter is durable, not when the tree is dead.
func TestOrderOverDeadLetters(t *testing.T) {
	for _, order := range []core.Order{core.PerKey, core.PerPartition} {
		var dead []Dead
		f := NewFeed("s", 100, 1<<20, Hooks{Dead: func(d Dead) { dead = append(dead, d) }})
		f.Keep(order)
		p := f.Open("in", 0, 0, offsets.Map{}, false)
		deliver(t, p, keyed(0, "a", "a"))
		_, at := begun(t, f)
		at[0].c.End(at[0].i, &ack.Cause{Outcome: ack.Dead, Policy: ack.DeadLetter})
		if got, _ := begun(t, f); len(got) != 0 {
			t.Errorf("%v start before the dead letter is durable", got)
		}
		dead[0].Done()
		if got, _ := begun(t, f); !slices.Equal(got, []int64{1}) {
			t.Errorf("%v start after it", got)
		}
	}
}

// A bolt that changes the key that it was given does not close its lane for good.
func TestOrderOutlivesAChangedKey(t *testing.T) {
	f := NewFeed("s", 100, 1<<20, Hooks{})
	f.Keep(core.PerKey)
	p := f.Open("in", 0, 0, offsets.Map{}, false)
	deliver(t, p, keyed(0, "a", "a"))
	_, at := begun(t, f)
	at[0].c.Record(at[0].i).Key()[0] = 'x'
	at[0].c.EndRun(at[0].i, at[0].i+1)
	if got, _ := begun(t, f); !slices.Equal(got, []int64{1}) {
		t.Errorf("%v start", got)
	}
}

// The end of a bounded run waits for those that wait for their turn.
func TestOrderAndUntil(t *testing.T) {
	f := NewFeed("s", 100, 1<<20, Hooks{})
	f.Keep(core.PerKey)
	f.Bound(map[Key]int64{{"in", 0}: 2})
	p := f.Open("in", 0, 0, offsets.Map{}, false)
	deliver(t, p, keyed(0, "a", "a"))
	_, at := begun(t, f)
	if p.Status().Finished {
		t.Error("finished before the second record has started")
	}
	at[0].c.EndRun(at[0].i, at[0].i+1)
	if r := nextRun(t, f); r.Chunk.Origin(r.From).Offset != 1 || !p.Status().Finished {
		t.Errorf("%+v", p.Status())
	}
}

// TestOrderModel: batches with holes and with records that the completion map knows, ends of all kinds in
// any order, a release: what may start is what a list and a question about everything before it say.
func TestOrderModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		order := rapid.SampledFrom([]core.Order{core.PerKey, core.PerPartition}).Draw(t, "order")
		window := rapid.IntRange(1, 12).Draw(t, "window")
		var dead []Dead
		f := NewFeed("s", window, 1<<20, Hooks{Dead: func(d Dead) { dead = append(dead, d) }})
		f.Keep(order)
		m := offsets.Map{Held: offsets.State{Suspect: offsets.None}}
		if known := rapid.Int64Range(0, 10).Draw(t, "known"); known > 0 {
			m.Next = known + 1 // offset 0 is open, and others
			m.Open = []int64{0}
			for o := int64(1); o < known; o++ {
				if rapid.Bool().Draw(t, "open") {
					m.Open = append(m.Open, o)
				}
			}
		}
		p := f.Open("in", 0, 0, m, false)
		type one struct {
			offset int64
			key    string
			state  int // 0: not started, 1: started, 2: dead, 3: ended
			at     place
		}
		var all []*one
		next := int64(0)
		started := func() (n int) {
			for _, o := range all {
				if o.state == 1 || o.state == 2 {
					n++
				}
			}
			return n
		}
		of := func(state int) (out []*one) {
			for _, o := range all {
				if o.state == state {
					out = append(out, o)
				}
			}
			return out
		}
		// blocked says that the order forbids to start all[i] now.
		blocked := func(i int) bool {
			for _, before := range all[:i] {
				if before.state < 3 && (order == core.PerPartition || before.key == all[i].key) {
					return true
				}
			}
			return false
		}
		released := false
		t.Repeat(map[string]func(*rapid.T){
			"deliver": func(t *rapid.T) {
				var keys []string
				n := rapid.IntRange(1, 8).Draw(t, "n")
				var rs []*kgo.Record
				for range n {
					next += rapid.Int64Range(0, 1).Draw(t, "hole")
					k := rapid.SampledFrom([]string{"a", "b", "c", "", "-"}).Draw(t, "key")
					keys = append(keys, k)
					rs = append(rs, keyed(next, k)...)
					next++
				}
				if released {
					return
				}
				for i, r := range rs {
					o := &one{offset: r.Offset, key: keys[i]}
					if r.Offset < m.Next && !slices.Contains(m.Open, r.Offset) {
						o.state = 3
					}
					all = append(all, o)
				}
				if _, err := p.Deliver(rs); err != nil {
					t.Fatal(err)
				}
			},
			"start": func(t *rapid.T) {
				f.Wake()
				var r engine.Run
				if err := f.Next(context.Background(), &r); err != nil {
					t.Fatal(err)
				}
				if r.Chunk == nil {
					// Nothing may start: the window is full, or too many wait, or all are blocked.
					waiting := 0
					for i, o := range all {
						switch {
						case o.state == 0 && blocked(i):
							waiting++
						case o.state == 0 && started() < window && waiting < window && !released:
							t.Fatalf("offset %d, key %q, does not start: %d started, %d wait before it, window %d", o.offset, o.key, started(), waiting, window)
						}
					}
					return
				}
				for i := r.From; i < r.To; i++ {
					k := slices.IndexFunc(all, func(o *one) bool { return o.offset == r.Chunk.Origin(i).Offset })
					if all[k].state != 0 || blocked(k) || released {
						t.Fatalf("offset %d, key %q, starts in state %d; blocked: %v, released: %v", all[k].offset, all[k].key, all[k].state, blocked(k), released)
					}
					all[k].state, all[k].at = 1, place{r.Chunk.(*chunk), i}
				}
				if n := started(); n > window {
					t.Fatalf("%d are started, the window is %d", n, window)
				}
			},
			"end": func(t *rapid.T) {
				if len(of(1)) == 0 {
					t.Skip()
				}
				o := rapid.SampledFrom(of(1)).Draw(t, "who")
				switch rapid.IntRange(0, 3).Draw(t, "how") {
				case 0:
					o.at.c.End(o.at.i, nil)
					o.state = 3
				case 1:
					o.at.c.EndRun(o.at.i, o.at.i+1)
					o.state = 3
				case 2:
					o.at.c.End(o.at.i, &ack.Cause{Outcome: ack.Dead, Policy: ack.Skip})
					o.state = 3
				case 3:
					o.at.c.End(o.at.i, &ack.Cause{Outcome: ack.Dead, Policy: ack.DeadLetter})
					o.state = 2
				}
			},
			"durable": func(t *rapid.T) {
				if len(dead) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(dead)-1).Draw(t, "which")
				k := slices.IndexFunc(all, func(o *one) bool { return o.offset == dead[i].Offset() })
				dead[i].Done()
				all[k].state = 3
				dead = slices.Delete(dead, i, i+1)
			},
			"release": func(t *rapid.T) {
				if rapid.IntRange(0, 20).Draw(t, "really") == 0 {
					p.Release()
					released = true
				}
			},
			"": func(t *rapid.T) {
				floor := p.Status().Floor
				for _, o := range all {
					if o.state < 3 && o.offset < floor {
						t.Fatalf("the floor is %d, offset %d has not ended", floor, o.offset)
					}
				}
				if got := p.Started(); got != started() {
					t.Fatalf("%d started, want %d", got, started())
				}
			},
		})
	})
}

// BenchmarkOrder is what a record costs from its delivery to its end, by order and number of keys.
func BenchmarkOrder(b *testing.B) {
	for _, c := range []struct {
		name  string
		order core.Order
		keys  int
	}{{"none", core.NoOrder, 1}, {"per key, 10000 keys", core.PerKey, 10000}, {"per key, 10 keys", core.PerKey, 10}, {"per partition", core.PerPartition, 1}} {
		b.Run(c.name, func(b *testing.B) {
			f := NewFeed("s", 1024, 1<<40, Hooks{})
			f.Keep(c.order)
			p := f.Open("in", 0, 0, offsets.Map{}, false)
			next := int64(0)
			for b.Loop() {
				rs := make([]*kgo.Record, 2048)
				for i := range rs {
					rs[i] = &kgo.Record{Offset: next, Key: fmt.Append(nil, next%int64(c.keys))}
					next++
				}
				if _, err := p.Deliver(rs); err != nil {
					b.Fatal(err)
				}
				for n := 0; n < len(rs); {
					var r engine.Run
					if err := f.Next(b.Context(), &r); err != nil {
						b.Fatal(err)
					}
					r.Chunk.EndRun(r.From, r.To)
					n += r.To - r.From
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(next), "ns/record")
		})
	}
}
