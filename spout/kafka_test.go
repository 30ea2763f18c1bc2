package spout_test

import (
	"strings"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/spout"
)

func TestKafkaSourceMistakes(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	topics := []string{"a", "b"}
	for _, c := range []struct {
		name string
		k    spout.KafkaSource
		want []string // one per mistake
	}{
		{"nothing", spout.KafkaSource{}, []string{"set Topics or Pattern"}},
		{"both", spout.KafkaSource{Topics: topics, Pattern: "a"}, []string{"both Topics and Pattern are set"}},
		{"ends before it starts", spout.KafkaSource{Topics: topics, Until: spout.Earliest()}, []string{"Until is Earliest()"}},
		{"end before start", spout.KafkaSource{Topics: topics, Start: spout.At(at), Until: spout.At(at)},
			[]string{"Start is at 2026-01-02T03:04:05Z, which is not before Until, at 2026-01-02T03:04:05Z"}},
		{"lost", spout.KafkaSource{Topics: topics, Lost: spout.Offsets(killick.Origin{Topic: "a"})}, []string{"Lost cannot be Offsets"}},
		{"zero time", spout.KafkaSource{Topics: topics, Start: spout.At(time.Time{})}, []string{"Start is At the zero time"}},
		{"no offsets", spout.KafkaSource{Topics: topics, Until: spout.Offsets()}, []string{"Until is Offsets without any partition"}},
		{"offsets", spout.KafkaSource{Topics: topics, Start: spout.Offsets(
			killick.Origin{Topic: "a", Offset: -1}, killick.Origin{Topic: "b", Partition: -3},
			killick.Origin{Topic: "c", Offset: 7}, killick.Origin{Topic: "a", Offset: 8})},
			[]string{
				`Start: offset -1 of topic "a", partition 0: neither may be negative`,
				`Start: offset 0 of topic "b", partition -3: neither may be negative`,
				`Start: offset 7 of topic "c", partition 0: the topic is not among Topics`,
				`Start: offset 8 of topic "a", partition 0: the partition is listed twice`,
			}},
		{"everything", spout.KafkaSource{Until: spout.Earliest(), Lost: spout.Offsets(killick.Origin{Topic: "a"}), Start: spout.Offsets()},
			[]string{"set Topics or Pattern", "Until is Earliest()", "Lost cannot be Offsets", "Start is Offsets without any partition"}},
		{"fine", spout.KafkaSource{Topics: topics, Start: spout.Latest(), Until: spout.Latest(), Lost: spout.Earliest(), Codec: killick.String()}, nil},
		{"pattern", spout.KafkaSource{Pattern: "^x", Start: spout.Offsets(killick.Origin{Topic: "xyz", Offset: 3}), Until: spout.At(at)}, nil},
	} {
		info, err := c.k.SourceInfo()
		var got []string
		if err != nil {
			got = strings.Split(err.Error(), "\n")
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %d mistakes", c.name, err, len(c.want))
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i], "spout.KafkaSource: ") || !strings.Contains(got[i], c.want[i]) {
				t.Errorf("%s: %q, want %q", c.name, got[i], c.want[i])
			}
		}
		if info.New != nil || info.Codec != c.k.Codec || info.Pattern != c.k.Pattern || len(info.Topics) != len(c.k.Topics) {
			t.Errorf("%s: %+v", c.name, info)
		}
	}
}

func TestKafka(t *testing.T) {
	k := spout.Kafka("a", "b")
	if len(k.Topics) != 2 || k.Start.IsSet() || k.Until.IsSet() || k.Lost.IsSet() {
		t.Errorf("%+v", k)
	}
}

func TestPosition(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	offs := spout.Offsets(killick.Origin{Topic: "a", Partition: 1, Offset: 0}, killick.Origin{Topic: "b", Partition: 1, Offset: 9})
	for _, c := range []struct {
		p                     spout.Position
		name                  string
		set, earliest, latest bool
		time                  bool
	}{
		{spout.Position{}, "unset", false, false, false, false},
		{spout.Earliest(), "earliest", true, true, false, false},
		{spout.Latest(), "latest", true, false, true, false},
		{spout.At(at), "at 2026-01-02T03:04:05Z", true, false, false, true},
		{offs, "2 given offsets", true, false, false, false},
	} {
		when, ok := c.p.Time()
		if c.p.String() != c.name || c.p.IsSet() != c.set || c.p.IsEarliest() != c.earliest || c.p.IsLatest() != c.latest || ok != c.time || ok && !when.Equal(at) {
			t.Errorf("%v: set %v, earliest %v, latest %v, time %v %v", c.p, c.p.IsSet(), c.p.IsEarliest(), c.p.IsLatest(), when, ok)
		}
		if o, listed := c.p.Offset("a", 1); o != 0 || listed != (c.name == "2 given offsets") {
			t.Errorf("%v: offset %d %v", c.p, o, listed)
		}
	}
	if o, listed := offs.Offset("b", 1); o != 9 || !listed {
		t.Errorf("%d %v", o, listed)
	}
	for _, p := range []killick.Origin{{Topic: "a", Partition: 0}, {Topic: "c", Partition: 1}} {
		if _, listed := offs.Offset(p.Topic, p.Partition); listed {
			t.Errorf("%v is listed", p)
		}
	}
}
