package crash

import (
	"maps"
	"slices"
)

// Point is the name of a place in the code.
type Point string

// Records on their way in.
const (
	// Fetched: records of a partition were polled, and its ledger does not know of them yet.
	Fetched Point = "fetched"
	// Delivered: the ledgers know of the polled records, and the dispatchers have not been told.
	Delivered Point = "delivered"
	// SuspectStored: in careful mode, the commit that names a record as the suspect is stored, and the
	// record has not run yet.
	SuspectStored Point = "suspect-stored"
)

// Tuples.
const (
	// Executed: the bolt's Execute has returned, and nothing of what it returned counts yet.
	Executed Point = "executed"
	// OutputsSent: what a batch of tuples has emitted is sent, and the edges of the tuples themselves are
	// still open.
	OutputsSent Point = "outputs-sent"
)

// What leaves the process.
const (
	// SinkQueued: a sink's record was given to the client, and may not be on its way yet.
	SinkQueued Point = "sink-queued"
	// SinkWritten: a sink's record is durable, or refused, and its tree has not heard of it.
	SinkWritten Point = "sink-written"
	// LetterWritten: a dead letter is durable, and its root has not ended.
	LetterWritten Point = "letter-written"
)

// Commits.
const (
	// BeforeCommit: positions were taken under a lease, and the request is not sent.
	BeforeCommit Point = "before-commit"
	// AfterCommit: the answer is there, and nobody has looked at it.
	AfterCommit Point = "after-commit"
)

// Membership.
const (
	// Renewed: an assignment has renewed the lease, and nothing was committed under it. Inside the
	// client's callback.
	Renewed Point = "renewed"
	// Opened: newly assigned partitions are open, and nothing of them was fetched. Inside the client's
	// callback.
	Opened Point = "opened"
	// Revoked: partitions are about to be closed because the group has taken them. Inside the client's
	// callback.
	Revoked Point = "revoked"
	// Lost: the same because the membership has ended.
	Lost Point = "lost"
)

// Release: a partition is given away.
const (
	// ReleaseEnded: the trees of partitions that are given away have ended, or are given up, and their
	// last positions are not committed.
	ReleaseEnded Point = "release-ended"
	// ReleaseCommitted: the last commit of theirs was answered, and they are not closed.
	ReleaseCommitted Point = "release-committed"
	// ReleaseClosed: they are closed, and the group does not know that it can give them to others.
	ReleaseClosed Point = "release-closed"
)

// Start and stop of a worker.
const (
	// Starting: the cluster is reached, and the group is not joined.
	Starting Point = "starting"
	// Drained: the trees have ended, or are given up, and the last commit is not sent.
	Drained Point = "drained"
	// BeforeLeave: the last commit was answered, and the group is not left.
	BeforeLeave Point = "before-leave"
	// Left: the group is left, and the process is about to end.
	Left Point = "left"
)

// table says which rows of the fault matrix (docs/faults.md) need a point. It is a function so that the
// normal build does not have it.
func table() map[Point][]int {
	return map[Point][]int{
		Fetched:          {1},
		Delivered:        {1, 26},
		SuspectStored:    {21, 22},
		Executed:         {2, 21, 26},
		OutputsSent:      {26, 32},
		SinkQueued:       {15, 31},
		SinkWritten:      {2, 15, 62},
		LetterWritten:    {6, 73, 74},
		BeforeCommit:     {3, 4, 5},
		AfterCommit:      {3, 5},
		Renewed:          {4, 17, 20},
		Opened:           {8, 17, 20},
		Revoked:          {19, 20},
		Lost:             {4, 19},
		ReleaseEnded:     {17, 18},
		ReleaseCommitted: {17, 18},
		ReleaseClosed:    {17, 20},
		Starting:         {58},
		Drained:          {57},
		BeforeLeave:      {57, 58},
		Left:             {57},
	}
}

// Points are all points, in order of their names.
func Points() []Point { return slices.Sorted(maps.Keys(table())) }

// Rows returns the rows of the fault matrix that need the point; none for a name that is no point.
func Rows(p Point) []int { return table()[p] }
