//go:build unix

package kafkaenv

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Option configures a cluster.
type Option func(*config)

// Listener is one of the doors of a broker.
type Listener string

// The listeners. Plaintext is always there, and stays a way in for the test itself: with ACLs its
// anonymous user may do all. The others exist if users or TLS are set.
const (
	Plaintext Listener = "PLAINTEXT"
	SASL      Listener = "SASL"    // with User: SCRAM-SHA-256 and PLAIN
	TLS       Listener = "TLS"     // with WithTLS: client certificates are required
	SASLTLS   Listener = "SASLTLS" // with both: no client certificate, but a password
)

// Releases that this package can run.
const (
	Latest  = "4.4.0" // the default; transaction.version 2
	First4  = "4.0.0" // the first release without ZooKeeper; transaction.version 2
	Oldest3 = "3.9.1" // the last line before; knows no transaction.version 2
)

type config struct {
	version  string
	brokers  int
	features []string
	props    map[string]string
	users    []user
	tls      *ServerTLS
	acls     bool
	topics   []topic
	load     bool
	keep     bool
}

type user struct{ name, password string }

type topic struct {
	name       string
	partitions int
	configs    map[string]string
}

// Version chooses the release: Latest, First4 or Oldest3.
func Version(v string) Option { return func(c *config) { c.version = v } }

// Brokers sets the number of brokers, 1 by default. Topics that don't say otherwise have as many
// replicas, and writes with acks=all need two of them.
func Brokers(n int) Option { return func(c *config) { c.brokers = n } }

// TransactionVersion 1 is the protocol for transactions before KIP-890, for which Oldest3 has no
// feature to set; 2 is the default of the others.
func TransactionVersion(v int) Option {
	return func(c *config) { c.features = append(c.features, fmt.Sprintf("transaction.version=%d", v)) }
}

// Property sets a line of the brokers' server.properties. Addresses, identities and folders of
// brokers are not to be changed by it.
func Property(key, value string) Option { return func(c *config) { c.props[key] = value } }

// User adds a user who may log in at the listeners SASL and SASLTLS, with SCRAM-SHA-256 or PLAIN.
func User(name, password string) Option {
	return func(c *config) { c.users = append(c.users, user{name, password}) }
}

// WithTLS adds the listeners TLS and, if there are users, SASLTLS.
func WithTLS(s ServerTLS) Option { return func(c *config) { c.tls = &s } }

// ACLs makes the brokers ask what a user may do: nothing, until an ACL allows it. The user of the
// listener Plaintext may do all.
func ACLs() Option { return func(c *config) { c.acls = true } }

// Topic makes a topic; configs are pairs of a topic's setting and its value.
func Topic(name string, partitions int, configs ...string) Option {
	return func(c *config) {
		t := topic{name: name, partitions: partitions, configs: map[string]string{}}
		for pair := range slices.Chunk(configs, 2) {
			if len(pair) == 2 {
				t.configs[pair[0]] = pair[1]
			} else {
				t.configs[pair[0]] = "" // check tells
			}
		}
		c.topics = append(c.topics, t)
	}
}

// ForLoad starts the brokers as for measuring: with the JVM's full compiler and a heap of 1 GB
// instead of the flags that start quickly.
func ForLoad() Option { return func(c *config) { c.load = true } }

// Keep keeps the brokers' folder, with data and logs, also when the test passes.
func Keep() Option { return func(c *config) { c.keep = true } }

func configure(opts []Option) (*config, error) {
	c := &config{version: Latest, brokers: 1, props: map[string]string{}}
	for _, o := range opts {
		o(c)
	}
	return c, c.check()
}

// word is what may stand in a JAAS line and in StorageTool's --add-scram without quotes.
var word = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

func (c *config) check() error {
	var wrong []string
	if _, err := release(c.version); err != nil {
		wrong = append(wrong, err.Error())
	}
	if c.brokers < 1 || c.brokers > 9 {
		wrong = append(wrong, fmt.Sprintf("%d brokers: 1 to 9 fit on a machine", c.brokers))
	}
	for _, u := range c.users {
		if !word.MatchString(u.name) || !word.MatchString(u.password) {
			wrong = append(wrong, fmt.Sprintf("user %q: names and passwords of tests have letters, digits, '.', '_' and '-' only", u.name))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(c.props)) {
		if slices.Contains(owned, k) {
			wrong = append(wrong, fmt.Sprintf("property %s is set by kafkaenv itself", k))
		}
		if strings.ContainsAny(k+c.props[k], "\n\r") {
			wrong = append(wrong, fmt.Sprintf("property %q has a line break", k))
		}
	}
	for _, t := range c.topics {
		if t.partitions < 1 {
			wrong = append(wrong, fmt.Sprintf("topic %s: %d partitions", t.name, t.partitions))
		}
		for k, v := range t.configs {
			if v == "" {
				wrong = append(wrong, fmt.Sprintf("topic %s: its setting %s has no value; settings are pairs", t.name, k))
			}
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("kafkaenv: %s", strings.Join(wrong, "; "))
	}
	return nil
}
