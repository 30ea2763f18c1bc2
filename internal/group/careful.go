package group

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/killick-io/killick/internal/crash"
	"github.com/killick-io/killick/internal/partition"
	"github.com/killick-io/killick/internal/rules"
)

const (
	// carefulTick is how often careful mode looks when nothing wakes it, and asks bolts for what they
	// have collected: one root does not fill a batch.
	carefulTick = 10 * time.Millisecond
	// awaitTime is how long everything waits for an accused record that has not been fetched. After
	// that it is accused anew when its turn comes.
	awaitTime = 10 * time.Second
)

// hunt finds the record that kills the process. While a partition is careful (offsets.State) the gate
// is closed: nothing runs but the root that hunt has named in its partition's commit. If the process
// dies, its next life knows whom to look at. All partitions take turns, those without a death of their
// own too: the record may be anywhere. loop is its goroutine.
type hunt struct {
	r    *Reader
	gate *partition.Gate
	now  chan struct{} // a careful partition has opened

	// loop's own.
	turn int
	last *partition.Partition // whose root was named last
	wait time.Time            // since when an accused record is waited for; zero: none is

	mu    sync.Mutex
	since time.Time // careful since; zero: not careful
	count CarefulStats
}

// CarefulStats counts what careful mode has done.
type CarefulStats struct {
	Since     time.Time // careful since then; zero: not careful
	Alone     int64     // roots that ran alone
	Convicted int64     // records that were set aside unexecuted
}

func (h *hunt) stats() CarefulStats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.count
	s.Since = h.since
	return s
}

// opened is told of each partition that opens; poll loop only. Nothing of a careful one has started.
func (h *hunt) opened(p *partition.Partition) {
	if !p.Careful() {
		return
	}
	h.gate.Close()
	select {
	case h.now <- struct{}{}:
	default:
	}
}

func (h *hunt) loop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.now:
		}
		if p := h.any(); p != nil {
			h.begin(p)
			h.drain(ctx)
			for ctx.Err() == nil && h.any() != nil {
				h.step(ctx)
			}
			h.end()
		}
		h.gate.Open()
		for _, s := range h.r.cfg.Sources {
			s.Feed.Poke()
			for _, p := range s.Feed.Partitions() {
				h.opened(p) // perhaps since the last look
			}
		}
	}
}

func (h *hunt) partitions() (ps []*partition.Partition) {
	for _, s := range h.r.cfg.Sources {
		ps = append(ps, s.Feed.Partitions()...)
	}
	return ps
}

// any returns a careful partition.
func (h *hunt) any() *partition.Partition {
	ps := h.partitions()
	if i := slices.IndexFunc(ps, (*partition.Partition).Careful); i >= 0 {
		return ps[i]
	}
	return nil
}

func (h *hunt) begin(p *partition.Partition) {
	h.gate.Close()
	h.mu.Lock()
	h.since = time.Now()
	h.mu.Unlock()
	h.wait, h.last = time.Time{}, nil
	st := p.Status()
	h.r.log.Warn().Str("topic", p.Topic).Int32("partition", p.ID).Int64("floor", st.Floor).Int("deaths", st.Deaths).
		Msg("careful mode: workers have died while records of this partition were open; records run one at a time until it is known which, or they have passed")
}

func (h *hunt) end() {
	h.mu.Lock()
	took, n := time.Since(h.since), h.count.Alone
	h.since = time.Time{}
	h.mu.Unlock()
	h.r.log.Info().Dur("took", took).Int64("alone", n).Msg("careful mode has ended")
}

// drain waits for what has started before. What does not end soon is left beside what runs alone.
func (h *hunt) drain(ctx context.Context) {
	h.patiently(ctx, 4*h.r.cfg.Patience, func() bool {
		return slices.ContainsFunc(h.partitions(), func(p *partition.Partition) bool { return p.Started() > 0 })
	})
}

// patiently waits while runs holds, and reports whether it does not any more. It gives up after
// Patience in which no user code was at work, or at the limit, 0: none.
func (h *hunt) patiently(ctx context.Context, limit time.Duration, runs func() bool) bool {
	t := time.NewTicker(carefulTick)
	defer t.Stop()
	start := time.Now()
	idle := start
	for runs() {
		select {
		case <-ctx.Done():
			return false
		case <-h.gate.Signal():
		case now := <-t.C:
			h.r.trees().Flush()
			if h.r.trees().Busy() {
				idle = now
			}
			if now.Sub(idle) > h.r.cfg.Patience || limit > 0 && now.Sub(start) > limit {
				return false
			}
		}
	}
	return true
}

// moment waits until there may be something to run.
func (h *hunt) moment(ctx context.Context) {
	t := time.NewTimer(carefulTick)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-h.gate.Signal():
	case <-t.C:
		h.r.trees().Flush()
	}
}

// step runs one root, or waits a moment.
func (h *hunt) step(ctx context.Context) {
	p, off, is := h.pick()
	runs := func() bool { return p.Runs(h.r.drains.Load()) }
	switch is {
	case partition.Suspected:
		if rules.SuspectFirst && !h.store(ctx, p) {
			p.Unname(true)
			return
		}
		h.mu.Lock()
		h.count.Alone++
		h.mu.Unlock()
		h.last = p
		crash.At(crash.SuspectStored)
		p.Grant()
		if !h.patiently(ctx, 0, runs) || h.r.drains.Load() {
			p.Unname(h.r.drains.Load())
		}
	case partition.Convicted:
		h.r.log.Error().Str("topic", p.Topic).Int32("partition", p.ID).Int64("offset", off).
			Msg("the process has died twice while this record alone was processed: it is set aside as a dead letter, reason worker-death")
		h.mu.Lock()
		h.count.Convicted++
		h.mu.Unlock()
		p.Convict()
		h.patiently(ctx, 0, runs)
	default:
		h.moment(ctx)
	}
}

// pick names the root that runs next: an accused one first, else the partitions take turns.
func (h *hunt) pick() (p *partition.Partition, off int64, is partition.Picked) {
	if h.r.drains.Load() {
		return nil, 0, partition.NoRoot
	}
	ps := h.partitions()
	for _, p := range ps {
		if !p.Accused() {
			continue
		}
		off, is := p.Pick()
		switch is {
		case partition.Suspected, partition.Convicted, partition.Taking:
			return p, off, is
		case partition.NoRoot, partition.Paused: // a pause may last: it is no reason to acquit, nor to stop the others
			continue
		}
		if h.wait.IsZero() {
			h.wait = time.Now()
		}
		if time.Since(h.wait) < awaitTime {
			return p, off, is
		}
		p.Acquit()
	}
	h.wait = time.Time{}
	for range ps {
		h.turn++
		p := ps[h.turn%len(ps)]
		if off, is := p.Pick(); is == partition.Suspected || is == partition.Convicted {
			return p, off, is
		}
	}
	return nil, 0, partition.NoRoot
}

// store commits that p's root is the suspect, and that the one before it is not any more. It reports
// whether that is stored, or cannot be: then nobody is accused.
func (h *hunt) store(ctx context.Context, p *partition.Partition) bool {
	known := func(p *partition.Partition) bool {
		if p == nil || h.r.commits.settled(p) {
			return true
		}
		_, blocked := h.r.commits.committed(p)
		return blocked != ""
	}
	for {
		cctx, cancel := context.WithTimeout(ctx, lookTime)
		_, _ = h.r.commits.commit(cctx) // logged
		cancel()
		switch {
		case p.Closed(), h.r.drains.Load(), ctx.Err() != nil:
			return false
		case known(p) && known(h.last):
			return true
		}
		again := time.NewTimer(100 * time.Millisecond)
		select {
		case <-ctx.Done():
		case <-again.C:
		}
		again.Stop()
	}
}

// Leaving says that the worker is about to end, and has not died: the commits from now on say so.
func (r *Reader) Leaving() {
	for _, p := range r.hunt.partitions() {
		p.Leave()
	}
}

// Accuse says that the worker ends because of the record at offset, and of no other. Called after
// Leaving.
func (r *Reader) Accuse(topic string, id int32, offset int64) {
	for _, p := range r.hunt.partitions() {
		if p.Topic == topic && p.ID == id {
			p.Accuse(offset)
		}
	}
}

// Hasten commits before the interval is over.
func (r *Reader) Hasten() { r.commits.poke() }
