package partition

import (
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/rules"
	"github.com/killick-io/killick/offsets"
)

// Partition is one partition during one assignment.
type Partition struct {
	Topic string
	ID    int32
	feed  *Feed
	epoch ack.Epoch

	mu     sync.Mutex
	ledger *offsets.Ledger
	queue  []*chunk // polled and not wholly started, in order
	cursor int      // of queue[0]: its first record that is not started
	// started counts roots that were handed out and have not ended; at most feed.Pending.
	started int
	bytes   int64 // of chunks with an open record, started or not
	// paused: fetching is paused, since bytes rose above the high water. Set only when the client
	// has been told already: a resume must never overtake its pause. It may come after the next
	// one; what is delivered then asks for a pause again.
	paused bool
	until  int64 // a bounded run ends here; -1: never
	moved  time.Time
	head   int64     // the floor, as of since
	since  time.Time // the floor has not moved since
	closed bool
	// held keeps records back until the start position is committed (a "latest" start).
	held bool
	// releasing: no root is handed out any more, and no batch taken in. Never unset.
	releasing bool
	care      care
	offs      []int64 // scratch
	// lanes keep records in order per key; nil: no such order. What is under way in them is
	// started; what waits there is behind the cursor and not started, at most feed.pending.
	lanes *core.Lanes[place]

	// Of a feed that commits first; see first.go. Offsets below claimed are in a commit that is under
	// way or stored, those below confirmed in one that is stored: base <= confirmed <= claimed.
	claimed, confirmed int64
	granted            int  // records below claimed that have not started
	recalls            bool // the completion map knows of ends above claimed

	ends struct {
		sync.Mutex
		list []end
	}
}

// place is a record.
type place struct {
	c *chunk
	i int
}

// end is a root whose tree has ended, on its way to the ledger.
type end struct {
	c *chunk
	i int
}

// Name is "topic/3".
func (p *Partition) Name() string { return fmt.Sprintf("%s/%d", p.Topic, p.ID) }

// Deliver adds a polled batch. Control records move the position and are never tuples. It is
// called by the poll goroutine only, and reports whether fetching should pause: the caller then
// pauses it, and says so by Paused. An error means that the batch contradicts what was delivered
// before. Deliver takes recs over, and changes it.
func (p *Partition) Deliver(recs []*kgo.Record) (pause bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.releasing || len(recs) == 0 {
		return false, nil
	}
	p.offs = p.offs[:0]
	size := int64(0)
	kept := recs[:0]
	after := int64(-1) // position behind the last record of any kind
	for _, r := range recs {
		if p.until >= 0 && r.Offset >= p.until {
			after = max(after, p.until)
			break
		}
		if rules.ControlRecordsCount || !r.Attrs.IsControl() {
			after = r.Offset + 1
		}
		if r.Attrs.IsControl() {
			continue
		}
		kept = append(kept, r)
		p.offs = append(p.offs, r.Offset)
		size += sizeOf(r)
	}
	if len(kept) > 0 {
		lc, err := p.ledger.Deliver(p.offs)
		if err != nil {
			return false, fmt.Errorf("%s at %d: %w", p.Name(), p.offs[0], err)
		}
		if lc.Open() > 0 {
			c := &chunk{p: p, c: lc, recs: kept, bytes: size, fresh: lc.Open() == lc.Len()}
			c.sort(p.lanes)
			p.queue = append(p.queue, c)
			p.bytes += size
		}
	}
	if after > p.ledger.Next() {
		if err := p.ledger.Skip(after); err != nil {
			return false, fmt.Errorf("%s at %d: %w", p.Name(), after, err)
		}
	}
	p.moved = time.Now()
	// Paused or not: a resume that was told without the lock may have overtaken the last pause.
	return p.bytes > p.feed.high, nil
}

// Paused says that the client does not fetch the partition any more, because of what Deliver
// returned. resume is true if enough has ended meanwhile: fetching must go on, and nobody else
// will say so.
func (p *Partition) Paused() (resume bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.paused = true
	p.drainLocked()
	return p.resumeLocked()
}

// Skip moves the position behind offsets that the log does not have any more, if nothing was
// delivered meanwhile.
func (p *Partition) Skip(from, to int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.ledger.Next() != from || to <= from {
		return false
	}
	if p.until >= 0 {
		to = min(to, p.until)
	}
	return p.ledger.Skip(to) == nil
}

func sizeOf(r *kgo.Record) int64 {
	n := int64(len(r.Key)+len(r.Value)) + recordOverhead
	for i := range r.Headers {
		n += int64(len(r.Headers[i].Key)+len(r.Headers[i].Value)) + 40
	}
	return n
}

// recordOverhead is what a fetched record costs beside its bytes.
const recordOverhead = 176

// take gives the next roots to start, at most max. p.mu is held.
func (p *Partition) takeLocked(max int) (c *chunk, from, to int) {
	max = min(max, p.feed.pending-p.started)
	if p.feed.order == core.PerPartition && rules.OrderOverRetries {
		max = min(max, 1-p.started)
	}
	if p.closed || p.held || p.care.taking || p.releasing && !p.feed.first || max <= 0 {
		return nil, 0, 0
	}
	if p.lanes != nil {
		return p.takeInOrderLocked(max)
	}
	if p.feed.first && rules.CommitsBeforeProcessing {
		return p.takeConfirmedLocked(max)
	}
	for len(p.queue) > 0 {
		c = p.queue[0]
		from = p.cursor
		to = min(from+max, c.c.Len())
		if !c.fresh {
			for from < c.c.Len() && (c.c.Ended(from) || c.c.Offset(from) == p.care.early) { // the completion map knew it
				from++
			}
			for to = from; to < c.c.Len() && to-from < max && !c.c.Ended(to) && c.c.Offset(to) != p.care.early; {
				to++
			}
		}
		if p.care.watched && from < to {
			if to = p.care.reach(c, from, to); from == to {
				p.cursor = from
				break
			}
		}
		p.passLocked(to)
		if from < to {
			p.started += to - from
			return c, from, to
		}
	}
	return nil, 0, 0
}

// passLocked moves the cursor of queue[0], which leaves the queue at its end.
func (p *Partition) passLocked(to int) {
	if p.cursor = to; to < p.queue[0].c.Len() {
		return
	}
	p.queue[0] = nil
	p.queue, p.cursor = p.queue[1:], 0
	if len(p.queue) == 0 {
		p.queue = nil
	}
}

// drainLocked brings ended trees to the ledger. p.mu is held.
func (p *Partition) drainLocked() {
	p.ends.Lock()
	list := p.ends.list
	p.ends.list = nil
	p.ends.Unlock()
	for _, e := range list {
		if e.c.c.End(e.i) {
			p.leaveLocked(e.c, e.i)
			e.c.recs[e.i].Recycle()
			p.endedLocked(e.c, 1)
		}
	}
	f := p.ledger.Floor()
	if f != p.head || p.since.IsZero() {
		p.head, p.since = f, time.Now()
	}
	p.care.passed(f)
}

func (p *Partition) endedLocked(c *chunk, n int) {
	if n == 0 {
		return // nothing has changed: the assignment is over
	}
	p.started -= n
	if c.c.Open() == 0 {
		p.bytes -= c.bytes
		c.recs = nil
	}
}

// resumeLocked reports whether fetching should go on. p.mu is held.
func (p *Partition) resumeLocked() bool {
	if p.paused && !p.closed && !p.releasing && p.bytes <= p.feed.high/2 {
		p.paused = false
		return true
	}
	return false
}

// finishedLocked reports whether a bounded run has nothing more to start here.
func (p *Partition) finishedLocked() bool {
	named := p.care.name != nil && !p.care.handed
	return p.until >= 0 && p.ledger.Next() >= p.until && len(p.queue) == 0 && p.behind() == 0 && !named
}

// Close ends the assignment: nothing that comes later changes anything. It returns how many
// started roots are left open.
func (p *Partition) Close() (open int) {
	p.epoch.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0
	}
	p.drainLocked()
	p.closed = true
	p.ledger.Close()
	open = p.started + p.lostLocked()
	p.granted = 0
	p.started, p.queue, p.bytes, p.lanes = 0, nil, 0, nil
	return open
}

// Release ends the intake for good: the partition will be given to another owner once its started
// roots have ended. What was polled and not started is its next owner's.
func (p *Partition) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releasing = true
}

// Started returns how many roots were handed out, or are claimed to be, and have not ended. Those that want a dead letter
// have not until it is durable.
func (p *Partition) Started() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drainLocked()
	return p.started + p.granted
}

// Epoch is that of the partition's trees.
func (p *Partition) Epoch() *ack.Epoch { return &p.epoch }

// Closed reports whether the assignment is over.
func (p *Partition) Closed() bool { return p.epoch.Closed() }

// Position returns what may be committed now: the floor (the map's Base), the completion map and
// what the next owner has to know of this one, taken at one moment; false: closed.
func (p *Partition) Position() (offsets.Map, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return offsets.Map{}, false
	}
	p.drainLocked()
	if p.feed.first {
		return p.claimLocked(), true
	}
	m := p.ledger.Snapshot()
	m.Held = p.heldLocked()
	return m, true
}

// Status is a snapshot of a partition for people.
type Status struct {
	Topic     string
	Partition int32
	Next      int64 // position: the next offset to be delivered
	Floor     int64
	Oldest    int64 // first open offset, -1: none
	Started   int
	Waiting   int // polled and not started
	Bytes     int64
	Paused    bool
	Held      bool
	Finished  bool
	Releasing bool      // it is about to be given to another owner
	Deaths    int       // of owners in a row, of what may be open again
	Careful   bool      // its records run one by one
	Until     int64     // where a bounded run ends; -1: it does not
	Moved     time.Time // when the last batch came
	// HeadAge is how long the same open record has held the floor, to the resolution of the
	// commits.
	HeadAge time.Duration
}

// Status returns a snapshot.
func (p *Partition) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drainLocked()
	s := Status{Topic: p.Topic, Partition: p.ID, Next: p.ledger.Next(), Floor: p.ledger.Floor(), Oldest: -1, Started: p.started,
		Waiting: p.ledger.Pending() - p.started, Bytes: p.bytes, Paused: p.paused, Held: p.held || p.care.taking, Finished: p.finishedLocked(), Releasing: p.releasing,
		Until: p.until, Moved: p.moved, Deaths: p.care.state.Deaths, Careful: p.care.state.Careful()}
	if o, ok := p.ledger.Oldest(); ok {
		s.Oldest = o
		s.HeadAge = time.Since(p.since)
	}
	return s
}

// chunk is one polled batch. It implements engine.Chunk.
type chunk struct {
	p     *Partition
	c     *offsets.Chunk // guarded by p.mu
	bytes int64
	// recs are recycled one by one as their trees end, when no try can look at them any more; their
	// keys and values are not. Dropped when all have ended. Those that are open when the
	// assignment ends are never recycled: a try of theirs may still run.
	recs []*kgo.Record
	// lanes are the records' lanes; nil: there is no order per key. A bolt that changes a key that it
	// was given must not leave a lane closed for good.
	lanes []uint64
	// fresh: no record had ended before it was delivered. Records are started in order, so what
	// lies behind the cursor is open.
	fresh bool
	// claimed is how many of the first records are in a commit, of a feed that commits first.
	claimed int
}

func (c *chunk) Origin(i int) core.Origin {
	return core.Origin{Topic: c.p.Topic, Partition: c.p.ID, Offset: c.c.Offset(i)}
}
func (c *chunk) Partition() int32         { return c.p.ID }
func (c *chunk) Epoch() *ack.Epoch        { return &c.p.epoch }
func (c *chunk) Record(i int) core.Record { return record{c.recs[i]} }

func (c *chunk) EndRun(from, to int) {
	p := c.p
	p.mu.Lock()
	full := p.started >= p.feed.pending
	recs := c.recs
	ended := c.endRunLocked(from, to)
	p.endedLocked(c, ended)
	resume := p.resumeLocked()
	full = full || p.feed.order != core.NoOrder || p.feed.first // another one's turn may have come
	p.mu.Unlock()
	if ended == to-from { // else one of them is not ours to recycle, or the assignment is over
		for _, r := range recs[from:to] {
			r.Recycle()
		}
	}
	if resume {
		p.feed.resume(p)
	}
	if full {
		p.feed.Poke()
	}
}

func (c *chunk) End(i int, cause *ack.Cause) {
	if cause != nil && cause.Policy == ack.DeadLetter && !c.p.feed.first {
		if !rules.OrderOverDeadLetters {
			c.letPass(i)
		}
		c.p.feed.dead(Dead{p: c.p, c: c, i: i, Cause: cause})
		return
	}
	c.ended(i)
}

func (c *chunk) ended(i int) {
	p := c.p
	p.ends.Lock()
	p.ends.list = append(p.ends.list, end{c, i})
	p.ends.Unlock()
	p.feed.Poke()
}

// record is a fetched record as a core.Record. A struct of one pointer becomes an interface without
// an allocation.
type record struct{ r *kgo.Record }

func (r record) Key() []byte     { return r.r.Key }
func (r record) Bytes() []byte   { return r.r.Value }
func (r record) Time() time.Time { return r.r.Timestamp }

func (r record) Headers() []core.Header {
	if len(r.r.Headers) == 0 {
		return nil
	}
	return core.Headers[core.Header](r.r.Headers)
}
