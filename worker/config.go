package worker

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Config is what a worker needs to know besides its topology. The zero value
// works on a laptop with a broker at 127.0.0.1:9092; a zero field means the
// default in its comment. Load fills a Config from flags, environment and a
// file, with the names that the table of keys gives them (config_keys.go);
// programs may as well fill it in code. Validate lists every mistake in it.
//
// A Config is a value: copies are independent as long as nobody writes into
// the slices. Nothing that prints it, in any format, shows a Secret.
type Config struct {
	// Bootstrap lists brokers to start from, as host:port. Default: 127.0.0.1:9092.
	Bootstrap []string
	// Group is the consumer group; its committed offsets are the topology's
	// progress. Default: killick.<topology>.
	Group string
	// Place is this worker's stable name in the group (group.instance.id,
	// KIP-345): a restart within Session keeps its partitions. Two live workers
	// must not share one. Default: none.
	Place string
	// Prefix begins the names that killick makes up: group, inbox and ack
	// topics, transactional ids. Default: killick.
	Prefix string
	// Kafka holds further options for every Kafka client. Those that would break
	// a guarantee, or that have a field here, are refused by name. Default: none.
	Kafka []kgo.Opt

	// Drain bounds a clean stop: open tuple trees may end and are committed
	// until then; what is left runs again elsewhere. Default: 30s.
	Drain time.Duration
	// HTTP is where health and metrics are served, as host:port; port 0 takes a
	// free one, which is logged; "off" serves nothing. Default: 127.0.0.1:0.
	HTTP string
	// CommitInterval is the time between two commits of the floor; a release and
	// a stop commit as well. Default: 1s.
	CommitInterval time.Duration

	// Logger takes all log lines; LogLevel and LogFormat are then ignored. nil
	// writes to stderr. Default: none.
	Logger *zerolog.Logger
	// Slog takes all log lines instead, from its own level on; fields become attributes, and durations
	// are numbers of milliseconds. See also SlogHandler, the other way round. Default: none.
	Slog *slog.Logger
	// LogLevel is the least level that is logged: trace, debug, info, warn,
	// error or off. Default: info.
	LogLevel string
	// LogFormat is console, json, or auto: console on a terminal (without colour
	// under NO_COLOR), JSON otherwise. Default: auto.
	LogFormat string

	// NoProgress leaves out the line with rate, lag, pending records and waiting retries that Main shows
	// on a terminal, unless the log is JSON or goes elsewhere. Key log.progress, inverted. Default: false.
	NoProgress bool

	// Topics says how missing topics of killick's own are treated.
	Topics Topics

	// ClientID names the clients in broker logs and quotas. Default: killick.
	ClientID string
	// Rack is this worker's failure domain; fetches prefer replicas there
	// (KIP-392). Default: none.
	Rack string
	// Session is the time without a heartbeat after which the group gives a dead
	// worker's partitions away; until then it holds up every rebalance. Brokers
	// allow 6s to 30m unless told otherwise. Default: 10s.
	Session time.Duration
	// Heartbeat is the interval of heartbeats, at most a third of Session. It
	// bounds how soon a worker hears of a rebalance. Default: 500ms.
	Heartbeat time.Duration
	// RebalanceTimeout is how long the group waits for a member to join a
	// rebalance (what the Java client calls max.poll.interval.ms). Default: 1m.
	RebalanceTimeout time.Duration
	// MetadataMaxAge bounds how late new partitions are noticed. Default: 5m.
	MetadataMaxAge time.Duration

	// FetchMaxWait is how long a broker may hold a fetch that has nothing to
	// return. A resumed partition waits for the fetch in flight, so a long wait
	// costs throughput, not only latency. Default: 50ms.
	FetchMaxWait time.Duration
	// FetchMaxBytes bounds one answer of one broker. Default: 8MiB.
	FetchMaxBytes int32
	// FetchMaxPartitionBytes bounds one partition in an answer; a larger batch
	// still comes alone. Default: 1MiB.
	FetchMaxPartitionBytes int32
	// FetchMinBytes is what a broker waits for, up to FetchMaxWait. Default: 1B.
	FetchMinBytes int32

	// Linger is how long a batch waits for more records; negative sends at
	// once. Default: 5ms.
	Linger time.Duration
	// BatchMaxBytes bounds a batch; the topic's max.message.bytes must allow
	// it. Default: 1000012B.
	BatchMaxBytes int32
	// Compression is none, gzip, snappy, lz4 or zstd. Default: snappy.
	Compression string
	// DeliveryTimeout bounds the time until an output is durable; a later one is
	// a failed try. Default: 2m.
	DeliveryTimeout time.Duration
	// BufferBytes bounds what one producer holds in memory. Default: 64MiB.
	BufferBytes int64

	// SecurityProtocol is plaintext, ssl, sasl_plaintext or sasl_ssl. TLS or
	// SASL settings that it does not use are mistakes: a forgotten protocol must
	// not send records in the clear. Default: plaintext.
	SecurityProtocol string
	// TLS is used with ssl and sasl_ssl.
	TLS TLS
	// SASL is used with sasl_plaintext and sasl_ssl.
	SASL SASL

	// origins says where Load found a key's value; absent = default or code.
	// Written only while Load builds the Config, shared by its copies.
	origins map[string]string
	// logTo is where log lines go instead of stderr, with the same form. Set by Command.
	logTo io.Writer
}

// Topics says how missing topics that killick needs for itself (dead letters,
// inboxes, acks) are treated.
type Topics struct {
	// NoCreate refuses to start when such a topic is missing, with the command
	// that makes it, instead of creating it. Key topics.create, inverted.
	// Default: false.
	NoCreate bool
	// Replication is their replication factor; the broker's own default needs
	// Kafka 2.4 (KIP-464). Default: the broker's.
	Replication int
}

// TLS holds file names in PEM format. Files are read again for every new
// connection, so that a rotated certificate is used without a restart; while
// they do not fit together the last good ones are used. TLS is 1.2 or newer.
type TLS struct {
	// CAFile has the certificates that may sign a broker's. Default: the system's.
	CAFile string
	// CertFile is the client's certificate chain; needs KeyFile. Default: none.
	CertFile string
	// KeyFile is the private key of CertFile. Default: none.
	KeyFile string
	// ServerName replaces the host name that a broker's certificate must carry.
	// Default: the host dialled.
	ServerName string
	// InsecureSkipVerify accepts any certificate: whoever sits in between reads
	// and changes everything. A warning is logged. Default: false.
	InsecureSkipVerify bool
}

// SASL holds the credentials of a connection. They are looked up again at each
// authentication.
type SASL struct {
	// Mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Default: none.
	Mechanism string
	// User is the user name. Default: none.
	User string
	// Password is the password; not settable by a flag, since other users of a
	// machine see a process's arguments. Default: none.
	Password Secret
	// PasswordFile has the password instead; one newline at its end is dropped.
	// Replacing the file takes effect at the next authentication. Default: none.
	PasswordFile string
	// AllowPlaintext lets PLAIN send the password over a connection without TLS
	// to a broker that is not on loopback. Default: false.
	AllowPlaintext bool
}

// withDefaults returns c with every zero field replaced by its default. Group
// and Place stay: their defaults depend on the topology.
func (c Config) withDefaults() Config {
	if len(c.Bootstrap) == 0 {
		c.Bootstrap = []string{"127.0.0.1:9092"}
	}
	orDefault(&c.Prefix, "killick")
	orDefault(&c.Drain, 30*time.Second)
	orDefault(&c.HTTP, "127.0.0.1:0")
	orDefault(&c.CommitInterval, time.Second)
	orDefault(&c.LogLevel, "info")
	orDefault(&c.LogFormat, "auto")
	orDefault(&c.ClientID, "killick")
	orDefault(&c.Session, 10*time.Second)
	orDefault(&c.Heartbeat, 500*time.Millisecond)
	orDefault(&c.RebalanceTimeout, time.Minute)
	orDefault(&c.MetadataMaxAge, 5*time.Minute)
	orDefault(&c.FetchMaxWait, 50*time.Millisecond)
	orDefault(&c.FetchMaxBytes, 8<<20)
	orDefault(&c.FetchMaxPartitionBytes, 1<<20)
	orDefault(&c.FetchMinBytes, 1)
	orDefault(&c.Linger, 5*time.Millisecond)
	orDefault(&c.BatchMaxBytes, 1000012) // Kafka's own max.message.bytes default
	orDefault(&c.Compression, "snappy")
	orDefault(&c.DeliveryTimeout, 2*time.Minute)
	orDefault(&c.BufferBytes, 64<<20)
	orDefault(&c.SecurityProtocol, "plaintext")
	return c
}

// orDefault sets *p to def if it is zero.
func orDefault[T comparable](p *T, def T) {
	var zero T
	if *p == zero {
		*p = def
	}
}

// usesTLS says whether connections are encrypted.
func (c Config) usesTLS() bool {
	return c.SecurityProtocol == "ssl" || c.SecurityProtocol == "sasl_ssl"
}

// usesSASL says whether connections authenticate by SASL.
func (c Config) usesSASL() bool {
	return c.SecurityProtocol == "sasl_plaintext" || c.SecurityProtocol == "sasl_ssl"
}

// user is who brokers take this worker for; "" if only they know (a certificate, options in Kafka).
func (c Config) user() string {
	if c.usesSASL() {
		return c.SASL.User
	}
	return ""
}

// Origin says where the value of a key ("kafka.session_timeout") came from:
// "flag --drain", "env KILLICK_DRAIN", "killick.yaml:3:8", "default", or "code"
// for a field that was not set by Load. An unknown key gives "".
func (c Config) Origin(name string) string {
	k := lookupKey(name)
	switch {
	case k == nil:
		return ""
	case c.origins[k.name] != "":
		return c.origins[k.name]
	case k.isSet(&c):
		return "code"
	}
	return "default"
}

// String lists the configuration as a YAML file that Load reads, defaults
// filled in; a secret shows as *** and an unset key as a comment.
func (c Config) String() string {
	var b strings.Builder
	c.print(&b, false) // a Builder never fails
	return b.String()
}

// GoString is String: %#v must not go around Secret by reflection.
func (c Config) GoString() string { return "worker.Config{\n" + c.String() + "}" }

// withGroup is c with the group that a topology has by default, if c names none.
func (c Config) withGroup(topology string) Config {
	if c.Group != "" {
		return c
	}
	prefix := c.Prefix
	orDefault(&prefix, c.withDefaults().Prefix)
	origins := maps.Clone(c.origins)
	if origins == nil {
		origins = map[string]string{}
	}
	origins["group"] = "default"
	c.Group, c.origins = prefix+"."+topology, origins
	return c
}

// print writes one line per key, in the order of the table; with origins each
// line ends with a comment that says where the value came from.
func (c Config) print(w io.Writer, origins bool) error {
	full := c.withDefaults()
	for k := range configKeys() {
		line := k.name + ": " + k.yaml(&full)
		if !k.isSet(&full) {
			line = "# " + k.name + ": " + k.defaultText()
		}
		if origins {
			line += " # " + c.Origin(k.name)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	if n := len(c.Kafka); n > 0 {
		if _, err := fmt.Fprintf(w, "# %d franz-go options set in code\n", n); err != nil {
			return err
		}
	}
	return nil
}
