package ack

import (
	"sync/atomic"
	"time"

	"github.com/killick-io/killick/internal/rules"
)

// Outcome says how a tree ended.
type Outcome uint8

// The outcomes of a tree.
const (
	Acked    Outcome = iota // every tuple ended well
	Dead                    // a tuple was given up: dead letter, skip or stop, as its policy says
	Replayed                // the root is to run again, as a new attempt
)

// String returns the outcome in lower case.
func (o Outcome) String() string {
	switch o {
	case Acked:
		return "acked"
	case Dead:
		return "dead"
	case Replayed:
		return "replayed"
	}
	return "unknown"
}

// Cause says why a tree did not end well: the first tuple that failed for good.
type Cause struct {
	Outcome   Outcome // Dead or Replayed
	Component string  // where the tuple failed
	Task      int     // its task there
	Reason    string  // a word for metrics and headers: error, panic, timeout, permanent, ...
	Err       error   // what user code returned
	Policy    Policy  // what the root's owner is to do when Dead
	Attempts  int     // tries of the tuple, or of the root when Replayed
	Limit     int     // Replayed: attempts of the root that the failing component allows
	// Wait is the failing component's back-off: how long the root waits after that
	// many attempts. Replayed only.
	Wait func(attempts int) time.Duration
	// Key and Value are the failing tuple's, for the dead letter's headers.
	Key, Value []byte
}

// Policy is what happens to a root whose tree is dead.
type Policy uint8

// The policies of a dead root.
const (
	DeadLetter Policy = iota // written to the dead-letter topic; the root ends when that is durable
	Skip                     // given up, counted
	Stop                     // the worker stops, the root stays open
)

// An Owner is told once how its tree ended.
type Owner interface {
	// TreeEnded is called by whoever ends the last edge, on its goroutine: it must
	// not block and must take no lock under which edges are ended.
	// c is nil when the tree is acked.
	TreeEnded(t *Tree, c *Cause)
}

// Epoch is one assignment of a partition to this process. Trees belong to the epoch
// in which their root was started and are gone when it is closed.
type Epoch struct{ closed, releasing atomic.Bool }

// Release says that the partition is about to be given to another owner: its trees should end soon.
func (e *Epoch) Release() { e.releasing.Store(true) }

// Releasing reports whether Release was called.
func (e *Epoch) Releasing() bool { return e.releasing.Load() }

// Close ends the epoch: nothing happens to its trees any more.
func (e *Epoch) Close() { e.closed.Store(true) }

// Closed reports whether the epoch is over.
func (e *Epoch) Closed() bool { return e.closed.Load() }

// Home is what the trees of one chunk of roots share.
type Home struct {
	Epoch *Epoch
	Owner Owner
}

// Tree counts the open edges of one attempt of one root. It must not be copied or reused: a late
// verdict would hit another root. It is small, since there is one per pending root: 32 bytes.
// All methods may be called from any goroutine.
type Tree struct {
	// open counts edges that have not ended. Invariant: > 0 from Start until the
	// tree ends, 0 ever after; Open is called only by someone who holds an open edge.
	open atomic.Int64
	// fate is the first failure. Set once, never cleared.
	fate           atomic.Pointer[Cause]
	home           *Home
	index, attempt int32 // the owner's
}

// Start makes t a tree with n open edges. index and attempt tell its owner which root it is,
// and are of no concern to t. It must be called before t is shared.
func (t *Tree) Start(h *Home, index, attempt, n int) {
	t.home, t.index, t.attempt = h, int32(index), int32(attempt)
	t.open.Store(int64(n))
}

// Index returns what Start was given.
func (t *Tree) Index() int { return int(t.index) }

// Attempt returns what Start was given.
func (t *Tree) Attempt() int { return int(t.attempt) }

// Open adds n edges. The caller holds an open edge of t, else the tree may have
// ended: that is a broken invariant and panics.
func (t *Tree) Open(n int) {
	if n == 0 {
		return
	}
	if t.open.Add(int64(n)) <= int64(n) {
		panic("ack: edge opened on a tree that has ended")
	}
}

// End ends one edge well.
func (t *Tree) End() { t.drop(1) }

// EndN ends n edges well.
func (t *Tree) EndN(n int) {
	if n > 0 {
		t.drop(int64(n))
	}
}

// Fail ends one edge with a failure. The first cause is the tree's fate.
func (t *Tree) Fail(c *Cause) {
	first := t.fate.CompareAndSwap(nil, c)
	if first && !rules.DeadTreesEndLast {
		t.home.Owner.TreeEnded(t, c)
	}
	t.drop(1)
}

func (t *Tree) drop(n int64) {
	left := t.open.Add(-n)
	if left > 0 {
		return
	}
	if left < 0 {
		panic("ack: more edges ended than were opened")
	}
	if t.home.Epoch.Closed() && rules.ClosedEpochsEnd {
		return
	}
	t.home.Owner.TreeEnded(t, t.fate.Load())
}

// Live reports whether tuples of t should still run: neither dead, nor to be
// replayed, nor gone.
func (t *Tree) Live() bool { return t.fate.Load() == nil && !t.home.Epoch.Closed() }

// Gone reports whether the tree's epoch is closed.
func (t *Tree) Gone() bool { return t.home.Epoch.Closed() }

// Releasing reports whether the tree's partition is about to be given away.
func (t *Tree) Releasing() bool { return t.home.Epoch.Releasing() }

// In reports whether the tree belongs to e.
func (t *Tree) In(e *Epoch) bool { return t.home.Epoch == e }

// Owner returns who is told how the tree ended.
func (t *Tree) Owner() Owner { return t.home.Owner }

// Pending returns the number of open edges.
func (t *Tree) Pending() int { return int(t.open.Load()) }

// Fate returns the first failure, or nil.
func (t *Tree) Fate() *Cause { return t.fate.Load() }

// String returns the policy in lower case.
func (p Policy) String() string {
	switch p {
	case DeadLetter:
		return "dead-letter"
	case Skip:
		return "skip"
	case Stop:
		return "stop"
	}
	return "unknown"
}
