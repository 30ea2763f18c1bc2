// Package group makes a worker a member of the topology's consumer group: it polls, opens and
// closes partitions as they are assigned and lost, and commits.
//
// # Goroutines
//
// The poll loop (Reader.loop) owns which partitions are open: callbacks of the client post a
// message to it, end the poll in progress and wait until it has handled the message, and for
// nothing else. A batch is delivered before the messages that came during its poll are handled,
// so a batch that was polled under one assignment never reaches the ledger of the next.
// The commit loop (commits.loop) is the only one that commits on a schedule; every commit goes
// through commits.commit, under its lock. The release loop gives partitions away, and tails looks at
// what no poll shows. Reader.Run starts them all and waits for them.
//
// # Moves
//
// What the group asks of this member comes with each assignment (protocol). The release loop
// (releases.loop) ends the intake of a partition, waits for its trees and its last commit, closes it on
// the poll loop, takes it out of this member's claims, and has the group rebalance. Nothing of that
// happens in a callback, so no member waits for another one's trees. See package balance.
//
// # Leases
//
// A commit carries the member and the generation of the lease. The lease is renewed in every
// Assigned callback, empty ones too, and nowhere else. It is read before the positions are taken:
// a rebalance in between makes the commit stale, and the broker refuses it.
package group
