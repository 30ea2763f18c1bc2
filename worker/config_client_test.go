package worker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

// cluster starts an embedded broker that ends with the test.
func cluster(t *testing.T, opts ...kfake.Opt) []string {
	t.Helper()
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()
}

// noLeaks fails the test if goroutines are left after all its other cleanups.
func noLeaks(t *testing.T) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
}

// ping builds a client and makes one request, within 5 seconds.
func ping(t *testing.T, opts []kgo.Opt) error {
	t.Helper()
	return pingWithin(t, 5*time.Second, opts)
}

// pingWithin is ping with another limit.
func pingWithin(t *testing.T, limit time.Duration, opts []kgo.Opt) error {
	t.Helper()
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return cl.Ping(ctx)
}

// options are those of a valid Config.
func options(t *testing.T, c Config) []kgo.Opt {
	t.Helper()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	opts, err := c.ClientOpts()
	if err != nil {
		t.Fatal(err)
	}
	return append(opts, kgo.DisableClientMetrics(), kgo.MetadataMinAge(100*time.Millisecond))
}

func TestClientPlaintext(t *testing.T) {
	noLeaks(t)
	if err := ping(t, options(t, Config{Bootstrap: cluster(t)})); err != nil {
		t.Error(err)
	}
}

func TestClientSASL(t *testing.T) {
	noLeaks(t)
	a := newAuthority(t)
	ca := put(t, t.TempDir(), "ca.pem", a.pem)
	users := []kfake.Opt{kfake.EnableSASL(), kfake.Superuser("PLAIN", "p", "plain-secret"),
		kfake.Superuser("SCRAM-SHA-256", "s256", "scram,=secret"), kfake.Superuser("SCRAM-SHA-512", "s512", "scram-secret")}
	clear := cluster(t, users...)
	secure := cluster(t, append(users, kfake.TLS(a.server(t)))...)
	for _, s := range []SASL{
		{Mechanism: "PLAIN", User: "p", Password: NewSecret("plain-secret")},
		{Mechanism: "SCRAM-SHA-256", User: "s256", Password: NewSecret("scram,=secret")},
		{Mechanism: "SCRAM-SHA-512", User: "s512", Password: NewSecret("scram-secret")},
	} {
		for _, c := range []Config{
			{Bootstrap: clear, SecurityProtocol: "sasl_plaintext", SASL: s},
			{Bootstrap: secure, SecurityProtocol: "sasl_ssl", SASL: s, TLS: TLS{CAFile: ca}},
		} {
			if err := ping(t, options(t, c)); err != nil {
				t.Errorf("%s over %s: %v", s.Mechanism, c.SecurityProtocol, err)
			}
			// The same with a wrong password fails at once and says what to check.
			wrong := c
			wrong.SASL.Password = NewSecret(canary)
			start := time.Now()
			err := ping(t, options(t, wrong))
			if time.Since(start) > 4*time.Second {
				t.Errorf("%s over %s: a wrong password took %v", s.Mechanism, c.SecurityProtocol, time.Since(start))
			}
			text := explain(err, wrong).Error()
			for _, want := range []string{c.Bootstrap[0], c.SecurityProtocol, s.Mechanism, `"` + s.User + `"`, "wrong user or password", "kafka.sasl.password"} {
				if err == nil || !strings.Contains(text, want) {
					t.Errorf("wrong password over %s: no %q in %s", c.SecurityProtocol, want, text)
				}
			}
			if strings.Contains(text, canary) || strings.Contains(text, "\n") {
				t.Errorf("not one line without secret: %s", text)
			}
		}
	}
}

// TestClientRotatedPassword: options made once authenticate with what the file
// holds at the time.
func TestClientRotatedPassword(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	pw := put(t, dir, "pw", []byte("old\n"))
	opts := options(t, Config{
		Bootstrap: cluster(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "u", "new")), SecurityProtocol: "sasl_plaintext",
		SASL: SASL{Mechanism: "SCRAM-SHA-512", User: "u", PasswordFile: pw},
	})
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := cl.Ping(ctx); err == nil {
		t.Fatal("the old password works")
	}
	put(t, dir, "pw", []byte("new\n"))
	if err := cl.Ping(ctx); err != nil {
		t.Errorf("the same client, after the file was replaced: %v", err)
	}
	// A file that is gone is an error of the connection, not an empty password.
	if err := os.Remove(pw); err != nil {
		t.Fatal(err)
	}
	if err := ping(t, opts); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
}

// TestClientRotatedCertificate: options made once present the certificate that
// the files hold when a connection is made.
func TestClientRotatedCertificate(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	a, settings := tlsFiles(t, dir)
	var serial atomic.Int64
	server := a.server(t)
	server.ClientAuth = tls.RequireAndVerifyClientCert
	server.ClientCAs = a.pool()
	server.VerifyPeerCertificate = func(_ [][]byte, chains [][]*x509.Certificate) error {
		serial.Store(chains[0][0].SerialNumber.Int64())
		return nil
	}
	opts := options(t, Config{Bootstrap: cluster(t, kfake.TLS(server)), SecurityProtocol: "ssl", TLS: settings})
	for want := int64(3); want <= 5; want++ {
		if want > 3 {
			cert, key := a.issue(t, want)
			put(t, dir, "client.pem", cert)
			put(t, dir, "client-key.pem", key)
		}
		if err := ping(t, opts); err != nil {
			t.Fatal(err)
		}
		if got := serial.Load(); got != want {
			t.Errorf("certificate %d was presented, not %d", got, want)
		}
	}
}

// TestExplainMismatches connects in the wrong way, each kind of it, and looks
// for the hint. Fail closed: none of them connects.
func TestExplainMismatches(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	a, good := tlsFiles(t, dir)
	other := newAuthority(t)
	otherCA := put(t, dir, "other.pem", other.pem)
	otherCert, otherKey := other.issue(t, 7)
	otherPair := TLS{CAFile: good.CAFile, CertFile: put(t, dir, "oc.pem", otherCert), KeyFile: put(t, dir, "ok.pem", otherKey)}

	clear := cluster(t)
	secure := cluster(t, kfake.TLS(a.server(t)))
	expired := cluster(t, kfake.TLS(a.server(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })))
	stranger := cluster(t, kfake.TLS(a.server(t, func(c *x509.Certificate) { c.IPAddresses = nil; c.DNSNames = []string{"kafka.example"} })))
	mutual := a.server(t)
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, a.pool()
	mtls := cluster(t, kfake.TLS(mutual))
	login := cluster(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "u", "p"))
	ca := TLS{CAFile: good.CAFile}
	scram := SASL{Mechanism: "SCRAM-SHA-256", User: "u", Password: NewSecret("p")}

	tests := []struct {
		name, want string
		c          Config
	}{
		{"plaintext client, TLS port", "this port speaks TLS", Config{Bootstrap: secure}},
		{"SASL client without TLS, TLS port", "this port speaks TLS", Config{Bootstrap: secure, SecurityProtocol: "sasl_plaintext", SASL: scram}},
		{"hangs: TLS client, plaintext port", "one without TLS", Config{Bootstrap: clear, SecurityProtocol: "ssl", TLS: ca}},
		{"hangs: TLS and SASL client, plaintext port", "one without TLS", Config{Bootstrap: clear, SecurityProtocol: "sasl_ssl", TLS: ca, SASL: scram}},
		{"no SASL, SASL port", "SASL (sasl_plaintext, sasl_ssl)", Config{Bootstrap: login}},
		{"wrong mechanism", "kafka.sasl.mechanism", Config{Bootstrap: login, SecurityProtocol: "sasl_plaintext",
			SASL: SASL{Mechanism: "SCRAM-SHA-512", User: "u", Password: NewSecret("p")}}},
		{"unknown authority", "set kafka.tls.ca_file", Config{Bootstrap: secure, SecurityProtocol: "ssl", TLS: TLS{CAFile: otherCA}}},
		{"system authorities", "set kafka.tls.ca_file", Config{Bootstrap: secure, SecurityProtocol: "ssl"}},
		{"expired certificate", "check its dates", Config{Bootstrap: expired, SecurityProtocol: "ssl", TLS: ca}},
		{"another host's certificate", "kafka.tls.server_name", Config{Bootstrap: stranger, SecurityProtocol: "ssl", TLS: ca}},
		{"no client certificate", "client certificate", Config{Bootstrap: mtls, SecurityProtocol: "ssl", TLS: ca}},
		{"client certificate of a stranger", "client certificate", Config{Bootstrap: mtls, SecurityProtocol: "ssl", TLS: otherPair}},
		{"unknown name", "cannot be resolved", Config{Bootstrap: []string{"no-such-host.invalid:9092"}}},
		{"nobody there", "nobody listens there", Config{Bootstrap: []string{closedPort(t)}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			within := 5 * time.Second
			if strings.HasPrefix(tt.name, "hangs") { // the embedded broker waits for more bytes; Kafka hangs up
				within = 300 * time.Millisecond
			}
			err := pingWithin(t, within, options(t, tt.c))
			if err == nil {
				t.Fatal("it connected")
			}
			got := explain(err, tt.c)
			text := got.Error()
			for _, want := range []string{tt.want, "worker: Kafka at " + tt.c.Bootstrap[0], "kafka.security_protocol " + tt.c.withDefaults().SecurityProtocol} {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in: %s", want, text)
				}
			}
			if strings.Contains(text, "\n") {
				t.Errorf("more than one line: %q", text)
			}
			if !errors.Is(got, err) {
				t.Error("the cause is lost")
			}
		})
	}
	// What was only set too strictly connects: a name that the certificate has,
	// and, told to, no check at all.
	for _, c := range []Config{
		{Bootstrap: stranger, SecurityProtocol: "ssl", TLS: TLS{CAFile: good.CAFile, ServerName: "kafka.example"}},
		{Bootstrap: expired, SecurityProtocol: "ssl", TLS: TLS{InsecureSkipVerify: true}},
		{Bootstrap: mtls, SecurityProtocol: "ssl", TLS: good},
	} {
		if err := ping(t, options(t, c)); err != nil {
			t.Error(explain(err, c))
		}
	}
}

// closedPort is an address that refuses: its listener was closed.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestExplainByError covers what the embedded broker does not answer.
func TestExplainByError(t *testing.T) {
	c := Config{SecurityProtocol: "sasl_ssl", SASL: SASL{Mechanism: "PLAIN", User: "u"}}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{kerr.SaslAuthenticationFailed, "the broker refused the login: wrong user or password"},
		{kerr.UnsupportedSaslMechanism, "kafka.sasl.mechanism"},
		{kerr.IllegalSaslState, "kafka.security_protocol"},
		{context.DeadlineExceeded, "no answer in time"},
		{syscall.EHOSTUNREACH, "no way to that host"},
		{syscall.ECONNRESET, "the broker hung up"},
		{io.EOF, "the broker hung up"},
		{tls.RecordHeaderError{Msg: "x"}, "does not speak TLS"},
	} {
		if got := explain(tt.err, c); !strings.Contains(got.Error(), tt.want) || !errors.Is(got, tt.err) {
			t.Errorf("%v: %v", tt.err, got)
		}
	}
	other := errors.New("something else")
	if explain(nil, c) != nil || explain(other, c) != other || explain(context.Canceled, c) != context.Canceled {
		t.Error("what has no hint must come back as it is")
	}
}

// TestDialerWaitsForARestart: refused connections are tried again for a while,
// in virtual time, and no longer than that.
func TestDialerWaitsForARestart(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		up := time.Now().Add(time.Second)
		d := &dialer{dial: func(context.Context, string, string) (net.Conn, error) {
			if time.Now().Before(up) {
				return nil, refused
			}
			return client, nil
		}}
		if conn, err := d.connect(t.Context(), "tcp", "x:1"); err != nil || conn != client {
			t.Errorf("a broker that is back after 1s: %v", err)
		}
		up = time.Now().Add(time.Hour)
		start := time.Now()
		if _, err := d.connect(t.Context(), "tcp", "x:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a broker that stays away: %v", err)
		}
		if took := time.Since(start); took > refusedFor || took < refusedFor/3 {
			t.Errorf("gave up after %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 120*time.Millisecond)
		defer cancel()
		start = time.Now()
		if _, err := d.connect(ctx, "tcp", "x:1"); !errors.Is(err, syscall.ECONNREFUSED) || time.Since(start) != 120*time.Millisecond {
			t.Errorf("cancelled: %v after %v", err, time.Since(start))
		}
		// Anything else is not tried again.
		calls := 0
		d.dial = func(context.Context, string, string) (net.Conn, error) { calls++; return nil, io.ErrUnexpectedEOF }
		if _, err := d.connect(t.Context(), "tcp", "x:1"); !errors.Is(err, io.ErrUnexpectedEOF) || calls != 1 {
			t.Errorf("another error: %v, %d calls", err, calls)
		}
	})
}

// TestClientOptsValues reads the options back from a client.
func TestClientOptsValues(t *testing.T) {
	noLeaks(t)
	c := Config{Bootstrap: []string{"127.0.0.1:1"}, ClientID: "me", Rack: "r", MetadataMaxAge: 3 * time.Second, Session: 30 * time.Second,
		Heartbeat: 2 * time.Second, FetchMaxBytes: 1 << 20, Linger: -1, Compression: "zstd", BufferBytes: 5 << 20, DeliveryTimeout: 4 * time.Second}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	opts, err := c.ClientOpts()
	if err != nil {
		t.Fatal(err)
	}
	opts = append(append(append(opts, c.consumerOpts()...), c.producerOpts()...), kgo.DisableClientMetrics())
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for _, tt := range []struct {
		opt  any
		want any
	}{
		{kgo.ClientID, "me"}, {kgo.Rack, "r"}, {kgo.MetadataMaxAge, 3 * time.Second}, {kgo.MetadataMinAge, 3 * time.Second},
		{kgo.SessionTimeout, 30 * time.Second}, {kgo.HeartbeatInterval, 2 * time.Second}, {kgo.RebalanceTimeout, time.Minute},
		{kgo.FetchMaxWait, 50 * time.Millisecond}, {kgo.FetchMaxBytes, int32(1 << 20)}, {kgo.FetchMaxPartitionBytes, int32(1 << 20)},
		{kgo.FetchMinBytes, int32(1)}, {kgo.ProducerLinger, time.Duration(0)}, {kgo.RecordDeliveryTimeout, 4 * time.Second},
		{kgo.MaxBufferedBytes, int64(5 << 20)}, {kgo.ProducerBatchMaxBytes, int32(1000012)},
	} {
		if got := cl.OptValue(tt.opt); got != tt.want {
			t.Errorf("%s: %v (%T), want %v (%T)", optName(tt.opt), got, got, tt.want, tt.want)
		}
	}
	codecs, _ := cl.OptValue(kgo.ProducerBatchCompression).([]kgo.CompressionCodec)
	if len(codecs) != 2 || codecs[0] != kgo.ZstdCompression() || codecs[1] != kgo.NoCompression() {
		t.Errorf("compression %v", codecs)
	}
}

func TestMechanismUnknown(t *testing.T) {
	if _, err := (SASL{Mechanism: "GSSAPI"}).mechanism(); err == nil || !strings.Contains(err.Error(), `"GSSAPI"`) {
		t.Error(err)
	}
}
