package alo

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/worker"
)

// arms are the programs under test. They return when everything is committed.
func arms() map[string]func(context.Context, *meter) error {
	return map[string]func(context.Context, *meter) error{
		"bare":      loop{}.run,
		"pooled":    loop{pooled: true}.run,
		"bare-sink": loop{pooled: true, sink: true}.run,
		"fused": func(ctx context.Context, m *meter) error {
			t := topology(m)
			t.Bolt("touch", m.bolt).Shuffle("in")
			return work(ctx, m, t)
		},
		"fused3": func(ctx context.Context, m *meter) error {
			t := topology(m)
			t.Bolt("one", bolt.Func(pass)).Shuffle("in")
			t.Bolt("two", bolt.Func(pass)).Shuffle("one")
			t.Bolt("touch", m.bolt).Shuffle("two")
			return work(ctx, m, t)
		},
		"hop": func(ctx context.Context, m *meter) error {
			t := topology(m)
			t.Bolt("touch", m.bolt).Tasks(2).Shuffle("in")
			return work(ctx, m, t)
		},
		"sink": func(ctx context.Context, m *meter) error {
			t := topology(m)
			t.Bolt("touch", m.bolt).Shuffle("in")
			t.Bolt("out", bolt.Kafka(m.s.Out)).Shuffle("touch")
			return work(ctx, m, t)
		},
	}
}

func armNames() string {
	return strings.Join(slices.Sorted(maps.Keys(arms())), ", ")
}

// Known reports whether there is an arm of this name.
func Known(arm string) bool { return arms()[arm] != nil }

// withSink reports whether an arm writes its records again.
func withSink(arm string) bool { return arm == "sink" || arm == "bare-sink" }

// killicks reports whether an arm is a topology, and no loop without killick.
func killicks(arm string) bool {
	return !slices.Contains([]string{"bare", "pooled", "bare-sink"}, arm)
}

// topology reads what the slice is to read.
func topology(m *meter) *killick.Topology {
	var ends []killick.Origin
	for p := range int32(Partitions) {
		ends = append(ends, killick.Origin{Topic: m.s.Topic, Partition: p, Offset: m.s.End})
	}
	t := killick.New("bench")
	t.Spout("in", spout.KafkaSource{Topics: []string{m.s.Topic}, Until: spout.Offsets(ends...)})
	return t
}

func work(ctx context.Context, m *meter, t *killick.Topology) error {
	c, err := m.s.config()
	if err != nil {
		return err
	}
	log := zerolog.New(os.Stderr).Level(zerolog.WarnLevel)
	c.Group, c.Place, c.HTTP, c.Logger, c.CommitInterval = m.s.Group, "", "off", &log, m.s.Commit
	c.FetchMaxBytes, c.FetchMaxPartitionBytes, c.FetchMinBytes, c.FetchMaxWait = m.s.Fetch*Partitions, m.s.Fetch, 1, FetchMaxWait
	c.Session, c.Heartbeat = session, heartbeat
	c.Linger, c.BatchMaxBytes, c.BufferBytes, c.Compression = linger, batchBytes, bufferBytes, "none"
	c.Kafka = append(c.Kafka, kgo.WithHooks(m))
	return worker.Run(ctx, t, c)
}

// pass emits what it got.
func pass(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
	out.Emit(killick.Message{Key: in.Key(), Bytes: in.Bytes()})
	return nil
}

// bolt makes the last bolt of a topology: one tally per task.
func (m *meter) bolt() killick.Bolt {
	var b killick.Bolt = &toucher{m.tally()}
	if withSink(m.s.Arm) {
		b = &passer{m.tally()}
	}
	if m.seen != nil {
		b = &marker{b, m}
	}
	return b
}

type toucher struct{ t *tally }

func (b *toucher) Execute(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
	b.t.touch(in.Bytes())
	return nil
}

// passer is a toucher that emits what it got, for the sink.
type passer struct{ t *tally }

func (b *passer) Execute(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
	b.t.touch(in.Bytes())
	out.Emit(killick.Message{Key: in.Key(), Bytes: in.Bytes(), Time: in.Time()})
	return nil
}

// marker notes the offset as well.
type marker struct {
	killick.Bolt
	m *meter
}

func (b *marker) Execute(ctx context.Context, in *killick.Tuple, out killick.Emitter) error {
	o, ok := in.Origin()
	if !ok {
		return fmt.Errorf("bench: a tuple without an origin: %s", in.ID())
	}
	b.m.mark(o.Partition, o.Offset)
	return b.Bolt.Execute(ctx, in, out)
}
