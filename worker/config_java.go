package worker

import "strings"

// javaRule is what becomes of a Java client setting that has no key here: it is
// fine as long as it says what killick does anyway, and refused otherwise, by
// name and with the reason, rather than as an unknown key: people paste whole
// property files.
type javaRule struct {
	name string
	same []string // values that change nothing, any case
	why  string
}

// allows says whether a value asks for what killick does anyway.
func (r javaRule) allows(value string) bool {
	for _, s := range r.same {
		if strings.EqualFold(s, value) {
			return true
		}
	}
	return false
}

// javaRules lists them, for keys below "kafka.".
func javaRules() []javaRule {
	const (
		commits = "offsets are committed by killick alone, when trees have ended; see commit_interval"
		codecs  = "streams have codecs in the topology (killick.Codec)"
		inCode  = "no key for it; set the franz-go option in Config.Kafka"
		pem     = "key stores are not read; PEM files are: kafka.tls.ca_file, kafka.tls.cert_file, kafka.tls.key_file"
		start   = "where to start, and what to do when an offset is gone, belongs to the spout: KafkaSource.Start and KafkaSource.Lost"
		txn     = "killick names and times its own transactions"
		order   = "the client keeps order and idempotence by itself"
	)
	return []javaRule{
		{"enable.auto.commit", []string{"false"}, commits},
		{"auto.commit.interval.ms", nil, commits},
		{"auto.offset.reset", nil, start},
		{"acks", []string{"all", "-1"}, "a weaker value loses acknowledged outputs; it is always all"},
		{"enable.idempotence", []string{"true"}, "without it a retry inside the client duplicates or reorders outputs; it is always on"},
		{"max.in.flight.requests.per.connection", nil, order},
		{"retries", nil, "the client retries until kafka.delivery_timeout"},
		{"isolation.level", []string{"read_committed"}, "aborted records must not become tuples; it is always read_committed"},
		{"partition.assignment.strategy", nil, "killick has its own balancer, which moves a partition only when its trees have ended"},
		{"group.protocol", []string{"classic"}, "killick's balancer needs the classic protocol"},
		{"group.remote.assignor", nil, "killick has its own balancer"},
		{"internal.leave.group.on.close", nil, "a worker leaves by itself after a drain"},
		{"max.poll.records", nil, "killick never polls in small bites; limit a spout with Pending"},
		{"transactional.id", nil, txn},
		{"transaction.timeout.ms", nil, txn},
		{"allow.auto.create.topics", []string{"false"}, "a mistyped topic must be an error; killick creates its own topics, see topics.create"},
		{"key.serializer", nil, codecs},
		{"value.serializer", nil, codecs},
		{"key.deserializer", nil, codecs},
		{"value.deserializer", nil, codecs},
		{"partitioner.class", nil, "outputs are partitioned as the Java client does by default (murmur2 of the key)"},
		{"interceptor.classes", nil, inCode},
		{"metric.reporters", nil, "metrics are served for Prometheus; see http"},
		{"request.timeout.ms", nil, inCode},
		{"retry.backoff.ms", nil, inCode},
		{"reconnect.backoff.ms", nil, inCode},
		{"max.request.size", nil, "use kafka.batch_max_bytes"},
		{"max.block.ms", nil, "a full buffer stops intake instead; see kafka.buffer_bytes"},
		{"ssl.endpoint.identification.algorithm", []string{"https"}, "host names are checked; only kafka.tls.insecure_skip_verify turns that off, with the whole check"},
		{"ssl.truststore.location", nil, pem},
		{"ssl.truststore.password", nil, pem},
		{"ssl.truststore.type", nil, pem},
		{"ssl.keystore.location", nil, pem},
		{"ssl.keystore.password", nil, pem},
		{"ssl.keystore.type", nil, pem},
		{"ssl.key.password", nil, "encrypted keys are not read; protect kafka.tls.key_file by its mode"},
		{"ssl.protocol", nil, "TLS 1.2 or newer is negotiated"},
		{"ssl.enabled.protocols", nil, "TLS 1.2 or newer is negotiated"},
		{"sasl.jaas.config", nil, "use kafka.sasl.user with kafka.sasl.password or kafka.sasl.password_file"},
		{"sasl.kerberos.service.name", nil, "Kerberos is not supported; PLAIN and SCRAM are"},
		{"zookeeper.connect", nil, "consumers have not used ZooKeeper since Kafka 0.9; use kafka.bootstrap_servers"},
		{"group.max.session.timeout.ms", nil, "that is a setting of the broker"},
		{"group.min.session.timeout.ms", nil, "that is a setting of the broker"},
	}
}

// lookupRule finds the rule for "kafka." and a Java name.
func lookupRule(name string) (javaRule, bool) {
	java, ok := strings.CutPrefix(name, "kafka.")
	if !ok {
		return javaRule{}, false
	}
	for _, r := range javaRules() {
		if r.name == java {
			return r, true
		}
	}
	return javaRule{}, false
}

// unknown explains a name that is no key: refused, known elsewhere, misspelt or
// none of these. name is a dotted path; form turns the right name into what the
// user should have written (a flag, a variable, a path).
func unknown(name string, form func(*key) string) string {
	if r, ok := lookupRule(name); ok {
		return "refused: " + r.why
	}
	if k := lookupJava(name); k != nil {
		// Only reached from flags and variables: the file accepts it.
		return "a Java name is accepted in the file only; here it is " + form(k)
	}
	// A setting at the wrong level: bootstrap.servers at the top, kafka.drain.
	for _, try := range []string{"kafka." + name, strings.TrimPrefix(name, "kafka."), "kafka.sasl." + strings.TrimPrefix(name, "kafka."), "kafka.tls." + strings.TrimPrefix(name, "kafka.")} {
		if try == name {
			continue
		}
		k := lookupKey(try)
		if k == nil {
			k = lookupJava(try)
		}
		if k != nil {
			return "did you mean " + form(k) + "?"
		}
		if r, ok := lookupRule(try); ok {
			return "refused: " + r.why
		}
	}
	var names []string
	back := make(map[string]*key)
	for k := range configKeys() {
		for _, n := range []string{k.name, "kafka." + k.java, k.short} {
			if n != "" && n != "kafka." {
				names = append(names, n)
				back[n] = k
			}
		}
	}
	if best := suggest(name, names); best != "" {
		return "did you mean " + form(back[best]) + "?"
	}
	return "--help lists all settings"
}
