package alo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick/worker"
)

// Partitions of each topic.
const Partitions = 8

// Slice is one run of one arm: what a child process is told.
type Slice struct {
	Arm   string
	Addr  string
	Env   bool // TLS and SASL are as the environment says (KILLICK_KAFKA__...)
	Topic string
	Out   string // topic of arms with a sink
	Group string // a new one
	Size  int    // bytes of a value
	Batch int    // records in a batch
	End   int64  // records per partition; a multiple of Batch
	Fetch int32  // bytes of a partition in a fetch
	GOGC  int
	// Ballast is live heap without pointers, in MiB.
	Ballast int
	Commit  time.Duration
	Verify  bool // mark each offset: slower, and not to be timed
}

// Result is what a slice did.
type Result struct {
	Arm         string        `json:"arm"`
	Records     int64         `json:"records"`
	Decoded     int64         `json:"decoded"` // by the client, those behind the end included
	CPU         time.Duration `json:"cpu_ns"`
	Wall        time.Duration `json:"wall_ns"`
	Collections uint32        `json:"collections"`
	Allocs      uint64        `json:"allocs"`
	AllocBytes  uint64        `json:"alloc_bytes"`
}

func (r Result) cpuPerRecord() float64 { return float64(r.CPU) / float64(r.Records) }
func (r Result) rate() float64         { return float64(r.Records) / r.Wall.Seconds() }

// ErrInvalid: a slice lost a record, saw one twice, or committed something else than it read.
var ErrInvalid = errors.New("bench: invalid run")

// meter measures one slice and checks it.
type meter struct {
	s       Slice
	decoded atomic.Int64

	mu      sync.Mutex
	tallies []*tally
	begun   bool
	err     error
	cpu     time.Duration
	wall    time.Time
	mem     runtime.MemStats
	seen    [][]uint64 // bitmap of offsets per partition, if s.Verify
}

// tally counts on one goroutine.
type tally struct {
	m   *meter
	n   int64
	sum uint64
}

func newMeter(s Slice) *meter {
	m := &meter{s: s}
	if s.Verify {
		for range Partitions {
			m.seen = append(m.seen, make([]uint64, (s.End+63)/64))
		}
	}
	return m
}

func (m *meter) tally() *tally {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &tally{m: m}
	m.tallies = append(m.tallies, t)
	return t
}

// touch is what every arm does with a record.
func (t *tally) touch(value []byte) {
	if t.n == 0 {
		t.m.begin()
	}
	t.n++
	t.sum += valueSum(value)
}

// begin starts the clocks at the first record of the slice.
func (m *meter) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.begun {
		return
	}
	m.begun = true
	runtime.ReadMemStats(&m.mem)
	m.wall = time.Now()
	m.cpu, m.err = CPUTime()
}

// mark notes an offset in a verifying slice.
func (m *meter) mark(partition int32, offset int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case partition < 0 || int(partition) >= len(m.seen) || offset < 0 || offset >= m.s.End:
		m.err = errors.Join(m.err, fmt.Errorf("%w: %s: partition %d, offset %d is outside of what was to be read", ErrInvalid, m.s.Arm, partition, offset))
		return
	}
	w, bit := &m.seen[partition][offset/64], uint64(1)<<(offset%64)
	if *w&bit != 0 {
		m.err = errors.Join(m.err, fmt.Errorf("%w: %s: partition %d, offset %d came twice", ErrInvalid, m.s.Arm, partition, offset))
	}
	*w |= bit
}

// OnFetchBatchRead makes a meter a hook of kgo: it counts what the client decodes.
func (m *meter) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, b kgo.FetchBatchMetrics) {
	m.decoded.Add(int64(b.NumRecords))
}

// end stops the clocks and checks the counts.
func (m *meter) end() (Result, error) {
	cpu, err := CPUTime()
	wall := time.Now()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	m.mu.Lock()
	defer m.mu.Unlock()
	r := Result{Arm: m.s.Arm, Decoded: m.decoded.Load(), CPU: cpu - m.cpu, Wall: wall.Sub(m.wall),
		Collections: mem.NumGC - m.mem.NumGC, Allocs: mem.Mallocs - m.mem.Mallocs, AllocBytes: mem.TotalAlloc - m.mem.TotalAlloc}
	var sum uint64
	for _, t := range m.tallies {
		r.Records += t.n
		sum += t.sum
	}
	err = errors.Join(err, m.err)
	if want := m.s.End * Partitions; r.Records != want {
		err = errors.Join(err, fmt.Errorf("%w: %s: %d records, not %d", ErrInvalid, m.s.Arm, r.Records, want))
	}
	_, one := NewBatch(m.s.Batch, m.s.Size)
	if want := one * uint64(m.s.End/int64(m.s.Batch)) * Partitions; sum != want {
		err = errors.Join(err, fmt.Errorf("%w: %s: the values add up to %x, not %x", ErrInvalid, m.s.Arm, sum, want))
	}
	return r, err
}

// config is how the slice reaches Kafka.
func (s Slice) config() (worker.Config, error) {
	var environ []string
	if s.Env {
		environ = os.Environ()
	}
	return worker.Load([]string{"--bootstrap=" + s.Addr}, environ)
}

func (s Slice) clientOpts() ([]kgo.Opt, error) {
	c, err := s.config()
	if err != nil {
		return nil, err
	}
	return c.ClientOpts()
}

// Run runs the slice in this process, whose collector settings it changes.
func (s Slice) Run(ctx context.Context) (Result, error) {
	arm, ok := arms()[s.Arm]
	if !ok {
		return Result{}, fmt.Errorf("bench: arm %q is unknown; there are %s", s.Arm, armNames())
	}
	look, err := newObserver(s)
	if err != nil {
		return Result{}, err
	}
	defer look.cl.Close()
	before, err := look.written(ctx)
	if err != nil {
		return Result{}, err
	}
	debug.SetGCPercent(s.GOGC)
	ballast := make([]byte, s.Ballast<<20)
	defer runtime.KeepAlive(ballast)
	m := newMeter(s)
	if err := arm(ctx, m); err != nil {
		return Result{}, fmt.Errorf("bench: %s: %w", s.Arm, err)
	}
	r, err := m.end()
	return r, errors.Join(err, look.committed(ctx), look.wrote(ctx, before))
}

// observer looks at what a slice has left behind, with a client of its own.
type observer struct {
	s   Slice
	cl  *kgo.Client
	adm *kadm.Client
}

func newObserver(s Slice) (*observer, error) {
	opts, err := s.clientOpts()
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	return &observer{s, cl, kadm.NewClient(cl)}, nil
}

// committed compares what the group has committed with what was to be read.
func (o *observer) committed(ctx context.Context) error {
	s := o.s
	got, err := o.adm.FetchOffsets(ctx, s.Group)
	if err != nil {
		return fmt.Errorf("bench: offsets of group %q: %w", s.Group, err)
	}
	var errs []error
	for p := range int32(Partitions) {
		if o, ok := got.Lookup(s.Topic, p); !ok || o.At != s.End {
			errs = append(errs, fmt.Errorf("%w: %s: partition %d is committed at %d, not %d", ErrInvalid, s.Arm, p, o.At, s.End))
		}
	}
	return errors.Join(errs...)
}

// written is how many records the sinks' topic has ever had; 0 for an arm without a sink.
func (o *observer) written(ctx context.Context) (n int64, err error) {
	if !withSink(o.s.Arm) {
		return 0, nil
	}
	ends, err := o.adm.ListEndOffsets(ctx, o.s.Out)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("bench: ends of %q: %w", o.s.Out, err)
	}
	ends.Each(func(l kadm.ListedOffset) { n += l.Offset })
	return n, nil
}

// wrote compares what a sink has written with what was read, and has the topic emptied.
func (o *observer) wrote(ctx context.Context, before int64) error {
	if !withSink(o.s.Arm) {
		return nil
	}
	after, err := o.written(ctx)
	if err != nil {
		return err
	}
	if got, want := after-before, o.s.End*Partitions; got != want {
		return fmt.Errorf("%w: %s: wrote %d records, not %d", ErrInvalid, o.s.Arm, got, want)
	}
	ends, err := o.adm.ListEndOffsets(ctx, o.s.Out)
	if err == nil {
		_, err = o.adm.DeleteRecords(ctx, ends.Offsets())
	}
	if err != nil {
		return fmt.Errorf("bench: empty %q: %w", o.s.Out, err)
	}
	return nil
}
