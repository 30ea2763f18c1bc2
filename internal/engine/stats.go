package engine

import (
	"sync/atomic"
	"time"
)

// counter is an atomic count.
type counter struct{ n atomic.Int64 }

func (c *counter) add(n int64) { c.n.Add(n) }

// DurationBounds are the upper bounds of the execution time histogram, in seconds; the last
// bucket has none.
var DurationBounds = [...]float64{1e-6, 1e-5, 1e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1, 5, 10, 30}

// Stats counts what a component did.
type Stats struct {
	executed atomic.Int64 // executions of plain tuples and flights
	failed   atomic.Int64 // tries, time-outs included
	dead     atomic.Int64
	skipped  atomic.Int64 // tuples of trees that had failed already, or were gone
	retries  atomic.Int64
	replays  atomic.Int64
	timeouts atomic.Int64
	misuse   atomic.Int64

	blocked atomic.Int64 // nanoseconds

	nanos   atomic.Int64
	buckets [len(DurationBounds) + 1]atomic.Int64
}

// TreeBounds are the upper bounds of the histogram of trees, in seconds; the last bucket has none.
var TreeBounds = [...]float64{1e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800}

// durations is a histogram by TreeBounds.
type durations struct {
	nanos   atomic.Int64
	buckets [len(TreeBounds) + 1]atomic.Int64
}

// observe adds n trees that took d each.
func (h *durations) observe(d time.Duration, n int) {
	if n == 0 {
		return
	}
	h.nanos.Add(int64(d) * int64(n))
	i, sec := 0, d.Seconds()
	for i < len(TreeBounds) && sec > TreeBounds[i] {
		i++
	}
	h.buckets[i].Add(int64(n))
}

// observe adds n executions that took d together: durations are sampled by batch.
func (s *Stats) observe(d time.Duration, n int) {
	s.executed.Add(int64(n))
	s.nanos.Add(int64(d))
	per := d.Seconds() / float64(n)
	i := 0
	for i < len(DurationBounds) && per > DurationBounds[i] {
		i++
	}
	s.buckets[i].Add(int64(n))
}

// ComponentStats is a snapshot of one component. Failed counts failed tries of all kinds, Timeouts
// those of them whose time was up; each is followed by one of Retries, Replays or Dead, unless the
// worker stops or has lost the partition.
type ComponentStats struct {
	Component string
	Executed, Failed, Dead, Skipped,
	Retries, Replays, Timeouts, Misuse int64
	Emitted map[string]int64 // by stream
	Held    int64            // without a verdict
	Queued  int64            // batches waiting at the tasks
	Running int64            // goroutines that execute it now
	Blocked int64            // nanoseconds that its outputs waited for room at the tasks downstream
	Nanos   int64            // in user code, sampled by batch
	Buckets []int64          // by DurationBounds
}

// SpoutStats is a snapshot of one spout.
type SpoutStats struct {
	Spout                          string
	Emitted                        int64
	Acked, Dead, Skipped, Replayed int64 // trees
	Pending                        int64
	Blocked                        int64 // nanoseconds that its records waited for room at the tasks
	// The durations of trees, from the start of the root's last attempt to its end, of one root in
	// sampleTrees.
	TreeNanos   int64
	TreeBuckets []int64 // by TreeBounds
}

// Stats returns a snapshot of all bolts, in topological order.
func (e *Engine) Stats() (bolts []ComponentStats, spouts []SpoutStats) {
	running := e.watch.running()
	for _, c := range e.comps {
		s := &c.stats
		out := ComponentStats{Component: c.spec.Name, Executed: s.executed.Load(), Failed: s.failed.Load(),
			Dead: s.dead.Load(), Skipped: s.skipped.Load(), Retries: s.retries.Load(), Replays: s.replays.Load(),
			Timeouts: s.timeouts.Load(), Misuse: s.misuse.Load(), Emitted: map[string]int64{}, Held: int64(c.held.Len()), Nanos: s.nanos.Load()}
		for _, p := range c.ports {
			out.Emitted[p.Stream] = p.count.n.Load()
		}
		for _, t := range c.tasks {
			out.Queued += int64(len(t.in))
		}
		out.Running, out.Blocked = running[c], s.blocked.Load()
		for i := range s.buckets {
			out.Buckets = append(out.Buckets, s.buckets[i].Load())
		}
		bolts = append(bolts, out)
	}
	for _, d := range e.spouts {
		s := &d.stats
		out := SpoutStats{Spout: d.spec.Name, Emitted: s.started.Load(), Acked: s.acked.Load(), Dead: s.dead.Load(), Skipped: s.skipped.Load(),
			Replayed: s.replayed.Load(), Pending: int64(d.feed.Pending()), Blocked: s.blocked.Load(), TreeNanos: s.trees.nanos.Load()}
		for i := range s.trees.buckets {
			out.TreeBuckets = append(out.TreeBuckets, s.trees.buckets[i].Load())
		}
		spouts = append(spouts, out)
	}
	return bolts, spouts
}

// running returns how many goroutines execute each component's user code now.
func (w *watch) running() map[*component]int64 {
	n := map[*component]int64{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range w.runners {
		if x := r.cur.Load(); x != nil {
			n[x.c]++
		}
	}
	return n
}

// Waiting returns how many tuples wait for their next try.
func (e *Engine) Waiting() int { return e.delays.waiting() }
