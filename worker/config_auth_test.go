package worker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/killick-io/killick/internal/kafka"
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
			text := reach(t, wrong, kafka.ErrAuth, 5*time.Second).Error()
			if time.Since(start) > 4*time.Second {
				t.Errorf("%s over %s: a wrong password took %v", s.Mechanism, c.SecurityProtocol, time.Since(start))
			}
			for _, want := range []string{c.Bootstrap[0], s.Mechanism, "wrong user or password", "kafka.sasl.password"} {
				if !strings.Contains(text, want) {
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
// FC-46: aio-libs/aiokafka #1080.
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
// FC-46: knative-extensions/eventing-kafka #335.
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

// reach runs Reach with what c comes to; it must fail as kind.
func reach(t *testing.T, c Config, kind error, within time.Duration) error {
	t.Helper()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	k, err := c.withDefaults().cluster("t")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err = kafka.Reach(ctx, k); !errors.Is(err, kind) {
		t.Fatalf("Reach = %v, want %v", err, kind)
	}
	return err
}

// TestReachMismatches connects in the wrong way, each kind of it, and looks for the hint, which
// names the key to change. Fail closed: none of them connects.
// FC-47: open-telemetry/opentelemetry-collector-contrib #40145, IBM/sarama #3037.
func TestReachMismatches(t *testing.T) {
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
		kind       error
		c          Config
	}{
		{"plaintext client, TLS port", "is a TLS port; set kafka.security_protocol", kafka.ErrUnreachable, Config{Bootstrap: secure}},
		{"SASL client without TLS, TLS port", "is a TLS port; set kafka.security_protocol", kafka.ErrUnreachable,
			Config{Bootstrap: secure, SecurityProtocol: "sasl_plaintext", SASL: scram}},
		{"TLS client, plaintext port", "is a plaintext port; set kafka.security_protocol", kafka.ErrUnreachable,
			Config{Bootstrap: clear, SecurityProtocol: "ssl", TLS: ca}},
		{"TLS and SASL client, plaintext port", "is a plaintext port; set kafka.security_protocol", kafka.ErrUnreachable,
			Config{Bootstrap: clear, SecurityProtocol: "sasl_ssl", TLS: ca, SASL: scram}},
		{"no SASL, SASL port", "kafka.security_protocol sasl_plaintext", kafka.ErrAuth, Config{Bootstrap: login}},
		{"wrong mechanism", "mechanism", kafka.ErrAuth, Config{Bootstrap: login, SecurityProtocol: "sasl_plaintext",
			SASL: SASL{Mechanism: "SCRAM-SHA-512", User: "u", Password: NewSecret("p")}}},
		{"unknown authority", "kafka.tls.ca_file", kafka.ErrUnreachable, Config{Bootstrap: secure, SecurityProtocol: "ssl", TLS: TLS{CAFile: otherCA}}},
		{"system authorities", "kafka.tls.ca_file", kafka.ErrUnreachable, Config{Bootstrap: secure, SecurityProtocol: "ssl"}},
		{"expired certificate", "check its dates", kafka.ErrUnreachable, Config{Bootstrap: expired, SecurityProtocol: "ssl", TLS: ca}},
		{"another host's certificate", "kafka.tls.server_name", kafka.ErrUnreachable, Config{Bootstrap: stranger, SecurityProtocol: "ssl", TLS: ca}},
		{"no client certificate", "kafka.tls.cert_file", kafka.ErrAuth, Config{Bootstrap: mtls, SecurityProtocol: "ssl", TLS: ca}},
		{"client certificate of a stranger", "kafka.tls.cert_file", kafka.ErrAuth, Config{Bootstrap: mtls, SecurityProtocol: "ssl", TLS: otherPair}},
		{"unknown name", "kafka.bootstrap_servers", kafka.ErrUnreachable, Config{Bootstrap: []string{"no-such-host.invalid:9092"}}},
		{"nobody there", "nothing listens there", kafka.ErrUnreachable, Config{Bootstrap: []string{closedPort(t)}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			within := 5 * time.Second
			if tt.name == "unknown name" || tt.name == "nobody there" { // may pass, so they are tried until the end
				within = 600 * time.Millisecond
			}
			text := reach(t, tt.c, tt.kind, within).Error()
			for _, want := range []string{tt.want, tt.c.Bootstrap[0]} {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in: %s", want, text)
				}
			}
			if strings.Contains(text, "\n") {
				t.Errorf("more than one line: %q", text)
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
			t.Error(err)
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

// TestClientOptionValues reads the settings back from the clients.
func TestClientOptionValues(t *testing.T) {
	noLeaks(t)
	c := Config{Bootstrap: []string{"127.0.0.1:1"}, ClientID: "me", Rack: "r", MetadataMaxAge: 3 * time.Second, Session: 30 * time.Second,
		Heartbeat: 2 * time.Second, FetchMaxBytes: 1 << 20, Linger: -1, Compression: "zstd", BufferBytes: 5 << 20, DeliveryTimeout: 4 * time.Second}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	c = c.withDefaults()
	k, err := c.cluster("orders")
	if err != nil {
		t.Fatal(err)
	}
	read := c.consumer()
	start := kgo.NewOffset()
	read.Group, read.Topics, read.Start = "g", []string{"t"}, &start
	consumer, err := kafka.NewConsumer(c.clusterFor(k, false), read)
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	producer, err := kafka.NewProducer(c.clusterFor(k, true), c.producer(kafka.Outputs))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	letters, err := kafka.NewProducer(c.clusterFor(k, true), c.producer(kafka.DeadLetters))
	if err != nil {
		t.Fatal(err)
	}
	defer letters.Close()
	for _, tt := range []struct {
		cl   *kgo.Client
		opt  any
		want any
	}{
		{consumer, kgo.ClientID, "me.orders.consumer"}, {consumer, kgo.Rack, "r"}, {consumer, kgo.MetadataMaxAge, 3 * time.Second},
		{consumer, kgo.MetadataMinAge, 3 * time.Second}, {consumer, kgo.SessionTimeout, 30 * time.Second},
		{consumer, kgo.HeartbeatInterval, 2 * time.Second}, {consumer, kgo.RebalanceTimeout, time.Minute},
		{consumer, kgo.FetchMaxWait, 50 * time.Millisecond}, {consumer, kgo.FetchMaxBytes, int32(1 << 20)},
		{consumer, kgo.FetchMaxPartitionBytes, int32(1 << 20)}, {consumer, kgo.FetchMinBytes, int32(1)},
		{producer, kgo.ClientID, "me.orders.outputs"}, {producer, kgo.ProducerLinger, time.Duration(0)},
		{producer, kgo.MaxBufferedBytes, int64(5 << 20)},
		{producer, kgo.ProducerBatchMaxBytes, int32(1000012)},
		{letters, kgo.ClientID, "me.orders.dead-letters"},
		{letters, kgo.ProducerBatchMaxBytes, int32(1048588)},
	} {
		if got := tt.cl.OptValue(tt.opt); got != tt.want {
			t.Errorf("%s: %v (%T), want %v (%T)", optName(tt.opt), got, got, tt.want, tt.want)
		}
	}
	codecs, _ := producer.OptValue(kgo.ProducerBatchCompression).([]kgo.CompressionCodec)
	if len(codecs) != 2 || codecs[0] != kgo.ZstdCompression() || codecs[1] != kgo.NoCompression() {
		t.Errorf("compression %v", codecs)
	}
}

func TestMechanismUnknown(t *testing.T) {
	if _, err := (SASL{Mechanism: "GSSAPI"}).mechanism(); err == nil || !strings.Contains(err.Error(), `"GSSAPI"`) {
		t.Error(err)
	}
}
