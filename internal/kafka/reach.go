package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/internal/rules"
)

var (
	// ErrUnreachable: no broker could be talked to. The error says what is
	// likely wrong; a worker ends with exit code 5.
	ErrUnreachable = errors.New("kafka: cannot reach the cluster")
	// ErrAuth: a broker was reached and refused who we say we are. Correct
	// the credentials; a worker ends with exit code 5.
	ErrAuth = errors.New("kafka: the cluster refused the authentication")
)

const (
	// ReachTimeout is how long Reach tries, unless ctx ends before.
	ReachTimeout = 10 * time.Second
	// Within it, what can pass (nobody listens yet, the name does not
	// resolve yet) is tried again after a pause; what cannot is not.
	reachPause = 200 * time.Millisecond
	// reachStep bounds one dial, handshake or request; see step.
	reachStep = 3 * time.Second
)

// step is the time for one part of a try: a third of what is left, so that a
// part which hangs leaves time to find out why.
func step(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := reachStep
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/3)
	}
	return context.WithTimeout(ctx, limit)
}

// Reach connects to the cluster once, as a client would: it dials the seeds,
// encrypts, authenticates, asks for the brokers, and dials those, since it is
// their advertised addresses that everything else depends on. It returns nil
// as soon as one seed and one broker work, else, within ReachTimeout, one
// error that wraps ErrUnreachable or ErrAuth and names addresses, TLS and SASL
// in use, and the likely mismatch.
//
// It uses plain clients without AlwaysRetryEOF, to which a broker that hangs
// up, as it does on missing TLS or SASL, is an answer.
func Reach(ctx context.Context, c Cluster) error {
	if err := c.validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ReachTimeout)
	defer cancel()
	start := time.Now()

	// All seeds at once; the first success ends the others.
	trial, found := context.WithCancel(ctx)
	defer found()
	errs := make([]error, len(c.Seeds))
	ok := make([]bool, len(c.Seeds)) // set before found() is called
	var wg sync.WaitGroup
	for i, seed := range c.Seeds {
		wg.Go(func() {
			errs[i] = c.reachSeed(trial, seed)
			if errs[i] == nil {
				ok[i] = true
				found()
			}
		})
	}
	wg.Wait()
	for i := range ok {
		if ok[i] {
			return nil
		}
	}
	kind := ErrUnreachable
	var lines []string
	for i, err := range errs {
		if errors.Is(err, ErrAuth) {
			kind = ErrAuth
		}
		lines = append(lines, c.Seeds[i]+": "+strings.TrimPrefix(err.Error(), ErrAuth.Error()+": "))
	}
	return &reachError{
		kind:   kind,
		causes: errs,
		text: fmt.Sprintf("%v: %v, after %v: %s", kind, c, time.Since(start).Round(100*time.Millisecond),
			strings.Join(lines, "; ")),
	}
}

// reachError is one sentence for people, with the causes for errors.Is.
type reachError struct {
	kind   error
	causes []error
	text   string
}

func (e *reachError) Error() string   { return e.text }
func (e *reachError) Unwrap() []error { return append([]error{e.kind}, e.causes...) }

// mismatch is a failure that trying again does not mend.
type mismatch struct{ error }

func (m mismatch) Unwrap() error { return m.error }

// reachSeed tries one seed until it works, cannot work, or ctx ends.
func (c Cluster) reachSeed(ctx context.Context, seed string) error {
	var last error
	for {
		err := c.trySeed(ctx, seed)
		if err == nil {
			return nil
		}
		// A cut-short last try says less than the full one before it.
		end, bounded := ctx.Deadline()
		if last == nil || ctx.Err() == nil && (!bounded || time.Until(end) > reachPause) {
			last = err
		}
		var m mismatch
		if errors.As(err, &m) || ctx.Err() != nil {
			return last
		}
		pause := time.NewTimer(reachPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return last
		}
	}
}

// trySeed makes one try: dial, TLS, ApiVersions, SASL, Metadata, and a dial of
// the brokers that the metadata names.
func (c Cluster) trySeed(ctx context.Context, seed string) error {
	if err := c.tryDial(ctx, seed); err != nil {
		return err
	}
	cl, err := c.plain(seed, c.TLS, true)
	if err != nil {
		return mismatch{err}
	}
	defer cl.Close()
	part, cancel := step(ctx)
	defer cancel()
	md, err := kmsg.NewPtrMetadataRequest().RequestWith(part, cl)
	if err != nil {
		return c.explain(ctx, seed, err)
	}
	// The seed may be a load balancer; the brokers are what counts.
	var errs []error
	for _, b := range md.Brokers {
		addr := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		err := c.tryDial(ctx, addr)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("broker %d: %w", b.NodeID, err))
	}
	if len(errs) == 0 {
		return errors.New("the seed knows no brokers yet")
	}
	return fmt.Errorf("the seed answers, but no broker can be reached at the address that it advertises "+
		"(check advertised.listeners): %w", errors.Join(errs...))
}

// tryDial opens a connection, with TLS if that is on, and closes it.
func (c Cluster) tryDial(ctx context.Context, addr string) error {
	if c.TLS != nil {
		if _, err := c.TLS(); err != nil {
			return mismatch{fmt.Errorf("TLS settings: %w", err)}
		}
	}
	part, cancel := step(ctx)
	defer cancel()
	dial := c.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(part, "tcp", addr)
	if err != nil {
		return dialHint(addr, err)
	}
	if c.TLS == nil {
		return conn.Close()
	}
	tc, err := handshake(part, conn, c.TLS, addr)
	if err == nil {
		return tc.Close()
	}
	return c.tlsHint(ctx, addr, err)
}

// dialHint explains why a TCP connection failed.
func dialHint(addr string, err error) error {
	var dns *net.DNSError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Errorf("unknown host %q; check kafka.bootstrap_servers: %w", dns.Name, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("connection to %s refused, nothing listens there; check kafka.bootstrap_servers and that the broker runs: %w", addr, err)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fmt.Errorf("there is no way to %s from this machine: %w", addr, err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("no answer from %s; a firewall, or a wrong address: %w", addr, err)
	}
	return err
}

// tlsHint explains why a handshake failed.
func (c Cluster) tlsHint(ctx context.Context, addr string, err error) error {
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var verify *tls.CertificateVerificationError
	switch {
	case errors.As(err, &host):
		return mismatch{fmt.Errorf("the broker's certificate is not for this host; use a name that it carries, or set kafka.tls.server_name: %w", err)}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return mismatch{fmt.Errorf("the broker's certificate is not valid now; check its dates, and this machine's clock: %w", err)}
	case errors.As(err, &verify):
		return mismatch{fmt.Errorf("the broker's certificate is not trusted; is the right CA configured (kafka.tls.ca_file)?: %w", err)}
	case isAlert(err):
		return mismatch{fmt.Errorf("the broker ended the TLS handshake; does it want a client certificate (kafka.tls.cert_file), or another TLS version?: %w", err)}
	}
	if c.speaksPlain(ctx, addr) {
		return mismatch{fmt.Errorf("TLS is on, but %s is a plaintext port; set kafka.security_protocol to plaintext or sasl_plaintext, or use the TLS port: %w", addr, err)}
	}
	return fmt.Errorf("the TLS handshake failed; is %s a TLS port of a broker?: %w", addr, err)
}

// explain says why a broker that could be dialled did not answer as it should.
func (c Cluster) explain(ctx context.Context, addr string, err error) error {
	auth := func(hint string) error {
		return mismatch{fmt.Errorf("%w: %s: %w", ErrAuth, hint, err)}
	}
	mech := ""
	if c.SASL != nil {
		mech = c.SASL.Name()
	}
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed) && rules.WrongLoginIsFinal:
		return auth("wrong user or password for " + mech + " (kafka.sasl.user, kafka.sasl.password)")
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return auth("the broker does not offer SASL mechanism " + mech + " (kafka.sasl.mechanism)")
	case errors.Is(err, kerr.IllegalSaslState):
		return auth("the broker does not expect SASL here; is " + addr + " the SASL port?")
	// TLS 1.3 lets the client's side finish before the broker has looked.
	case isAlert(err):
		return auth("the broker ended the TLS connection; does it want a client certificate, or another one (kafka.tls.cert_file)?")
	case c.TLS == nil && c.speaksTLS(ctx, addr):
		return mismatch{fmt.Errorf("TLS is off, but %s is a TLS port; set kafka.security_protocol to ssl or sasl_ssl, or use the plaintext port: %w", addr, err)}
	case !hungUp(err):
		return err
	// A broker that hangs up answers ApiVersions to everybody, so where it
	// did, authentication is what it objects to.
	case c.SASL != nil && c.speaks(ctx, addr):
		return auth("the broker hung up during authentication: wrong user or password for " + mech +
			" (kafka.sasl.user, kafka.sasl.password), a mechanism that it does not offer, or a port without SASL")
	case c.SASL == nil && c.speaks(ctx, addr):
		return auth("the broker hung up on a request without authentication: is SASL missing? (kafka.security_protocol sasl_plaintext or sasl_ssl)")
	}
	return fmt.Errorf("the broker hung up at once; is %s the port of a broker?: %w", addr, err)
}

// isAlert reports whether the other side has ended TLS with an alert, for which
// crypto/tls has no exported type outside of QUIC.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// hungUp reports whether the connection was closed instead of an answer.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// plain is a client that takes every failure for an answer.
func (c Cluster) plain(addr string, tc func() (*tls.Config, error), authenticate bool, more ...kgo.Opt) (*kgo.Client, error) {
	d := c.dialer()
	d.window, d.tls = 0, tc
	opts := []kgo.Opt{
		kgo.SeedBrokers(addr),
		kgo.ClientID(c.clientID("reach")),
		kgo.Dialer(d.DialContext),
		kgo.RequestRetries(0),
		kgo.DisableClientMetrics(),
	}
	if authenticate && c.SASL != nil {
		opts = append(opts, kgo.SASL(c.SASL))
	}
	return kgo.NewClient(append(opts, more...)...)
}

// speaks reports whether a broker at addr answers ApiVersions, which needs no
// authentication, under the cluster's TLS setting.
func (c Cluster) speaks(ctx context.Context, addr string) bool {
	return c.answersApiVersions(ctx, addr, c.TLS)
}

// speaksPlain is speaks without TLS.
func (c Cluster) speaksPlain(ctx context.Context, addr string) bool {
	return c.answersApiVersions(ctx, addr, nil)
}

// answersApiVersions reports whether the client's own ApiVersions request, its first on a connection,
// is answered. Kafka's SASL listeners answer just that one without authentication: they hang up on
// a second one as on anything else (IllegalSaslStateException).
func (c Cluster) answersApiVersions(ctx context.Context, addr string, tc func() (*tls.Config, error)) bool {
	answered := make(heard, 1)
	cl, err := c.plain(addr, tc, false, kgo.WithHooks(answered))
	if err != nil {
		return false
	}
	defer cl.Close()
	part, cancel := step(ctx)
	defer cancel()
	_, err = kmsg.NewPtrApiVersionsRequest().RequestWith(part, cl)
	return err == nil || len(answered) > 0
}

// heard has an element once a broker has answered ApiVersions.
type heard chan struct{}

func (h heard) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key != int16(kmsg.ApiVersions) || err != nil {
		return
	}
	select {
	case h <- struct{}{}:
	default:
	}
}

// speaksTLS reports whether addr answers a TLS handshake. Nothing is sent over
// the connection, so it does not matter whom it is with.
func (c Cluster) speaksTLS(ctx context.Context, addr string) bool {
	part, cancel := step(ctx)
	defer cancel()
	dial := c.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(part, "tcp", addr)
	if err != nil {
		return false
	}
	tc, err := handshake(part, conn, func() (*tls.Config, error) {
		return &tls.Config{InsecureSkipVerify: true}, nil //nolint:gosec // only asks whether it is TLS
	}, addr)
	if err != nil {
		return isAlert(err) // a refusal, but in TLS
	}
	tc.Close()
	return true
}
