package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// slice is one run of one arm: what a child process is told.
type slice struct {
	Arm     string
	Addr    string
	Group   string
	Size    int   // bytes of a value
	Batch   int   // records in a batch
	End     int64 // records per partition; a multiple of Batch
	Fetch   int32 // bytes of a partition in a fetch
	GOGC    int
	Ballast int // MiB of live heap
	Commit  time.Duration
	Verify  bool   // mark each offset: slower, and not to be timed
	Profile string // file for a processor profile; "": none
}

// result is what a slice did.
type result struct {
	Arm         string        `json:"arm"`
	Records     int64         `json:"records"`
	Decoded     int64         `json:"decoded"` // by the client, those behind the end included
	CPU         time.Duration `json:"cpu_ns"`
	Wall        time.Duration `json:"wall_ns"`
	Collections uint32        `json:"collections"`
	Allocs      uint64        `json:"allocs"`
	AllocBytes  uint64        `json:"alloc_bytes"`
}

func (r result) cpuPerRecord() float64 { return float64(r.CPU) / float64(r.Records) }
func (r result) rate() float64         { return float64(r.Records) / r.Wall.Seconds() }

// errInvalid: a slice lost a record, saw one twice, or committed something else than it read.
var errInvalid = errors.New("bench: invalid run")

// meter measures one slice and checks it.
type meter struct {
	s       slice
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

func newMeter(s slice) *meter {
	m := &meter{s: s}
	if s.Verify {
		for range partitions {
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
	m.cpu, m.err = cpuTime()
}

// mark notes an offset in a verifying slice.
func (m *meter) mark(partition int32, offset int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case partition < 0 || int(partition) >= len(m.seen) || offset < 0 || offset >= m.s.End:
		m.err = errors.Join(m.err, fmt.Errorf("%w: %s: partition %d, offset %d is outside of what was to be read", errInvalid, m.s.Arm, partition, offset))
		return
	}
	w, bit := &m.seen[partition][offset/64], uint64(1)<<(offset%64)
	if *w&bit != 0 {
		m.err = errors.Join(m.err, fmt.Errorf("%w: %s: partition %d, offset %d came twice", errInvalid, m.s.Arm, partition, offset))
	}
	*w |= bit
}

// OnFetchBatchRead makes a meter a hook of kgo: it counts what the client decodes.
func (m *meter) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, b kgo.FetchBatchMetrics) {
	m.decoded.Add(int64(b.NumRecords))
}

// end stops the clocks and checks the counts.
func (m *meter) end() (result, error) {
	cpu, err := cpuTime()
	wall := time.Now()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	m.mu.Lock()
	defer m.mu.Unlock()
	r := result{Arm: m.s.Arm, Decoded: m.decoded.Load(), CPU: cpu - m.cpu, Wall: wall.Sub(m.wall),
		Collections: mem.NumGC - m.mem.NumGC, Allocs: mem.Mallocs - m.mem.Mallocs, AllocBytes: mem.TotalAlloc - m.mem.TotalAlloc}
	var sum uint64
	for _, t := range m.tallies {
		r.Records += t.n
		sum += t.sum
	}
	err = errors.Join(err, m.err)
	if want := m.s.End * partitions; r.Records != want {
		err = errors.Join(err, fmt.Errorf("%w: %s: %d records, not %d", errInvalid, m.s.Arm, r.Records, want))
	}
	_, one := newBatch(m.s.Batch, m.s.Size)
	if want := one * uint64(m.s.End/int64(m.s.Batch)) * partitions; sum != want {
		err = errors.Join(err, fmt.Errorf("%w: %s: the values add up to %x, not %x", errInvalid, m.s.Arm, sum, want))
	}
	return r, err
}

// run runs the slice in this process, whose collector settings it changes.
func (s slice) run(ctx context.Context) (result, error) {
	arm, ok := arms()[s.Arm]
	if !ok {
		return result{}, fmt.Errorf("bench: arm %q is unknown; there are %s", s.Arm, armNames())
	}
	debug.SetGCPercent(s.GOGC)
	ballast := make([]byte, s.Ballast<<20)
	defer runtime.KeepAlive(ballast)
	if s.Profile != "" {
		f, err := os.Create(s.Profile)
		if err != nil {
			return result{}, fmt.Errorf("bench: profile: %w", err)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return result{}, fmt.Errorf("bench: profile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	m := newMeter(s)
	if err := arm(ctx, m); err != nil {
		return result{}, fmt.Errorf("bench: %s: %w", s.Arm, err)
	}
	r, err := m.end()
	return r, errors.Join(err, s.checkCommitted(ctx))
}

// checkCommitted compares what the group has committed with what was read.
func (s slice) checkCommitted(ctx context.Context) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	got, err := kadm.NewClient(cl).FetchOffsets(ctx, s.Group)
	if err != nil {
		return fmt.Errorf("bench: offsets of group %q: %w", s.Group, err)
	}
	var errs []error
	for p := range int32(partitions) {
		if o, ok := got.Lookup(topicOf(s.Size), p); !ok || o.At != s.End {
			errs = append(errs, fmt.Errorf("%w: %s: partition %d is committed at %d, not %d", errInvalid, s.Arm, p, o.At, s.End))
		}
	}
	return errors.Join(errs...)
}
