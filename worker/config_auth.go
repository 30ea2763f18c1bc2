package worker

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/killick-io/killick/internal/rules"
)

// maxSecretBytes bounds certificate and password files.
const maxSecretBytes = 1 << 20

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
		InsecureSkipVerify: s.settings.InsecureSkipVerify || !rules.CertificatesAreVerified, // explicit, and warned about
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
