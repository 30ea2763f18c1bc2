package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/killick-io/killick/internal/bench/alo"
)

// SliceCommand is the hidden command that [alo.Serve] is called in.
const SliceCommand = "bench-slice"

// ALO measures what killick's at-least-once path costs beside the bare loop. It blocks until all is over and cleaned up:
// processes, topics, groups. When ctx ends it does so soon. o.Run runs the slices.
func ALO(ctx context.Context, o ALOOptions) (_ alo.Report, err error) {
	if err := o.check(); err != nil {
		return alo.Report{}, err
	}
	k, err := o.open(ctx)
	if err != nil {
		return alo.Report{}, err
	}
	defer func() { err = errors.Join(err, k.close(ctx, o.Where)) }()
	o.Addr, o.Env, o.Prefix = k.config.Bootstrap[0], o.Kafka != "", k.prefix
	o.Topic = func(size int) string { return k.prefix + "-in-" + strconv.Itoa(size) }
	o.Out = func(size int) string { return k.prefix + "-out-" + strconv.Itoa(size) }
	o.Say = func(s string) { o.say("%s", s) }
	for _, size := range o.Sizes {
		if err := o.prepare(ctx, k, size); err != nil {
			return alo.Report{}, err
		}
	}
	load := alo.Load()
	var all []alo.Pairs
	for _, size := range o.Sizes {
		ps, err := o.Measure(ctx, size)
		if err != nil {
			return alo.Report{}, err
		}
		all = append(all, ps...)
	}
	r := o.Report(all, k.what)
	if load != "" {
		r.Load = load + ", " + alo.Load()
	}
	if o.Profile != "" {
		if _, err := o.Plan.Profile(ctx, o.Profile); err != nil {
			return alo.Report{}, err
		}
	}
	return r, nil
}

// prepare makes and fills the topics of a size.
func (o *ALOOptions) prepare(ctx context.Context, k *kafka, size int) error {
	topic, err := k.create(ctx, "in-"+strconv.Itoa(size), alo.Partitions, nil)
	if err != nil {
		return err
	}
	b, _ := alo.NewBatch(o.Batch, size)
	o.say("filling %s: %d records of %d B, %d MB", topic, o.Ends[size]*alo.Partitions, size, o.Ends[size]/int64(o.Batch)*alo.Partitions*int64(len(b))/1e6)
	if err := alo.Fill(ctx, k.cl, topic, alo.Partitions, o.Batch, size, o.Ends[size]); err != nil {
		return err
	}
	if !o.wants("sink") {
		return nil
	}
	// Each slice empties it: small segments are gone soon.
	_, err = k.create(ctx, "out-"+strconv.Itoa(size), alo.Partitions, map[string]string{"segment.bytes": fmt.Sprint(64 << 20), "file.delete.delay.ms": "1000"})
	return err
}
