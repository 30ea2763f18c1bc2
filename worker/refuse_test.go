package worker_test

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// What is wrong at the start ends the worker soon, with one error that names the thing and what to
// do, and loses nothing.
// FC-47: open-telemetry/opentelemetry-collector-contrib #40145, IBM/sarama #3037.
func TestRefusedAtStart(t *testing.T) {
	in := func() *killick.Topology { return counting(new(tally), spout.Kafka("in"), nil) }
	for name, tt := range map[string]struct {
		top    func() *killick.Topology
		change func(*worker.Config)
		before func(*story)
		opts   []embedded.Option
		code   int
		is     error
		says   []string
	}{
		"the source is missing": {top: func() *killick.Topology { return counting(new(tally), spout.Kafka("in", "nowhere"), nil) }, code: 1,
			says: []string{`spout "in"`, `topic does not exist: "nowhere"`}},
		"the sink is missing": {top: func() *killick.Topology { return copying(bolt.Kafka("nowhere")) }, code: 1,
			says: []string{`sink "out"`, `topic does not exist: "nowhere"`}},
		"the dead-letter topic is missing and may not be made": {top: in, change: func(c *worker.Config) { c.Topics.NoCreate = true }, code: 1,
			says: []string{`the dead-letter topic of "in"`, "switched off", "kafka-topics.sh", "--create --topic in.t.dlq --partitions 3", "retention.ms=-1"}},
		"the dead-letter topic cannot be made": {top: in, before: func(s *story) { s.b.Fail(kmsg.CreateTopics, kerr.TopicAuthorizationFailed, -1) }, code: 1,
			says: []string{`the dead-letter topic of "in"`, "TOPIC_AUTHORIZATION_FAILED", "kafka-topics.sh", "in.t.dlq"}},
		"the group is not ours": {top: in, before: func(s *story) { s.b.Fail(kmsg.OffsetFetch, kerr.GroupAuthorizationFailed, -1) }, code: 1,
			says: []string{`group "g"`, "GROUP_AUTHORIZATION_FAILED"}},
		"the group may not be joined": {top: in, before: func(s *story) { s.b.Fail(kmsg.JoinGroup, kerr.GroupAuthorizationFailed, -1) }, code: 1,
			says: []string{`not allowed to be a member of group "g"`, "READ", "GROUP_AUTHORIZATION_FAILED"}},
		"the source may not be read": {top: in, before: func(s *story) { s.b.Fail(kmsg.Fetch, kerr.TopicAuthorizationFailed, -1) }, code: 1,
			says: []string{`not allowed to read topic "in" in group "g"`, "TOPIC_AUTHORIZATION_FAILED"}},
		"the broker is away": {top: in, before: func(s *story) { s.b.Down() }, code: 5, is: worker.ErrUnreachable, says: []string{"cannot reach the cluster", "localhost:9092"}},
		"a wrong password": {top: in, opts: []embedded.Option{embedded.SASL("SCRAM-SHA-256", "u", "right")}, change: func(c *worker.Config) {
			c.SecurityProtocol, c.SASL = "sasl_plaintext", worker.SASL{Mechanism: "SCRAM-SHA-256", User: "u", Password: worker.NewSecret("wr0ng")}
		}, code: 5, is: worker.ErrAuth, says: []string{"wrong user or password", "SCRAM-SHA-256"}},
		"the dead-letter topic may not be written to": {top: in, opts: restricted("in.t.dlq"), change: asUser, code: 1,
			says: []string{`the dead-letter topic of "in"`, `operation WRITE on topic "in.t.dlq"`, "kafka-acls.sh", "--add --allow-principal User:u --operation Write --topic in.t.dlq"}},
		"the sink may not be written to": {top: func() *killick.Topology { return copying(bolt.Kafka("out")) }, opts: restricted("out"), change: asUser, code: 1,
			says: []string{`sink "out"`, `operation WRITE on topic "out"`, "kafka-acls.sh", "User:u"}},
		"the session is shorter than the brokers allow": {top: in, opts: []embedded.Option{brokerConfig("group.min.session.timeout.ms", "30000")}, code: 2,
			says: []string{"kafka.session_timeout", "10s", "group.min.session.timeout.ms", "group.max.session.timeout.ms", "INVALID_SESSION_TIMEOUT"}},
		"the session is longer than the brokers allow": {top: in, opts: []embedded.Option{brokerConfig("group.max.session.timeout.ms", "60000")}, code: 2,
			change: func(c *worker.Config) { c.Session = 2 * time.Minute },
			says:   []string{"kafka.session_timeout", "2m0s", "group.min.session.timeout.ms", "group.max.session.timeout.ms"}},
		"no credentials": {top: in, opts: []embedded.Option{embedded.SASL("PLAIN", "u", "right")}, code: 5, is: worker.ErrAuth, says: []string{"is SASL missing?"}},
	} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				if tt.before != nil {
					tt.before(s)
				}
				start := time.Now()
				changes := []func(*worker.Config){}
				if tt.change != nil {
					changes = append(changes, tt.change)
				}
				err := s.start(tt.top(), changes...).wait()
				if err == nil || !contains(err.Error(), tt.says...) || worker.ExitCode(err) != tt.code || tt.is != nil && !errors.Is(err, tt.is) {
					t.Errorf("exit code %d, want %d: %v", worker.ExitCode(err), tt.code, err)
				}
				if err != nil && (contains(err.Error(), "wr0ng") || contains(err.Error(), "pa55")) {
					t.Error("the password is shown")
				}
				if d := time.Since(start); d > 15*time.Second {
					t.Errorf("it took %v", d)
				}
				for _, c := range s.b.Commits() {
					if c.Offset > 0 { // the first positions may be
						t.Errorf("something was committed: %+v", c)
					}
				}
			}, append([]embedded.Option{embedded.Topic("in", 3)}, tt.opts...)...)
		})
	}
}

// brokerConfig sets a setting of the brokers.
func brokerConfig(key, value string) embedded.Option {
	return embedded.Kfake(kfake.BrokerConfigs(map[string]string{key: value}))
}

// A group that has no room is no reason to end: a member may go. Until then readiness says what is wrong.
func TestGroupIsFull(t *testing.T) {
	tell(t, func(s *story) {
		var first, second tally
		a := s.start(counting(&first, spout.Kafka("in"), nil))
		s.drained("in")
		b := s.start(counting(&second, spout.Kafka("in"), nil))
		s.until("readiness says that the group is full", func() bool {
			ok, text := b.ready("group")
			return !ok && contains(text, `"g"`, "group.max.size", "GROUP_MAX_SIZE_REACHED")
		})
		s.pass(5 * time.Minute)
		if ok, _ := b.ready("group"); ok {
			s.Error("readiness is green while the group is full")
		}
		if n := strings.Count(s.logs.text(), "so this worker waits"); n == 0 || n > 6 {
			s.Errorf("the log says it %d times in five minutes", n)
		}
		a.end()
		s.produce("in", 0, "x")
		s.until("the other one has joined", func() bool { return second.of("x") == 1 })
		if got := b.redLines(); got != "" {
			s.Errorf("red once it has joined: %s", got)
		}
		b.end()
	}, embedded.Topic("in", 1), brokerConfig("group.max.size", "1"))
}

// restricted makes a broker with a user u who may read in in group g, and topics that u may only look at.
func restricted(topics ...string) []embedded.Option {
	acl := func(kind kmsg.ACLResourceType, name string, op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kind, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
	}
	acls := []kfake.ACL{acl(kmsg.ACLResourceTypeTopic, "in", kmsg.ACLOperationRead), acl(kmsg.ACLResourceTypeGroup, "g", kmsg.ACLOperationRead)}
	opts := []embedded.Option{embedded.SASL("PLAIN", "admin", "secret")}
	for _, t := range topics {
		opts = append(opts, embedded.Topic(t, 3))
		acls = append(acls, acl(kmsg.ACLResourceTypeTopic, t, kmsg.ACLOperationDescribe))
	}
	return append(opts, embedded.Kfake(kfake.EnableACLs(), kfake.User("PLAIN", "u", "pa55", acls...)))
}

func asUser(c *worker.Config) {
	c.SecurityProtocol, c.SASL = "sasl_plaintext", worker.SASL{Mechanism: "PLAIN", User: "u", Password: worker.NewSecret("pa55")}
}

// The right to write to a dead-letter topic is granted while the worker runs: dead letters that
// waited for it are written.
func TestRightToWriteComesLater(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		bad := func(context.Context, *killick.Tuple, killick.Emitter) error {
			return killick.Permanent(errors.New("bad"))
		}
		r := s.start(counting(&c, spout.Kafka("in"), bad), asUser)
		s.drained("in")
		acls := s.admin()
		deny := kadm.NewACLs().Topics("in.t.dlq").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpWrite).Deny("User:u").DenyHosts("*")
		if _, err := acls.CreateACLs(s.ctx(), deny); err != nil {
			t.Fatal(err)
		}
		s.produce("in", 0, "1")
		s.until("readiness says what is missing", func() bool {
			_, text := r.ready("dead-letters")
			return contains(text, "in.t.dlq", "operation WRITE", "kafka-acls.sh")
		})
		if _, err := acls.DeleteACLs(s.ctx(), deny); err != nil {
			t.Fatal(err)
		}
		s.drained("in")
		r.end()
		if n := len(s.read("in.t.dlq")); n != 1 {
			t.Errorf("%d dead letters", n)
		}
		c.once(t, "1")
	}, append(restricted(), embedded.Topic("in", 3), embedded.Topic("in.t.dlq", 3), embedded.Kfake(kfake.User("PLAIN", "u", "pa55",
		kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "in.t.dlq", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationWrite, Allow: true})))...)
}

// Everything that is wrong with a topology's topics is said at once.
func TestRefusedAtStartAllAtOnce(t *testing.T) {
	tell(t, func(s *story) {
		top := killick.New("t")
		top.Spout("a", spout.Kafka("no-a"))
		top.Spout("b", spout.Kafka("no-b", "no-c"))
		top.Bolt("x", bolt.Func(func(context.Context, *killick.Tuple, killick.Emitter) error { return nil })).Shuffle("a").Shuffle("b")
		err := s.start(top).wait()
		if err == nil || !contains(err.Error(), `"no-a"`, `"no-b"`, `"no-c"`, `spout "a"`, `spout "b"`) {
			t.Errorf("it says: %v", err)
		}
	}, embedded.Topic("in", 1))
}

// TLS where there is none, and the other way round; over real sockets.
// FC-47: open-telemetry/opentelemetry-collector-contrib #40145, IBM/sarama #3037.
func TestRefusedAtStartTLS(t *testing.T) {
	t.Parallel()
	cert, err := embedded.SelfSigned()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		opts   []embedded.Option
		config worker.Config
		says   string
	}{
		"plaintext to a TLS port": {[]embedded.Option{embedded.TLS(cert.Server, cert.Client)}, worker.Config{}, "TLS is off, but"},
		"TLS to a plaintext port": {nil, worker.Config{SecurityProtocol: "ssl"}, "is a plaintext port"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := embedded.Start(t, tt.opts...)
			c := tt.config
			c.Bootstrap, c.HTTP = b.Addrs(), "off"
			c.LogLevel = "off"
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := worker.Run(ctx, counting(new(tally), spout.Kafka("in"), nil), c)
			if err == nil || !contains(err.Error(), tt.says, b.Addrs()[0], "kafka.security_protocol") || worker.ExitCode(err) != 5 || strings.Contains(err.Error(), "\n") {
				t.Errorf("exit code %d: %v", worker.ExitCode(err), err)
			}
		})
	}
}

// The address for health and metrics is taken by somebody else.
func TestHTTPAddressTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	err = worker.Run(t.Context(), counting(new(tally), spout.Kafka("in"), nil), worker.Config{HTTP: ln.Addr().String(), LogLevel: "off"})
	if err == nil || !contains(err.Error(), ln.Addr().String(), "in use", "--http") || worker.ExitCode(err) != 1 {
		t.Errorf("it says: %v", err)
	}
}

// A pattern's new topic whose dead letters have nowhere to go stops alone.
func TestNewTopicWithoutDeadLetters(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		r := s.start(counting(&c, spout.KafkaSource{Pattern: `ev\..*`}, nil))
		s.drained("ev.a")
		s.b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		if err := s.b.Cluster().CreateTopic("ev.b", 1, nil); err != nil {
			t.Fatal(err)
		}
		s.until("readiness is red", func() bool { ok, _ := r.ready("partitions"); return !ok })
		if _, text := r.ready("partitions"); !contains(text, "ev.b/0 has stopped", "ev.b.t.dlq", "kafka-topics.sh") {
			t.Errorf("readiness: %s", text)
		}
		s.produce("ev.a", 0, "1")
		s.produceAnew("ev.b", 0, "2")
		s.drained("ev.a")
		s.pass(10 * time.Second)
		r.end()
		c.once(t, "1")
		if got, ok := s.committed("ev.b")[0]; ok {
			t.Errorf("committed %d on the stopped topic", got)
		}
	}, embedded.Topic("ev.a", 1))
}

// Options of the user's reach every client, and how to connect goes through the user's own dialer,
// also for the first look at the cluster.
func TestUserOptionsReachTheClients(t *testing.T) {
	tell(t, func(s *story) {
		var dials atomic.Int32 // clients dial at the same time
		s.cfg.Kafka = append(s.cfg.Kafka[1:], kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			return s.b.Dialer()(ctx, network, addr)
		}), kgo.WithHooks(new(helloHook)))
		r := s.start(counting(new(tally), spout.Kafka("in"), nil), func(c *worker.Config) { c.Place = "p" })
		s.drained("in")
		r.end()
		if dials.Load() < 4 {
			t.Errorf("%d dials by the user's dialer", dials.Load())
		}
		for _, a := range s.b.Assignments() {
			if a.ClientID != "killick.t.consumer" || a.Instance == nil || *a.Instance != "p" {
				t.Errorf("assignment %+v", a)
			}
		}
	}, embedded.Topic("in", 1))
}

type helloHook struct{}

func (*helloHook) OnNewClient(*kgo.Client) {}

// A worker links no embedded broker, command line or test library.
func TestLinksNoTestLibrary(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 50 {
		t.Fatalf("go list says %d packages", len(deps))
	}
	for _, d := range deps {
		for _, bad := range []string{"kfake", "testenv", "testing", "goleak", "rapid", "go-cmp", "testify", "cobra", "killick/cmd", "killick/examples", "nimbus"} {
			if strings.Contains(d, bad) && !strings.HasPrefix(d, "internal/") { // the standard library's own testing/internal
				t.Errorf("worker links %s", d)
			}
		}
	}
}
