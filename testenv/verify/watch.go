package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// WatchConfig is how a Watcher looks.
type WatchConfig struct {
	// Every is the time between two samples. A commit that was too early is seen if it stood at a sample before what it
	// covers was written: the shorter, the sharper. Default: 20ms.
	Every time.Duration

	// Timeout bounds one sample. One that takes longer, as while a broker is away, is left out. Default: 2s.
	Timeout time.Duration

	// Most bounds the memory of samples, in bytes; beyond it Stop fails. A sample takes about 50 bytes for each partition
	// of inputs, outputs and dead letters, and the length of new metadata. Default: 256 MiB.
	Most int64
}

// Watcher samples the positions of a group, and the ends of logs behind them, while a run goes on. It has one goroutine,
// which Stop or Close ends.
type Watcher struct {
	cl     *kgo.Client
	target Target
	cfg    WatchConfig
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	samples []Sample
	bytes   int64
	missed  int
	last    error // of the last sample that failed
	looked  chan struct{}
}

// Watch begins to sample. cl is used for requests only, so any client will do; it must live until Stop or Close.
func Watch(cl *kgo.Client, t Target, cfg WatchConfig) (*Watcher, error) {
	errs := []error{t.validate()}
	if t.Group == "" {
		errs = append(errs, errors.New("verify: Target.Group: no group is given, there is nothing to watch"))
	}
	if cfg.Every < 0 || cfg.Timeout < 0 || cfg.Most < 0 {
		errs = append(errs, fmt.Errorf("verify: WatchConfig: %+v: nothing may be below 0", cfg))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if cfg.Every == 0 {
		cfg.Every = 20 * time.Millisecond
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 2 * time.Second
	}
	if cfg.Most == 0 {
		cfg.Most = 256 << 20
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watcher{cl: cl, target: t, cfg: cfg, cancel: cancel, ended: make(chan struct{}), looked: make(chan struct{})}
	go w.run(ctx)
	return w, nil
}

func (w *Watcher) run(ctx context.Context) {
	defer close(w.ended)
	tick := time.NewTicker(w.cfg.Every)
	defer tick.Stop()
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look takes one sample.
func (w *Watcher) look(life context.Context) {
	ctx, cancel := context.WithTimeout(life, w.cfg.Timeout)
	defer cancel()
	s, err := w.sample(ctx)
	if life.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		w.missed++
		w.last = err
	case w.bytes > w.cfg.Most: // Stop tells
	default:
		w.keep(s)
	}
	close(w.looked)
	w.looked = make(chan struct{})
}

func (w *Watcher) sample(ctx context.Context) (Sample, error) {
	adm := kadm.NewClient(w.cl)
	s := Sample{Asked: time.Now()}
	got, err := adm.FetchOffsets(ctx, w.target.Group)
	s.Answered = time.Now()
	if err == nil {
		err = got.Error()
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return s, err
	}
	for _, topic := range w.target.Inputs {
		for p, o := range got[topic] {
			if o.At >= 0 {
				s.Positions = append(s.Positions, Commit{Topic: topic, Partition: p, Next: o.At, Metadata: o.Metadata})
			}
		}
	}
	ends, err := adm.ListEndOffsets(ctx, slices.Concat(w.target.Inputs, w.target.Outputs, w.target.DeadLetters)...)
	if err != nil {
		return s, err
	}
	for topic, ps := range ends {
		for p, o := range ps {
			switch {
			case o.Err == nil:
				s.Ends = append(s.Ends, End{topic, p, o.Offset})
			case errors.Is(o.Err, kerr.UnknownTopicOrPartition) && slices.Contains(w.target.DeadLetters, topic):
			default:
				return s, o.Err
			}
		}
	}
	return s, nil
}

// keep appends a sample. Metadata that has not changed is not kept twice.
func (w *Watcher) keep(s Sample) {
	if n := len(w.samples); n > 0 {
		before := w.samples[n-1].Positions
		for i := range s.Positions {
			c := &s.Positions[i]
			k := slices.IndexFunc(before, func(b Commit) bool { return b.Topic == c.Topic && b.Partition == c.Partition })
			if k >= 0 && before[k].Metadata == c.Metadata {
				c.Metadata = before[k].Metadata
			} else {
				w.bytes += int64(len(c.Metadata))
			}
		}
	}
	w.bytes += 100 + 48*int64(len(s.Positions)) + 32*int64(len(s.Ends))
	w.samples = append(w.samples, s)
}

// Wait returns when a sample that was begun after the call satisfies ok, or with the error of ctx and why the last
// sample failed, if it did. It is for tests that must not kill or stop before some position is there.
func (w *Watcher) Wait(ctx context.Context, ok func(Sample) bool) error {
	from := time.Now()
	for {
		w.mu.Lock()
		looked := w.looked
		n := len(w.samples)
		good := n > 0 && !w.samples[n-1].Asked.Before(from) && ok(w.samples[n-1])
		last := w.last
		w.mu.Unlock()
		if good {
			return nil
		}
		select {
		case <-looked:
		case <-w.ended:
			return errors.New("verify: wait: the watcher has been stopped")
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("verify: wait: %w", ctx.Err()), last)
		}
	}
}

// Committed reports whether all input partitions of a sample are committed to their ends.
func (s *Sample) Committed(topics ...string) bool {
	at := map[Partition]int64{}
	for _, c := range s.Positions {
		at[Partition{c.Topic, c.Partition}] = c.Next
	}
	for _, e := range s.Ends {
		if slices.Contains(topics, e.Topic) && e.End > 0 && at[Partition{e.Topic, e.Partition}] < e.End {
			return false
		}
	}
	return true
}

// Close ends the sampling and waits for the goroutine. It may be called twice, and after Stop.
func (w *Watcher) Close() {
	w.cancel()
	<-w.ended
}

// Stop takes a last sample, ends the sampling, and reads the cluster as Read does. The history has no event files yet:
// EventDir finds them.
func (w *Watcher) Stop(ctx context.Context) (*History, error) {
	w.Close()
	if err := w.finish(ctx); err != nil {
		return nil, err
	}
	h, err := Read(ctx, w.cl, w.target)
	if err != nil {
		return nil, err
	}
	h.Samples = w.samples
	if w.missed > 0 {
		h.Notes = append(h.Notes, fmt.Sprintf("%d of %d samples failed, the last one so: %v", w.missed, w.missed+len(w.samples), w.last))
	}
	return h, nil
}

func (w *Watcher) finish(ctx context.Context) error {
	s, err := w.sample(ctx)
	if err != nil {
		return fmt.Errorf("verify: last sample: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bytes > w.cfg.Most {
		return fmt.Errorf("verify: the samples take more than %d bytes: raise WatchConfig.Most, or Every", w.cfg.Most)
	}
	w.keep(s)
	return nil
}
