package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/worker"
)

// state is what the busy partition is in.
type state string

const (
	quiet    state = "quiet"   // there is nothing to read in it
	held     state = "held"    // its records do not end: the window is full, and fetching is paused
	pulsing  state = "pulsing" // they end at a pace: fetching is paused and goes on in turns
	draining state = "drain"   // they end at once
)

const (
	// settle is how long a state is left alone before it is measured.
	settle = time.Second
	// stateLimit bounds how long a state may take to come about.
	stateLimit = 30 * time.Second
	// pace is how often records end in the state pulsing.
	pace = 5 * time.Millisecond
	// perRecord is what a record of the busy partition counts in a window: 8 bytes of key, the value, 176 for its struct.
	perRecord = 8 + busySize + 176
	// gap is the least time without a batch of the busy partition that counts as a pause.
	gap = 5 * time.Millisecond
)

// reading is a worker in this process that reads the topic. It is the client's hook, and its bolt. Two goroutines of its own
// (the worker, and what ends held records) are waited for by end.
type reading struct {
	state   state
	window  int64
	cancel  context.CancelFunc
	all     sync.WaitGroup
	over    chan struct{} // closed when the worker has ended
	err     error         // of the worker, once over is closed
	stop    sync.Once
	fetches atomic.Int64 // requests
	read    atomic.Int64 // records of the busy partition that were decoded
	ended   atomic.Int64 // and those of which the try has ended
	gaps    atomic.Int64
	longest atomic.Int64 // gap, in nanoseconds
	last    atomic.Int64 // batch of the busy partition, in unix nanoseconds

	mu   sync.Mutex
	open bool             // held records are let go
	hold []*killick.Held  // at most the pending limit
	got  map[int64]sample // of other partitions, by the number of the record
}

// sample is a record of another partition.
type sample struct{ due, executed time.Time }

// counts is what has been, up to a moment.
type counts struct{ fetches, read, ended, gaps int64 }

func (c counts) minus(b counts) counts {
	return counts{c.fetches - b.fetches, c.read - b.read, c.ended - b.ended, c.gaps - b.gaps}
}

func (r *reading) counts() counts {
	return counts{r.fetches.Load(), r.read.Load(), r.ended.Load(), r.gaps.Load()}
}

// read starts a worker in a group of its own. It reads the busy partition from its beginning, unless that is quiet, and the
// others from their ends.
func (p *probe) read(ctx context.Context, wait time.Duration, window int64, s state) (*reading, error) {
	ends, err := p.ends(ctx)
	if err != nil {
		return nil, err
	}
	var starts []killick.Origin
	for id := range int32(1 + others) {
		o := killick.Origin{Topic: p.topic, Partition: id, Offset: ends[id]}
		if id == 0 && s != quiet {
			o.Offset = 0
		}
		starts = append(starts, o)
	}
	r := &reading{state: s, window: window, over: make(chan struct{}), got: map[int64]sample{}}
	t := killick.New("bench")
	const pending = 1024 // the default
	t.Spout("in", spout.KafkaSource{Topics: []string{p.topic}, Start: spout.Offsets(starts...)}).Pending(pending, window)
	t.Bolt("look", func() killick.Bolt { return r }).Shuffle("in").Timeout(time.Hour)
	c := p.k.config
	log := zerolog.New(p.o.log()).Level(zerolog.WarnLevel)
	c.Group = fmt.Sprintf("%s-%d", p.k.prefix, time.Now().UnixNano())
	c.Place, c.HTTP, c.Logger, c.FetchMaxWait, c.Drain = "", "off", &log, wait, stateLimit
	c.Kafka = append(c.Kafka, kgo.WithHooks(r))
	ctx, r.cancel = context.WithCancel(ctx)
	r.all.Go(func() {
		defer close(r.over)
		r.err = worker.Run(ctx, t, c)
	})
	if s == pulsing {
		r.all.Go(r.endHeld)
	}
	return r, nil
}

// OnBrokerWrite counts fetch requests.
func (r *reading) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if err == nil && kmsg.Key(key) == kmsg.Fetch {
		r.fetches.Add(1)
	}
}

// OnFetchBatchRead counts what is read of the busy partition, and the gaps between.
func (r *reading) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, partition int32, b kgo.FetchBatchMetrics) {
	if partition != 0 {
		return
	}
	r.read.Add(int64(b.NumRecords))
	now := time.Now().UnixNano()
	if last := r.last.Swap(now); last > 0 && now-last > int64(gap) {
		r.gaps.Add(1)
		r.longest.Store(max(r.longest.Load(), now-last))
	}
}

// Execute ends the records of the busy partition as its state says, and takes the time of others.
func (r *reading) Execute(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
	if o, _ := in.Origin(); o.Partition != 0 {
		s := sample{executed: time.Now()}
		n, due, err := decode(in.Bytes())
		if err != nil {
			return killick.Permanent(err)
		}
		s.due = due
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, twice := r.got[n]; !twice {
			r.got[n] = s
		}
		return nil
	}
	if r.state == draining {
		r.ended.Add(1)
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		r.hold = append(r.hold, out.Hold())
	}
	return nil
}

// endHeld ends records at a pace, until the worker has ended.
func (r *reading) endHeld() {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	const most = int(pausePaced * pace / time.Second)
	for {
		select {
		case <-tick.C:
			r.letGo(most)
		case <-r.over:
			return
		}
	}
}

// letGo ends up to n held records.
func (r *reading) letGo(n int) {
	r.mu.Lock()
	n = min(n, len(r.hold))
	now := r.hold[:n:n]
	r.hold = r.hold[n:]
	r.mu.Unlock()
	for _, h := range now {
		h.Ack()
	}
	r.ended.Add(int64(n))
}

// end stops the worker and waits for it.
func (r *reading) end() error {
	r.stop.Do(func() {
		r.mu.Lock()
		r.open = true
		n := len(r.hold)
		r.mu.Unlock()
		r.letGo(n)
		r.cancel()
		r.all.Wait()
	})
	return r.err
}

// until waits until what has been is enough.
func (r *reading) until(ctx context.Context, enough func(counts) bool) error {
	return until(ctx, func() (bool, error) {
		select {
		case <-r.over:
			return false, r.endedEarly()
		default:
			return enough(r.counts()), nil
		}
	})
}

// endedEarly is the error of a worker that should have gone on.
func (r *reading) endedEarly() error { return errors.Join(errors.New("the worker has ended"), r.err) }

// sleep waits, unless the worker ends. It does nothing meanwhile: time is measured.
func (r *reading) sleep(ctx context.Context, d time.Duration) error {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
		return nil
	case <-r.over:
		return r.endedEarly()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// settled waits until the state has come about: records of other partitions come, and the busy one is read, and then not any
// more if it is held.
func (r *reading) settled(ctx context.Context, s state) error {
	limited, cancel := context.WithTimeoutCause(ctx, stateLimit, fmt.Errorf("the state has not come about within %v", stateLimit))
	defer cancel()
	last, since := int64(-1), time.Time{}
	return r.until(limited, func(c counts) bool {
		r.mu.Lock()
		come := len(r.got) > 0
		r.mu.Unlock()
		if !come || s == pulsing && c.read == 0 || s == held && c.read*perRecord <= r.window {
			return false
		}
		if since.IsZero() || s == held && c.read != last {
			last, since = c.read, time.Now()
		}
		return time.Since(since) > settle
	})
}

// samples are the latencies of all records that were due in [from, to): c has stopped. It waits for those under way.
func (r *reading) samples(ctx context.Context, c *clock, from, to time.Time) ([]time.Duration, error) {
	due := c.between(from, to)
	limited, cancel := context.WithTimeoutCause(ctx, stateLimit, fmt.Errorf("records of other partitions have not come within %v", stateLimit))
	defer cancel()
	var ls []time.Duration
	err := r.until(limited, func(counts) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		ls = ls[:0]
		for _, n := range due {
			if s, ok := r.got[n]; ok {
				ls = append(ls, s.executed.Sub(s.due))
			}
		}
		return len(ls) == len(due)
	})
	if err == nil && len(ls) == 0 {
		err = errors.New("no record was due: give it more time, or a higher rate")
	}
	return ls, err
}

// clock writes a record into the next of the seven partitions whenever one is due, whatever became of those before.
type clock struct {
	from   time.Time
	every  time.Duration
	cancel context.CancelFunc
	all    sync.WaitGroup
	n      int64      // records; valid after stop
	wrong  chan error // the first that Kafka did not take
	flush  func() error
}

// write starts a clock. Its goroutine is waited for by stop.
func (p *probe) write(ctx context.Context) *clock {
	c := &clock{from: time.Now(), every: time.Second / time.Duration(p.o.Rate*others), wrong: make(chan error, 1)}
	c.flush = func() error { return p.k.cl.Flush(ctx) }
	ticking, cancel := context.WithCancel(ctx)
	c.cancel = cancel
	c.all.Go(func() {
		next := time.NewTimer(0)
		defer next.Stop()
		for {
			select {
			case <-next.C:
			case <-ticking.Done():
				return
			}
			for ; !c.due(c.n).After(time.Now()); c.n++ {
				rec := &kgo.Record{Topic: p.topic, Partition: 1 + int32(c.n%others), Value: encode(c.n, c.due(c.n))}
				p.k.cl.Produce(ctx, rec, func(_ *kgo.Record, err error) {
					if err != nil {
						select {
						case c.wrong <- err:
						default:
						}
					}
				})
			}
			next.Reset(time.Until(c.due(c.n)))
		}
	})
	return c
}

func (c *clock) due(n int64) time.Time { return c.from.Add(time.Duration(n) * c.every) }

// between are the numbers of the records that were due in [from, to).
func (c *clock) between(from, to time.Time) (ns []int64) {
	for n := range c.n {
		if d := c.due(n); !d.Before(from) && d.Before(to) {
			ns = append(ns, n)
		}
	}
	return ns
}

// stop ends it: no record is due any more, and none is under way to Kafka.
func (c *clock) stop() error {
	c.cancel()
	c.all.Wait()
	err := c.flush()
	select {
	case failed := <-c.wrong:
		return fmt.Errorf("write: %w", failed)
	default:
		return err
	}
}

// encode is a value of 100 bytes with the number of a record and when it was due.
func encode(n int64, due time.Time) []byte {
	b := make([]byte, busySize)
	binary.BigEndian.PutUint64(b, uint64(n))
	binary.BigEndian.PutUint64(b[8:], uint64(due.UnixNano()))
	return b
}

func decode(b []byte) (n int64, due time.Time, err error) {
	if len(b) != busySize {
		return 0, due, errors.New("bench: a record of " + strconv.Itoa(len(b)) + " bytes is none of the clock's")
	}
	return int64(binary.BigEndian.Uint64(b)), time.Unix(0, int64(binary.BigEndian.Uint64(b[8:]))), nil
}
