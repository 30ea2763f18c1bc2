package check

// payments assigns the calls to their orders and holds each run through them against the rules.
func (c *checker) payments() {
	c.r.Tries = len(c.h.Payments)
	var procs []int // in the order of their first call
	for _, p := range c.h.Payments {
		if p.Attempt > 1 {
			c.r.Retries++
		}
		if n := len(procs); n == 0 || procs[n-1] != p.Process {
			procs = append(procs, p.Process)
		}
		i, ok := c.byOrder[p.Order]
		if !ok {
			c.violate(Unknown, -1, "payment call %d of order %d, which is in no input", p.Attempt, p.Order)
			continue
		}
		c.roots[i].calls = append(c.roots[i].calls, p)
	}
	// One worker at a time: a process does not call again when another has called after it.
	if most := len(c.h.Kills) + 1; len(procs) > most {
		c.violate(Process, -1, "calls came from processes %v in turn (the first %d of %d changes), with %d kills: an exit that nobody asked for, or two at once",
			procs[:most+1], most+1, len(procs), len(c.h.Kills))
	}
	last := 0
	if len(procs) > 0 {
		last = procs[len(procs)-1]
	}
	for i := range c.roots {
		c.tries(i, last)
	}
}

// tries cuts the calls of one order into passes, each from attempt 1 on, and judges them. last is the process that was
// not killed: its passes must be whole.
func (c *checker) tries(i, last int) {
	r := &c.roots[i]
	if len(r.want.calls) == 0 {
		if len(r.calls) > 0 {
			c.violate(WrongWay, i, "%d payment calls, want none: the order was rejected", len(r.calls))
		}
		return
	}
	fine, prev := true, 0
	for rest := r.calls; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Attempt != 1 && rest[n].Process == rest[0].Process {
			n++
		}
		pass := rest[:n]
		rest = rest[n:]
		if !c.pass(i, pass, last) {
			fine = false
		}
		r.starts++
		if pass[0].Process == prev {
			c.violate(Duplicate, i, "process %d began the payment again from attempt 1", prev)
		} else {
			r.procs++
		}
		prev = pass[0].Process
	}
	if r.passes == 0 && fine {
		c.violate(Loss, i, "its payment never ended: %d calls, want %q", len(r.calls), r.want.calls)
	}
}

// pass judges one run through the payment calls. It reports whether no violation was found.
func (c *checker) pass(i int, pass []Payment, last int) bool {
	r := &c.roots[i]
	for k, p := range pass {
		switch {
		case k >= len(r.want.calls):
			c.violate(Tries, i, "process %d made call %d, want %d", p.Process, k+1, len(r.want.calls))
			return false
		case p.Attempt != k+1:
			c.violate(Tries, i, "process %d: call %d says attempt %d", p.Process, k+1, p.Attempt)
			return false
		case p.Outcome != r.want.calls[k]:
			c.violate(Tries, i, "process %d: attempt %d ended as %q, want %q", p.Process, p.Attempt, p.Outcome, r.want.calls[k])
			return false
		}
	}
	if len(pass) < len(r.want.calls) {
		if pass[0].Process != last {
			return true // cut short by the kill
		}
		c.violate(Tries, i, "process %d stopped after %d of %d calls and was not killed", last, len(pass), len(r.want.calls))
		return false
	}
	r.passes++
	if at := pass[len(pass)-1].At; r.paidAt == 0 || at < r.paidAt {
		r.paidAt = at
	}
	return true
}
