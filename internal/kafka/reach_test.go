package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/killick-io/killick/testenv/bubble"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const secret = "correct-horse"

func plainAuth(pass string) sasl.Mechanism { return plain.Auth{User: "u", Pass: pass}.AsMechanism() }
func scramAuth(pass string) sasl.Mechanism {
	return scram.Auth{User: "u", Pass: pass}.AsSha256Mechanism()
}

// failsWith runs Reach and checks sentinel and wording. Whatever goes wrong,
// addresses are named and passwords are not.
func failsWith(t *testing.T, c Cluster, kind error, within time.Duration, words ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	start := time.Now()
	err := Reach(ctx, c)
	if err == nil {
		t.Fatal("Reach succeeded")
	}
	if d := time.Since(start); d > within+2*time.Second {
		t.Errorf("took %v", d)
	}
	if !errors.Is(err, kind) || errors.Is(err, ErrAuth) && errors.Is(err, ErrUnreachable) {
		t.Errorf("Reach = %v, want %v alone", err, kind)
	}
	for _, w := range append(words, c.Seeds...) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error lacks %q: %v", w, err)
		}
	}
	if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "wrong-pass") {
		t.Errorf("the error shows a password: %v", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the error is not one line: %q", err)
	}
	return err
}

func TestReach(t *testing.T) {
	t.Parallel()
	cert, err := embedded.SelfSigned()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		opts []embedded.Option
		tls  bool
		sasl sasl.Mechanism
	}{
		"plaintext":      {},
		"three brokers":  {opts: []embedded.Option{embedded.Brokers(3)}},
		"TLS":            {opts: []embedded.Option{embedded.TLS(cert.Server, cert.Client)}, tls: true},
		"PLAIN":          {opts: []embedded.Option{embedded.SASL("PLAIN", "u", secret)}, sasl: plainAuth(secret)},
		"SCRAM over TLS": {opts: []embedded.Option{embedded.SASL("SCRAM-SHA-256", "u", secret), embedded.TLS(cert.Server, cert.Client)}, tls: true, sasl: scramAuth(secret)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := embedded.Start(t, c.opts...)
			cl := Cluster{Seeds: b.Addrs(), Topology: "t", SASL: c.sasl}
			if c.tls {
				cl.TLS = static(cert.Client)
			}
			if err := Reach(limited(t), cl); err != nil {
				t.Error(err)
			}
			// A dead seed beside it changes nothing and costs no time.
			cl.Seeds = append([]string{"127.0.0.1:1"}, cl.Seeds...)
			start := time.Now()
			if err := Reach(limited(t), cl); err != nil || time.Since(start) > 5*time.Second {
				t.Errorf("with a dead seed: %v after %v", err, time.Since(start))
			}
		})
	}
	if err := Reach(limited(t), Cluster{}); err == nil || errors.Is(err, ErrUnreachable) {
		t.Errorf("the zero cluster: %v", err)
	}
}

func TestReachMismatches(t *testing.T) {
	t.Parallel()
	cert, err := embedded.SelfSigned()
	if err != nil {
		t.Fatal(err)
	}
	onTLS := embedded.TLS(cert.Server, cert.Client)
	wantsCert := cert.Server.Clone()
	wantsCert.ClientAuth = tls.RequireAnyClientCert
	wantsCert12 := wantsCert.Clone()
	wantsCert12.MaxVersion = tls.VersionTLS12
	otherName := cert.Client.Clone()
	otherName.ServerName = "kafka.example.com"
	for name, c := range map[string]struct {
		opts  []embedded.Option
		c     Cluster
		kind  error
		words []string
	}{
		"plaintext to a TLS port":     {[]embedded.Option{onTLS}, Cluster{}, ErrUnreachable, []string{"TLS is off", "is a TLS port", "(TLS off, SASL off)"}},
		"SASL to a TLS port":          {[]embedded.Option{onTLS}, Cluster{SASL: plainAuth(secret)}, ErrUnreachable, []string{"is a TLS port", "SASL PLAIN"}},
		"TLS to a plaintext port":     {nil, Cluster{TLS: static(cert.Client)}, ErrUnreachable, []string{"TLS is on", "is a plaintext port", "(TLS on, SASL off)"}},
		"certificate not trusted":     {[]embedded.Option{onTLS}, Cluster{TLS: static(&tls.Config{})}, ErrUnreachable, []string{"not trusted", "CA"}},
		"certificate of another host": {[]embedded.Option{onTLS}, Cluster{TLS: static(otherName)}, ErrUnreachable, []string{"not for this host", "kafka.example.com"}},
		"no client certificate":       {[]embedded.Option{embedded.TLS(wantsCert, cert.Client)}, Cluster{TLS: static(cert.Client)}, ErrAuth, []string{"client certificate"}},
		"no client certificate, TLS 1.2": {[]embedded.Option{embedded.TLS(wantsCert12, cert.Client)}, Cluster{TLS: static(cert.Client)},
			ErrUnreachable, []string{"client certificate"}},
		"certificate files unreadable": {[]embedded.Option{onTLS}, Cluster{TLS: func() (*tls.Config, error) { return nil, errors.New("ca.pem: no such file") }},
			ErrUnreachable, []string{"TLS settings: ca.pem"}},
		"wrong PLAIN password": {[]embedded.Option{embedded.SASL("PLAIN", "u", secret)}, Cluster{SASL: plainAuth("wrong-pass")}, ErrAuth,
			[]string{"wrong user or password for PLAIN", "SASL PLAIN"}},
		"wrong SCRAM password": {[]embedded.Option{embedded.SASL("SCRAM-SHA-256", "u", secret)}, Cluster{SASL: scramAuth("wrong-pass")}, ErrAuth,
			[]string{"wrong user or password for SCRAM-SHA-256"}},
		"another mechanism": {[]embedded.Option{embedded.SASL("SCRAM-SHA-256", "u", secret)}, Cluster{SASL: plainAuth(secret)}, ErrAuth, []string{"PLAIN"}},
		"SASL missing":      {[]embedded.Option{embedded.SASL("PLAIN", "u", secret)}, Cluster{}, ErrAuth, []string{"is SASL missing?"}},
		"SASL missing under TLS": {[]embedded.Option{embedded.SASL("PLAIN", "u", secret), onTLS}, Cluster{TLS: static(cert.Client)}, ErrAuth,
			[]string{"is SASL missing?", "(TLS on, SASL off)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := embedded.Start(t, c.opts...)
			c.c.Seeds, c.c.Topology = b.Addrs(), "t"
			failsWith(t, c.c, c.kind, 3*time.Second, c.words...)
		})
	}
}

// Apache Kafka answers a wrong password with a code, where kfake hangs up.
func TestReachAuthCodes(t *testing.T) {
	t.Parallel()
	for code, words := range map[*kerr.Error][]string{
		kerr.SaslAuthenticationFailed: {"wrong user or password for PLAIN", "SASL_AUTHENTICATION_FAILED"},
		kerr.UnsupportedSaslMechanism: {"does not offer SASL mechanism PLAIN"},
		kerr.IllegalSaslState:         {"does not expect SASL here"},
	} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			b := embedded.Start(t, embedded.SASL("PLAIN", "u", secret))
			key := kmsg.SASLHandshake
			if code == kerr.SaslAuthenticationFailed {
				key = kmsg.SASLAuthenticate
			}
			b.Fail(key, code, -1)
			failsWith(t, Cluster{Seeds: b.Addrs(), Topology: "t", SASL: plainAuth(secret)}, ErrAuth, 3*time.Second, words...)
		})
	}
}

func TestReachNobodyThere(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	err = failsWith(t, Cluster{Seeds: []string{addr}, Topology: "t"}, ErrUnreachable, 600*time.Millisecond, "refused", "nothing listens there", "(TLS off, SASL off)")
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the cause is lost: %v", err)
	}
	unknown := Cluster{Seeds: []string{"no-such-broker:9092", "nor-this:9092"}, Topology: "t", Dial: func(_ context.Context, _, addr string) (net.Conn, error) {
		host, _, _ := net.SplitHostPort(addr)
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
	}}
	failsWith(t, unknown, ErrUnreachable, 600*time.Millisecond, `unknown host "no-such-broker"`, `unknown host "nor-this"`)
}

// In virtual time: a broker that starts late is waited for, one that is silent
// ends at ReachTimeout, without a deadline of the caller.
func TestReachWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := embedded.StartVirtual(t)
		c := Cluster{Seeds: b.Addrs(), Topology: "t", Dial: b.Dialer()}
		b.Down()
		time.AfterFunc(4*time.Second, func() {
			if err := b.Up(); err != nil {
				t.Error(err)
			}
		})
		start := time.Now()
		if err := Reach(t.Context(), c); err != nil || time.Since(start) < 4*time.Second {
			t.Errorf("a broker that starts after 4 s: %v after %v", err, time.Since(start))
		}
		b.Down()
		start = time.Now()
		err := Reach(t.Context(), c)
		if d := time.Since(start); !errors.Is(err, ErrUnreachable) || d < 9*time.Second || d > ReachTimeout {
			t.Errorf("a broker that stays away: %v after %v", err, d)
		}
		if err := b.Up(); err != nil {
			t.Error(err)
		}
		// Accepts, reads, says nothing.
		b.Hold(kmsg.ApiVersions, make(chan struct{}))
		start = time.Now()
		err = Reach(t.Context(), c)
		if d := time.Since(start); !errors.Is(err, ErrUnreachable) || d > ReachTimeout {
			t.Errorf("a silent broker: %v after %v", err, d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Reach(ctx, c); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

// The seed answers, but the address that the brokers advertise leads nowhere.
func TestReachAdvertisedAddress(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t)
	inner := b.Dialer()
	c := Cluster{Seeds: []string{"proxy:9092"}, Topology: "t", Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == "proxy:9092" {
			return inner(ctx, network, b.Addrs()[0])
		}
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}}
	failsWith(t, c, ErrUnreachable, time.Second, "advertised.listeners", b.Addrs()[0], "broker 0")
}

// A port where something else than Kafka listens.
func TestReachNotKafka(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{"hangs up": "", "HTTP": "HTTP/1.1 400 Bad Request\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for {
					conn, err := ln.Accept()
					if err != nil {
						return
					}
					buf := make([]byte, 64)
					_, _ = conn.Read(buf)
					_, _ = conn.Write([]byte(answer))
					conn.Close()
				}
			}()
			defer func() { ln.Close(); <-ended }()
			failsWith(t, Cluster{Seeds: []string{ln.Addr().String()}, Topology: "t"}, ErrUnreachable, time.Second)
		})
	}
}

// Reach must not use the option that makes a missing setting retry for ever,
// and must leave no group behind.
func TestReachLeavesNothing(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("in", 1))
	if err := Reach(limited(t), Cluster{Seeds: b.Addrs(), Topology: "t"}); err != nil {
		t.Fatal(err)
	}
	if len(b.Commits()) != 0 || len(b.Assignments()) != 0 {
		t.Error("Reach joined or committed")
	}
	got, err := admin(t, b).Topics(limited(t), "in")
	if err != nil || !slices.Equal([]string{"in"}, []string{got["in"].Name}) {
		t.Errorf("topics: %v, %v", got, err)
	}
}
