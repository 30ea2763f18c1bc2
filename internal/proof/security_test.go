//go:build unix && killick_crash

package proof

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/kafkaenv"
	"github.com/killick-io/killick/worker"
)

// canary is a password that must be nowhere but in Kafka's own files.
const canary = "canary-7f3a91"

// door is a way into a cluster: what a worker has to know for it.
type door struct {
	k  *kafkaenv.Cluster
	at kafkaenv.Listener
}

func (d door) open(c *worker.Config) {
	c.Bootstrap = d.k.AddrsOf(d.at)
	c.SecurityProtocol = map[kafkaenv.Listener]string{kafkaenv.Plaintext: "plaintext", kafkaenv.SASL: "sasl_plaintext",
		kafkaenv.TLS: "ssl", kafkaenv.SASLTLS: "sasl_ssl"}[d.at]
}

// files writes PEM files.
func file(t *testing.T, text []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "pem")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func password(mechanism, word string) func(*worker.Config) {
	return func(c *worker.Config) {
		c.SASL = worker.SASL{Mechanism: mechanism, User: "alice", Password: worker.NewSecret(word), AllowPlaintext: true}
	}
}

// TestSecurity (rows 70 and 71): each right way in works, each wrong one is refused within five
// seconds, by a line that names it, and a password is nowhere to be read.
func TestSecurity(t *testing.T) {
	t.Parallel()
	users := []kafkaenv.Option{kafkaenv.User("alice", canary)}
	good := cluster(t, append(users, kafkaenv.WithTLS(kafkaenv.ServerTLS{}), kafkaenv.Topic("in", 1))...)
	elsewhere := cluster(t, append(users, kafkaenv.WithTLS(kafkaenv.ServerTLS{Host: "elsewhere.example"}))...)
	expired := cluster(t, append(users, kafkaenv.WithTLS(kafkaenv.ServerTLS{Expired: true}))...)

	ca := func(k *kafkaenv.Cluster) func(*worker.Config) {
		name := file(t, k.CA().PEM)
		return func(c *worker.Config) { c.TLS.CAFile = name }
	}
	pair, err := good.CA().Client("carol")
	if err != nil {
		t.Fatal(err)
	}
	cert, key := file(t, pair.Cert), file(t, pair.Key)
	asCarol := func(c *worker.Config) { c.TLS.CertFile, c.TLS.KeyFile = cert, key }
	stranger, err := kafkaenv.NewCA("a stranger")
	if err != nil {
		t.Fatal(err)
	}
	other := file(t, stranger.PEM)
	strange := func(c *worker.Config) { c.TLS.CAFile = other }
	theirs, err := stranger.Client("carol")
	if err != nil {
		t.Fatal(err)
	}
	theirCert, theirKey := file(t, theirs.Cert), file(t, theirs.Key)

	for _, tt := range []struct {
		name   string
		door   door
		change []func(*worker.Config)
		says   []string // none: it works
		is     error
	}{
		{"SCRAM", door{good, kafkaenv.SASL}, list(password("SCRAM-SHA-256", canary)), nil, nil},
		{"PLAIN", door{good, kafkaenv.SASL}, list(password("PLAIN", canary)), nil, nil},
		{"client certificate", door{good, kafkaenv.TLS}, list(ca(good), asCarol), nil, nil},
		{"SCRAM over TLS", door{good, kafkaenv.SASLTLS}, list(ca(good), password("SCRAM-SHA-256", canary)), nil, nil},

		{"wrong password, SCRAM", door{good, kafkaenv.SASL}, list(password("SCRAM-SHA-256", canary+"x")), []string{"wrong user or password", "SCRAM-SHA-256"}, worker.ErrAuth},
		{"wrong password, PLAIN", door{good, kafkaenv.SASL}, list(password("PLAIN", canary+"x")), []string{"wrong user or password", "PLAIN"}, worker.ErrAuth},
		{"wrong password over TLS", door{good, kafkaenv.SASLTLS}, list(ca(good), password("PLAIN", canary+"x")), []string{"wrong user or password"}, worker.ErrAuth},
		{"mechanism that is not there", door{good, kafkaenv.SASL}, list(password("SCRAM-SHA-512", canary)), []string{"does not offer SASL mechanism SCRAM-SHA-512", "kafka.sasl.mechanism"}, worker.ErrAuth},
		{"no credentials", door{good, kafkaenv.SASL}, list(func(c *worker.Config) { c.SecurityProtocol = "plaintext" }), []string{"is SASL missing?", "kafka.security_protocol"}, worker.ErrAuth},
		{"another CA", door{good, kafkaenv.TLS}, list(strange, asCarol), []string{"unknown authority", "kafka.tls.ca_file"}, nil},
		{"the system's CAs", door{good, kafkaenv.TLS}, list(asCarol), []string{"unknown authority", "kafka.tls.ca_file"}, nil},
		{"another host's certificate", door{elsewhere, kafkaenv.SASLTLS}, list(ca(elsewhere), password("PLAIN", canary)), []string{"127.0.0.1", "kafka.tls.server_name"}, nil},
		{"expired certificate", door{expired, kafkaenv.SASLTLS}, list(ca(expired), password("PLAIN", canary)), []string{"expired"}, nil},
		{"no client certificate", door{good, kafkaenv.TLS}, list(ca(good)), []string{"certificate", "kafka.tls.cert_file"}, nil},
		{"a stranger's client certificate", door{good, kafkaenv.TLS}, list(ca(good), func(c *worker.Config) { c.TLS.CertFile, c.TLS.KeyFile = theirCert, theirKey }), []string{"certificate", "kafka.tls.cert_file"}, nil},
		{"plaintext to TLS", door{good, kafkaenv.TLS}, list(func(c *worker.Config) { c.SecurityProtocol = "plaintext" }), []string{"TLS is off", "kafka.security_protocol"}, nil},
		{"plaintext SASL to TLS", door{good, kafkaenv.SASLTLS}, list(password("SCRAM-SHA-256", canary), func(c *worker.Config) { c.SecurityProtocol = "sasl_plaintext" }), []string{"TLS is off", "kafka.security_protocol"}, nil},
		{"TLS to plaintext", door{good, kafkaenv.Plaintext}, list(ca(good), func(c *worker.Config) { c.SecurityProtocol = "ssl" }), []string{"is a plaintext port", "kafka.security_protocol"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.door.k)
			var c tally
			top := killick.New("secure")
			top.Spout("in", spout.Kafka("in"))
			top.Bolt("count", c.count()).Shuffle("in")
			change := append(list(tt.door.open, func(c *worker.Config) { c.HTTP, c.LogLevel = "127.0.0.1:0", "debug" }), tt.change...)
			start := time.Now()
			r := w.start(top, change...)
			if tt.says == nil {
				v := w.name
				w.write("in", 0, v)
				w.until("the record is executed", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.n[v] == 1 })
				w.secret(r)
				r.end()
			} else {
				err := r.wait()
				took := time.Since(start)
				if !says(err, tt.says...) || strings.Contains(err.Error(), "\n") || worker.ExitCode(err) != 5 || tt.is != nil && !errors.Is(err, tt.is) {
					t.Errorf("exit code %d: %v\nwant one line with %q", worker.ExitCode(err), err, tt.says)
				}
				if says(err, canary) {
					t.Errorf("the password is in the error: %v", err)
				}
				if took > 5*time.Second {
					t.Errorf("it took %v", took)
				}
			}
			if strings.Contains(w.logs.text(), canary) {
				t.Error("the password is in the log")
			}
		})
	}
}

func list(all ...func(*worker.Config)) []func(*worker.Config) { return all }

// secret looks for the password in what a worker serves.
func (w *world) secret(r *running) {
	w.Helper()
	for _, path := range []string{"/metrics", "/livez", "/readyz"} {
		req, err := http.NewRequestWithContext(w.ctx(), http.MethodGet, "http://"+r.HTTPAddr()+path, nil)
		if err != nil {
			w.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			w.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			w.Fatal(err)
		}
		if len(body) == 0 || strings.Contains(string(body), canary) {
			w.Errorf("%s has %d bytes, or the password in them", path, len(body))
		}
	}
}
