package embedded

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/testenv/bubble"
)

// Ten minutes of a group member, with a rebalance, an outage and a hold, in
// virtual time.
func TestVirtualTime(t *testing.T) {
	real := time.Now()
	bubble.Test(t, func(t *testing.T) {
		b := StartVirtual(t, Topic("in", 4))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		slow := kgo.FetchMaxWait(5 * time.Second) // an idle poll costs real time
		one, id, gen := member(t, b, "g", "in", slow)
		for p := range int32(4) {
			if err := b.Produce(ctx, &kgo.Record{Topic: "in", Partition: p, Value: []byte("v")}); err != nil {
				t.Fatal(err)
			}
		}
		for n := 0; n < 4; {
			fs := one.PollFetches(ctx)
			if err := fs.Err(); err != nil {
				t.Fatal(err)
			}
			n += fs.NumRecords()
		}
		if _, err := commitRequest(b, "g", id, gen, "in", 0, 1, "").RequestWith(ctx, one); err != nil {
			t.Fatal(err)
		}

		// A held commit waits for as long as the gate, in virtual time.
		gate := make(chan struct{})
		time.AfterFunc(5*time.Second, func() { close(gate) })
		f := b.Hold(kmsg.OffsetCommit, gate)
		at := time.Now()
		if _, err := commitRequest(b, "g", id, gen, "in", 0, 1, "").RequestWith(ctx, one); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(at); d < 5*time.Second || d > 6*time.Second {
			t.Errorf("the held commit took %v, want 5 s", d)
		}
		f.Remove()

		two, _, _ := member(t, b, "g", "in", slow)
		if _, err := b.Cluster().WaitGroupStable(ctx, "g", 2); err != nil {
			t.Fatal(err)
		}

		// Ten minutes in which only heartbeats happen; polling keeps going.
		idle, stop := context.WithTimeout(ctx, 10*time.Minute)
		defer stop()
		for idle.Err() == nil {
			if err := one.PollFetches(idle).Err(); err != nil && idle.Err() == nil {
				t.Fatalf("the idle member: %v", err)
			}
		}
		two.Close()
		if d := time.Since(start); d < 10*time.Minute {
			t.Errorf("%v of virtual time passed, want 10 minutes", d)
		}
		if s := b.CommitsByNonOwners(); len(s) != 0 {
			t.Errorf("commits by non-owners: %+v", s)
		}
	})
	if d := time.Since(real); d > 20*time.Second {
		t.Errorf("took %v of real time", d)
	}
}

func TestVirtualTransactionAndOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := StartVirtual(t, Topic("out", 1), Brokers(2))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		cl := client(t, b, kgo.TransactionalID("x"), kgo.DefaultProduceTopic("out"), kgo.AlwaysRetryEOF())
		for i := range 4 {
			if err := cl.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if i == 2 {
				b.Down()
				time.AfterFunc(3*time.Second, func() {
					if err := b.Up(); err != nil {
						t.Error(err)
					}
				})
			}
			if err := cl.ProduceSync(ctx, kgo.StringRecord("v")).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if i == 3 {
				b.Fail(kmsg.EndTxn, kerr.ConcurrentTransactions, 2)
			}
			if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := b.ReadAll(ctx, "out"); err != nil || len(got) != 4 {
			t.Errorf("%d records, %v; want 4", len(got), err)
		}
	})
}

func TestVirtualTLSAndSASL(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cert, err := SelfSigned()
		if err != nil {
			t.Fatal(err)
		}
		b := StartVirtual(t, Topic("in", 1), TLS(cert.Server, cert.Client), SASL("SCRAM-SHA-256", "u", "p"))
		if err := b.Produce(t.Context(), &kgo.Record{Topic: "in"}); err != nil {
			t.Fatal(err)
		}
	})
}

// A member whose heartbeats do not arrive for longer than its session is
// evicted, in no real time, and learns it when the network is back.
func TestVirtualEviction(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := StartVirtual(t, Topic("in", 1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		lost := make(chan struct{}, 1)
		member(t, b, "g", "in", kgo.SessionTimeout(5*time.Second),
			kgo.OnPartitionsLost(func(context.Context, *kgo.Client, map[string][]int32) {
				select {
				case lost <- struct{}{}:
				default:
				}
			}))
		at := time.Now()
		f := b.Hold(kmsg.Heartbeat, make(chan struct{}))
		_, err := b.Cluster().WaitGroupInfo(ctx, "g", func(g *kfake.GroupInfo) bool { return g == nil || len(g.Members) == 0 })
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(at); d < 4*time.Second || d > 6*time.Second {
			t.Errorf("evicted after %v, want the session of 5 s", d)
		}
		f.Remove()
		select {
		case <-lost:
		case <-ctx.Done():
			t.Fatal("OnPartitionsLost was not called")
		}
	})
}

// On the virtual network errors are the ones of TCP, since clients decide by
// them whether to try again.
func TestVirtualErrorsAreTCPs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := StartVirtual(t)
		dial, addr := b.Dialer(), b.Addrs()[0]
		conn, err := dial(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		b.Down()
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("read from a broker that hung up: %v", err)
		}
		if _, err := conn.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write to a broker that hung up: %v", err)
		}
		conn.Close()
		if _, err := conn.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write after Close: %v", err)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read after Close: %v", err)
		}
		if _, err := dial(t.Context(), "tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial while down: %v", err)
		}
		var dns *net.DNSError
		if _, err := dial(t.Context(), "tcp", "elsewhere:1"); !errors.As(err, &dns) {
			t.Errorf("dial of another host: %v", err)
		}
		if _, err := dial(t.Context(), "tcp", "no port"); err == nil {
			t.Error("dial of no address")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.Up(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if c, err := dial(ctx, "tcp", addr); err == nil {
			c.Close() // the accept was as fast as the cancel: fine
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("dial with an ended context: %v", err)
		}
	})
}
