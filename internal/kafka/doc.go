// Package kafka holds killick's Kafka clients, one constructor for each role,
// and the few requests that killick makes by hand. It decides options and
// wording, never policy: what to do about a refused commit, a missing topic or
// an offset out of range is the caller's.
//
//   - Cluster: how to reach a cluster; ClientID, TLS, SASL and the dialer are
//     the same for all roles.
//   - NewConsumer: the group client of a topology (consumer.go).
//   - NewProducer: producers for outputs and for dead letters (producer.go),
//     separate because a client at its buffer limit blocks as a whole.
//   - Commit: the one place in the repository that builds an OffsetCommit
//     (commit.go). A test counts the call sites.
//   - Admin: topics, positions, committed offsets, bounds, compacted tails
//     (admin.go, topics.go, tail.go).
//   - Reach: is the cluster there, said in one sentence if not (reach.go).
//
// # Failure handling
//
// Every call that talks to a broker takes a context and ends with it. Requests
// are retried by kgo (moved coordinators and leaders, broken connections);
// what comes back as an error has outlived that. Errors carry the prefix
// "kafka: ", name the thing they are about, and wrap the broker's *kerr.Error
// or a sentinel of this package. No error contains a password.
//
// # Goroutines
//
// The package starts none of its own that outlive a call. A client's
// goroutines belong to whoever closes the client.
package kafka
