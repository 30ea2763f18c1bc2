package killick

import "fmt"

// Guarantee says how often a record's effects may happen. It is a topology's as a whole.
type Guarantee int

const (
	// AtLeastOnce commits a record when its tuple tree has ended: a crash loses nothing, and may run
	// records again. It is the default.
	AtLeastOnce Guarantee = iota
	// AtMostOnce commits records before they are processed: no bolt is given a record before the broker
	// has confirmed a commit behind it, and no tuple is tried twice. A try that fails, panics or times
	// out drops its record: there are no retries, replays or dead letters, and no order, which would
	// have to wait for the ends of trees. A crash loses at most the records that are claimed: per
	// partition no more than [SpoutDecl.Pending]. A stop, and a partition that moves, let them end
	// first. What is known to be dropped is counted in killick_dropped_total.
	//
	// What it costs: a commit request, and the wait for its answer, for each window of records; a wider
	// window makes that cheaper, and a crash dearer. After a commit whose outcome is not known the worker
	// joins its group anew, so that the broker refuses it should it still arrive, and no record starts
	// until then. What sets offsets back by hand, or by the policy for lost offsets of package spout, runs records again.
	//
	// A spout other than Kafka has done called, with nil, before its message is processed.
	AtMostOnce
)

var guaranteeNames = [...]string{"at least once", "at most once"}

// String returns "at least once" or "at most once".
func (g Guarantee) String() string {
	if g >= 0 && int(g) < len(guaranteeNames) {
		return guaranteeNames[g]
	}
	return fmt.Sprintf("Guarantee(%d)", int(g))
}

// Guarantee sets what the topology guarantees. Default: [AtLeastOnce].
func (t *Topology) Guarantee(g Guarantee) *Topology {
	if g < 0 || int(g) >= len(guaranteeNames) {
		t.check(fmt.Errorf("%v is no guarantee; use AtLeastOnce or AtMostOnce", g))
	}
	t.guarantee = g
	return t
}

// guarantee reports what an at-most-once topology says that it cannot have.
func (b *build) guarantee() {
	t := b.t
	b.spec.Guarantee = t.guarantee
	if t.guarantee != AtMostOnce {
		return
	}
	const retry = "at most once, no tuple is tried again and no dead letter is written: remove Retry, or the guarantee"
	const order = "at most once, nobody waits for the end of a record, so its order cannot be kept: remove Order, or the guarantee"
	if t.retryWhere != "" {
		b.wrong(t.retryWhere, "", retry)
	}
	if t.order != NoOrder {
		b.wrong(t.orderWhere, "", order)
	}
	for _, d := range t.spouts {
		if d.order != NoOrder {
			b.wrong(d.orderWhere, d.name, order)
		}
	}
	for _, d := range t.bolts {
		if d.retryWhere != "" {
			b.wrong(d.retryWhere, d.name, retry)
		}
	}
}
