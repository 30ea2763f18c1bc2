package worker

import (
	"crypto/tls"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

func TestValidate(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	a, _ := tlsFiles(t, dir)
	_, other := a.issue(t, 9)
	put(t, dir, "other-key.pem", other)
	put(t, dir, "text", []byte("text"))
	put(t, dir, "empty", []byte("\n"))
	plainSASL := SASL{Mechanism: "PLAIN", User: "u", Password: NewSecret("p")}
	const noCert = "tls: failed to find any PEM data in certificate input"
	tests := []struct {
		name string
		c    Config
		want string
	}{
		{"negative windows", Config{Drain: -time.Second, CommitInterval: -1, Session: -1, Heartbeat: -1, FetchMaxWait: -1, FetchMaxBytes: -1, BufferBytes: -1, Topics: Topics{Replication: -1}},
			`Config.Drain: "-1s" is negative; at least 1ms
Config.CommitInterval: "-1ns" is negative; at least 10ms
Config.Topics.Replication: "-1" is negative; at least 1
Config.Session: "-1ns" is negative; at least 100ms
Config.Heartbeat: "-1ns" is negative; at least 10ms
Config.FetchMaxWait: "-1ns" is negative; at least 10ms
Config.FetchMaxBytes: "-1" is negative; at least 1KiB
Config.BufferBytes: "-1" is negative; at least 1MiB`},
		{"a negative linger is none", Config{Linger: -1}, ``},
		{"heartbeat over a third of the session", Config{Session: 3 * time.Second, Heartbeat: 1100 * time.Millisecond},
			`Config.Heartbeat: heartbeat_interval 1.1s is more than a third of session_timeout 3s: one lost heartbeat would cost the membership`},
		{"a third is fine", Config{Session: 3 * time.Second, Heartbeat: time.Second}, ``},
		{"enumerations set in code", Config{LogLevel: "loud", SecurityProtocol: "SSL"},
			`Config.LogLevel: "loud" is not one of trace, debug, info, warn, error, off
Config.SecurityProtocol: "SSL" is not one of plaintext, ssl, sasl_plaintext, sasl_ssl`},
		{"addresses", Config{Bootstrap: []string{"a", "b:0", "b:70000", ":9092", "::1", "kafka://a:1", "a: 1", "a:1", "a:1", "[::1]:9092", "a:b:c"}, HTTP: "8080"},
			`Config.Bootstrap: "a" has no port; write a:9092
Config.Bootstrap: "b:0" has no port between 1 and 65535
Config.Bootstrap: "b:70000" has no port between 1 and 65535
Config.Bootstrap: ":9092" has no host; write 127.0.0.1:9092
Config.Bootstrap: "::1" has no port; write [::1]:9092
Config.Bootstrap: "kafka://a:1" has a scheme; write host:port, and say TLS or SASL by kafka.security_protocol
Config.Bootstrap: "a: 1" has white space; write host:port
Config.Bootstrap: "a:1" is listed twice
Config.Bootstrap: "a:b:c" is not host:port; an IPv6 address needs brackets
Config.HTTP: "8080" is not host:port; write 127.0.0.1:8080, :8080 for all interfaces, or off`},
		{"all interfaces", Config{HTTP: ":8080"}, ``},
		{"names", Config{Place: "a/b", Prefix: strings.Repeat("p", 101), Group: "a\tb", Rack: strings.Repeat("r", 513)},
			`Config.Place: "a/b" may hold letters, digits, ".", "_" and "-" only
Config.Prefix: is 101 characters long; at most 100
Config.Group: "a\tb" has control characters
Config.Rack: is 513 bytes long; at most 512`},

		{"TLS settings without TLS", Config{TLS: TLS{CAFile: "ca.pem", InsecureSkipVerify: true}},
			`Config.TLS.CAFile: is not used: kafka.security_protocol is plaintext; write ssl or sasl_ssl
Config.TLS.InsecureSkipVerify: is not used: kafka.security_protocol is plaintext; write ssl or sasl_ssl`},
		{"certificate without key", Config{SecurityProtocol: "ssl", TLS: TLS{CertFile: "client.pem"}},
			`Config.TLS.CertFile: has no key; set kafka.tls.key_file as well`},
		{"key without certificate", Config{SecurityProtocol: "ssl", TLS: TLS{KeyFile: "client-key.pem"}},
			`Config.TLS.KeyFile: has no certificate; set kafka.tls.cert_file as well`},
		{"missing files", Config{SecurityProtocol: "ssl", TLS: TLS{CAFile: "no-ca", CertFile: "no-cert", KeyFile: "client-key.pem"}},
			`Config.TLS.CAFile: open no-ca: no such file or directory
Config.TLS.CertFile: open no-cert: no such file or directory`},
		{"files of another kind", Config{SecurityProtocol: "ssl", TLS: TLS{CAFile: "text", CertFile: "text", KeyFile: "client-key.pem"}},
			`Config.TLS.CAFile: text has no certificate in PEM format
Config.TLS.CertFile: text and client-key.pem: ` + noCert},
		{"a key of another certificate", Config{SecurityProtocol: "ssl", TLS: TLS{CertFile: "client.pem", KeyFile: "other-key.pem"}},
			`Config.TLS.CertFile: client.pem and other-key.pem: tls: private key does not match public key`},
		{"good TLS", Config{SecurityProtocol: "ssl", TLS: TLS{CAFile: "ca.pem", CertFile: "client.pem", KeyFile: "client-key.pem"}}, ``},

		{"SASL settings without SASL", Config{SecurityProtocol: "ssl", SASL: plainSASL},
			`Config.SASL.Mechanism: is not used: kafka.security_protocol is ssl; write sasl_ssl or sasl_plaintext
Config.SASL.User: is not used: kafka.security_protocol is ssl; write sasl_ssl or sasl_plaintext
Config.SASL.Password: is not used: kafka.security_protocol is ssl; write sasl_ssl or sasl_plaintext`},
		{"SASL without anything", Config{SecurityProtocol: "sasl_ssl"},
			`Config.SecurityProtocol: sasl_ssl needs kafka.sasl.mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
Config.SecurityProtocol: sasl_ssl needs kafka.sasl.user
Config.SecurityProtocol: sasl_ssl needs kafka.sasl.password or kafka.sasl.password_file`},
		{"missing password file", Config{SecurityProtocol: "sasl_ssl", SASL: SASL{Mechanism: "PLAIN", User: "u", PasswordFile: "no-pw"}},
			`Config.SASL.PasswordFile: open no-pw: no such file or directory`},
		{"empty password file", Config{SecurityProtocol: "sasl_ssl", SASL: SASL{Mechanism: "PLAIN", User: "u", PasswordFile: "empty"}},
			`Config.SASL.PasswordFile: empty is empty: invalid argument`},
		{"PLAIN in the clear", Config{Bootstrap: []string{"kafka:9092"}, SecurityProtocol: "sasl_plaintext", SASL: plainSASL},
			`Config.SASL.Mechanism: PLAIN without TLS sends the password in the clear; use sasl_ssl or SCRAM-SHA-512 (kafka.sasl.allow_plaintext: true if you must)`},
		{"PLAIN in the clear on loopback", Config{SecurityProtocol: "sasl_plaintext", SASL: plainSASL}, ``},
		{"PLAIN in the clear, on purpose", Config{Bootstrap: []string{"kafka:9092"}, SecurityProtocol: "sasl_plaintext",
			SASL: SASL{Mechanism: "PLAIN", User: "u", Password: NewSecret("p"), AllowPlaintext: true}}, ``},

		{"the user's dialer around TLS", Config{SecurityProtocol: "ssl", Kafka: []kgo.Opt{kgo.Dialer((&net.Dialer{}).DialContext)}},
			`Config.Kafka: brings a dialer of its own, which would go around kafka.security_protocol ssl (Config.SecurityProtocol); use one of them`},
		{"the user's TLS beside ours", Config{SecurityProtocol: "ssl", Kafka: []kgo.Opt{kgo.DialTLSConfig(&tls.Config{})}},
			`Config.Kafka: brings a dialer of its own, which would go around kafka.security_protocol ssl (Config.SecurityProtocol); use one of them`},
		{"the user's SASL beside ours", Config{SecurityProtocol: "sasl_plaintext", SASL: plainSASL, Kafka: []kgo.Opt{kgo.SASL(plain.Auth{User: "u", Pass: "p"}.AsMechanism())}},
			`Config.Kafka: brings kgo.SASL, and kafka.security_protocol is sasl_plaintext (Config.SecurityProtocol); use one of them`},
		{"the user's security instead of ours", Config{Kafka: []kgo.Opt{kgo.DialTLSConfig(&tls.Config{}), kgo.SASL(plain.Auth{User: "u", Pass: "p"}.AsMechanism())}}, ``},
		{"options that only kgo finds bad together", Config{FetchMaxBytes: 60 << 20, Kafka: []kgo.Opt{kgo.BrokerMaxReadBytes(52 << 20)}},
			`Config.Kafka: kafka: consumer: max broker read bytes 54525952 is erroneously less than max fetch bytes 62914560`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Join(lines(t, tt.c.Validate()), "\n")
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestValidateSaysWhereLoadFoundIt: mistakes that only the whole Config shows
// have the place of the value as well.
func TestValidateSaysWhereLoadFoundIt(t *testing.T) {
	write(t, "k.yaml", "kafka:\n  session_timeout: 1s\n  tls.ca_file: ca.pem\n")
	_, err := Load([]string{"--bootstrap=a"}, []string{"KILLICK_CONFIG=k.yaml", "KILLICK_PLACE=a/b"})
	want := []string{
		`env KILLICK_PLACE: "a/b" may hold letters, digits, ".", "_" and "-" only`,
		`flag --bootstrap: "a" has no port; write a:9092`,
		`k.yaml:2:20: kafka.session_timeout: heartbeat_interval 500ms is more than a third of session_timeout 1s: one lost heartbeat would cost the membership`,
		`k.yaml:3:16: kafka.tls.ca_file: is not used: kafka.security_protocol is plaintext; write ssl or sasl_ssl`,
	}
	if d := cmp.Diff(want, lines(t, err)); d != "" {
		t.Error(d)
	}
}

func TestWarnings(t *testing.T) {
	c := Config{SecurityProtocol: "ssl", TLS: TLS{InsecureSkipVerify: true}, Session: 2 * time.Second}
	want := []string{
		"Config.TLS.InsecureSkipVerify: any certificate is accepted; the connection is not protected",
		"Config.Session: brokers refuse less than 6s unless group.min.session.timeout.ms says otherwise",
	}
	if d := cmp.Diff(want, c.warnings()); d != "" {
		t.Error(d)
	}
	c = Config{SecurityProtocol: "sasl_plaintext", SASL: SASL{Mechanism: "PLAIN"}}
	if d := cmp.Diff([]string{"Config.SASL.Mechanism: PLAIN without TLS sends the password in the clear"}, c.warnings()); d != "" {
		t.Error(d)
	}
	if w := (Config{}).warnings(); len(w) > 0 {
		t.Error(w)
	}
}

// TestLastGoodCertificate: while a rotation has written only one of the two
// files the last good pair is used; before a first one it is an error.
func TestLastGoodCertificate(t *testing.T) {
	dir := t.TempDir()
	a, settings := tlsFiles(t, dir)
	src := &tlsSource{settings: settings}
	first, err := src.config()
	if err != nil {
		t.Fatal(err)
	}
	cert, key := a.issue(t, 50)
	put(t, dir, "client.pem", cert)
	half, err := src.config()
	if err != nil || !half.Certificates[0].Leaf.Equal(first.Certificates[0].Leaf) {
		t.Errorf("half way: %v", err)
	}
	put(t, dir, "client-key.pem", key)
	second, err := src.config()
	if err != nil || second.Certificates[0].Leaf.SerialNumber.Int64() != 50 {
		t.Errorf("after the rotation: %v", err)
	}
	if err := os.Remove(settings.CAFile); err != nil {
		t.Fatal(err)
	}
	if _, err := src.config(); err != nil {
		t.Errorf("with an authority lost: %v", err)
	}
	if _, err := (&tlsSource{settings: settings}).config(); err == nil {
		t.Error("no error without any good files")
	}
}
