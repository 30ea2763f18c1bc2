package worker

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick/internal/kafka"
)

// cluster is how the clients of a topology reach Kafka.
func (c Config) cluster(topology string) (kafka.Cluster, error) {
	k := kafka.Cluster{Seeds: c.Bootstrap, Topology: topology}
	if c.usesTLS() {
		src := &tlsSource{settings: c.TLS}
		if _, err := src.config(); err != nil {
			return k, fmt.Errorf("worker: kafka.tls: %w", err)
		}
		k.TLS = src.config
	}
	if c.usesSASL() {
		m, err := c.SASL.mechanism()
		if err != nil {
			return k, err
		}
		k.SASL = m
	}
	k.Extra = append(k.Extra, kgo.MetadataMaxAge(c.MetadataMaxAge))
	if c.Rack != "" {
		k.Extra = append(k.Extra, kgo.Rack(c.Rack))
	}
	k.Extra = append(k.Extra, c.Kafka...)
	return k, nil
}

// clusterFor adds the settings of producers or consumers, below the user's own options.
func (w *Worker) clusterFor(producer bool) kafka.Cluster {
	c := w.cfg
	var opts []kgo.Opt
	if producer {
		opts = []kgo.Opt{kgo.ProducerBatchCompression(compression[c.Compression], kgo.NoCompression())}
	} else {
		opts = []kgo.Opt{kgo.FetchMaxPartitionBytes(c.FetchMaxPartitionBytes), kgo.FetchMinBytes(c.FetchMinBytes)}
	}
	k := w.cluster
	k.Extra = append(opts, slices.Clone(k.Extra)...)
	return k
}

var compression = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// consumer are the settings of the group client.
func (c Config) consumer() kafka.Consumer {
	return kafka.Consumer{InstanceID: c.Place, SessionTimeout: c.Session, HeartbeatInterval: c.Heartbeat,
		RebalanceTimeout: c.RebalanceTimeout, FetchMaxWait: c.FetchMaxWait, FetchMaxBytes: c.FetchMaxBytes, MetadataMaxAge: c.MetadataMaxAge}
}

// producer are the settings of a producer.
func (c Config) producer(role kafka.Role) kafka.Producer {
	p := kafka.Producer{Role: role, MaxMessageBytes: c.BatchMaxBytes, DeliveryTimeout: c.DeliveryTimeout}
	if role == kafka.Outputs {
		p.Linger, p.MaxBytes = c.Linger, int(c.BufferBytes)
	} else {
		p.DeliveryTimeout = min(p.DeliveryTimeout, deadLetterTime)
	}
	return p
}

// deadLetterTime bounds one try to write a dead letter; it is tried again without end.
const deadLetterTime = 30_000_000_000
