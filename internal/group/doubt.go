package group

import (
	"github.com/killick-io/killick/internal/balance"
	"github.com/killick-io/killick/internal/kafka"
	"github.com/killick-io/killick/internal/rules"
)

// A commit whose answer was lost may be stored later, after the next one, and set the offset back. That
// costs an at-least-once topology duplicates, which it may have. At most once it must not happen: so this
// member joins the group anew, and claims nothing until that is done. The broker refuses the old
// generation from then on.

// doubt says that the outcome of a commit under a lease is not known. c.turn is held.
func (c *commits) doubt(lease *kafka.Lease) {
	if !c.first() || c.isSpent(lease) || !rules.DoubtIsFenced {
		return
	}
	c.spent = *lease
	c.r.log.Warn().Int32("generation", lease.Generation).Msg("whether a commit was stored is not known: joining the group anew, so that it cannot be stored later")
	// Metadata that have changed make the group rebalance, also for another member than the leader.
	c.r.proto.set(func(f *balance.Facts) { f.Plan++ })
	c.r.rel.again()
}

// isSpent reports whether nothing may be claimed under a lease any more. c.turn is held.
func (c *commits) isSpent(l *kafka.Lease) bool {
	return rules.DoubtIsFenced && l.Member != "" && l.Member == c.spent.Member && l.Generation == c.spent.Generation
}

// first reports whether records are committed before they start.
func (c *commits) first() bool {
	for _, s := range c.r.cfg.Sources {
		if s.Feed.First() {
			return true
		}
	}
	return false
}
