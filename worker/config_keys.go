package worker

import (
	"fmt"
	"iter"
	"math"
	"strings"
	"time"
)

// A key is one setting. The table of keys drives flags, environment, the file,
// the help and the printed configuration, so that they cannot differ:
//
//	key    kafka.session_timeout
//	flag   --kafka.session_timeout, for a few a short one as well (--bootstrap)
//	env    KILLICK_KAFKA__SESSION_TIMEOUT
//	file   kafka: {session_timeout: 10s}, or kafka.session_timeout: 10s
//	Java   kafka: {session.timeout.ms: 10000}, in the file only
type key struct {
	name  string // dotted path
	field string // of Config, for mistakes in code
	short string // a second, shorter flag
	java  string // the Java (or librdkafka) name, accepted below kafka:
	help  string // one line, without the default
	def   string // the default in words, where withDefaults has none

	values   []string // of an enumeration, in the form that is stored
	min, max int64    // of a number, a size, or a duration in nanoseconds
	zero     bool     // 0 may be said explicitly; it is stored as -1

	// ptr points to the field: *string, *[]string, *time.Duration, *int, *int32,
	// *int64, *bool, *inverted or *Secret. Its type is the type of the key.
	ptr func(*Config) any
}

// inverted is a bool whose key says the opposite of its field, so that the zero
// Config has the default true.
type inverted bool

// envPrefix begins every environment variable.
const envPrefix = "KILLICK_"

// configKeys yields the table, in the order of help and print.
func configKeys() iter.Seq[*key] {
	return func(yield func(*key) bool) {
		for _, k := range keyTable() {
			if !yield(&k) {
				return
			}
		}
	}
}

// keyTable builds the table anew: no package-level state that a caller could
// change, and it is needed a few times per process.
func keyTable() []key {
	const (
		ms   = int64(time.Millisecond)
		wire = math.MaxInt32 * ms // Kafka sends durations as int32 milliseconds
		day  = 24 * int64(time.Hour)
	)
	return []key{
		{name: "group", field: "Group", short: "group", java: "group.id", def: "killick.<topology>",
			help: "consumer group", ptr: func(c *Config) any { return &c.Group }},
		{name: "place", field: "Place", java: "group.instance.id", def: "none",
			help: "stable name of this worker in the group", ptr: func(c *Config) any { return &c.Place }},
		{name: "prefix", field: "Prefix",
			help: "beginning of the group, topics and ids that killick names", ptr: func(c *Config) any { return &c.Prefix }},
		{name: "drain", field: "Drain", min: ms, max: day,
			help: "time for open tuple trees at a clean stop", ptr: func(c *Config) any { return &c.Drain }},
		{name: "http", field: "HTTP",
			help: "host:port of health and metrics, or off", ptr: func(c *Config) any { return &c.HTTP }},
		{name: "commit_interval", field: "CommitInterval", min: 10 * ms, max: int64(time.Hour),
			help: "time between commits", ptr: func(c *Config) any { return &c.CommitInterval }},
		{name: "log.level", field: "LogLevel", values: []string{"trace", "debug", "info", "warn", "error", "off"},
			help: "least level logged", ptr: func(c *Config) any { return &c.LogLevel }},
		{name: "log.format", field: "LogFormat", values: []string{"auto", "console", "json"},
			help: "form of log lines", ptr: func(c *Config) any { return &c.LogFormat }},
		{name: "log.progress", field: "NoProgress",
			help: "show rate and lag on a terminal", ptr: func(c *Config) any { return (*inverted)(&c.NoProgress) }},
		{name: "topics.create", field: "Topics.NoCreate",
			help: "create missing topics of killick's own", ptr: func(c *Config) any { return (*inverted)(&c.Topics.NoCreate) }},
		{name: "topics.replication", field: "Topics.Replication", min: 1, max: math.MaxInt16, def: "the broker's",
			help: "replication factor of created topics", ptr: func(c *Config) any { return &c.Topics.Replication }},

		{name: "kafka.bootstrap_servers", field: "Bootstrap", short: "bootstrap", java: "bootstrap.servers",
			help: "brokers to start from, host:port, several with commas", ptr: func(c *Config) any { return &c.Bootstrap }},
		{name: "kafka.client_id", field: "ClientID", java: "client.id",
			help: "name of the clients in broker logs and quotas", ptr: func(c *Config) any { return &c.ClientID }},
		{name: "kafka.rack", field: "Rack", java: "client.rack", def: "none",
			help: "failure domain; fetches prefer replicas there", ptr: func(c *Config) any { return &c.Rack }},
		{name: "kafka.session_timeout", field: "Session", java: "session.timeout.ms", min: 100 * ms, max: wire,
			help: "silence after which a worker counts as dead", ptr: func(c *Config) any { return &c.Session }},
		{name: "kafka.heartbeat_interval", field: "Heartbeat", java: "heartbeat.interval.ms", min: 10 * ms, max: wire,
			help: "time between heartbeats, at most a third of the session", ptr: func(c *Config) any { return &c.Heartbeat }},
		{name: "kafka.rebalance_timeout", field: "RebalanceTimeout", java: "max.poll.interval.ms", min: 100 * ms, max: wire,
			help: "how long the group waits for a member in a rebalance", ptr: func(c *Config) any { return &c.RebalanceTimeout }},
		{name: "kafka.metadata_max_age", field: "MetadataMaxAge", java: "metadata.max.age.ms", min: 10 * ms, max: int64(time.Hour),
			help: "how late new partitions are noticed", ptr: func(c *Config) any { return &c.MetadataMaxAge }},

		{name: "kafka.fetch_max_wait", field: "FetchMaxWait", java: "fetch.max.wait.ms", min: 10 * ms, max: wire,
			help: "how long a broker holds an empty fetch", ptr: func(c *Config) any { return &c.FetchMaxWait }},
		{name: "kafka.fetch_max_bytes", field: "FetchMaxBytes", java: "fetch.max.bytes", min: 1 << 10, max: 100 << 20,
			help: "most bytes of one fetch", ptr: func(c *Config) any { return &c.FetchMaxBytes }},
		{name: "kafka.fetch_max_partition_bytes", field: "FetchMaxPartitionBytes", java: "max.partition.fetch.bytes", min: 1 << 10, max: 100 << 20,
			help: "most bytes of one partition in a fetch", ptr: func(c *Config) any { return &c.FetchMaxPartitionBytes }},
		{name: "kafka.fetch_min_bytes", field: "FetchMinBytes", java: "fetch.min.bytes", min: 1, max: 100 << 20,
			help: "bytes that end a fetch's wait", ptr: func(c *Config) any { return &c.FetchMinBytes }},

		{name: "kafka.linger", field: "Linger", java: "linger.ms", max: int64(time.Minute), zero: true,
			help: "how long a batch waits for more records", ptr: func(c *Config) any { return &c.Linger }},
		{name: "kafka.batch_max_bytes", field: "BatchMaxBytes", java: "batch.size", min: 512, max: 100 << 20,
			help: "most bytes of a batch", ptr: func(c *Config) any { return &c.BatchMaxBytes }},
		{name: "kafka.compression", field: "Compression", java: "compression.type", values: []string{"none", "gzip", "snappy", "lz4", "zstd"},
			help: "compression of outputs", ptr: func(c *Config) any { return &c.Compression }},
		{name: "kafka.delivery_timeout", field: "DeliveryTimeout", java: "delivery.timeout.ms", min: int64(time.Second), max: wire,
			help: "time until an output must be durable", ptr: func(c *Config) any { return &c.DeliveryTimeout }},
		{name: "kafka.buffer_bytes", field: "BufferBytes", java: "buffer.memory", min: 1 << 20, max: 1 << 40,
			help: "most bytes that one producer holds", ptr: func(c *Config) any { return &c.BufferBytes }},

		{name: "kafka.security_protocol", field: "SecurityProtocol", java: "security.protocol", values: []string{"plaintext", "ssl", "sasl_plaintext", "sasl_ssl"},
			help: "TLS and SASL on connections to brokers", ptr: func(c *Config) any { return &c.SecurityProtocol }},
		{name: "kafka.tls.ca_file", field: "TLS.CAFile", java: "ssl.ca.location", def: "the system's",
			help: "PEM file of the authorities that brokers are checked by", ptr: func(c *Config) any { return &c.TLS.CAFile }},
		{name: "kafka.tls.cert_file", field: "TLS.CertFile", java: "ssl.certificate.location", def: "none",
			help: "PEM file of the client's certificate", ptr: func(c *Config) any { return &c.TLS.CertFile }},
		{name: "kafka.tls.key_file", field: "TLS.KeyFile", java: "ssl.key.location", def: "none",
			help: "PEM file of the client's key", ptr: func(c *Config) any { return &c.TLS.KeyFile }},
		{name: "kafka.tls.server_name", field: "TLS.ServerName", def: "the host dialled",
			help: "host name in the brokers' certificates", ptr: func(c *Config) any { return &c.TLS.ServerName }},
		{name: "kafka.tls.insecure_skip_verify", field: "TLS.InsecureSkipVerify",
			help: "accept any certificate: no protection", ptr: func(c *Config) any { return &c.TLS.InsecureSkipVerify }},
		{name: "kafka.sasl.mechanism", field: "SASL.Mechanism", java: "sasl.mechanism", def: "none", values: []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"},
			help: "how to authenticate", ptr: func(c *Config) any { return &c.SASL.Mechanism }},
		{name: "kafka.sasl.user", field: "SASL.User", java: "sasl.username", def: "none",
			help: "user name", ptr: func(c *Config) any { return &c.SASL.User }},
		{name: "kafka.sasl.password", field: "SASL.Password", java: "sasl.password", def: "none",
			help: "password (no flag: arguments are public)", ptr: func(c *Config) any { return &c.SASL.Password }},
		{name: "kafka.sasl.password_file", field: "SASL.PasswordFile", def: "none",
			help: "file with the password, read at each authentication", ptr: func(c *Config) any { return &c.SASL.PasswordFile }},
		{name: "kafka.sasl.allow_plaintext", field: "SASL.AllowPlaintext",
			help: "let PLAIN send the password without TLS", ptr: func(c *Config) any { return &c.SASL.AllowPlaintext }},
	}
}

// lookupKey finds a key by its own name.
func lookupKey(name string) *key {
	for k := range configKeys() {
		if k.name == name {
			return k
		}
	}
	return nil
}

// lookupJava finds a key by "kafka." and its Java name.
func lookupJava(name string) *key {
	for k := range configKeys() {
		if k.java != "" && "kafka."+k.java == name {
			return k
		}
	}
	return nil
}

// env is the name of the key's environment variable.
func (k *key) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(k.name, ".", "__"))
}

// flag is the name of the key's flag, the short one where there is one.
func (k *key) flag() string {
	if k.short != "" {
		return k.short
	}
	return k.name
}

// isSecret says whether the value must not be shown.
func (k *key) isSecret() bool {
	_, ok := k.ptr(&Config{}).(*Secret)
	return ok
}

// isList says whether the key takes several values.
func (k *key) isList() bool {
	_, ok := k.ptr(&Config{}).(*[]string)
	return ok
}

// isBool says whether the flag may stand without a value.
func (k *key) isBool() bool {
	switch k.ptr(&Config{}).(type) {
	case *bool, *inverted:
		return true
	}
	return false
}

// helpText lists all keys for --help, two lines each.
func helpText() string {
	var b strings.Builder
	b.WriteString("settings (flags > environment > file > defaults)\n\n")
	fmt.Fprintf(&b, "  --config (env %sCONFIG)\n      YAML file with any of the keys below\n", envPrefix)
	for k := range configKeys() {
		name := "--" + k.name
		switch {
		case k.isSecret():
			name = k.name
		case k.short != "" && k.short != k.name:
			name = "--" + k.short + ", " + name
		}
		help := k.help
		if k.values != nil {
			help += ": " + strings.Join(k.values, ", ")
		}
		fmt.Fprintf(&b, "  %s (env %s)\n      %s (default: %s)\n", name, k.env(), help, k.defaultText())
	}
	return b.String()
}
