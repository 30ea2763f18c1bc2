package engine

import (
	"errors"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/rules"
)

// entry is a tuple that outlives its batch: it waits for a retry, or for a free flight. It
// holds its edge over all its tries.
type entry struct {
	item item
	t    *task
}

// reasonOf returns the word for metrics and headers.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, ErrTimeout):
		return "timeout"
	case errors.As(err, new(encodeError)):
		return "codec"
	case killick.IsFailTree(err):
		return "fail_tree"
	case killick.IsPermanent(err):
		return "permanent"
	}
	return "error"
}

// fail says what happens after a failed try: the next one, or the end of the tuple's edge.
func (c *component) fail(en *entry, reason string, err error, stack []byte) {
	it := &en.item
	c.stats.failed.Add(1)
	if reason == "timeout" {
		c.stats.timeouts.Add(1)
	}
	if c.e.hard.Err() != nil {
		// A shutdown is neither success nor failure: the root stays open, and runs again
		// after the next start.
		en.park()
		return
	}
	if it.anchors.Gone() {
		c.e.Ignored.Lost.Add(1)
		return // the partition is lost: its next owner reads the record again
	}
	ev := Event{Component: c.spec.Name, Task: en.t.index, Attempt: it.attempt(), Reason: reason, Err: err, Stack: stack}
	if !it.loose {
		ev.ID = it.id()
	}
	retry := c.spec.Retry
	wait := retry.Delay
	if d, ok := killick.RetryDelay(err); ok {
		wait = fixed(d)
	}
	switch {
	case killick.IsPermanent(err) && rules.PermanentIsFinal, c.e.once && rules.OnceIsOneTry:
	case (killick.IsFailTree(err) || retry.Tree) && !it.loose:
		c.stats.replays.Add(1)
		it.anchors.Fail(&ack.Cause{Outcome: ack.Replayed, Component: c.spec.Name, Task: en.t.index, Reason: reason, Err: err,
			Policy: policyOf(retry.After), Limit: retry.Attempts, Wait: wait, Key: it.key, Value: it.safeBytes()})
		return
	case int(it.tries) < retry.Attempts || !rules.TriesAreBounded:
		c.retry(en, ev, wait(int(it.tries)))
		return
	}
	c.giveUp(en, ev, reason, err)
}

// retry plans the next try. While the engine stops, or a partition of its trees is released, it comes
// at once, and only once: then the roots stay open for their next owners.
func (c *component) retry(en *entry, ev Event, wait time.Duration) {
	draining, urgent := c.e.draining.Load(), c.e.urgent(en.item.anchors)
	ev.Kind = TryFailed
	if en.item.last && (draining || urgent) {
		if draining {
			c.e.cfg.Observe(ev)
			en.park()
			return
		}
		if !en.parkReleased() {
			c.e.cfg.Observe(ev)
			return
		}
		// A join with a tree of a partition that stays: this one goes on, without the others.
		urgent = false
	}
	ev.Wait = wait
	if draining || urgent {
		ev.Wait = 0
	}
	c.stats.retries.Add(1)
	c.e.cfg.Observe(ev)
	en.item.tries++
	c.e.delays.after(ev.Wait, en.item.anchors, func() {
		en.item.last = c.e.draining.Load() || c.e.urgent(en.item.anchors)
		if rules.RetriesExempt || c.e.pending() < int64(c.e.cfg.Spec.Spouts[0].Pending) {
			en.t.retry(en)
		}
	})
}

// giveUp ends the tuple dead.
func (c *component) giveUp(en *entry, ev Event, reason string, err error) {
	it := &en.item
	c.stats.dead.Add(1)
	if it.loose {
		ev.Kind = LooseDropped
		c.e.cfg.Observe(ev)
		return
	}
	policy := c.policy()
	ev.Kind = TupleDead
	c.e.cfg.Observe(ev)
	if policy == ack.Stop {
		en.park() // the edge stays open: the offset must not pass the root
		c.e.stop(c.spec.Name, err, false)
		return
	}
	it.anchors.Fail(&ack.Cause{Outcome: ack.Dead, Component: c.spec.Name, Task: en.t.index, Reason: reason, Err: err,
		Policy: policy, Attempts: it.attempt(), Key: it.key, Value: it.safeBytes()})
}

// park leaves en's edge open until the worker stops: its roots will run again.
func (en *entry) park() {
	en.item.anchors.Each(func(t *ack.Tree) {
		if !t.Gone() {
			en.t.e.parked.add(t)
		}
	})
}

// parkReleased is park for the trees of partitions that are released. It reports whether the tuple goes
// on for another one, which lives; else its edges on the others have ended: it counts for nothing there,
// and a dead tree ends with its last edge.
func (en *entry) parkReleased() (goesOn bool) {
	var others []*ack.Tree
	en.item.anchors.Each(func(t *ack.Tree) {
		if !t.Releasing() { // asked once: it may be released at any moment
			others = append(others, t)
			goesOn = goesOn || t.Live()
		} else if !t.Gone() {
			en.t.e.parked.add(t)
		}
	})
	if !goesOn {
		for _, t := range others {
			t.End()
		}
	}
	return goesOn
}

// policy is what becomes of a root that the component gives up.
func (c *component) policy() ack.Policy {
	if c.e.once {
		return ack.Skip
	}
	return policyOf(c.spec.Retry.After)
}

func policyOf(a killick.After) ack.Policy {
	switch {
	case a.IsStop():
		return ack.Stop
	case a.IsSkip():
		return ack.Skip
	}
	return ack.DeadLetter
}

func fixed(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }
