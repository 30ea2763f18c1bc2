package kafka

import (
	"errors"
	"strings"
	"testing"

	"github.com/killick-io/killick/testenv/embedded"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestEnsureTopic(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("there", 2))
	a := admin(t, b)
	ctx := limited(t)
	spec := TopicSpec{Name: "in.orders.dlq", Partitions: 3, Replication: 1, Config: map[string]string{"retention.ms": "-1"}}

	// Switched off: the command is in the error, nothing is made.
	_, err := a.EnsureTopic(ctx, spec, false)
	want := "kafka-topics.sh --bootstrap-server " + b.Addrs()[0] + " --create --topic in.orders.dlq --partitions 3" +
		" --replication-factor 1 --config retention.ms=-1"
	if !errors.Is(err, ErrNoTopic) || !strings.Contains(err.Error(), want) {
		t.Errorf("creation off: %v\nwant the command %s", err, want)
	}
	if b.Cluster().TopicInfo(spec.Name) != nil {
		t.Fatal("the topic was created")
	}

	got, err := a.EnsureTopic(ctx, spec, true)
	if err != nil {
		t.Fatal(err)
	}
	info := b.Cluster().TopicInfo(spec.Name)
	if got != (Topic{spec.Name, info.TopicID, 3}) || len(b.Cluster().PartitionInfos(spec.Name)) != 3 {
		t.Errorf("created %+v", got)
	}
	if v := info.Configs["retention.ms"]; v == nil || *v != "-1" {
		t.Errorf("configs: %v", info.Configs)
	}
	// Again, either way.
	for _, create := range []bool{true, false} {
		if again, err := a.EnsureTopic(ctx, spec, create); err != nil || again != got {
			t.Errorf("again: %+v, %v", again, err)
		}
	}
	// More partitions than asked for are fine, fewer are not.
	fewer := spec
	fewer.Partitions = 1
	if got, err := a.EnsureTopic(ctx, fewer, true); err != nil || got.Partitions != 3 {
		t.Errorf("more partitions than needed: %+v, %v", got, err)
	}
	_, err = a.EnsureTopic(ctx, TopicSpec{Name: "there", Partitions: 5}, true)
	if !errors.Is(err, ErrFewPartitions) || !strings.Contains(err.Error(), `"there" has 2, 5 are needed`) {
		t.Errorf("too few partitions: %v", err)
	}
}

// Two workers start at the same time: the second one's creation fails with
// TOPIC_ALREADY_EXISTS, and it takes what is there.
func TestEnsureTopicRace(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t)
	a := admin(t, b)
	made := make(chan error, 1)
	b.Cluster().ControlKey(int16(kmsg.CreateTopics), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().DropControl()
		made <- b.Cluster().CreateTopic("dlq", 4, nil)
		return nil, nil, false
	})
	got, err := a.EnsureTopic(limited(t), TopicSpec{Name: "dlq", Partitions: 3}, true)
	if err != nil || got.Partitions != 4 {
		t.Errorf("EnsureTopic = %+v, %v; want the other's 4 partitions", got, err)
	}
	if err := <-made; err != nil {
		t.Errorf("the other worker: %v", err)
	}
}

func TestEnsureTopicWithoutTheRight(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.SASL("PLAIN", "admin", "secret"),
		embedded.Kfake(kfake.EnableACLs()))
	a := admin(t, b)
	b.Fail(kmsg.CreateTopics, kerr.TopicAuthorizationFailed, 1)
	_, err := a.EnsureTopic(limited(t), TopicSpec{Name: "dlq", Partitions: 1}, true)
	if !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), "kafka-topics.sh") || !strings.Contains(err.Error(), `"dlq"`) {
		t.Errorf("without the right: %v", err)
	}
	// More replicas than brokers.
	_, err = a.EnsureTopic(limited(t), TopicSpec{Name: "dlq", Partitions: 1, Replication: 3}, true)
	if !errors.Is(err, kerr.InvalidReplicationFactor) {
		t.Errorf("replication 3 on one broker: %v", err)
	}
}

func TestTopicSpecMistakes(t *testing.T) {
	t.Parallel()
	a := admin(t, embedded.Start(t))
	for want, spec := range map[string]TopicSpec{
		"name is empty":    {Partitions: 1},
		"is reserved":      {Name: "..", Partitions: 1},
		"250 characters":   {Name: strings.Repeat("x", 250), Partitions: 1},
		`'/' is not`:       {Name: "a/b", Partitions: 1},
		"0 partitions":     {Name: "a"},
		"replication -1":   {Name: "a", Partitions: 1, Replication: -1},
		"replication 4000": {Name: "a", Partitions: 1, Replication: 40000},
	} {
		if _, err := a.EnsureTopic(limited(t), spec, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	if err := CheckTopicName(strings.Repeat("x", 249)); err != nil {
		t.Error(err)
	}
}

func TestCommandIsQuoted(t *testing.T) {
	t.Parallel()
	spec := TopicSpec{Name: "t", Partitions: 1, Config: map[string]string{"b": "it's", "a": "x y"}}
	want := `kafka-topics.sh --bootstrap-server h:1,i:2 --create --topic t --partitions 1 --config 'a=x y' --config 'b=it'\''s'`
	if got := spec.command([]string{"h:1", "i:2"}); got != want {
		t.Errorf("command = %s\nwant      %s", got, want)
	}
	if got := shellQuote(""); got != "''" {
		t.Errorf("the empty word is %s", got)
	}
}
