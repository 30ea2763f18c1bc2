package bubble

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestExpiredTimers is the shortest program that the race detector does not survive in a plain
// synctest bubble on two processors: timers that are due when they are received from, in several
// goroutines. It dies there within a second.
func TestExpiredTimers(t *testing.T) {
	Test(t, func(t *testing.T) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 20_000 {
					<-time.NewTimer(0).C
				}
			})
		}
		all.Wait()
		called := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(called) })
		<-called
	})
}

// TestProcessors: one processor inside under the race detector, and what there was before
// afterwards, also where bubbles overlap.
func TestProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(3)
	defer runtime.GOMAXPROCS(before)
	check := func(where string, want int) {
		t.Helper()
		if got := runtime.GOMAXPROCS(0); got != want {
			t.Errorf("%s: GOMAXPROCS is %d, want %d", where, got, want)
		}
	}
	inside := 3
	if race {
		inside = 1
	}
	Test(t, func(t *testing.T) {
		start := time.Now()
		time.Sleep(time.Hour)
		if slept := time.Since(start); slept != time.Hour {
			t.Errorf("an hour's sleep took %v of the bubble's time", slept)
		}
		check("in a bubble", inside)
	})
	check("after a bubble", 3)

	var p processors
	p.enter()
	p.enter()
	p.leave()
	check("one of two bubbles has ended", 1)
	p.leave()
	check("both have ended", 3)
}
