package partition

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/offsets"
)

// firstFeed is a feed that commits first, and one partition of it.
func firstFeed(window int) (*Feed, *Partition, *int) {
	asked := new(int)
	f := NewFeed("s", window, 1<<20, Hooks{Commit: func(*Partition) { *asked++ }})
	f.CommitFirst()
	return f, f.Open("in", 0, 0, offsets.Map{}, true), asked
}

// committed is what a commit would store.
func committed(t testing.TB, p *Partition) int64 {
	m, ok := p.Position()
	if !ok {
		t.Fatal("the partition is closed")
	}
	return m.Base
}

// A record starts when a commit behind it is stored, and a commit claims no more than the window.
func TestClaims(t *testing.T) {
	f, p, asked := firstFeed(4)
	deliver(t, p, records(0, 10, 1))
	nothing(t, f)
	if *asked == 0 || committed(t, p) != 0 {
		t.Errorf("asked for a commit %d times, the position is %d", *asked, committed(t, p))
	}
	p.Claim()
	nothing(t, f)
	if at := committed(t, p); at != 4 {
		t.Fatalf("the claim is %d, want 4", at)
	}
	p.Stored(offsets.Map{Base: 4, Held: offsets.State{Suspect: offsets.None}})
	r := nextRun(t, f)
	if r.From != 0 || r.To != 4 {
		t.Fatalf("run %d to %d", r.From, r.To)
	}
	*asked = 0
	p.Claim()
	if nothing(t, f); committed(t, p) != 4 || *asked != 0 {
		t.Errorf("a claim without room: %d, asked %d times", committed(t, p), *asked)
	}
	r.Chunk.EndRun(0, 3)
	if nothing(t, f); *asked == 0 {
		t.Error("there is room, and nobody asks for a commit")
	}
	if p.Claim(); committed(t, p) != 7 {
		t.Errorf("the claim is %d, want 7", committed(t, p))
	}
	p.Withdraw() // the commit was not stored
	if nothing(t, f); committed(t, p) != 4 {
		t.Errorf("withdrawn, and the claim is %d", committed(t, p))
	}
	if n := p.Started(); n != 1 {
		t.Errorf("%d started", n)
	}
}

// What is claimed still comes after a stop or a release; what is not is left to the next owner. A stop
// waits for the outcome of a commit that is under way.
func TestClaimsAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(f *Feed, p *Partition){
		"stop":    func(f *Feed, _ *Partition) { f.Stop() },
		"release": func(_ *Feed, p *Partition) { p.Release() },
		"pause":   func(f *Feed, _ *Partition) { f.Pause(true) },
	} {
		for _, stored := range []bool{true, false} {
			f, p, _ := firstFeed(4)
			deliver(t, p, records(0, 10, 1))
			p.Claim()
			end(f, p)
			p.Claim()
			if at := committed(t, p); at != 4 {
				t.Errorf("%s: the claim is %d", name, at)
			}
			if n := p.Started(); n != 4 {
				t.Errorf("%s: %d wait to end", name, n)
			}
			if stored {
				p.Stored(offsets.Map{Base: 4, Held: offsets.State{Suspect: offsets.None}})
			} else {
				p.Withdraw()
			}
			f.Wake()
			var r engine.Run
			err := f.Next(t.Context(), &r)
			switch {
			case name == "pause":
				if r.Chunk != nil || err != nil {
					t.Errorf("%s: a run of %d, %v", name, r.To-r.From, err)
				}
				f.Pause(false)
			case stored && r.To-r.From != 4:
				t.Errorf("%s: a run of %d, %v; want 4", name, r.To-r.From, err)
			case !stored && (r.Chunk != nil || (err == io.EOF) != (name == "stop")):
				t.Errorf("%s: a run of %d, %v, of what is not committed", name, r.To-r.From, err)
			case stored:
				r.Chunk.EndRun(r.From, r.To)
				if f.Wake(); (f.Next(t.Context(), new(engine.Run)) == io.EOF) != (name == "stop") || p.Started() != 0 {
					t.Errorf("%s: it does not end, or too early; %d started", name, p.Started())
				}
			}
		}
	}
}

// What a lost partition leaves behind is counted: records that run, and those that were committed and
// have not started.
func TestClaimsThatAreLost(t *testing.T) {
	f, p, _ := firstFeed(8)
	deliver(t, p, records(0, 20, 1))
	p.Claim()
	p.Stored(offsets.Map{Base: 8, Held: offsets.State{Suspect: offsets.None}})
	r := nextRun(t, f)
	r.Chunk.EndRun(0, 3)
	p.Claim()
	p.Stored(offsets.Map{Base: 11, Held: offsets.State{Suspect: offsets.None}})
	if open := p.Close(); open != 5+3 {
		t.Errorf("%d are lost, want 5 that ran and 3 that waited", open)
	}
}

// Markers and gaps behind the last record are committed, too.
func TestClaimsReachTheEnd(t *testing.T) {
	_, p, _ := firstFeed(8)
	rs := records(0, 3, 1)
	deliver(t, p, rs)
	p.Skip(3, 9)
	if p.Claim(); committed(t, p) != 9 {
		t.Errorf("the claim is %d, want 9", committed(t, p))
	}
}

// A topology that was at least once before has a completion map: what it knows does not run again, nor
// is it forgotten by the first claims.
func TestClaimsKeepTheMap(t *testing.T) {
	f := NewFeed("s", 2, 1<<20, Hooks{})
	f.CommitFirst()
	was := offsets.Map{Base: 0, Next: 8, Open: []int64{0, 1, 5, 6}, Held: offsets.State{Suspect: offsets.None}}
	p := f.Open("in", 0, 0, was, false)
	deliver(t, p, records(0, 10, 1))
	var ran []int64
	for range 20 {
		p.Claim()
		m, _ := p.Position()
		for o := m.Base; o < 8; o++ {
			if m.Done(o) != was.Done(o) {
				t.Errorf("claimed %d: offset %d is done: %v, was %v", m.Base, o, m.Done(o), was.Done(o))
			}
		}
		p.Stored(offsets.Map{Base: m.Base, Held: offsets.State{Suspect: offsets.None}})
		f.Wake()
		var r engine.Run
		if err := f.Next(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
		for i := r.From; i < r.To; i++ {
			ran = append(ran, r.Chunk.Origin(i).Offset)
		}
		if r.Chunk != nil {
			r.Chunk.EndRun(r.From, r.To)
		}
	}
	if !slices.Equal(ran, []int64{0, 1, 5, 6, 8, 9}) || committed(t, p) != 10 {
		t.Errorf("%v ran, committed %d", ran, committed(t, p))
	}
}

// What the completion map knows is passed up to the confirmed offset only: a claim that is withdrawn then
// leaves nothing granted that has been passed, or a stop would wait for it, and claims would be too large.
func TestClaimsThatTheMapKnowsAreWithdrawn(t *testing.T) {
	f := NewFeed("s", 100, 1<<20, Hooks{})
	f.CommitFirst()
	was := offsets.Map{Base: 0, Next: 9, Open: []int64{0, 1, 2}, Held: offsets.State{Suspect: offsets.None}}
	p := f.Open("in", 0, 0, was, false)
	deliver(t, p, records(0, 3, 1))
	p.Claim()
	p.Stored(offsets.Map{Base: 3, Held: offsets.State{Suspect: offsets.None}})
	r := nextRun(t, f)
	r.Chunk.EndRun(r.From, r.To)
	deliver(t, p, records(3, 10, 1))
	p.Claim()
	nothing(t, f) // 3 to 8 are known, and not confirmed
	p.Withdraw()
	if n := p.Started(); n != 0 || committed(t, p) != 3 {
		t.Errorf("%d are started or granted, the position is %d; want 0 and 3", n, committed(t, p))
	}
	f.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := f.Next(ctx, new(engine.Run)); err != io.EOF {
		t.Errorf("after the stop: %v, want the end", err)
	}
}

// What the completion map knows is not lost with a partition.
func TestKnownRecordsAreNotLost(t *testing.T) {
	f := NewFeed("s", 100, 1<<20, Hooks{})
	f.CommitFirst()
	was := offsets.Map{Base: 0, Next: 9, Open: []int64{0, 5}, Held: offsets.State{Suspect: offsets.None}}
	p := f.Open("in", 0, 0, was, false)
	deliver(t, p, records(0, 10, 1))
	p.Claim()
	p.Stored(offsets.Map{Base: 10, Held: offsets.State{Suspect: offsets.None}})
	if open := p.Close(); open != 3 {
		t.Errorf("%d are lost, want 3: the offsets 0, 5 and 9", open)
	}
}

// A partition that is given away while its spout is paused: what is committed starts all the same, since
// nobody else will run it; and so does the root that was granted in careful mode.
func TestReleaseDuringPause(t *testing.T) {
	f, p, _ := firstFeed(4)
	deliver(t, p, records(0, 10, 1))
	p.Claim()
	f.Pause(true)
	p.Stored(offsets.Map{Base: 4, Held: offsets.State{Suspect: offsets.None}})
	nothing(t, f)
	p.Release()
	f.Wake()
	var r engine.Run
	if err := f.Next(t.Context(), &r); err != nil || r.From != 0 || r.To != 4 {
		t.Fatalf("a run of %d, %v; want the 4 that are committed", r.To-r.From, err)
	}
	r.Chunk.EndRun(r.From, r.To)
	if n := p.Started(); n != 0 {
		t.Errorf("%d are waited for", n)
	}
	nothing(t, f)

	f = NewFeed("s", 1000, 1<<20, Hooks{})
	p = taken(t, f, offsets.State{Deaths: 3, Suspect: offsets.None, Until: 8})
	deliver(t, p, records(0, 10, 10))
	pick(t, p, 0, Suspected)
	f.Pause(true)
	p.Grant()
	nothing(t, f)
	p.Release()
	f.Wake()
	r = engine.Run{}
	if err := f.Next(t.Context(), &r); err != nil || r.To != 1 {
		t.Errorf("a run of %d, %v; want the one that was granted", r.To-r.From, err)
	}
}

// TestClaimsModel: a completion map, batches, commits that are stored, refused or in doubt, ends, pauses, stops, releases and
// losses, in any order and over many owners: no record starts before a commit behind it is stored, none
// starts twice, a loss costs no more than the window, and a clean end costs nothing.
func TestClaimsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.IntRange(1, 9).Draw(t, "window")
		var (
			f        *Feed
			p        *Partition
			log      []int64 // offsets of the records
			end      int64   // of the log
			stored   int64   // the broker's
			polled   int     // records of log that p has got
			underWay int64   // a commit; -1: none
			over     bool    // the feed has stopped, or the partition is released
			ran      = map[int64]int{}
			started  []place
			allowed  int // records that losses may have cost
			// was is the completion map that the first owner finds: the topology was at least once before.
			was         = offsets.Map{Held: offsets.State{Suspect: offsets.None}}
			meta, claim offsets.Map // of the commit that is stored, and of the one that is under way
		)
		if n := rapid.Int64Range(0, 20).Draw(t, "the map reaches to"); n > 0 {
			was.Next = n
			for o := range n {
				if rapid.Bool().Draw(t, "open") {
					was.Open = append(was.Open, o)
				}
			}
			if was.Done(0) {
				was.Open = append([]int64{0}, was.Open...)
			}
		}
		meta = was
		open := func() {
			f = NewFeed("s", window, 1<<20, Hooks{})
			f.CommitFirst()
			p = f.Open("in", 0, stored, meta, false)
			polled, _ = slices.BinarySearch(log, stored)
			underWay, over, started = -1, false, nil
		}
		open()
		start := func() (eof bool) {
			f.Wake()
			var r engine.Run
			err := f.Next(context.Background(), &r)
			if err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			for i := r.From; i < r.To; i++ {
				o := r.Chunk.Origin(i).Offset
				if ran[o]++; ran[o] > 1 {
					t.Fatalf("offset %d starts again", o)
				}
				if o >= stored {
					t.Fatalf("offset %d starts, committed is %d", o, stored)
				}
				if was.Done(o) {
					t.Fatalf("offset %d starts, which the completion map knows", o)
				}
				started = append(started, place{r.Chunk.(*chunk), i})
			}
			if len(started) > window {
				t.Fatalf("%d are under way, the window is %d", len(started), window)
			}
			return err != nil
		}
		outcome := func(how int) {
			if underWay < 0 {
				return
			}
			if how != 1 { // stored
				stored, meta = underWay, claim
			}
			if how == 0 {
				p.Stored(offsets.Map{Base: underWay, Held: offsets.State{Suspect: offsets.None}})
			} else { // refused, or in doubt: and then this owner has a new generation
				p.Withdraw()
			}
			underWay = -1
		}
		t.Repeat(map[string]func(*rapid.T){
			"produce": func(t *rapid.T) {
				for range rapid.IntRange(1, 6).Draw(t, "n") {
					end += rapid.Int64Range(0, 1).Draw(t, "gap")
					log = append(log, end)
					end++
				}
			},
			"poll": func(t *rapid.T) {
				n := min(rapid.IntRange(1, 8).Draw(t, "n"), len(log)-polled)
				if n <= 0 || over {
					t.Skip()
				}
				var rs []*kgo.Record
				for _, o := range log[polled : polled+n] {
					rs = append(rs, &kgo.Record{Topic: "in", Offset: o})
				}
				polled += n
				if _, err := p.Deliver(rs); err != nil {
					t.Fatal(err)
				}
			},
			"commit": func(t *rapid.T) {
				if underWay >= 0 {
					t.Skip()
				}
				p.Claim()
				m, _ := p.Position()
				if m.Base < stored-int64(2*window+2) {
					t.Fatalf("the position is %d, stored is %d", m.Base, stored)
				}
				if m.Base > stored {
					underWay, claim = m.Base, m
				}
			},
			"outcome": func(t *rapid.T) {
				how := rapid.IntRange(0, 1).Draw(t, "how")
				outcome(how)
			},
			"start": func(*rapid.T) { start() },
			"end": func(t *rapid.T) {
				if len(started) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(started)-1).Draw(t, "which")
				started[i].c.EndRun(started[i].i, started[i].i+1)
				started = slices.Delete(started, i, i+1)
			},
			"pause":  func(*rapid.T) { f.Pause(true) },
			"resume": func(*rapid.T) { f.Pause(false) },
			"lose": func(t *rapid.T) {
				if rapid.IntRange(0, 4).Draw(t, "really") > 0 {
					t.Skip()
				}
				outcome(rapid.SampledFrom([]int{0, 1, 2}).Draw(t, "the commit under way"))
				p.Close()
				allowed += window
				open()
			},
			"leave": func(t *rapid.T) { // a stop, or a release, that has the time
				if rapid.IntRange(0, 4).Draw(t, "really") > 0 {
					t.Skip()
				}
				over = true
				f.Pause(false)
				release := rapid.Bool().Draw(t, "release")
				if release {
					p.Release()
				} else {
					f.Stop()
				}
				outcome(rapid.IntRange(0, 1).Draw(t, "the commit under way"))
				for range 1000 {
					for _, s := range started {
						s.c.EndRun(s.i, s.i+1)
					}
					started = nil
					if eof := start(); eof || release && p.Started() == 0 {
						break
					}
				}
				if n := p.Close(); n != 0 {
					t.Fatalf("%d are left", n)
				}
				open()
			},
			"": func(t *rapid.T) {
				// Started roots, and those that are granted: not less than none, and within the window.
				if n := p.Started(); n < len(started) || n > window {
					t.Fatalf("%d are started or granted; %d are under way, the window is %d", n, len(started), window)
				}
				missed := 0
				for _, o := range log {
					if o >= stored {
						break
					}
					if ran[o] == 0 && !was.Done(o) {
						missed++
					}
				}
				// What is committed and has not started: what losses cost, and what is granted now.
				if missed > allowed+window {
					t.Fatalf("%d records were committed and did not start; losses may have cost %d", missed, allowed)
				}
			},
		})
	})
}
