package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/offsets"
	"github.com/killick-io/killick/testenv/embedded"
)

// toy is a program that does what killick promises, by hand, on the embedded broker: it consumes "in" in a group, has an
// effect and an output for each record and dead letters for some, and commits. fault is what it does wrong.
type toy struct {
	t       *testing.T
	ctx     context.Context
	b       cluster
	name    string // of the group, and the beginning of the topics' names
	id      [16]byte
	cl      *kgo.Client
	w       *Watcher
	out     *os.File
	seq     int64
	fault   string
	batches int
}

const toyRecords = 120

// dead reports whether a record cannot be processed.
func dead(r *kgo.Record) bool { return r.Offset%29 == 7 }

func (x *toy) rules() Rules {
	return Rules{
		ID: func(r *kgo.Record) string { return string(r.Value) },
		Want: func(r *kgo.Record) Want {
			if dead(r) {
				return Want{Dead: true}
			}
			return Want{Effect: true, Outputs: []Output{{Topic: x.name + "out", Key: r.Key, Value: r.Value}}}
		},
		Made: func(out *kgo.Record) (m Made, err error) {
			h, _ := header(out, "origin")
			_, err = fmt.Sscanf(h, "%d@%d", &m.Partition, &m.Offset)
			m.Topic, m.Key, m.Value = x.name+"in", out.Key, out.Value
			return m, err
		},
		Order: PerPartition,
	}
}

// run does the work, and judges it.
func (x *toy) run(r Rules) *Report {
	t := x.t
	x.ctx = limited(t)
	cl := client(t, x.b)
	txn := client(t, x.b, kgo.TransactionalID(x.name))
	for topic, n := range map[string]int32{"in": 2, "out": 3, "dlq": 2} {
		made, err := kadm.NewClient(cl).CreateTopic(x.ctx, n, 1, nil, x.name+topic)
		if err != nil {
			t.Fatal(err)
		}
		if topic == "in" {
			x.id = made.ID
		}
	}
	for i := range toyRecords {
		rec := &kgo.Record{Topic: x.name + "in", Partition: int32(i % 2), Key: fmt.Append(nil, i%5), Value: fmt.Append(nil, i)}
		switch {
		case i%40 == 10:
			transaction(t, txn, kgo.TryAbort, &kgo.Record{Topic: x.name + "in", Partition: 1, Value: []byte("aborted")})
			fallthrough
		case i%40 == 11:
			transaction(t, txn, kgo.TryCommit, rec)
		default:
			if err := cl.ProduceSync(x.ctx, rec).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	target := Target{Group: x.name, Inputs: []string{x.name + "in"}, Outputs: []string{x.name + "out"}, DeadLetters: []string{x.name + "dlq"}}
	var err error
	if x.w, err = Watch(cl, target, WatchConfig{Every: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	defer x.w.Close()
	dir := t.TempDir()
	if x.out, err = os.OpenFile(filepath.Join(dir, "toy-1.jsonl"), os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		t.Fatal(err)
	}
	x.write(line{Kind: "start"})
	x.work()
	x.write(line{Kind: "end"})
	if err := x.out.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := x.w.Stop(x.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if h.Events, err = EventDir(dir); err != nil {
		t.Fatal(err)
	}
	rep, err := Check(r, h)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func (x *toy) write(l line) {
	x.seq++
	l.At, l.Seq, l.Proc, l.Life, l.PID = time.Now().UnixNano(), x.seq, "toy", 1, int64(os.Getpid())
	b, err := json.Marshal(l)
	if err == nil {
		_, err = x.out.Write(append(b, '\n'))
	}
	if err != nil {
		x.t.Fatal(err)
	}
}

// work runs the group until all is committed.
func (x *toy) work() {
	isolation := kgo.ReadCommitted()
	if x.fault == "aborted read" {
		isolation = kgo.ReadUncommitted()
	}
	x.cl = client(x.t, x.b, kgo.ConsumerGroup(x.name), kgo.ConsumeTopics(x.name+"in"), kgo.DisableAutoCommit(), kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords())
	at := map[int32]int64{}
	for x.ctx.Err() == nil {
		fs := x.cl.PollRecords(x.ctx, 10)
		if err := fs.Err(); err != nil && x.ctx.Err() == nil {
			x.t.Fatal(err)
		}
		fs.EachPartition(func(p kgo.FetchTopicPartition) {
			if len(p.Records) == 0 {
				return
			}
			x.batches++
			next := p.Records[len(p.Records)-1].Offset + 1
			x.batch(p.Partition, p.Records, next)
			at[p.Partition] = next
		})
		ends, err := kadm.NewClient(x.cl).ListEndOffsets(x.ctx, x.name+"in")
		if err != nil {
			x.t.Fatal(err)
		}
		if ends := ends[x.name+"in"]; at[0] == ends[0].Offset && at[1] == ends[1].Offset {
			return
		}
	}
}

// batch processes records of one partition and commits behind them. The fault is at the last record of the third batch.
func (x *toy) batch(p int32, rs []*kgo.Record, next int64) {
	fault := ""
	if x.batches == 3 || x.fault == "aborted read" {
		fault = x.fault
	}
	rs = slices.DeleteFunc(slices.Clone(rs), func(r *kgo.Record) bool { return r.Attrs.IsControl() })
	at := len(rs) - 1
	for at > 0 && dead(rs[at]) {
		at--
	}
	for i, r := range rs {
		here := i == at
		switch {
		case dead(r):
			if x.fault != "dead letter missing" || r.Offset != 7 || r.Partition != 0 {
				x.letter(r)
			}
		case fault == "early commit" && here:
			x.commit(p, next)
			x.effect(r, r)
			x.output(r, r.Value)
		case fault == "early output" && here:
			x.effect(r, r)
			x.commit(p, next)
			err := x.w.Wait(x.ctx, func(s Sample) bool {
				for _, c := range s.Positions {
					if c.Partition == p && c.Next >= next {
						return true
					}
				}
				return false
			})
			if err != nil {
				x.t.Fatal(err)
			}
			x.output(r, r.Value)
		case fault == "loss" && here:
			x.output(r, r.Value)
		case fault == "lost output" && here:
			x.effect(r, r)
		case fault == "duplicate" && here:
			x.effect(r, r)
			x.effect(r, r)
			x.output(r, r.Value)
		case fault == "swap" && here:
			other := *rs[0]
			other.Offset = r.Offset
			x.effect(r, &other)
			x.output(r, r.Value)
		case fault == "swapped output" && here:
			x.effect(r, r)
			other := rs[0]
			x.output(&kgo.Record{Partition: p, Offset: r.Offset, Key: other.Key}, other.Value)
		default:
			x.effect(r, r)
			x.output(r, r.Value)
		}
	}
	switch fault {
	case "regress":
		x.commit(p, next)
		x.commit(p, next-5)
	case "foreign":
		x.produce(&kgo.Record{Topic: x.name + "out", Partition: 2, Value: []byte("stranger")})
	}
	x.commit(p, next)
}

func (x *toy) effect(r, named *kgo.Record) {
	key, id := string(named.Key), string(named.Value)
	topic := x.name + "in"
	l := line{Kind: "effect", Topic: &topic, Partition: &r.Partition, Offset: &r.Offset, ID: &id, Attempt: 1}
	if named.Key != nil {
		l.Key = &key
	}
	x.write(l)
}

func (x *toy) output(r *kgo.Record, value []byte) {
	x.produce(&kgo.Record{Topic: x.name + "out", Partition: r.Partition, Key: r.Key, Value: value,
		Headers: []kgo.RecordHeader{{Key: "origin", Value: fmt.Appendf(nil, "%d@%d", r.Partition, r.Offset)}}})
}

func (x *toy) letter(r *kgo.Record) {
	x.produce(&kgo.Record{Topic: x.name + "dlq", Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: []kgo.RecordHeader{
		{Key: "killick-dlq-topic", Value: []byte(x.name + "in")},
		{Key: "killick-dlq-partition", Value: fmt.Append(nil, r.Partition)},
		{Key: "killick-dlq-offset", Value: fmt.Append(nil, r.Offset)},
	}})
}

func (x *toy) produce(r *kgo.Record) {
	if err := x.cl.ProduceSync(x.ctx, r).FirstErr(); err != nil {
		x.t.Fatal(err)
	}
}

// commit commits in plain sight.
func (x *toy) commit(p int32, next int64) {
	member, generation := x.cl.GroupMetadata()
	g, topic := x.name, x.name+"in"
	l := line{Kind: "commit", Group: &g, Topic: &topic, Partition: &p, Next: &next, Generation: &generation, Member: member, Request: x.seq + 1,
		Metadata: offsets.Encode(offsets.Map{Base: next, Next: next, Held: offsets.State{TakenOver: true, Suspect: offsets.None}})}
	x.write(l)
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = x.name, member, generation
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = topic, x.id
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset, rp.Metadata = p, next, &l.Metadata
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(x.ctx, x.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		x.t.Fatal(err)
	}
	l.Kind, l.Metadata = "committed", ""
	x.write(l)
}

// toyFaults are what the toy can do wrong, and how it is found.
var toyFaults = []struct {
	fault string
	want  Kind
	topic string
}{
	{"early commit", EarlyCommit, "in"},
	{"early output", EarlyCommit, "in"},
	{"loss", Loss, "in"},
	{"lost output", Loss, "in"},
	{"duplicate", Duplicate, "in"},
	{"swap", Swap, "in"},
	{"swapped output", Swap, "in"},
	{"regress", Regress, "in"},
	{"foreign", Foreign, "out"},
	{"dead letter missing", DeadLetterMissing, "in"},
}

// toys runs the toy without fault, which is found clean, and with each fault (or only some), which is found as what it is, once.
func toys(t *testing.T, b cluster, prefix string, only ...string) {
	name := func(fault string) string { return prefix + strings.ReplaceAll(fault, " ", "-") + "." }
	t.Run("clean", func(t *testing.T) {
		x := &toy{t: t, b: b, name: name("clean")}
		rep := x.run(x.rules())
		rep.Fatal(t)
		if got := rep.Totals; got.Inputs != toyRecords || got.Effects+got.DeadLetters != toyRecords || got.Outputs != got.Effects || got.Aborted != 3 ||
			got.Samples < 2 || got.Maps == 0 {
			t.Errorf("%+v", got)
		}
		t.Log(rep)
	})
	for _, tt := range toyFaults {
		if len(only) > 0 && !slices.Contains(only, tt.fault) {
			continue
		}
		t.Run(tt.fault, func(t *testing.T) {
			x := &toy{t: t, b: b, name: name(tt.fault), fault: tt.fault}
			rep := x.run(x.rules())
			if len(rep.Findings) != 1 || rep.Counts[tt.want] != 1 || rep.Findings[0].Topic != x.name+tt.topic || rep.Findings[0].Offset < 0 {
				t.Errorf("want one %s in %s\n%v", tt.want, x.name+tt.topic, rep)
			}
		})
	}
	t.Run("aborted read", func(t *testing.T) {
		x := &toy{t: t, b: b, name: name("aborted"), fault: "aborted read"}
		rep := x.run(x.rules())
		// The effect and the output of each of the three.
		if rep.Count(AbortedRead) != 6 || len(rep.Findings) != 6 {
			t.Errorf("%v", rep)
		}
	})
}

func TestToy(t *testing.T) { toys(t, embedded.Start(t), "") }

// TestWatcherOutage: samples that fail are left out, and said so. The bound on memory is one.
func TestWatcherOutage(t *testing.T) {
	ctx := limited(t)
	b := embedded.Start(t, embedded.Topic("in", 1))
	cl := client(t, b)
	target := Target{Group: "g", Inputs: []string{"in"}}
	w, err := Watch(cl, target, WatchConfig{Every: time.Millisecond, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Wait(ctx, func(s Sample) bool { return s.Committed("in") }); err != nil {
		t.Fatal(err)
	}
	f := b.Fail(kmsg.ListOffsets, kerr.TopicAuthorizationFailed, -1)
	if err := f.Wait(ctx, 2); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := w.Wait(short, func(Sample) bool { return false }); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Error(err)
	}
	f.Remove()
	if err := w.Wait(ctx, func(Sample) bool { return true }); err != nil {
		t.Fatal(err)
	}
	h, err := w.Stop(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Notes) != 2 || !strings.Contains(h.Notes[1], "samples failed") {
		t.Errorf("%q", h.Notes)
	}
	if err := w.Wait(ctx, func(Sample) bool { return false }); err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Error(err)
	}

	if w, err = Watch(cl, target, WatchConfig{Every: time.Millisecond, Most: 1}); err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(ctx, func(Sample) bool { return true }); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.mu.Lock()
		looked := w.looked
		w.mu.Unlock()
		<-looked
	}
	w.Close()
	if n := len(w.samples); n != 1 { // nothing is kept beyond the bound
		t.Errorf("%d samples", n)
	}
	if _, err := w.Stop(ctx); err == nil || !strings.Contains(err.Error(), "WatchConfig.Most") {
		t.Error(err)
	}
}
