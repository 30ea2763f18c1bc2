package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Test runs f in a bubble of testing/synctest: see there for what a bubble is and what f may do.
// Under the race detector the whole process has one processor (runtime.GOMAXPROCS) until the
// last open bubble of this package has ended; tests beside it run on, slower. The detector
// finds races by what orders two accesses, not by their meeting in time, so it sees no fewer.
// Test must be called outside of bubbles, like synctest's.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if race {
		open.enter()
		defer open.leave()
	}
	synctest.Test(t, f)
}

// open counts the bubbles of this process: GOMAXPROCS is the process's, so its guard is too.
var open processors

// processors holds the process on one processor while anyone is inside.
type processors struct {
	mu     sync.Mutex
	inside int
	before int // GOMAXPROCS as the first one found it; the last one puts it back
}

func (p *processors) enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inside++; p.inside == 1 {
		p.before = runtime.GOMAXPROCS(1)
	}
}

func (p *processors) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inside--; p.inside == 0 {
		runtime.GOMAXPROCS(p.before)
	}
}
