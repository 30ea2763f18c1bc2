package worker

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	// dialTimeout bounds one connection, TLS included, retries included.
	dialTimeout = 10 * time.Second
	// refusedFor is how long a refused connection is tried again. The client
	// takes one refused dial of a heartbeat for a lost membership; a broker that
	// restarts refuses for about this long.
	refusedFor = 1500 * time.Millisecond
	// maxSecretBytes bounds certificate and password files.
	maxSecretBytes = 1 << 20
)

// ClientOpts returns the options that every Kafka client of a worker shares,
// whatever its role: where to connect, how (TLS, SASL), under which name, and
// how old metadata may get; then the user's own Config.Kafka. Options of a role
// come behind them and win. c should have passed Validate; an error is a file
// that cannot be read now.
//
// Certificates and passwords are read when a connection is made, so one slice
// of options serves for the life of the process. kgo.AlwaysRetryEOF is not among
// them: with it a client that lacks TLS or SASL retries without end instead of
// saying so, so a first plain client should connect without it.
func (c Config) ClientOpts() ([]kgo.Opt, error) {
	c = c.withDefaults()
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Bootstrap...),
		kgo.ClientID(c.ClientID),
		kgo.MetadataMaxAge(c.MetadataMaxAge),
		// The client refuses a least age (5s by default) above the largest.
		kgo.MetadataMinAge(min(5*time.Second, c.MetadataMaxAge)),
	}
	user, err := probeKafka(c.Kafka)
	if err != nil {
		return nil, err
	}
	if !user.dials {
		d := &dialer{dial: (&net.Dialer{}).DialContext}
		if c.usesTLS() {
			d.tls = &tlsSource{settings: c.TLS}
			if _, err := d.tls.config(); err != nil {
				return nil, fmt.Errorf("worker: TLS: %w", err)
			}
		}
		opts = append(opts, kgo.Dialer(d.connect))
	}
	if c.usesSASL() {
		m, err := c.SASL.mechanism()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.SASL(m))
	}
	return append(opts, c.Kafka...), nil
}

// consumerOpts are the settings of clients that read in the group.
func (c Config) consumerOpts() []kgo.Opt {
	c = c.withDefaults()
	opts := []kgo.Opt{
		kgo.SessionTimeout(c.Session),
		kgo.HeartbeatInterval(c.Heartbeat),
		kgo.RebalanceTimeout(c.RebalanceTimeout),
		kgo.FetchMaxWait(c.FetchMaxWait),
		kgo.FetchMaxBytes(c.FetchMaxBytes),
		kgo.FetchMaxPartitionBytes(c.FetchMaxPartitionBytes),
		kgo.FetchMinBytes(c.FetchMinBytes),
	}
	if c.Rack != "" {
		opts = append(opts, kgo.Rack(c.Rack))
	}
	return opts
}

// producerOpts are the settings of clients that write. DeliveryTimeout is for
// outputs and dead letters; a client with a transactional id or of hops must
// not give up and leaves it out.
func (c Config) producerOpts() []kgo.Opt {
	c = c.withDefaults()
	codecs := map[string]kgo.CompressionCodec{
		"none":   kgo.NoCompression(),
		"gzip":   kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(),
		"lz4":    kgo.Lz4Compression(),
		"zstd":   kgo.ZstdCompression(),
	}
	return []kgo.Opt{
		kgo.ProducerLinger(max(c.Linger, 0)),
		kgo.ProducerBatchMaxBytes(c.BatchMaxBytes),
		kgo.ProducerBatchCompression(codecs[c.Compression], kgo.NoCompression()),
		kgo.RecordDeliveryTimeout(c.DeliveryTimeout),
		kgo.MaxBufferedBytes(int(c.BufferBytes)),
	}
}

// dialer connects to brokers. It starts no goroutine; connect ends with its
// context or after dialTimeout.
type dialer struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	tls  *tlsSource // nil: plaintext
}

// connect is a kgo.Dialer. Errors keep their chain: the client tells dial
// errors and EOF apart by it.
func (d *dialer) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := d.tcp(ctx, network, addr)
	if err != nil || d.tls == nil {
		return conn, err
	}
	config, err := d.tls.config()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		config.ServerName = host
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake's error says why
		return nil, fmt.Errorf("TLS handshake with %s: %w", addr, err)
	}
	return secure, nil
}

// tcp dials, again for a while if nobody listens.
func (d *dialer) tcp(ctx context.Context, network, addr string) (net.Conn, error) {
	until := time.Now().Add(refusedFor)
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		conn, err := d.dial(ctx, network, addr)
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) || time.Now().Add(wait).After(until) {
			return conn, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		}
	}
}

// readCA reads the authorities; nil without a file means the system's.
func (t TLS) readCA() (*x509.CertPool, error) {
	if t.CAFile == "" {
		return nil, nil
	}
	data, err := readBounded(t.CAFile, maxSecretBytes)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s has no certificate in PEM format", t.CAFile)
	}
	return pool, nil
}

// readPair reads the client's certificate; nil without one.
func (t TLS) readPair() (*tls.Certificate, error) {
	if t.CertFile == "" {
		return nil, nil
	}
	cert, certErr := readBounded(t.CertFile, maxSecretBytes)
	key, keyErr := readBounded(t.KeyFile, maxSecretBytes)
	if err := errors.Join(certErr, keyErr); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", t.CertFile, t.KeyFile, err)
	}
	return &pair, nil
}

// tlsSource makes the TLS settings of new connections from files that may be
// replaced at any time. While they are unreadable or do not fit together (a
// rotation writes them one after the other) it keeps the last good ones: the
// certificates' own dates end that, and a worker is not cut off half way.
type tlsSource struct {
	settings TLS
	mu       sync.Mutex
	last     *tls.Config // guarded by mu; never changed once made
}

// config reads the files and returns a config that the caller owns.
func (s *tlsSource) config() (*tls.Config, error) {
	roots, caErr := s.settings.readCA()
	pair, pairErr := s.settings.readPair()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(caErr, pairErr); err != nil {
		if s.last == nil {
			return nil, err
		}
		return s.last.Clone(), nil
	}
	s.last = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		RootCAs:            roots,
		ServerName:         s.settings.ServerName,
		InsecureSkipVerify: s.settings.InsecureSkipVerify, // explicit, and warned about
	}
	if pair != nil {
		s.last.Certificates = []tls.Certificate{*pair}
	}
	return s.last.Clone(), nil
}

// password looks the password up.
func (s SASL) password() (Secret, error) {
	if s.PasswordFile == "" {
		return s.Password, nil
	}
	data, err := readBounded(s.PasswordFile, maxSecretBytes)
	if err != nil {
		return Secret{}, err
	}
	// Editors and echo end a file with one newline; more may be meant.
	data = bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
	if len(data) == 0 {
		return Secret{}, fmt.Errorf("%s is empty: %w", s.PasswordFile, os.ErrInvalid)
	}
	return NewSecret(string(data)), nil
}

// mechanism makes the client's SASL mechanism, which asks for the password at
// each authentication: a rotated file is used without a restart, also when a
// broker asks again on a living connection (KIP-368).
func (s SASL) mechanism() (sasl.Mechanism, error) {
	switch strings.ToUpper(s.Mechanism) {
	case "PLAIN":
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			p, err := s.password()
			return plain.Auth{User: s.User, Pass: p.Reveal()}, err
		}), nil
	case "SCRAM-SHA-256", "SCRAM-SHA-512":
		auth := func(context.Context) (scram.Auth, error) {
			p, err := s.password()
			return scram.Auth{User: s.User, Pass: p.Reveal()}, err
		}
		if strings.HasSuffix(s.Mechanism, "256") {
			return scram.Sha256(auth), nil
		}
		return scram.Sha512(auth), nil
	}
	return nil, fmt.Errorf("worker: SASL mechanism %s is not supported: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512", quote(s.Mechanism))
}
