// Package balance decides which member of a topology's consumer group owns which partition. It is a
// pure function of what the members say of themselves: no clock, no client, no state.
//
// # Release before moving
//
// A partition is never taken from a member that claims it. Plan leaves it where it is and asks for
// it (Grant.Asks); the member stops its intake of that partition only, lets its trees end, commits,
// leaves it out of its next claims, and another Plan deals it out as ownerless. So no callback ever
// waits for trees, partitions that stay are read on meanwhile, and no partition has two owners
// without the death of one.
//
// # What holds for every plan
//
//   - No partition is granted twice.
//   - A partition that a live member claims stays with it; of several claims the one of the highest
//     generation counts (the others were made before their members lost the partition).
//   - A partition that a member has closed is not given back to it in the plan that sees the close:
//     its client would think that it had been its own all the while, and would not open it.
//   - Nothing depends on the incarnation of a process: a static member that comes back with its place
//     within the session gets what it had, without a plan.
//
// Members of one shape share the partitions; those of another shape stand by until no member of the
// shape at work is left. Members of a version that the leader cannot read (Unread) are of no shape: they
// keep what they claim while somebody else works, until they give it away, and go on alone where nobody
// else claims anything. See Plan for the rest.
package balance
