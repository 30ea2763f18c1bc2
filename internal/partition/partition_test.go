package partition

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/offsets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// records are those of the offsets [from, to), each of about size bytes.
func records(from, to int64, size int) []*kgo.Record {
	var rs []*kgo.Record
	for o := from; o < to; o++ {
		rs = append(rs, &kgo.Record{Topic: "in", Offset: o, Value: make([]byte, size)})
	}
	return rs
}

func deliver(t *testing.T, p *Partition, rs []*kgo.Record) (pause bool) {
	t.Helper()
	pause, err := p.Deliver(rs)
	if err != nil {
		t.Fatal(err)
	}
	p.feed.Delivered()
	return pause
}

// nextRun takes a run that must be there.
func nextRun(t *testing.T, f *Feed) engine.Run {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var r engine.Run
	for r.Chunk == nil {
		if err := f.Next(ctx, &r); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// nothing checks that no run is there.
func nothing(t *testing.T, f *Feed) {
	t.Helper()
	f.Wake()
	var r engine.Run
	if err := f.Next(t.Context(), &r); err != nil || r.Chunk != nil {
		t.Errorf("a run of %d, %v", r.To-r.From, err)
	}
}

// Everything may have ended before the client has heard of the pause that Deliver asked for: then
// nobody resumes it but the one who pauses.
func TestPauseThatComesTooLate(t *testing.T) {
	resumed := 0
	f := NewFeed("s", 1000, 10_000, Hooks{Resume: func(*Partition) { resumed++ }})
	p := f.Open("in", 0, 0, offsets.Map{}, false)
	if !deliver(t, p, records(0, 100, 1000)) {
		t.Fatal("no pause above the high water")
	}
	r := nextRun(t, f)
	r.Chunk.EndRun(r.From, r.To)
	if resumed != 0 {
		t.Error("resumed before it was paused")
	}
	if !p.Paused() {
		t.Error("the pause stays, and nobody ends it")
	}
	// And the usual way: paused, then drained to half.
	if !deliver(t, p, records(100, 110, 1000)) || p.Paused() {
		t.Fatal("no pause")
	}
	r = nextRun(t, f)
	r.Chunk.EndRun(r.From, r.From+9)
	if resumed != 0 {
		t.Error("resumed while the chunk holds its bytes")
	}
	r.Chunk.EndRun(r.From+9, r.To)
	if resumed != 1 || p.Status().Paused {
		t.Errorf("resumed %d times", resumed)
	}
}

// What the completion map knows is not started, wherever it lies in a batch, and a batch whose other
// records have all ended is left behind.
func TestRecordsThatTheMapKnows(t *testing.T) {
	for name, open := range map[string][]int64{"the first is open": {0}, "the last": {9}, "in between": {3, 4, 7}, "none": {}, "both ends": {0, 9}} {
		t.Run(name, func(t *testing.T) {
			f := NewFeed("s", 1000, 1<<20, Hooks{})
			p := f.Open("in", 0, 0, offsets.Map{Base: 0, Next: 10, Open: open, Held: offsets.State{Suspect: offsets.None}}, false)
			deliver(t, p, records(0, 10, 10))
			for _, o := range open {
				var r engine.Run
				for r.Chunk == nil {
					r = nextRun(t, f)
				}
				if got := r.Chunk.Origin(r.From).Offset; got != o {
					t.Errorf("offset %d was started, want %d", got, o)
				}
				for i := r.From; i < r.To; i++ {
					r.Chunk.End(i, nil)
				}
				if r.To-r.From > 1 { // 3 and 4 are one run
					break
				}
			}
			done := make(chan struct{})
			go func() { // Fatal would end this goroutine, not the test
				defer close(done)
				if _, err := p.Deliver(records(10, 20, 10)); err != nil {
					t.Error(err)
					return
				}
				f.Delivered()
				for {
					var r engine.Run
					for r.Chunk == nil {
						if err := f.Next(t.Context(), &r); err != nil {
							t.Error(err)
							return
						}
					}
					last := r.Chunk.Origin(r.To-1).Offset == 19
					r.Chunk.EndRun(r.From, r.To)
					if last {
						return
					}
				}
			}()
			select {
			case <-done:
			case <-time.After(20 * time.Second):
				t.Fatal("the dispatcher spins")
			}
			if m, ok := p.Position(); !ok || m.Base != 20 {
				t.Errorf("position %+v", m)
			}
			if s := p.Status(); s.Bytes != 0 || s.Started != 0 || s.Waiting != 0 {
				t.Errorf("left: %+v", s)
			}
		})
	}
}

// After the assignment is over nothing that comes late changes anything: ends, batches, dead letters.
func TestClosedPartition(t *testing.T) {
	var dead []Dead
	f := NewFeed("s", 1000, 1<<20, Hooks{Dead: func(d Dead) { dead = append(dead, d) }})
	p := f.Open("in", 0, 5, offsets.Map{}, false)
	deliver(t, p, records(5, 15, 10))
	r := nextRun(t, f)
	r.Chunk.EndRun(r.From, r.From+2)
	r.Chunk.End(r.From+2, &ack.Cause{Outcome: ack.Dead, Policy: ack.DeadLetter})
	if m, _ := p.Position(); m.Base != 7 || len(dead) != 1 || dead[0].Offset() != 7 {
		t.Fatalf("position %+v, %d dead letters", m, len(dead))
	}
	if open := p.Close(); open != 8 {
		t.Errorf("%d open roots", open)
	}
	f.Remove(p)
	dead[0].Done()
	r.Chunk.EndRun(r.From+3, r.To)
	if pause, err := p.Deliver(records(15, 20, 10)); pause || err != nil {
		t.Errorf("a late batch: %v %v", pause, err)
	}
	if _, ok := p.Position(); ok {
		t.Error("a closed partition has a position")
	}
	if p.Paused() || p.Skip(15, 20) || f.Pending() != 0 || !dead[0].Gone() {
		t.Error("something late had an effect")
	}
	if s := p.Status(); s.Floor != 7 || s.Bytes != 0 {
		t.Errorf("status %+v", s)
	}
}

// A batch below what was delivered is a broken invariant, and changes nothing.
func TestDeliverBelow(t *testing.T) {
	f := NewFeed("s", 1000, 1<<20, Hooks{})
	p := f.Open("in", 0, 0, offsets.Map{}, false)
	deliver(t, p, records(0, 10, 10))
	if _, err := p.Deliver(records(9, 12, 10)); !errors.Is(err, offsets.ErrRewind) {
		t.Errorf("error %v", err)
	}
	if s := p.Status(); s.Next != 10 || s.Waiting != 10 {
		t.Errorf("status %+v", s)
	}
}

// Control records move the position and are never tuples; the end of a bounded run cuts a batch.
func TestControlRecordsAndUntil(t *testing.T) {
	f := NewFeed("s", 1000, 1<<20, Hooks{})
	f.Bound(map[Key]int64{{"in", 0}: 8, {"in", 1}: 0, {"in", 2}: 3})
	p := f.Open("in", 0, 0, offsets.Map{}, false)
	rs := records(0, 12, 10)
	deliver(t, p, rs)
	r := nextRun(t, f)
	if n := r.To - r.From; n != 8 {
		t.Fatalf("%d roots of 8", n)
	}
	r.Chunk.EndRun(r.From, r.To)
	if s := p.Status(); !s.Finished || s.Next != 8 || s.Floor != 8 {
		t.Errorf("status %+v", s)
	}
	nothing(t, f) // partition 2 has not come to its end anywhere
	if left := f.Unfinished(); len(left) != 1 || left[Key{"in", 2}] != 3 {
		t.Errorf("unfinished: %v", left)
	}
	f.Over(Key{"in", 9})
	nothing(t, f)
	f.Over(Key{"in", 2})
	if err := f.Next(t.Context(), new(engine.Run)); err != io.EOF {
		t.Errorf("the end of the run: %v", err)
	}
}

// Records are held back until the start position is committed.
func TestHeld(t *testing.T) {
	f := NewFeed("s", 1000, 1<<20, Hooks{})
	p := f.Open("in", 0, 0, offsets.Map{}, true)
	deliver(t, p, records(0, 10, 10))
	nothing(t, f)
	p.Stored(offsets.Map{})
	if r := nextRun(t, f); r.To != 10 {
		t.Errorf("run %+v", r)
	}
}

// Partitions take turns, and no wake-up is lost: with a dispatcher, a poll loop that pauses, a
// committer and trees that end anywhere, everything ends.
func TestFeedUnderLoad(t *testing.T) {
	const parts, batches, size = 4, 200, 17
	type paused struct {
		mu sync.Mutex
		on map[*Partition]bool
		ch chan struct{}
	}
	st := paused{on: map[*Partition]bool{}, ch: make(chan struct{}, 1)}
	f := NewFeed("s", 50, 60*200, Hooks{Resume: func(p *Partition) {
		st.mu.Lock()
		st.on[p] = false
		st.mu.Unlock()
		select {
		case st.ch <- struct{}{}:
		default:
		}
	}})
	var ps []*Partition
	for i := range parts {
		ps = append(ps, f.Open("in", int32(i), 0, offsets.Map{}, false))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var wg, ends sync.WaitGroup
	wg.Go(func() { // the poll loop
		at := make([]int64, parts)
		for left := parts * batches; left > 0; {
			moved := false
			for i, p := range ps {
				st.mu.Lock()
				off := st.on[p]
				st.mu.Unlock()
				if off || at[i] == batches*size {
					continue
				}
				moved = true
				left--
				full, err := p.Deliver(records(at[i], at[i]+size, 20))
				if err != nil {
					t.Error(err)
					return
				}
				at[i] += size
				if full {
					st.mu.Lock()
					st.on[p] = true
					st.mu.Unlock()
					if p.Paused() {
						st.mu.Lock()
						st.on[p] = false
						st.mu.Unlock()
					}
				}
				f.Delivered()
			}
			if !moved {
				select {
				case <-st.ch:
				case <-ctx.Done():
					t.Error("paused for ever")
					return
				}
			}
		}
	})
	committed := make(chan struct{})
	go func() { // the committer
		defer close(committed)
		for ctx.Err() == nil {
			done := 0
			for _, p := range ps {
				m, _ := p.Position()
				if m.Base == batches*size {
					done++
				}
				if s := p.Status(); s.Started > 50 {
					t.Errorf("%d started roots", s.Started)
				}
			}
			if done == parts {
				return
			}
		}
		t.Error("not everything was committed")
	}()
	wg.Go(func() { // the dispatcher
		rng := rand.New(rand.NewPCG(1, 2))
		for n := 0; n < parts*batches*size; {
			var r engine.Run
			if err := f.Next(ctx, &r); err != nil {
				t.Error(err)
				return
			}
			n += r.To - r.From
			if r.From < r.To && rng.IntN(2) == 0 {
				r.Chunk.EndRun(r.From, r.To)
				continue
			}
			ends.Go(func() {
				for i := r.To - 1; i >= r.From; i-- {
					r.Chunk.End(i, nil)
				}
			})
		}
	})
	wg.Wait()
	ends.Wait()
	<-committed
	f.Stop()
	if err := f.Next(ctx, new(engine.Run)); err != io.EOF {
		t.Errorf("after Stop: %v", err)
	}
}

// A resume is told without a lock held, so it may reach the client after the pause that followed.
// What comes although the partition is paused, above the high water, asks for a pause again: else
// nothing would bound what is polled.
func TestResumeThatComesTooLate(t *testing.T) {
	var f *Feed
	resumed := 0
	f = NewFeed("s", 1000, 10_000, Hooks{Resume: func(p *Partition) {
		if resumed++; resumed > 1 {
			return
		}
		// Before the client hears of it, the poll loop brings a large batch and pauses again.
		if !deliver(t, p, records(20, 120, 1000)) || p.Paused() {
			t.Error("no second pause")
		}
	}})
	p := f.Open("in", 0, 0, offsets.Map{}, false)
	if !deliver(t, p, records(0, 20, 1000)) || p.Paused() {
		t.Fatal("no pause above the high water")
	}
	r := nextRun(t, f)
	r.Chunk.EndRun(r.From, r.To)
	if resumed != 1 {
		t.Fatalf("resumed %d times", resumed)
	}
	// Now the client fetches on.
	if !deliver(t, p, records(120, 130, 1000)) || p.Paused() {
		t.Error("nothing stops what comes above the high water")
	}
	for range 2 {
		r = nextRun(t, f)
		r.Chunk.EndRun(r.From, r.To)
	}
	if s := p.Status(); resumed != 2 || s.Paused || s.Bytes != 0 {
		t.Errorf("resumed %d times, %+v", resumed, s)
	}
}
