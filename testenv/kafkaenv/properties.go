//go:build unix

package kafkaenv

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// owned are the properties that say who and where a broker is.
var owned = []string{
	"process.roles", "node.id", "controller.quorum.bootstrap.servers", "listeners", "advertised.listeners",
	"controller.listener.names", "listener.security.protocol.map", "inter.broker.listener.name", "log.dirs",
}

// properties is the node's server.properties.
func (n *node) properties() map[string]string {
	c := n.cluster.config
	replicas := fmt.Sprint(min(c.brokers, 3))
	inSync := fmt.Sprint(min(c.brokers, 2))
	p := map[string]string{
		"node.id":                             fmt.Sprint(n.id),
		"process.roles":                       n.roles,
		"controller.quorum.bootstrap.servers": n.cluster.controller,
		"controller.listener.names":           "CONTROLLER",
		"log.dirs":                            filepath.Join(n.dir, "log"),

		"auto.create.topics.enable":                        "false",
		"default.replication.factor":                       replicas,
		"min.insync.replicas":                              inSync,
		"offsets.topic.replication.factor":                 replicas,
		"offsets.topic.num.partitions":                     "4",
		"transaction.state.log.replication.factor":         replicas,
		"transaction.state.log.min.isr":                    inSync,
		"transaction.state.log.num.partitions":             "4",
		"share.coordinator.state.topic.replication.factor": replicas,
		"share.coordinator.state.topic.min.isr":            inSync,

		"group.initial.rebalance.delay.ms":                            "0",    // default 3000, at each first join
		"group.min.session.timeout.ms":                                "100",  // default 6000
		"broker.session.timeout.ms":                                   "3000", // default 9000: a killed broker comes back no sooner; shorter ones a busy machine misses
		"broker.heartbeat.interval.ms":                                "200",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200", // default 10000
		// The cleaner takes 128 MB of heap otherwise, after the broker has answered.
		"log.cleaner.dedupe.buffer.size": "2097152",
		"log.cleaner.io.buffer.size":     "65536",
		"num.network.threads":            "2",
		"num.io.threads":                 "2",
		"background.threads":             "2",
	}
	if c.load {
		for _, k := range []string{"log.cleaner.dedupe.buffer.size", "log.cleaner.io.buffer.size",
			"num.network.threads", "num.io.threads", "background.threads"} {
			delete(p, k)
		}
	}
	n.listeners(p)
	if c.acls {
		p["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		p["super.users"] = "User:ANONYMOUS"
	}
	maps.Copy(p, c.props)
	return p
}

func (n *node) listeners(p map[string]string) {
	c := n.cluster.config
	protocols := map[Listener]string{Plaintext: "PLAINTEXT", SASL: "SASL_PLAINTEXT", TLS: "SSL", SASLTLS: "SASL_SSL"}
	var listen, advertise []string
	security := []string{"CONTROLLER:PLAINTEXT"}
	for _, l := range n.cluster.doors {
		if port, ok := n.ports[l]; ok {
			addr := fmt.Sprintf("%s://127.0.0.1:%d", l, port)
			listen, advertise = append(listen, addr), append(advertise, addr)
		}
		security = append(security, string(l)+":"+protocols[l])
	}
	if port, ok := n.ports[controllerDoor]; ok {
		listen = append(listen, fmt.Sprintf("CONTROLLER://127.0.0.1:%d", port))
	}
	p["listeners"] = strings.Join(listen, ",")
	p["listener.security.protocol.map"] = strings.Join(security, ",")
	if len(advertise) == 0 {
		return // a controller alone
	}
	p["advertised.listeners"] = strings.Join(advertise, ",")
	p["inter.broker.listener.name"] = string(Plaintext)

	if len(c.users) > 0 {
		p["sasl.enabled.mechanisms"] = "SCRAM-SHA-256,PLAIN"
		plain := "org.apache.kafka.common.security.plain.PlainLoginModule required"
		for _, u := range c.users {
			plain += fmt.Sprintf(" user_%s=%q", u.name, u.password)
		}
		for _, l := range []Listener{SASL, SASLTLS} {
			at := "listener.name." + strings.ToLower(string(l))
			p[at+".scram-sha-256.sasl.jaas.config"] = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
			p[at+".plain.sasl.jaas.config"] = plain + ";"
		}
	}
	if c.tls != nil {
		p["ssl.keystore.type"], p["ssl.truststore.type"] = "PEM", "PEM"
		p["ssl.keystore.location"] = filepath.Join(n.cluster.dir, "server.pem")
		p["ssl.truststore.location"] = filepath.Join(n.cluster.dir, "ca.pem")
		p["listener.name.tls.ssl.client.auth"] = "required"
		p["ssl.principal.mapping.rules"] = "RULE:^CN=([^,]+).*$/$1/,DEFAULT"
	}
}

func text(p map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "%s=%s\n", k, strings.ReplaceAll(p[k], `\`, `\\`))
	}
	return b.String()
}
