package engine

import (
	"container/heap"
	"sync"
	"time"

	"github.com/killick-io/killick/ack"
)

// delays runs functions later, on one goroutine: the retries that wait. It is bounded by the
// pending limits, since each waiting function is an open tuple of a started root.
type delays struct {
	mu      sync.Mutex
	heap    delayHeap
	now     bool // a stop: everything is due at once
	urgent  func(ack.Anchors) bool
	running bool          // a function that was taken off the heap has not returned
	changed chan struct{} // the head may be another one
	quit    chan struct{}
	done    chan struct{}
}

type delay struct {
	at    time.Time
	trees ack.Anchors // that wait for it
	f     func()      // must not block
}

// urgent says what is due at once, for other reasons than a stop.
func newDelays(urgent func(ack.Anchors) bool) *delays {
	return &delays{urgent: urgent, changed: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
}

func (d *delays) start() { go d.loop() }

// stop ends the goroutine; what waits is dropped.
func (d *delays) stop() {
	close(d.quit)
	<-d.done
}

// after runs f in wait, at once during a stop. The trees are those that wait for it.
func (d *delays) after(wait time.Duration, trees ack.Anchors, f func()) {
	d.mu.Lock()
	if d.now || d.urgent(trees) { // under the lock: hurry sees what came before, this what comes after
		wait = 0
	}
	heap.Push(&d.heap, delay{time.Now().Add(wait), trees, f})
	d.mu.Unlock()
	d.poke()
}

// flush makes everything that waits due, and whatever comes later.
func (d *delays) flush() {
	d.mu.Lock()
	d.now = true
	d.mu.Unlock()
	d.poke()
}

// hurry makes due what has become urgent.
func (d *delays) hurry() {
	d.mu.Lock()
	now := time.Now()
	for i := range d.heap {
		if w := &d.heap[i]; w.at.After(now) && d.urgent(w.trees) {
			w.at = now
		}
	}
	heap.Init(&d.heap)
	d.mu.Unlock()
	d.poke()
}

// waiting returns how many functions wait, the one that runs included.
func (d *delays) waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.heap)
	if d.running {
		n++
	}
	return n
}

func (d *delays) poke() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

func (d *delays) loop() {
	defer close(d.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		for {
			d.mu.Lock()
			if len(d.heap) == 0 {
				d.mu.Unlock()
				break
			}
			if w := time.Until(d.heap[0].at); w > 0 && !d.now {
				wait = w
				d.mu.Unlock()
				break
			}
			next := heap.Pop(&d.heap).(delay)
			d.running = true
			d.mu.Unlock()
			next.f()
			d.mu.Lock()
			d.running = false
			d.mu.Unlock()
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-d.changed:
		case <-d.quit:
			return
		}
	}
}

type delayHeap []delay

func (h delayHeap) Len() int           { return len(h) }
func (h delayHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h delayHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *delayHeap) Push(x any)        { *h = append(*h, x.(delay)) }
func (h *delayHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = delay{}
	*h = old[:len(old)-1]
	return x
}
