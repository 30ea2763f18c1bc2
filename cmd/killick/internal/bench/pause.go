package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/killick-io/killick/internal/bench/alo"
)

// PauseOptions say what [Pause] measures. [NewPause] has good ones.
type PauseOptions struct {
	Where
	Waits   []time.Duration // fetch_max_wait
	Windows []int64         // bytes of the busy partition, in drains
	For     time.Duration   // each measurement
	Rate    int             // records a second into each other partition
	Records int             // in the busy partition
}

// NewPause returns options with the defaults.
func NewPause() PauseOptions {
	return PauseOptions{Waits: []time.Duration{25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond},
		Windows: []int64{8 << 20, 1 << 20, 256 << 10}, For: 5 * time.Second, Rate: 20, Records: 2_000_000}
}

const (
	others     = 7 // partitions beside the busy one, which is partition 0
	busySize   = 100
	busyBatch  = 500
	pausePaced = 200_000 // records a second that the pulsing state ends
	minRecords = 10_000  // of the busy partition
)

func (o *PauseOptions) check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, w := range o.Waits {
		if w < time.Millisecond || w > time.Minute {
			fail("-waits: %v is not in 1ms to 1m", w)
		}
	}
	for _, w := range o.Windows {
		if w < 1 || w > 1<<40 {
			fail("-windows: %d bytes are not in 1 to %d", w, int64(1)<<40)
		}
	}
	if o.For < 10*time.Millisecond || o.For > 10*time.Minute {
		fail("-for: %v is not in 10ms to 10m", o.For)
	}
	if o.Rate < 1 || o.Rate > 10_000 {
		fail("-rate: %d is not in 1 to 10000", o.Rate)
	}
	// What pulses must not come to its end meanwhile.
	if least := max(minRecords, int(pausePaced*(o.For+settle).Seconds())); o.Records < least || o.Records > maxRecords {
		fail("-records: %d is not in %d to %d (-for %v takes that many)", o.Records, least, maxRecords, o.For)
	}
	if _, err := o.config(); err != nil {
		errs = append(errs, err)
	}
	return mistakes(errs...)
}

// ParseBytes reads a number of bytes, which KiB or MiB may follow.
func ParseBytes(s string) (int64, error) {
	unit := int64(1)
	digits := s
	if d, ok := strings.CutSuffix(s, "MiB"); ok {
		digits, unit = d, 1<<20
	} else if d, ok := strings.CutSuffix(s, "KiB"); ok {
		digits, unit = d, 1<<10
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || n < 1 {
		return 0, errors.New("want a number from 1 on, such as 65536, 64KiB or 8MiB")
	}
	return n * unit, nil
}

// FormatBytes is what ParseBytes reads.
func FormatBytes(n int64) string {
	switch {
	case n%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprint(n)
}

// Pause measures what a paused partition does to others of its broker, and what pausing costs the partition. It blocks until
// all is over and cleaned up. When ctx ends it does so soon.
func Pause(ctx context.Context, o PauseOptions) (_ PauseReport, err error) {
	if err := o.check(); err != nil {
		return PauseReport{}, err
	}
	k, err := o.open(ctx)
	if err != nil {
		return PauseReport{}, err
	}
	defer func() { err = errors.Join(err, k.close(ctx, o.Where)) }()
	broker, err := k.broker(ctx)
	if err != nil {
		return PauseReport{}, err
	}
	p := &probe{k: k, o: o}
	if p.topic, err = k.createOn(ctx, "pause", 1+others, nil, &broker); err != nil {
		return PauseReport{}, err
	}
	per := int64(o.Records+busyBatch-1) / busyBatch * busyBatch
	o.say("filling %s/0: %d records of %d B", p.topic, per, busySize)
	if err := alo.Fill(ctx, k.cl, p.topic, 1, busyBatch, busySize, per); err != nil {
		return PauseReport{}, err
	}
	p.busyEnd = per
	return p.measure(ctx)
}

// broker is the one that all partitions are put on.
func (k *kafka) broker(ctx context.Context) (int32, error) {
	all, err := k.adm.ListBrokers(ctx)
	if err == nil && len(all) == 0 {
		err = errors.New("there is none")
	}
	if err != nil {
		return 0, fmt.Errorf("bench: list the brokers: %w", err)
	}
	return all[0].NodeID, nil
}

// probe is a measurement of pauses under way. One goroutine uses it.
type probe struct {
	k       *kafka
	o       PauseOptions
	topic   string
	busyEnd int64
}

func (p *probe) measure(ctx context.Context) (PauseReport, error) {
	r := newPauseReport(p)
	load := alo.Load()
	for _, wait := range p.o.Waits {
		row, err := p.idle(ctx, wait)
		if err != nil {
			return r, fmt.Errorf("bench: idle with fetch_max_wait %v: %w", wait, err)
		}
		r.Idle = append(r.Idle, row)
	}
	for _, wait := range p.o.Waits {
		for _, s := range []state{quiet, held, pulsing} {
			row, err := p.latency(ctx, wait, s)
			if err != nil {
				return r, fmt.Errorf("bench: %s with fetch_max_wait %v: %w", s, wait, err)
			}
			p.o.say("fetch_max_wait %v, %s: p50 %.1f ms, p99 %.1f ms", wait, s, row.P50, row.P99)
			r.Latency = append(r.Latency, row)
		}
	}
	for _, wait := range p.o.Waits {
		for _, window := range p.o.Windows {
			row, err := p.drain(ctx, wait, window)
			if err != nil {
				return r, fmt.Errorf("bench: drain with fetch_max_wait %v and a window of %s: %w", wait, FormatBytes(window), err)
			}
			p.o.say("fetch_max_wait %v, window %s: %.0f records/s", wait, row.Window, row.Rate)
			r.Drain = append(r.Drain, row)
		}
	}
	if load != "" {
		r.Load = load + ", " + alo.Load()
	}
	return r, nil
}

// ends are the ends of all partitions now.
func (p *probe) ends(ctx context.Context) (map[int32]int64, error) {
	listed, err := p.k.adm.ListEndOffsets(ctx, p.topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("ends of %s: %w", p.topic, err)
	}
	out := map[int32]int64{}
	listed.Each(func(l kadm.ListedOffset) { out[l.Partition] = l.Offset })
	return out, nil
}

// idle measures what asking for records costs where none come.
func (p *probe) idle(ctx context.Context, wait time.Duration) (row IdleRow, err error) {
	r, err := p.read(ctx, wait, NewPause().Windows[0], quiet)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, r.end()) }()
	if err := r.until(ctx, func(c counts) bool { return c.fetches > 1 }); err != nil {
		return row, err
	}
	if err := r.sleep(ctx, settle); err != nil { // joining has its costs
		return row, err
	}
	before, from := r.counts(), time.Now()
	cpu, err := alo.CPUTime()
	if err != nil {
		return row, err
	}
	if err := r.sleep(ctx, p.o.For); err != nil {
		return row, err
	}
	took := time.Since(from)
	now, err := alo.CPUTime()
	return newIdleRow(wait, r.counts().minus(before), now-cpu, took), err
}

// latency measures the seven partitions while the busy one is in a state.
func (p *probe) latency(ctx context.Context, wait time.Duration, s state) (row LatencyRow, err error) {
	r, err := p.read(ctx, wait, NewPause().Windows[0], s)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, r.end()) }()
	c := p.write(ctx)
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := r.settled(ctx, s); err != nil {
		return row, err
	}
	before := r.counts()
	from := time.Now()
	if err := r.sleep(ctx, p.o.For); err != nil {
		return row, err
	}
	to := time.Now()
	after := r.counts()
	if err := c.stop(); err != nil {
		return row, err
	}
	ls, err := r.samples(ctx, c, from, to)
	if err != nil {
		return row, err
	}
	row = newLatencyRow(wait, s, ls, after.minus(before), to.Sub(from))
	if s == held && after.read != before.read {
		return row, fmt.Errorf("%w: the busy partition was not paused: %d records of it were read meanwhile", alo.ErrInvalid, after.read-before.read)
	}
	return row, nil
}

// drain measures how fast the busy partition is read while the others are silent.
func (p *probe) drain(ctx context.Context, wait time.Duration, window int64) (row DrainRow, err error) {
	r, err := p.read(ctx, wait, window, draining)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, r.end()) }()
	if err := r.until(ctx, func(c counts) bool { return c.ended > 0 }); err != nil {
		return row, err
	}
	before, from := r.counts(), time.Now()
	limited, cancel := context.WithTimeout(ctx, p.o.For)
	defer cancel()
	if err := r.until(limited, func(c counts) bool { return c.ended >= p.busyEnd }); err != nil && limited.Err() == nil {
		return row, err
	} else if ctx.Err() != nil {
		return row, context.Cause(ctx)
	}
	took, now := time.Since(from), r.counts()
	return newDrainRow(wait, window, now, now.minus(before), took), nil
}
