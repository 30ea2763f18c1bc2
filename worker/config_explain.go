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
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// explained is an error of a connection with what the user can do about it. It
// is one line; the chain below stays for errors.Is and errors.As.
type explained struct {
	err  error
	text string
}

// Error returns the hint and the cause.
func (e *explained) Error() string { return e.text }

// Unwrap returns the cause.
func (e *explained) Unwrap() error { return e.err }

// explain adds to an error of a Kafka client which addresses and which of TLS
// and SASL were configured, and the likely mismatch: by itself it may say no
// more than EOF. nil and errors of other kinds come back as they are. It shows
// no secret: it reads none.
func explain(err error, c Config) error {
	if err == nil {
		return nil
	}
	c = c.withDefaults()
	hint := c.hint(err)
	if hint == "" {
		return err
	}
	how := "kafka.security_protocol " + c.SecurityProtocol
	if c.usesSASL() {
		how += ", " + c.SASL.Mechanism + " as " + quote(c.SASL.User)
	}
	return &explained{err, "worker: Kafka at " + strings.Join(c.Bootstrap, ", ") + " (" + how + "): " + hint +
		": " + strings.ReplaceAll(err.Error(), "\n", "; ")}
}

// hint guesses what is wrong, from the error's type where it has one.
func (c Config) hint(err error) string {
	const (
		password = "wrong user or password: check kafka.sasl.user and kafka.sasl.password or password_file"
		login    = password + ", and kafka.sasl.mechanism"
		noTLS    = "this port does not speak TLS: use kafka.security_protocol plaintext or sasl_plaintext, or the port of the TLS listener"
		needTLS  = "this port speaks TLS: use kafka.security_protocol ssl or sasl_ssl, or the port of a plaintext listener"
	)
	if hint := hintCertificate(err); hint != "" {
		return hint
	}
	if hint := c.hintAddress(err); hint != "" {
		return hint
	}
	var record tls.RecordHeaderError
	var first *kgo.ErrFirstReadEOF
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return "the broker refused the login: " + password
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return "the broker does not offer this mechanism: check kafka.sasl.mechanism"
	case errors.Is(err, kerr.IllegalSaslState):
		return "the broker expects a login, or none: check kafka.security_protocol"
	case errors.As(err, &record):
		return noTLS
	case strings.Contains(err.Error(), "tls alert record"), strings.Contains(err.Error(), "is TLS missing?"):
		// The client knows it from the bytes, or from a hang-up at a request that
		// every listener without TLS answers, and has no type for it.
		return needTLS
	case errors.As(err, &first) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET):
		// A listener that is spoken to in the wrong way hangs up, and some
		// brokers do after a bad password, so the setting is all there is to go by.
		switch c.SecurityProtocol {
		case "ssl":
			return "the broker hung up: the port may be one without TLS, or want SASL (sasl_ssl) or a client certificate (kafka.tls.cert_file)"
		case "sasl_plaintext":
			return "the broker hung up: " + login + "; or the port wants TLS (sasl_ssl)"
		case "sasl_ssl":
			return "the broker hung up: " + login + "; or the port is one without TLS, or wants a client certificate (kafka.tls.cert_file)"
		}
		return "the broker hung up: the port may want TLS (kafka.security_protocol ssl) or SASL (sasl_plaintext, sasl_ssl), or be no Kafka port"
	}
	return ""
}

// hintCertificate explains errors about certificates, of either side.
func hintCertificate(err error) string {
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		remote    *net.OpError
	)
	switch {
	case errors.As(err, &authority):
		return "the broker's certificate is signed by nobody known: set kafka.tls.ca_file to its authority"
	case errors.As(err, &host):
		return "the broker's certificate is for another host: use a name that it carries in kafka.bootstrap_servers, or kafka.tls.server_name"
	case errors.As(err, &invalid):
		return "the broker's certificate is not valid: check its dates, and this machine's clock"
	case errors.As(err, &remote) && remote.Op == "remote error": // an alert of crypto/tls
		return "the broker refused the TLS handshake: it may want a client certificate, or another one (kafka.tls.cert_file and key_file)"
	}
	return ""
}

// hintAddress explains errors before anything was said.
func (c Config) hintAddress(err error) string {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return "the name " + quote(dns.Name) + " cannot be resolved: check kafka.bootstrap_servers, or what the broker advertises (advertised.listeners)"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nobody listens there: check kafka.bootstrap_servers and that the broker runs, or what it advertises (advertised.listeners)"
	case errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH):
		return "no way to that host: check kafka.bootstrap_servers and the network, or what the broker advertises (advertised.listeners)"
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		if c.usesTLS() {
			return "no answer in time: check kafka.bootstrap_servers, firewalls, that the broker is well, and that the port is not one without TLS"
		}
		return "no answer in time: check kafka.bootstrap_servers, firewalls, and that the broker is well"
	}
	return ""
}
