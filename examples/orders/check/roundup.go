package check

// roundUp counts what each root left behind: nothing, once, or more often than its kills explain.
func (c *checker) roundUp() {
	for i := range c.roots {
		r := &c.roots[i]
		n := len(r.effects())
		if n == 0 {
			if r.want.dead() {
				c.violate(DeadLetterMissing, i, "no dead letter")
			} else {
				c.violate(Loss, i, "no notification, want one with status %q", r.want.status)
			}
		}
		unsaved, rerun := c.afterKills(i)
		if limit := r.limit(unsaved); n > limit && !rerun {
			if r.want.dead() {
				c.violate(DeadLetterExtra, i, "%d dead letters, the kills explain %d", n, limit)
			} else {
				c.violate(Duplicate, i, "%d notifications, the kills explain %d", n, limit)
			}
		}
		c.count(i)
	}
	if d := c.r.Duplicates; d.Roots > c.h.MaxDuplicates {
		c.violate(Duplicate, -1, "%d roots left an effect twice, the bound is %d", d.Roots, c.h.MaxDuplicates)
	}
	c.r.Duplicates.Bound = c.h.MaxDuplicates
}

// limit is how many copies of its effect a root may have: one, and one more for each kill that caught it unsaved. An
// order that pays leaves a call in each run: no calls, no copy.
func (r *root) limit(unsaved int) int {
	n := 1 + unsaved
	if len(r.want.calls) > 0 {
		n = min(n, max(1, r.procs))
	}
	return n
}

// afterKills counts the kills at which the root was neither committed nor named as finished, and reports whether it
// ran again after one at which it was.
func (c *checker) afterKills(i int) (unsaved int, rerun bool) {
	r := &c.roots[i]
	for k := range c.h.Kills {
		kill := &c.h.Kills[k]
		if !c.saved(k, r) {
			unsaved++
			continue
		}
		s := kill.sample(r.in.Partition)
		calls, copies := 0, 0
		for _, p := range r.calls {
			if p.At > kill.At.UnixNano() {
				calls++
			}
		}
		for _, e := range r.effects() {
			// A root that was finished had its effect below this end; if it has none there, the commit was early.
			if end, ok := s.end(c.effectTopic(r), e.partition); ok && e.offset >= end {
				copies++
			}
		}
		if calls > 0 || copies > 0 && len(r.effects()) > copies {
			rerun = true
			c.violate(Rerun, i, "ran again after kill %d (%d payment calls, %d outputs), though the commit %d and its map covered it",
				k, calls, copies, s.Offset)
		}
	}
	return unsaved, rerun
}

func (c *checker) effectTopic(r *root) string {
	if r.want.dead() {
		return c.h.DeadLetterTopic
	}
	return c.h.OutputTopic
}

// sample is that of a partition; index has made sure that there is one.
func (k *Kill) sample(partition int32) *Sample {
	for i := range k.Samples {
		if k.Samples[i].Partition == partition {
			return &k.Samples[i]
		}
	}
	return &Sample{Partition: partition, Offset: -1}
}

// saved: at kill k the root was committed, or named as finished.
func (c *checker) saved(k int, r *root) bool {
	return r.in.Offset < c.h.Kills[k].sample(r.in.Partition).Offset || c.named[k][position{r.in.Partition, r.in.Offset}]
}

func (c *checker) count(i int) {
	r := &c.roots[i]
	c.r.Trees += max(1, r.starts, len(r.effects()))
	if r.starts > 1 || len(r.effects()) > 1 {
		c.r.Reruns++
	}
	extra := max(0, len(r.effects())-1)
	pays := 0 // calls of an order that ends as a dead letter all failed: repeated, they are tries and no effect
	if !r.want.dead() {
		pays = max(0, r.passes-1)
	}
	d := &c.r.Duplicates
	d.Payments += pays
	if r.want.dead() {
		d.DeadLetters += extra
	} else {
		d.Notifications += extra
	}
	if extra > 0 || pays > 0 {
		d.Roots++
	}
	w := &c.r.Ways
	switch {
	case r.want.poison:
		w.Poison++
	case r.want.dead():
		w.GatewayDown++
	case r.want.status == statusPaid:
		w.Paid++
	case r.want.status == statusRejected:
		w.Rejected++
	default:
		w.PaymentFailed++
	}
}
