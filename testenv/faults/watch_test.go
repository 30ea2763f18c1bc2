package faults

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/testenv/verify"
)

// told is what an event file says of commits, as text.
func told(evs []verify.Event) (out []string) {
	for _, e := range evs {
		switch e.Kind {
		case "commit":
			out = append(out, fmt.Sprintf("%s %s/%d %d gen %d member %q txn %q meta %q", e.Group, e.Topic, e.Partition, e.Next, e.Generation, e.Member, e.Txn, e.Metadata))
		case "committed":
			out = append(out, fmt.Sprintf("%s/%d %d: %q%s", e.Topic, e.Partition, e.Next, e.Error, e.Metadata))
		}
	}
	return out
}

// What a client commits, in a group and in a transaction, by topic names and by ids, is in its event
// file: before the broker has it, and with its answer before the client has that.
func TestDialer(t *testing.T) {
	for _, way := range []string{"dialer", "proxy"} {
		t.Run(way, func(t *testing.T) {
			dir := t.TempDir()
			b := embedded.Start(t, embedded.Topic("in", 2))
			log, err := CreateLog(dir, "w", 1)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { log.Close() })
			through := []kgo.Opt{kgo.Dialer(log.Dialer(nil))}
			if way == "proxy" {
				p, err := NewProxy(ProxyConfig{Brokers: b.Addrs(), Events: log})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(p.Close)
				through = []kgo.Opt{kgo.SeedBrokers(p.Addrs()...)}
			}
			client := func(opts ...kgo.Opt) *kgo.Client {
				cl, err := kgo.NewClient(b.ClientOpts(append(opts, through...)...)...)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(cl.Close)
				return cl
			}
			b.Fail(kmsg.OffsetCommit, kerr.CoordinatorLoadInProgress, 1)
			cl := client(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("in"), kgo.DisableAutoCommit())
			if err := b.Produce(limited(t), &kgo.Record{Topic: "in", Partition: 1, Value: []byte("a")}); err != nil {
				t.Fatal(err)
			}
			cl.PollFetches(limited(t))
			if err := cl.CommitUncommittedOffsets(limited(t)); err != nil { // tried again
				t.Error(err)
			}
			member, gen := cl.GroupMetadata()
			byName := kmsg.NewPtrOffsetCommitRequest()
			byName.Group, byName.MemberID, byName.Generation = "g", member, gen
			rt := kmsg.NewOffsetCommitRequestTopic()
			rt.Topic, rt.TopicID = "in", b.Cluster().TopicInfo("in").TopicID
			for p := range int32(3) { // the last does not exist
				rp := kmsg.NewOffsetCommitRequestTopicPartition()
				meta := "m"
				rp.Partition, rp.Offset, rp.Metadata = p, int64(p), &meta
				rt.Partitions = append(rt.Partitions, rp)
			}
			byName.Topics = append(byName.Topics, rt)
			if _, err := byName.RequestWith(limited(t), cl); err != nil {
				t.Fatal(err)
			}
			txn := client(kgo.TransactionalID("x"))
			if err := txn.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			id, epoch, err := txn.ProducerID(limited(t))
			if err != nil {
				t.Fatal(err)
			}
			inTxn := kmsg.NewPtrTxnOffsetCommitRequest()
			inTxn.TransactionalID, inTxn.Group, inTxn.ProducerID, inTxn.ProducerEpoch = "x", "g", id, epoch
			inTxn.MemberID, inTxn.Generation = member, gen+9
			xt := kmsg.NewTxnOffsetCommitRequestTopic()
			xt.Topic, xt.TopicID = rt.Topic, rt.TopicID
			xp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			xp.Offset = 5
			xt.Partitions = append(xt.Partitions, xp)
			inTxn.Topics = append(inTxn.Topics, xt)
			if _, err := inTxn.RequestWith(limited(t), txn); err != nil {
				t.Fatal(err)
			}
			if err := log.End(0); err != nil {
				t.Fatal(err)
			}
			evs := events(t, dir)["w-1.jsonl"]
			first := fmt.Sprintf("g in/1 1 gen %d member %q txn \"\" meta %q", gen, member, member) // as kgo does
			want := []string{
				first, `in/1 1: "COORDINATOR_LOAD_IN_PROGRESS"`, first, `in/1 1: ""`,
				fmt.Sprintf("g in/0 0 gen %d member %q txn \"\" meta \"m\"", gen, member),
				fmt.Sprintf("g in/1 1 gen %d member %q txn \"\" meta \"m\"", gen, member),
				fmt.Sprintf("g in/2 2 gen %d member %q txn \"\" meta \"m\"", gen, member),
				`in/0 0: ""`, `in/1 1: ""`, `in/2 2: "UNKNOWN_TOPIC_OR_PARTITION"`,
				fmt.Sprintf("g in/0 5 gen %d member %q txn \"x\" meta \"\"", gen+9, member),
				`in/0 5: "ILLEGAL_GENERATION"`,
			}
			if got := told(evs); !slices.Equal(got, want) {
				t.Errorf("got\n%q\nwant\n%q", got, want)
			}
			requests := map[int64]int{}
			for _, e := range evs {
				if e.Kind == "commit" || e.Kind == "committed" {
					requests[e.Request]++
				}
			}
			if len(requests) != 4 || requests[1] != 2 || requests[2] != 2 || requests[3] != 6 || requests[4] != 2 {
				t.Errorf("lines by request: %v", requests)
			}
			// Before the broker had it, and before the client had the answer.
			var sent []verify.Event
			for _, e := range evs {
				if e.Kind == "commit" {
					sent = append(sent, e)
				}
			}
			commits := b.Commits()
			if len(commits) != len(sent) {
				t.Fatalf("%d commits, %d noted", len(commits), len(sent))
			}
			for i, c := range commits {
				if e := sent[i]; e.At > c.Received.UnixNano() || e.Next != c.Offset || e.Partition != c.Partition {
					t.Errorf("noted as %+v: %+v", e, c)
				}
			}
		})
	}
}

// A proxy's file has what rules did, copies, and answers that the client never got.
func TestProxyNotesFaults(t *testing.T) {
	dir := t.TempDir()
	b := embedded.Start(t, embedded.Topic("in", 1))
	log, err := CreateLog(dir, "proxy", 1)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProxy(ProxyConfig{Brokers: b.Addrs(), Events: log})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	Inject(t, p, Rule{Count: -1}) // Pass: nothing to tell
	later := Inject(t, p, Rule{Do: DuplicateLater, Keys: []kmsg.Key{kmsg.OffsetCommit}})
	drop := Inject(t, p, Rule{Do: DropAnswer, Keys: []kmsg.Key{kmsg.OffsetCommit}, After: 1})
	w := dial(t, p.Addrs()[0])
	w.ask(commit("in", at))
	later.Release()
	waitSeen(t, b, at, 2)
	for evs := 0; evs < 2; { // the answer to the copy is on its way
		evs = 0
		for _, e := range events(t, dir)["proxy-1.jsonl"] {
			if e.Kind == "committed" {
				evs++
			}
		}
	}
	w.send(commit("in", at+1))
	wait(t, drop, 1)
	p.Close()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events(t, dir)["proxy-1.jsonl"] {
		got = append(got, fmt.Sprint(e.Kind, " ", e.Next))
	}
	want := []string{"start 0", "fault 0", "commit 7", "committed 7", "commit 7", "committed 7", "commit 8", "committed 8", "fault 0"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	noErrors(t, p)
}

// A position that an answer leaves out has none; a code that nobody knows has a name all the same.
func TestAnswersOfPositions(t *testing.T) {
	dir := t.TempDir()
	log, err := CreateLog(dir, "w", 1)
	must(t, err)
	req := commit("in", at)
	for p := range int32(3) {
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset = p+1, int64(p)
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, rp)
	}
	c, err := noteCommit(log, new(topics), req, "me")
	must(t, err)
	resp := kmsg.NewPtrOffsetCommitResponse()
	rt := kmsg.NewOffsetCommitResponseTopic()
	rt.Topic = "in"
	rt.Partitions = []kmsg.OffsetCommitResponseTopicPartition{{Partition: 2, ErrorCode: 12345}, {Partition: 0}, {Partition: 9}}
	resp.Topics = append(resp.Topics, rt)
	must(t, c.answered(resp), log.End(0))
	got := told(events(t, dir)["w-1.jsonl"])
	if want := []string{`in/0 7: ""`, `in/2 1: "ERROR_12345"`}; len(got) != 6 || !slices.Equal(got[4:], want) {
		t.Errorf("%q, want %q at the end", got, want)
	}
}

// Nothing is committed that could not be noted.
func TestNoCommitWithoutNote(t *testing.T) {
	b := embedded.Start(t, embedded.Topic("in", 1))
	log, err := CreateLog(t.TempDir(), "w", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	nc, err := log.Dialer(nil)(limited(t), "tcp", b.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	w := &wire{TB: t, Conn: nc, f: kmsg.NewRequestFormatter()}
	if _, err := nc.Write(w.f.AppendRequest(nil, versions(), 1)); err != nil {
		t.Errorf("another request: %v", err)
	}
	if _, err := nc.Write(w.f.AppendRequest(nil, commit("in", at), 2)); !errors.Is(err, ErrLog) {
		t.Errorf("%v", err)
	}
	p, err := NewProxy(ProxyConfig{Brokers: b.Addrs(), Events: log})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	x := dial(t, p.Addrs()[0])
	x.send(commit("in", at))
	x.ends()
	if errs, _ := p.Errors(); len(errs) != 1 || !errors.Is(errs[0], ErrLog) {
		t.Errorf("%v", errs)
	}
	if seen(b, at) != 0 {
		t.Error("committed")
	}
}

func TestDialerFails(t *testing.T) {
	log, err := CreateLog(t.TempDir(), "w", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	no := errors.New("no")
	dial := log.Dialer(func(context.Context, string, string) (net.Conn, error) { return nil, no })
	if _, err := dial(limited(t), "tcp", "x:1"); !errors.Is(err, no) {
		t.Errorf("%v", err)
	}
}

// Frames are found in a stream however it is cut, and only those that are wanted are kept.
func TestSplitter(t *testing.T) {
	var stream []byte
	var want [][]byte
	sizes := []int{0, 3, 4, 5, 8, 100, 70_000, 4, 0, 9}
	for i, n := range sizes {
		body := bytes.Repeat([]byte{byte(i)}, n)
		f := frame(body...)
		stream = append(stream, f...)
		if n >= 4 && i%2 == 1 {
			want = append(want, f)
		}
	}
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var got [][]byte
		s := splitter{peek: 4, want: func(head []byte) bool { return head[3]%2 == 1 },
			frame: func(f []byte) error { got = append(got, bytes.Clone(f)); return nil }}
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), 1+rnd.IntN(1<<rnd.IntN(17)))
			if err := s.feed(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if len(got) != len(want) {
			t.Fatalf("seed %d: %d frames", seed, len(got))
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("seed %d: frame %d is %s", seed, i, hex.EncodeToString(got[i][:min(20, len(got[i]))]))
			}
		}
	}
	bad := errors.New("bad")
	s := splitter{peek: 1, want: func([]byte) bool { return true }, frame: func([]byte) error { return bad }}
	if err := s.feed(frame(1)); !errors.Is(err, bad) {
		t.Errorf("%v", err)
	}
}
