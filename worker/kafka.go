package worker

import (
	"crypto/tls"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick/internal/kafka"
)

// ClientOpts returns the options with which a Kafka client reaches the same cluster in the same
// way as the worker's own do: addresses, TLS, SASL, client id, and Config.Kafka. It is for tools
// beside a worker. c should have passed Validate; an error is a file that cannot be read now.
//
// Certificates and passwords are read when a connection is made, so one slice of options serves
// for the life of the process.
func (c Config) ClientOpts() ([]kgo.Opt, error) {
	c = c.withDefaults()
	k, err := c.cluster("tools")
	if err != nil {
		return nil, err
	}
	opts, err := k.ClientOpts("client")
	return append(opts, kgo.ClientID(c.ClientID)), err
}

// cluster is how the clients of a topology reach Kafka. c has its defaults.
func (c Config) cluster(topology string) (kafka.Cluster, error) {
	k := kafka.Cluster{Seeds: c.Bootstrap, Topology: topology, ClientID: c.ClientID, User: c.user()}
	user, err := probeKafka(c.Kafka)
	if err != nil {
		return k, err
	}
	k.Dial, k.SASL = user.dial, user.mechanism
	if user.tls != nil {
		k.TLS = func() (*tls.Config, error) { return user.tls.Clone(), nil }
	}
	if c.usesTLS() {
		src := &tlsSource{settings: c.TLS}
		if _, err := src.config(); err != nil {
			return k, fmt.Errorf("worker: kafka.tls: %w", err)
		}
		k.TLS = src.config
	}
	if c.usesSASL() {
		if k.SASL, err = c.SASL.mechanism(); err != nil {
			return k, err
		}
	}
	// The client refuses a least age (5s by default) above the largest.
	k.Extra = append(k.Extra, kgo.MetadataMaxAge(c.MetadataMaxAge), kgo.MetadataMinAge(min(5*time.Second, c.MetadataMaxAge)))
	if c.Rack != "" {
		k.Extra = append(k.Extra, kgo.Rack(c.Rack))
	}
	k.Extra = append(k.Extra, user.rest...)
	return k, nil
}

// clusterFor adds the settings of producers or consumers, below the user's own options.
func (c Config) clusterFor(k kafka.Cluster, producer bool) kafka.Cluster {
	var opts []kgo.Opt
	if producer {
		opts = []kgo.Opt{kgo.ProducerBatchCompression(compression(c.Compression), kgo.NoCompression())}
	} else {
		opts = []kgo.Opt{kgo.FetchMaxPartitionBytes(c.FetchMaxPartitionBytes), kgo.FetchMinBytes(c.FetchMinBytes)}
	}
	k.Extra = append(opts, slices.Clone(k.Extra)...)
	return k
}

func compression(name string) kgo.CompressionCodec {
	switch name {
	case "none":
		return kgo.NoCompression()
	case "gzip":
		return kgo.GzipCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	}
	return kgo.SnappyCompression() // names were checked
}

// consumer are the settings of the group client.
func (c Config) consumer() kafka.Consumer {
	return kafka.Consumer{InstanceID: c.Place, SessionTimeout: c.Session, HeartbeatInterval: c.Heartbeat,
		RebalanceTimeout: c.RebalanceTimeout, FetchMaxWait: c.FetchMaxWait, FetchMaxBytes: c.FetchMaxBytes, MetadataMaxAge: c.MetadataMaxAge}
}

// producer are the settings of a producer.
func (c Config) producer(role kafka.Role) kafka.Producer {
	p := kafka.Producer{Role: role, MaxMessageBytes: c.BatchMaxBytes}
	if role == kafka.Outputs {
		p.Linger, p.MaxBytes = c.Linger, int(c.BufferBytes)
	} else {
		p.ManualPartition = true
		// Room for our own headers: a source record of the largest size stays whole. With the
		// default this is just what a topic allows by default, 1048588 bytes.
		p.MaxMessageBytes += deadLetterRoom
		p.MaxBytes = max(16<<20, int(p.MaxMessageBytes))
	}
	return p
}

const (
	// deadLetterTime bounds one try to write a dead letter, and so how soon people are told; it
	// is tried again without end.
	deadLetterTime = 10 * time.Second
	deadLetterRoom = 1048588 - 1000012
)
