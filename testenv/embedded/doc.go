// Package embedded runs a Kafka broker inside the process, for tests and
// demos. It needs no Java, no container and no network beyond loopback; a
// cluster starts in under a millisecond. The broker is kfake, the one that
// franz-go is tested with, and it speaks the real protocol: any Kafka client
// can connect to it, from other processes too.
//
//	b := embedded.Start(t, embedded.Topic("orders", 8))
//	cl, err := kgo.NewClient(b.ClientOpts(kgo.ConsumeTopics("orders"))...)
//
// What the package adds to kfake:
//
//   - client options that suit tests (ClientOpts): short back-offs, short fetch
//     waits, TLS, SASL and the virtual network already set;
//   - an independent look at the state: Produce, ReadAll, End, Committed;
//   - a record, taken from the wire, of every OffsetCommit and
//     TxnOffsetCommit with the broker's answer, and of every group assignment
//     (Commits, Assignments, CommitsByNonOwners);
//   - faults: answers with an error code (Fail), requests or answers that are
//     held or late (Hold, HoldAnswers, DelayAnswers), connections that break before the broker acts
//     (Drop) or after it acted and before it answered (LoseAnswers), and a
//     broker that is away for a while (Down, Up).
//
// # Order of closing
//
// Close clients before the broker: a group member that cannot reach its broker
// takes seconds to close. Start registers its cleanup when it is called, so a
// test that starts the broker first and registers clients with t.Cleanup
// afterwards does that by itself. After Close the methods of Broker return
// errors; the methods of the kfake cluster block for ever then.
//
// # Virtual time
//
// StartVirtual works inside testing/synctest; use Test of package testenv/bubble
// to enter it, which the race detector survives. Connections are pipes in memory,
// on which a waiting goroutine counts as durably blocked, so time moves on by
// itself whenever everybody waits, and ten minutes of heartbeats cost
// milliseconds. The rules:
//
//   - call it, and make all clients and channels, inside the bubble;
//   - connect through ClientOpts, or set kgo.Dialer(b.Dialer());
//   - close clients before the bubble's function returns, or in a Cleanup of
//     the bubble's own t.
//
// No build tag is needed for this with the pinned versions: the tests of this
// package run a group member, a rebalance and a transaction in a bubble with
// and without it. The tag "synctests" makes franz-go's internal mutexes of
// channels, so that a wait for one of them counts as durably blocked, too.
// Without it, a goroutine that waits for such a mutex while its holder sleeps
// stops the bubble's clock, and the test hangs. Add -tags synctests to the
// test command when a bubble hangs with a goroutine in sync.Mutex.Lock below
// kgo.
//
// # Differences from Apache Kafka
//
// Good enough for nearly everything, but four differences can make a wrong
// program look right: commit metadata has no size limit (Kafka: 4096 UTF-16
// units); a stale producer epoch may initialise a transactional id again; of
// two transactions that commit offsets for one partition the last commit wins
// (Kafka: the last request); unstable offsets are flagged per group (Kafka:
// per partition). That kfake forgets the session of a member that died in its
// first join, and ends that of one that waits for others, is made up for here.
// Replication, throttling, coordinator loading and the initial
// rebalance delay do not happen. One goroutine serves all requests, so the
// speed measured here says nothing about a cluster.
package embedded
