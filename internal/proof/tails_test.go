//go:build unix && killick_crash

package proof

import (
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/kafkaenv"
)

// transaction writes values to partition 0 in one transaction and returns what ends it.
func (w *world) transaction(topic string, how kgo.TransactionEndTry, values ...string) (end func()) {
	w.Helper()
	cl, err := kgo.NewClient(w.k.ClientOpts(kgo.TransactionalID(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(cl.Close)
	if err := cl.BeginTransaction(); err != nil {
		w.Fatal(err)
	}
	for _, v := range values {
		if err := cl.ProduceSync(w.ctx(), &kgo.Record{Topic: topic, Key: []byte("t"), Value: []byte(v)}).FirstErr(); err != nil {
			w.Fatal(err)
		}
	}
	return func() {
		w.Helper()
		if err := cl.EndTransaction(w.ctx(), how); err != nil {
			w.Fatal(err)
		}
	}
}

// keyed writes key, value pairs; no value is a tombstone.
func (w *world) keyed(topic string, pairs ...string) {
	w.Helper()
	for i := 0; i < len(pairs); i += 2 {
		r := &kgo.Record{Topic: topic, Key: []byte(pairs[i]), Value: []byte(pairs[i+1])}
		if pairs[i+1] == "" {
			r.Value = nil
		}
		if err := w.cl.ProduceSync(w.ctx(), r).FirstErr(); err != nil {
			w.Fatal(err)
		}
	}
}

// visible are the offsets of a topic that a reader gets.
func (w *world) visible(topic string) (all []int64) {
	w.Helper()
	for _, r := range w.read(topic) {
		all = append(all, r.Offset)
	}
	return all
}

// TestEveryTail (S8, rows 10 and 11): whatever a log ends with, what is committed reaches its end
// within 15 seconds without new input, and a restart runs nothing again.
func TestEveryTail(t *testing.T) {
	t.Parallel()
	k := cluster(t, kafkaenv.Property("log.cleaner.backoff.ms", "100"), kafkaenv.Property("log.retention.check.interval.ms", "300"),
		kafkaenv.Property("log.initial.task.delay.ms", "100"))
	w := newWorld(t, k)
	compacted := []string{"cleanup.policy", "compact", "segment.ms", "100", "min.cleanable.dirty.ratio", "0.0001", "delete.retention.ms", "0"}
	want := map[string][]string{} // what runs, by topic
	var later []func()

	aborted := w.topic("aborted", 1)
	w.write(aborted, 0, "a")
	w.transaction(aborted, kgo.TryAbort, "no", "no either")()
	want[aborted] = []string{"a"}

	marker := w.topic("marker", 1)
	w.transaction(marker, kgo.TryCommit, "a", "b")()
	want[marker] = []string{"a", "b"}

	open := w.topic("open", 1)
	w.write(open, 0, "a")
	later = append(later, w.transaction(open, kgo.TryAbort, "no"))
	want[open] = []string{"a"}

	deleted := w.topic("deleted", 1)
	w.write(deleted, 0, numbers(0, 20)...)
	if _, err := w.adm.DeleteRecords(w.ctx(), kadm.Offsets{deleted: {0: {Topic: deleted, At: 20}}}); err != nil {
		t.Fatal(err)
	}
	want[deleted] = nil

	// Retention takes all that there is, also of the segment that is written to.
	expired := w.topic("expired", 1, "retention.ms", "1", "segment.ms", "100")
	w.write(expired, 0, "old", "older")
	w.until("retention has taken all", func() bool { return len(w.visible(expired)) == 0 })
	keep := "-1"
	if _, err := w.adm.AlterTopicConfigs(w.ctx(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &keep}}, expired); err != nil {
		t.Fatal(err)
	}
	want[expired] = nil

	// The tombstone was the last record of its segment; the segment after it has an aborted transaction
	// and nothing else. Neither it nor what it deletes is there any more, so no record that is read
	// shows where the log ends.
	hole := w.topic("hole", 1, compacted...)
	w.keyed(hole, "k", "old", "l", "a", "k", "b", "m", "gone", "m", "")
	w.until("the tail is compacted away", func() bool {
		w.transaction(hole, kgo.TryAbort, "no")() // the first one after segment.ms closes the segment
		got := w.visible(hole)
		return len(got) == 2 && got[0] == 1 && got[1] == 2
	})
	want[hole] = []string{"a", "b"}

	var c tally
	top := func() *killick.Topology {
		top := killick.New("tails")
		var topics []string
		for name := range maps.Keys(want) {
			topics = append(topics, name)
		}
		top.Spout("in", spout.Kafka(topics...))
		top.Bolt("count", c.countTopics()).Shuffle("in")
		return top
	}
	var all []string
	for topic, values := range want {
		for _, v := range values {
			all = append(all, topic+" "+v)
		}
	}
	start := time.Now()
	r := w.start(top())
	for topic := range want {
		if topic != open {
			w.drained(topic)
		}
	}
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("the ends are committed after %v", took)
	}
	for _, end := range later {
		end()
	}
	start = time.Now()
	w.drained(open)
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("the end of the transaction that was open is committed after %v", took)
	}
	r.end()
	c.once(t, all...)

	// A restart runs nothing that was there before.
	c.clear()
	r = w.start(top())
	all = nil
	for topic := range want {
		w.keyed(topic, "new", "new")
		all = append(all, topic+" new")
	}
	for topic := range want {
		w.drained(topic)
	}
	r.end()
	c.once(t, all...)
}
