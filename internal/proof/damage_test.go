//go:build unix && killick_crash

package proof

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/kafkaenv"
	"github.com/killick-io/killick/worker"
)

// batches calls f with each batch of a log file: the broker's bytes, of which f may change some.
func batches(t *testing.T, name string, f func(base int64, batch []byte)) {
	t.Helper()
	log, err := os.ReadFile(name)
	must(t, err)
	for at := 0; at+12 <= len(log); {
		end := at + 12 + int(binary.BigEndian.Uint32(log[at+8:]))
		if end > len(log) {
			t.Fatalf("%s ends in the middle of a batch", name)
		}
		f(int64(binary.BigEndian.Uint64(log[at:])), log[at:end])
		at = end
	}
	must(t, os.WriteFile(name, log, 0o644))
}

// TestDamagedSegment (row 68): a byte of a segment has changed on the disk, and a batch of another one is
// compressed by nothing that anybody knows. Their partitions stop and are named, up to there all is
// committed, and a third goes on.
func TestDamagedSegment(t *testing.T) {
	t.Parallel()
	k := kafkaenv.Start(t, kafkaenv.Topic("in", 3))
	w := newWorld(t, k)
	for p := range int32(3) {
		for i := range 6 { // a batch of each
			w.write("in", p, fmt.Sprint(p, "/", i))
		}
	}
	b := k.Brokers()[0]
	must(t, b.Stop(w.ctx())) // cleanly: it would find out itself after a crash, and cut the log
	// The field of a batch: a checksum at 17, over all from 21 on; attributes at 21.
	segment := func(p int) string {
		found, err := filepath.Glob(filepath.Join(k.Dir(), "*", "*", fmt.Sprintf("in-%d", p), "00000000000000000000.log"))
		if err != nil || len(found) != 1 {
			more, _ := filepath.Glob(filepath.Join(k.Dir(), "*", "*"))
			t.Fatalf("segments of in-%d: %v, %v, of %v", p, found, err, more)
		}
		return found[0]
	}
	batches(t, segment(0), func(base int64, batch []byte) {
		if base == 3 {
			batch[len(batch)-2] ^= 0x10
		}
	})
	batches(t, segment(1), func(base int64, batch []byte) {
		if base == 2 {
			batch[22] |= 7 // no codec of Kafka's
			binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli)))
		}
	})
	must(t, b.Start(w.ctx()))
	w.connect()
	var c tally
	top := killick.New("damage")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("count", c.count()).Shuffle("in")
	r := w.start(top)
	w.until("both partitions have stopped, by name", func() bool {
		ok, checks := r.Ready()
		text := fmt.Sprint(checks)
		return !ok && strings.Contains(text, "in/0 has stopped") && strings.Contains(text, "offset 3") && strings.Contains(text, "crc") &&
			strings.Contains(text, "in/1 has stopped") && strings.Contains(text, "offset 2") && strings.Contains(text, "compression")
	})
	w.write("in", 2, "2/6", "2/7")
	w.until("all that can be read is committed", func() bool {
		at := w.committed("in")
		return at[0] == 3 && at[1] == 2 && at[2] == 8
	})
	if n := strings.Count(w.logs.text(), "cannot be read"); n > 8 {
		t.Errorf("%d lines about it", n)
	}
	r.end()
	c.once(t, "0/0", "0/1", "0/2", "1/0", "1/1", "2/0", "2/1", "2/2", "2/3", "2/4", "2/5", "2/6", "2/7")
}

// TestRightsAreTaken (rows 69 and 74): while it runs, a worker may not write dead letters any more, then may
// again; then it may not read its topic any more. Of the first nothing is lost, by the second it ends.
func TestRightsAreTaken(t *testing.T) {
	t.Parallel()
	k := kafkaenv.Start(t, kafkaenv.User("orders", canary), kafkaenv.ACLs())
	w := newWorld(t, k)
	in := w.topic("in", 1)
	prefix := w.name + "."
	dead := in + ".rights.dlq"
	w.topic("in.rights.dlq", 1)
	allow := func(b *kadm.ACLBuilder) *kadm.ACLBuilder {
		return b.Allow("User:orders").AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral)
	}
	read := allow(kadm.NewACLs().Operations(kadm.OpRead, kadm.OpDescribe).Topics(in))
	group := allow(kadm.NewACLs().Operations(kadm.OpRead, kadm.OpDescribe).Groups(prefix + "g"))
	write := allow(kadm.NewACLs().Operations(kadm.OpWrite, kadm.OpDescribe).Topics(dead))
	grant := func(b *kadm.ACLBuilder) {
		got, err := w.adm.CreateACLs(w.ctx(), b)
		must(t, err)
		for _, r := range got {
			must(t, r.Err)
		}
	}
	take := func(b *kadm.ACLBuilder) {
		got, err := w.adm.DeleteACLs(w.ctx(), b)
		must(t, err)
		for _, r := range got {
			must(t, r.Err)
		}
	}
	grant(read)
	grant(group)
	grant(write)
	top := killick.New("rights")
	top.Spout("in", spout.Kafka(in))
	top.Bolt("pay", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		if strings.HasPrefix(string(in.Bytes()), "bad") {
			return killick.Permanent(errNo)
		}
		return nil
	})).Shuffle("in")
	r := w.start(top, func(c *worker.Config) {
		c.Bootstrap, c.Group = k.AddrsOf(kafkaenv.SASL), prefix+"g"
		c.SecurityProtocol, c.SASL = "sasl_plaintext", worker.SASL{Mechanism: "SCRAM-SHA-256", User: "orders", Password: worker.NewSecret(canary)}
	})
	w.name = prefix + "g" // whose positions are looked at
	w.write(in, 0, "good", "bad 1")
	w.drained(in)

	take(write)
	w.write(in, 0, "good", "bad 2", "good")
	w.until("it is not ready, and names the topic", func() bool {
		ok, checks := r.Ready()
		return !ok && strings.Contains(fmt.Sprint(checks), dead)
	})
	if at := w.committed(in)[0]; at > 3 {
		t.Errorf("committed %d, and the record at 3 is in no dead-letter topic", at)
	}
	grant(write)
	w.drained(in)
	if got := w.read(dead); len(got) != 2 {
		t.Errorf("%d dead letters", len(got))
	}

	take(read)
	err := r.wait()
	t.Log(err)
	if !says(err, "READ", in) || worker.ExitCode(err) != 1 {
		t.Errorf("exit code %d: %v", worker.ExitCode(err), err)
	}
	if at := w.committed(in)[0]; at != 5 {
		t.Errorf("committed %d, was 5", at)
	}
}

// TestSmallFetches (row 63): the smallest limits that there are, and records that are larger by far.
func TestSmallFetches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafka.Use(t))
	in := w.topic("in", 3)
	var want []string
	pad := make([]byte, 50_000)
	for p := range int32(3) {
		for i := range 20 {
			v := fmt.Sprint(p, "/", i)
			want = append(want, v)
			must(t, w.cl.ProduceSync(w.ctx(), &kgo.Record{Topic: in, Partition: p, Key: pad, Value: []byte(v)}).FirstErr())
		}
	}
	var c tally
	top := killick.New("small")
	top.Spout("in", spout.Kafka(in)).Pending(1, 1)
	top.Bolt("count", c.count()).Shuffle("in")
	r := w.start(top, func(c *worker.Config) { c.FetchMaxBytes, c.FetchMaxPartitionBytes = 1<<10, 1<<10 })
	w.drained(in)
	r.end()
	c.once(t, want...)
}
