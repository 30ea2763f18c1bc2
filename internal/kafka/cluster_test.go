package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/killick-io/killick/testenv/bubble"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

func static(cfg *tls.Config) func() (*tls.Config, error) {
	return func() (*tls.Config, error) { return cfg, nil }
}

func TestClusterSaysEverythingThatIsWrong(t *testing.T) {
	t.Parallel()
	c := Cluster{Seeds: []string{"broker", "a:1", ":9092"}, Topology: strings.Repeat("t", 279)}
	_, err := NewConsumer(c, Consumer{})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`"broker" is not host:port`, `":9092" is not`, "has 300 bytes", "group is empty", "reads no topic", "no Start"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
	for _, err := range []error{Cluster{Topology: "t"}.validate(), Cluster{Seeds: []string{"a:1"}}.validate()} {
		if err == nil {
			t.Error("a cluster without seeds or topology passes")
		}
	}
	if _, err := NewAdminClient(Cluster{}); err == nil {
		t.Error("an admin client of the zero cluster")
	}
}

func TestClusterStringHasNoSecret(t *testing.T) {
	t.Parallel()
	c := Cluster{
		Seeds:    []string{"a:1", "b:2"},
		Topology: "orders",
		TLS:      static(&tls.Config{ServerName: "hidden"}),
		SASL:     plain.Auth{User: "u", Pass: "top-secret"}.AsMechanism(),
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		s := fmt.Sprintf(verb, c)
		if s != "a:1,b:2 (TLS on, SASL PLAIN)" {
			t.Errorf("%s: %q", verb, s)
		}
	}
}

// The dialer repeats refused dials for its window, in virtual time.
func TestDialerRepeatsForOneBroker(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		start := time.Now()
		back := start.Add(time.Second)
		dials := 0
		c := Cluster{Seeds: []string{"a:1"}, Dial: func(context.Context, string, string) (net.Conn, error) {
			dials++
			if time.Now().Before(back) {
				return nil, syscall.ECONNREFUSED
			}
			client, server := net.Pipe()
			t.Cleanup(func() { server.Close() })
			return client, nil
		}}
		conn, err := c.dialer().DialContext(t.Context(), "tcp", "a:1")
		if err != nil {
			t.Fatalf("the broker was back after 1 s: %v", err)
		}
		conn.Close()
		if d := time.Since(start); d < time.Second || d > 1200*time.Millisecond || dials < 10 {
			t.Errorf("connected after %v and %d dials", d, dials)
		}

		// For ever away: the window ends the dial.
		back = time.Now().Add(time.Hour)
		start = time.Now()
		if _, err := c.dialer().DialContext(t.Context(), "tcp", "a:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial = %v", err)
		}
		if d := time.Since(start); d < time.Second || d > 2*time.Second {
			t.Errorf("gave up after %v, want 1-2 s", d)
		}

		// The context ends it earlier.
		ctx, cancel := context.WithTimeout(t.Context(), 120*time.Millisecond)
		defer cancel()
		start = time.Now()
		if _, err := c.dialer().DialContext(ctx, "tcp", "a:1"); err == nil || time.Since(start) > 130*time.Millisecond {
			t.Errorf("dial with a short context = %v after %v", err, time.Since(start))
		}

		// With several brokers, configured or seen, there is one try.
		two := c
		two.Seeds = []string{"a:1", "b:1"}
		seen := c.dialer()
		for _, id := range []int32{-1 << 31, 1, 1, 2} {
			seen.OnBrokerConnect(kgo.BrokerMetadata{NodeID: id}, 0, nil, nil)
		}
		for name, d := range map[string]*dialer{"two seeds": two.dialer(), "two brokers": seen} {
			dials, start = 0, time.Now()
			if _, err := d.DialContext(t.Context(), "tcp", "a:1"); err == nil || dials != 1 || time.Since(start) != 0 {
				t.Errorf("%s: %v, %d dials, %v", name, err, dials, time.Since(start))
			}
		}
		one := c.dialer()
		one.OnBrokerConnect(kgo.BrokerMetadata{NodeID: 1}, 0, nil, nil)
		one.OnBrokerConnect(kgo.BrokerMetadata{NodeID: -1 << 31}, 0, nil, nil)
		if !one.oneBroker() {
			t.Error("a seed counts as a second broker")
		}
	})
}

// A refused dial of a group member looks as one that timed out, to kgo and only so far: people read
// what it was.
func TestPatientDialer(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	unknown := &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "nowhere", IsNotFound: true}}
	denied := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EPERM)}
	other := errors.New("other")
	for _, tt := range []struct {
		name    string
		err     error
		patient bool
		timeout bool
	}{
		{"refused", refused, true, true},
		{"refused, to another client", refused, false, false},
		{"no such host", unknown, true, false},
		{"not permitted", denied, true, false},
		{"no network's error", other, true, false},
	} {
		d := Cluster{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, tt.err }}.dialer()
		d.patient = tt.patient
		_, err := d.DialContext(t.Context(), "tcp", "a:1")
		var ne net.Error
		if timeout := errors.As(err, &ne) && ne.Timeout(); timeout != tt.timeout {
			t.Errorf("%s: a time-out: %v, want %v", tt.name, timeout, tt.timeout)
		}
		var sys *os.SyscallError
		if err.Error() != tt.err.Error() || errors.As(tt.err, &sys) && !errors.As(err, &sys) {
			t.Errorf("%s: %v, was %v", tt.name, err, tt.err)
		}
	}
}

// The only broker is away for longer than a session: who comes back to a coordinator that knows the
// member has lost nothing.
func TestMemberOutlivesItsBroker(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := embedded.StartVirtual(t, embedded.Topic("in", 1))
		assigned, lost := make(chan struct{}, 10), make(chan struct{}, 10)
		c := Cluster{Seeds: b.Addrs(), Topology: "t", Dial: b.Dialer()}
		start := kgo.NewOffset().AtStart()
		cl, err := NewConsumer(c, Consumer{Group: "g", Topics: []string{"in"}, Start: &start, SessionTimeout: 10 * time.Second,
			OnAssigned: func(context.Context, *kgo.Client, map[string][]int32) { assigned <- struct{}{} },
			OnLost:     func(context.Context, *kgo.Client, map[string][]int32) { lost <- struct{}{} }})
		if err != nil {
			t.Fatal(err)
		}
		defer cl.CloseAllowingRebalance()
		<-assigned
		for range 3 {
			b.Down()
			time.Sleep(9 * time.Second)
			if err := b.Up(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
		}
		if len(lost) > 0 || len(assigned) > 0 {
			t.Errorf("lost %d times, assigned %d times more", len(lost), len(assigned))
		}
	})
}

// A server that accepts and says nothing must not hold a dial for ever.
func TestDialerBoundsTLS(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := Cluster{Seeds: []string{"a:1"}, TLS: static(&tls.Config{}), Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			t.Cleanup(func() { server.Close() })
			go func() { // swallows the hello
				buf := make([]byte, 4096)
				for {
					if _, err := server.Read(buf); err != nil {
						return
					}
				}
			}()
			return client, nil
		}}
		start := time.Now()
		if _, err := c.dialer().DialContext(t.Context(), "tcp", "a:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dial = %v", err)
		}
		if d := time.Since(start); d != dialTimeout {
			t.Errorf("gave up after %v, want %v", d, dialTimeout)
		}
	})
}

// A single broker that is away for a second costs no membership: no callback,
// same member and generation. (kgo's own dialer loses it at once.)
func TestMembershipSurvivesABrokerRestart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := embedded.StartVirtual(t, embedded.Topic("in", 1))
		lost := make(chan struct{}, 16)
		c := Cluster{Seeds: b.Addrs(), Topology: "orders", Dial: b.Dialer(), Extra: []kgo.Opt{kgo.DisableClientMetrics()}}
		assigned := make(chan struct{}, 16)
		cl, err := NewConsumer(c, Consumer{Group: "g", Topics: []string{"in"}, Start: atStart(),
			OnAssigned: func(_ context.Context, _ *kgo.Client, m map[string][]int32) { assigned <- struct{}{} },
			OnLost:     func(context.Context, *kgo.Client, map[string][]int32) { lost <- struct{}{} },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		<-assigned
		id, gen := cl.GroupMetadata()
		b.Down()
		time.AfterFunc(time.Second, func() {
			if err := b.Up(); err != nil {
				t.Error(err)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for ctx.Err() == nil {
			cl.PollFetches(ctx)
		}
		select {
		case <-lost:
			t.Error("the membership was lost")
		default:
		}
		if id2, gen2 := cl.GroupMetadata(); id2 != id || gen2 != gen {
			t.Errorf("member %s generation %d became %s %d", id, gen, id2, gen2)
		}
		if n := len(b.Assignments()); n != 1 {
			t.Errorf("%d assignments, want 1: the group should not have rebalanced", n)
		}
	})
}
