//go:build unix

package kafkaenv_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"go.uber.org/goleak"

	"github.com/killick-io/killick/testenv/kafkaenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func client(t *testing.T, k *kafkaenv.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(k.ClientOpts(opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// write produces n records named by name and returns how long the slowest took.
func write(ctx context.Context, t *testing.T, cl *kgo.Client, topic, name string, n int) (slowest time.Duration) {
	t.Helper()
	for i := range n {
		start := time.Now()
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: 0, Value: fmt.Appendf(nil, "%s%d", name, i)}).FirstErr(); err != nil {
			t.Fatalf("produce %s%d: %v", name, i, err)
		}
		slowest = max(slowest, time.Since(start))
	}
	return slowest
}

// values reads a topic up to its end.
func values(ctx context.Context, t *testing.T, k *kafkaenv.Cluster, topic string) (all []string) {
	t.Helper()
	cl := client(t, k, kgo.ConsumeTopics(topic))
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	var want int64
	ends.Each(func(o kadm.ListedOffset) { want += o.Offset })
	for int64(len(all)) < want {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		f.EachRecord(func(r *kgo.Record) { all = append(all, string(r.Value)) })
	}
	return all
}

// TestOneBroker: a broker's data outlives SIGKILL, SIGTERM and SIGSTOP, at the same address.
func TestOneBroker(t *testing.T) {
	k := kafkaenv.Start(t, kafkaenv.Topic("in", 2, "retention.ms", "-1"))
	ctx := within(t, time.Minute)
	cl := client(t, k, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	b := k.Brokers()[0]
	addr, pid := b.Addr(kafkaenv.Plaintext), b.Pid()

	write(ctx, t, cl, "in", "a", 10)
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if b.Running() {
		t.Error("a killed broker runs")
	}
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if b.Addr(kafkaenv.Plaintext) != addr || b.Pid() == pid {
		t.Errorf("after a kill: address %s and pid %d, were %s and %d", b.Addr(kafkaenv.Plaintext), b.Pid(), addr, pid)
	}
	if err := b.Start(ctx); err == nil || !strings.Contains(err.Error(), "broker 1 runs already") {
		t.Errorf("started twice: %v", err)
	}
	write(ctx, t, cl, "in", "b", 10)
	if err := b.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.Pause(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if err := client(t, k).Ping(short); err == nil {
		t.Error("a paused broker answers")
	}
	if err := b.Resume(); err != nil {
		t.Fatal(err)
	}
	write(ctx, t, cl, "in", "c", 10)
	if got := values(ctx, t, k, "in"); len(got) != 30 || got[0] != "a0" || got[29] != "c9" {
		t.Errorf("read %d records: %q", len(got), got)
	}
	configs, err := kadm.NewClient(cl).DescribeTopicConfigs(ctx, "in")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configs[0].Configs {
		if c.Key == "retention.ms" && *c.Value != "-1" {
			t.Errorf("retention.ms is %s", *c.Value)
		}
	}
}

// TestThreeBrokers: the others go on without the broker that led.
func TestThreeBrokers(t *testing.T) {
	k := kafkaenv.Start(t, kafkaenv.Brokers(3), kafkaenv.Topic("in", 1))
	ctx := within(t, 2*time.Minute)
	cl := client(t, k, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	write(ctx, t, cl, "in", "a", 10)
	first, err := k.Leader(ctx, "in", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	t.Logf("leader killed: the slowest write took %v", write(ctx, t, cl, "in", "b", 10))
	second, err := k.Leader(ctx, "in", 0)
	if err != nil {
		t.Fatal(err)
	}
	if second == first {
		t.Errorf("broker %d is dead and leads", first.ID())
	}
	if err := first.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := second.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("leader stopped: the slowest write took %v", write(ctx, t, cl, "in", "c", 10))
	if err := second.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := k.PreferLeaders(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Coordinator(ctx, "anyone"); err != nil {
		t.Error(err)
	}
	if got := values(ctx, t, k, "in"); len(got) != 30 {
		t.Errorf("read %d records of 30: %q", len(got), got)
	}
}

// TestReleases: each release starts, with the features that it is asked for.
func TestReleases(t *testing.T) {
	for _, tt := range []struct {
		name        string
		opts        []kafkaenv.Option
		transaction int16 // the cluster's transaction.version; 0: it has none
	}{
		{"latest", nil, 2},
		{"latest with old transactions", []kafkaenv.Option{kafkaenv.TransactionVersion(1)}, 1},
		{"first 4", []kafkaenv.Option{kafkaenv.Version(kafkaenv.First4)}, 2},
		{"oldest 3", []kafkaenv.Option{kafkaenv.Version(kafkaenv.Oldest3)}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := kafkaenv.Start(t, append(tt.opts, kafkaenv.Topic("in", 1))...)
			ctx := within(t, time.Minute)
			cl := client(t, k, kgo.TransactionalID("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			if err := cl.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			write(ctx, t, cl, "in", "a", 1)
			if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
				t.Fatal(err)
			}
			got, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, cl)
			if err != nil {
				t.Fatal(err)
			}
			var version int16
			for _, f := range got.FinalizedFeatures {
				if f.Name == "transaction.version" {
					version = f.MaxVersionLevel
				}
			}
			if version != tt.transaction {
				t.Errorf("transaction.version is %d, want %d", version, tt.transaction)
			}
		})
	}
}

// TestSecurity: who may come in by which door, and what they may do there.
func TestSecurity(t *testing.T) {
	k := kafkaenv.Start(t, kafkaenv.User("alice", "alice-secret"), kafkaenv.WithTLS(kafkaenv.ServerTLS{}), kafkaenv.ACLs(), kafkaenv.Topic("in", 1))
	ctx := within(t, time.Minute)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(k.CA().PEM)
	pair, err := k.CA().Client("carol")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := kafkaenv.NewCA("another")
	if err != nil {
		t.Fatal(err)
	}
	foreign := x509.NewCertPool()
	foreign.AppendCertsFromPEM(stranger.PEM)
	secret := scram.Auth{User: "alice", Pass: "alice-secret"}
	for _, tt := range []struct {
		name string
		door kafkaenv.Listener
		opts []kgo.Opt
		want string // of the error; "": no error
	}{
		{"plaintext", kafkaenv.Plaintext, nil, ""},
		{"scram", kafkaenv.SASL, []kgo.Opt{kgo.SASL(secret.AsSha256Mechanism())}, ""},
		{"plain", kafkaenv.SASL, []kgo.Opt{kgo.SASL(plain.Auth{User: "alice", Pass: "alice-secret"}.AsMechanism())}, ""},
		{"wrong password", kafkaenv.SASL, []kgo.Opt{kgo.SASL(scram.Auth{User: "alice", Pass: "x"}.AsSha256Mechanism())}, "SASL_AUTHENTICATION_FAILED"},
		{"client certificate", kafkaenv.TLS, []kgo.Opt{kgo.DialTLSConfig(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}})}, ""},
		{"no client certificate", kafkaenv.TLS, []kgo.Opt{kgo.DialTLSConfig(&tls.Config{RootCAs: roots})}, "bad certificate"},
		{"another CA", kafkaenv.TLS, []kgo.Opt{kgo.DialTLSConfig(&tls.Config{RootCAs: foreign})}, "unknown authority"},
		{"scram over TLS", kafkaenv.SASLTLS, []kgo.Opt{kgo.DialTLSConfig(&tls.Config{RootCAs: roots}), kgo.SASL(secret.AsSha256Mechanism())}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cl, err := kgo.NewClient(append(tt.opts, kgo.SeedBrokers(k.AddrsOf(tt.door)...), kgo.RequestRetries(0),
				kgo.RecordRetries(0), kgo.AllowAutoTopicCreation())...)
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			switch err := cl.Ping(ctx); {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%v; want %q", err, tt.want)
			}
			if tt.want != "" || tt.door == kafkaenv.Plaintext {
				return
			}
			// No ACL allows anything yet.
			if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, "new-"+strings.ReplaceAll(tt.name, " ", "-")); !errors.Is(err, kerr.ClusterAuthorizationFailed) && !errors.Is(err, kerr.TopicAuthorizationFailed) {
				t.Errorf("a topic was made without an ACL: %v", err)
			}
		})
	}
}

// TestServerCertificates: brokers whose certificate is not good.
func TestServerCertificates(t *testing.T) {
	for _, tt := range []struct {
		name string
		tls  kafkaenv.ServerTLS
		want string
	}{
		{"for another host", kafkaenv.ServerTLS{Host: "elsewhere.example"}, "elsewhere.example|127.0.0.1"},
		{"expired", kafkaenv.ServerTLS{Expired: true}, "expired"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := kafkaenv.Start(t, kafkaenv.User("alice", "alice-secret"), kafkaenv.WithTLS(tt.tls))
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(k.CA().PEM)
			cl, err := kgo.NewClient(kgo.SeedBrokers(k.AddrsOf(kafkaenv.SASLTLS)...), kgo.RequestRetries(0), kgo.DialTLSConfig(&tls.Config{RootCAs: roots}))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			err = cl.Ping(within(t, time.Minute))
			if err == nil || !regexp.MustCompile(tt.want).MatchString(err.Error()) {
				t.Errorf("%v; want %q", err, tt.want)
			}
		})
	}
}

// bare is a TB that notes how the test ended.
type bare struct {
	*testing.T
	skipped, failed string
}

func (b *bare) Skipf(format string, args ...any)  { b.skipped = fmt.Sprintf(format, args...) }
func (b *bare) Fatalf(format string, args ...any) { b.failed = fmt.Sprintf(format, args...) }

// TestMissing: without Java a developer's test is skipped, and one of CI fails; both say why.
func TestMissing(t *testing.T) {
	for _, ci := range []string{"true", ""} {
		t.Run("CI="+ci, func(t *testing.T) {
			t.Setenv("PATH", t.TempDir())
			t.Setenv("CI", ci)
			b := &bare{T: t}
			if k := kafkaenv.Start(b); k != nil {
				t.Fatalf("started %v", k)
			}
			said, other := b.skipped, b.failed
			if ci == "true" {
				said, other = other, said
			}
			if !strings.Contains(said, "needs Java 17 or later: no java in the path") || other != "" {
				t.Errorf("skipped %q, failed %q", b.skipped, b.failed)
			}
		})
	}
}

// TestShared: one cluster for whoever asks, and none if nobody does.
func TestShared(t *testing.T) {
	idle := kafkaenv.NewShared()
	if code := idle.Main(func() int { return 3 }); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	s := kafkaenv.NewShared()
	var pid int
	code := s.Main(func() int {
		a, b := s.Use(t), s.Use(t)
		if a != b {
			t.Error("two clusters")
		}
		pid = a.Brokers()[0].Pid()
		if err := client(t, a).Ping(within(t, time.Minute)); err != nil {
			t.Error(err)
		}
		return 0
	})
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is left: %v", pid, err)
	}
}

func TestMistakes(t *testing.T) {
	_, err := kafkaenv.New(t.Context(), kafkaenv.Version("2.8.0"), kafkaenv.Brokers(0), kafkaenv.User("bob", "has space"),
		kafkaenv.Property("log.dirs", "/tmp"), kafkaenv.Topic("in", 0, "retention.ms"))
	for _, part := range []string{`no Kafka "2.8.0" here, only 4.4.0, 4.0.0, 3.9.1`, "0 brokers", `user "bob"`, "property log.dirs is set by kafkaenv itself",
		"topic in: 0 partitions", "retention.ms has no value"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v\ndoes not say %q", err, part)
		}
	}
	if err != nil && strings.Contains(err.Error(), "has space") {
		t.Errorf("a password is printed: %v", err)
	}
	t.Setenv("TMPDIR", t.TempDir()) // what a failed start keeps
	// A property that Kafka does not take: the broker's own words come back.
	_, err = kafkaenv.New(t.Context(), kafkaenv.Property("num.io.threads", "many"))
	if err == nil || !strings.Contains(err.Error(), "num.io.threads") {
		t.Errorf("a wrong property: %v", err)
	}
}

func TestNothingIsLeft(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond) // in the midst of a start
	defer cancel()
	if k, err := kafkaenv.New(ctx); err == nil {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	} else if !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "killed") {
		t.Errorf("an abandoned start: %v", err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	k, err := kafkaenv.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pid := k.Brokers()[0].Pid()
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(k.Dir()); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", k.Dir(), err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is left: %v", pid, err)
	}
}
