package worker

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Validate lists everything that is wrong with c, in an error that matches
// ErrConfig; nil means that a worker can be built from it. It reads the files
// that c names (certificates, password) but opens no connection. Each mistake
// has its place: where Load found the value, or the field.
func (c Config) Validate() error { return c.check().err() }

// check returns all mistakes.
func (c Config) check() mistakes {
	var wrong mistakes
	full := c.withDefaults()
	for k := range configKeys() {
		k.check(&full, func(text string) { wrong.add(c.place(k.name), "%s", text) })
	}
	if c.Logger != nil && c.Slog != nil {
		wrong.add("Config.Slog", "Logger is set as well; one of them")
	}
	full.checkNames(&wrong)
	full.checkAddresses(&wrong)
	full.checkTimes(&wrong)
	full.checkTLS(&wrong)
	full.checkSASL(&wrong)
	full.checkKafka(&wrong)
	return wrong
}

// warnings lists what is allowed but dangerous, for the log at the start.
func (c Config) warnings() []string {
	c = c.withDefaults()
	var w []string
	if c.usesTLS() && c.TLS.InsecureSkipVerify {
		w = append(w, c.place("kafka.tls.insecure_skip_verify")+": any certificate is accepted; the connection is not protected")
	}
	if c.SASL.Mechanism == "PLAIN" && c.usesSASL() && !c.usesTLS() {
		w = append(w, c.place("kafka.sasl.mechanism")+": PLAIN without TLS sends the password in the clear")
	}
	if c.Session < 6*time.Second {
		w = append(w, c.place("kafka.session_timeout")+": brokers refuse less than 6s unless group.min.session.timeout.ms says otherwise")
	}
	return w
}

// place is where the value of a key came from, for a mistake.
func (c Config) place(name string) string {
	if p := c.origins[name]; p != "" {
		if strings.HasPrefix(p, "flag ") || strings.HasPrefix(p, "env ") {
			return p
		}
		return p + ": " + name // a line of a file does not say which key is meant
	}
	return "Config." + lookupKey(name).field
}

// check repeats, for values set in code, what parsing has checked.
func (k *key) check(c *Config, wrong func(string)) {
	var n int64
	switch p := k.ptr(c).(type) {
	case *string:
		if *p != "" && k.values != nil && !slices.Contains(k.values, *p) {
			wrong(k.notOneOf(*p))
		}
		return
	case *time.Duration:
		n = int64(*p)
	case *int:
		n = int64(*p)
	case *int32:
		n = int64(*p)
	case *int64:
		n = *p
	default:
		return
	}
	if n == 0 || n < 0 && k.zero { // the default, which has its own range
		return
	}
	if text := k.outOfRange(n); text != "" {
		shown := strconv.FormatInt(n, 10)
		if p, ok := k.ptr(c).(*time.Duration); ok {
			shown = p.String()
		}
		wrong(quote(shown) + " " + text)
	}
}

// checkNames checks what becomes part of names in Kafka.
func (c Config) checkNames(wrong *mistakes) {
	legal := func(name, s string, most int) {
		if s == "" {
			return
		}
		switch {
		case len(s) > most:
			wrong.add(c.place(name), "is %d characters long; at most %d", len(s), most)
		case s == "." || s == ".." || strings.ContainsFunc(s, func(r rune) bool {
			return !(r == '.' || r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
		}):
			wrong.add(c.place(name), "%s may hold letters, digits, \".\", \"_\" and \"-\" only", quote(s))
		}
	}
	// Kafka checks group.instance.id like a topic name; Prefix begins some.
	legal("place", c.Place, 249)
	legal("prefix", c.Prefix, 100)
	printable := func(name, s string, most int) {
		switch {
		case len(s) > most:
			wrong.add(c.place(name), "is %d bytes long; at most %d", len(s), most)
		case strings.ContainsFunc(s, unicode.IsControl):
			wrong.add(c.place(name), "%s has control characters", quote(s))
		}
	}
	printable("group", c.Group, 255)
	printable("kafka.client_id", c.ClientID, 256) // the client's own limits
	printable("kafka.rack", c.Rack, 512)
	printable("kafka.sasl.user", c.SASL.User, 1024)
}

// checkAddresses checks the form of addresses; whether somebody listens shows
// when the worker connects.
func (c Config) checkAddresses(wrong *mistakes) {
	place := c.place("kafka.bootstrap_servers")
	for i, a := range c.Bootstrap {
		if slices.Contains(c.Bootstrap[:i], a) {
			wrong.add(place, "%s is listed twice", quote(a))
			continue
		}
		if text := badAddress(a, 1); text != "" {
			wrong.add(place, "%s %s", quote(a), text)
		}
	}
	if c.HTTP != "off" {
		if text := badAddress(c.HTTP, 0); text != "" {
			wrong.add(c.place("http"), "%s %s", quote(c.HTTP), text)
		}
	}
}

// badAddress says what is wrong with host:port. An empty host is fine for a
// listener (all interfaces), which is also where port 0 is.
func badAddress(a string, leastPort uint64) string {
	listen := leastPort == 0
	if strings.Contains(a, "://") {
		return "has a scheme; write host:port, and say TLS or SASL by kafka.security_protocol"
	}
	if strings.ContainsFunc(a, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return "has white space; write host:port"
	}
	host, port, err := net.SplitHostPort(a)
	if err != nil {
		if listen {
			return "is not host:port; write 127.0.0.1:8080, :8080 for all interfaces, or off"
		}
		if net.ParseIP(a) != nil && strings.Contains(a, ":") {
			return "has no port; write [" + a + "]:9092"
		}
		if !strings.Contains(a, ":") {
			return "has no port; write " + a + ":9092"
		}
		return "is not host:port; an IPv6 address needs brackets"
	}
	if host == "" && !listen {
		return "has no host; write 127.0.0.1:" + port
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n < leastPort {
		return "has no port between " + strconv.FormatUint(leastPort, 10) + " and 65535"
	}
	return ""
}

// checkTimes checks durations against each other.
func (c Config) checkTimes(wrong *mistakes) {
	if c.Session > 0 && c.Heartbeat > 0 && c.Heartbeat > c.Session/3 {
		// Blame what the user has set; the heartbeat if both or none.
		place := c.place("kafka.heartbeat_interval")
		if c.origins["kafka.heartbeat_interval"] == "" && c.origins["kafka.session_timeout"] != "" {
			place = c.place("kafka.session_timeout")
		}
		wrong.add(place, "heartbeat_interval %s is more than a third of session_timeout %s: one lost heartbeat would cost the membership",
			shortDuration(c.Heartbeat), shortDuration(c.Session))
	}
}

// loopbackOnly says whether every bootstrap address is this machine.
func (c Config) loopbackOnly() bool {
	for _, a := range c.Bootstrap {
		host, _, err := net.SplitHostPort(a)
		if err != nil {
			return false
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}

// checkTLS checks that TLS settings are used, complete and readable.
func (c Config) checkTLS(wrong *mistakes) {
	set := func(name string) bool { return lookupKey(name).isSet(&c) }
	if !c.usesTLS() {
		for _, name := range []string{"kafka.tls.ca_file", "kafka.tls.cert_file", "kafka.tls.key_file", "kafka.tls.server_name", "kafka.tls.insecure_skip_verify"} {
			if set(name) {
				wrong.add(c.place(name), "is not used: kafka.security_protocol is %s; write ssl or sasl_ssl", c.SecurityProtocol)
			}
		}
		return
	}
	switch {
	case set("kafka.tls.cert_file") && !set("kafka.tls.key_file"):
		wrong.add(c.place("kafka.tls.cert_file"), "has no key; set kafka.tls.key_file as well")
		return
	case set("kafka.tls.key_file") && !set("kafka.tls.cert_file"):
		wrong.add(c.place("kafka.tls.key_file"), "has no certificate; set kafka.tls.cert_file as well")
		return
	}
	if _, err := c.TLS.readCA(); err != nil {
		wrong.add(c.place("kafka.tls.ca_file"), "%v", err)
	}
	if _, err := c.TLS.readPair(); err != nil {
		wrong.add(c.place("kafka.tls.cert_file"), "%v", err)
	}
}

// checkSASL checks that SASL settings are used, complete, and do not give the
// password away.
func (c Config) checkSASL(wrong *mistakes) {
	set := func(name string) bool { return lookupKey(name).isSet(&c) }
	if !c.usesSASL() {
		for _, name := range []string{"kafka.sasl.mechanism", "kafka.sasl.user", "kafka.sasl.password", "kafka.sasl.password_file"} {
			if set(name) {
				wrong.add(c.place(name), "is not used: kafka.security_protocol is %s; write sasl_ssl or sasl_plaintext", c.SecurityProtocol)
			}
		}
		return
	}
	place := c.place("kafka.security_protocol")
	if c.SASL.Mechanism == "" {
		wrong.add(place, "%s needs kafka.sasl.mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", c.SecurityProtocol)
	}
	if c.SASL.User == "" {
		wrong.add(place, "%s needs kafka.sasl.user", c.SecurityProtocol)
	}
	switch {
	case c.SASL.Password.IsSet() && c.SASL.PasswordFile != "":
		wrong.add(c.place("kafka.sasl.password_file"), "kafka.sasl.password is set as well; one of them")
	case c.SASL.PasswordFile != "":
		if _, err := c.SASL.password(); err != nil {
			wrong.add(c.place("kafka.sasl.password_file"), "%v", err)
		}
	case !c.SASL.Password.IsSet():
		wrong.add(place, "%s needs kafka.sasl.password or kafka.sasl.password_file", c.SecurityProtocol)
	}
	if c.SASL.Mechanism == "PLAIN" && !c.usesTLS() && !c.SASL.AllowPlaintext && !c.loopbackOnly() {
		wrong.add(c.place("kafka.sasl.mechanism"), "PLAIN without TLS sends the password in the clear; use sasl_ssl or SCRAM-SHA-512 (kafka.sasl.allow_plaintext: true if you must)")
	}
}
