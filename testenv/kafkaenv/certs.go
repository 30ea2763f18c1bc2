//go:build unix

package kafkaenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// ServerTLS says what the brokers' certificate is like. The zero value is a good one, for 127.0.0.1
// and localhost.
type ServerTLS struct {
	Host    string // the certificate is for this name only
	Expired bool   // it has been, since yesterday
}

// CA is an authority for tests: it lives in memory, and for a day.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	PEM  []byte // its certificate
}

// Pair is a certificate with its key, both in PEM; the key in PKCS #8.
type Pair struct{ Cert, Key []byte }

// NewCA makes an authority. Brokers trust only their cluster's, see Cluster.CA.
func NewCA(name string) (*CA, error) {
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: now.AddDate(0, 0, -30), NotAfter: now.AddDate(0, 0, 1),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("kafkaenv: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("kafkaenv: certificate of %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("kafkaenv: certificate of %s: %w", name, err)
	}
	return &CA{cert: cert, key: key, PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// Client makes the certificate of a user: brokers take its common name for the user's name.
func (ca *CA) Client(name string) (*Pair, error) { return ca.issue(name, nil) }

func (ca *CA) issue(name string, change func(*x509.Certificate)) (*Pair, error) {
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: now.AddDate(0, 0, -10), NotAfter: now.AddDate(0, 0, 1),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(t)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("kafkaenv: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		return nil, fmt.Errorf("kafkaenv: certificate of %s: %w", name, err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("kafkaenv: key of %s: %w", name, err)
	}
	return &Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	}, nil
}

// serverFiles writes what the properties of brokers name: Kafka wants key, certificate and
// authority in one file, in this order.
func (ca *CA) serverFiles(dir string, s ServerTLS) error {
	p, err := ca.issue("kafkaenv broker", func(t *x509.Certificate) {
		t.DNSNames, t.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
		if s.Host != "" {
			t.DNSNames, t.IPAddresses = []string{s.Host}, nil
		}
		if s.Expired {
			t.NotAfter = time.Now().AddDate(0, 0, -1)
		}
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "server.pem"), slices.Concat(p.Key, p.Cert, ca.PEM), 0o600); err != nil {
		return fmt.Errorf("kafkaenv: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), ca.PEM, 0o644); err != nil {
		return fmt.Errorf("kafkaenv: %w", err)
	}
	return nil
}
