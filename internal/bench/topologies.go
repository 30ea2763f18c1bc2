package main

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
		"bare": bare, "null": bare, "pooled": pooled,
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
	}
}

func armNames() string {
	return strings.Join(slices.Sorted(maps.Keys(arms())), ", ")
}

// topology reads what the slice is to read.
func topology(m *meter) *killick.Topology {
	var ends []killick.Origin
	for p := range int32(partitions) {
		ends = append(ends, killick.Origin{Topic: topicOf(m.s.Size), Partition: p, Offset: m.s.End})
	}
	t := killick.New("bench")
	t.Spout("in", spout.KafkaSource{Topics: []string{topicOf(m.s.Size)}, Until: spout.Offsets(ends...)})
	return t
}

func work(ctx context.Context, m *meter, t *killick.Topology) error {
	log := zerolog.New(os.Stderr).Level(zerolog.WarnLevel)
	return worker.Run(ctx, t, worker.Config{Bootstrap: []string{m.s.Addr}, Group: m.s.Group, HTTP: "off", Logger: &log,
		CommitInterval: m.s.Commit, FetchMaxBytes: m.s.Fetch * partitions, FetchMaxPartitionBytes: m.s.Fetch, FetchMaxWait: fetchMaxWait,
		Kafka: []kgo.Opt{kgo.WithHooks(m)}})
}

// pass emits what it got.
func pass(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
	out.Emit(killick.Message{Key: in.Key(), Bytes: in.Bytes()})
	return nil
}

// bolt makes the last bolt of a topology: one tally per task.
func (m *meter) bolt() killick.Bolt {
	if m.seen != nil {
		return &marker{m.tally()}
	}
	return &toucher{m.tally()}
}

type toucher struct{ t *tally }

func (b *toucher) Execute(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
	b.t.touch(in.Bytes())
	return nil
}

// marker is a toucher that notes the offset as well.
type marker struct{ t *tally }

func (b *marker) Execute(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
	b.t.touch(in.Bytes())
	o, ok := in.Origin()
	if !ok {
		return fmt.Errorf("bench: a tuple without an origin: %s", in.ID())
	}
	b.t.m.mark(o.Partition, o.Offset)
	return nil
}
