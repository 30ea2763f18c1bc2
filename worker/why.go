package worker

import (
	"fmt"
	"strings"
	"time"

	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/internal/group"
)

// stuckText names a stuck task: what it is at, for how long, and where its code stands.
func stuckText(s engine.Stuck) string {
	tuple := "one tuple"
	if s.Origin != (core.Origin{}) {
		tuple = "a tuple of " + originText(s.Origin)
	}
	at := ""
	if s.Line != "" {
		at = ", at " + s.Line
	}
	return fmt.Sprintf("component %q, task %d has had %s for %v%s, and its time-out is %v", s.Component, s.Task, tuple, s.For.Round(time.Second), at, s.Timeout)
}

func originText(o core.Origin) string {
	return fmt.Sprintf("%s/%d, offset %d", o.Topic, o.Partition, o.Offset)
}

const (
	// holdTime is how long the floor of a partition must have stood before people are told why.
	holdTime = time.Minute
	// showMost is how many of one kind are shown to people at once.
	showMost = 100
)

// holders says, for each partition whose floor has not moved for holdTime, which record holds it and
// where that one's tuples are. Nothing of it need be wrong: a retry may wait that long.
func (w *Worker) holders(st group.Status) (out []string) {
	var open []engine.OpenTuple
	for i := range st.Partitions {
		p := &st.Partitions[i]
		if p.Stopped != "" || p.Oldest < 0 || p.HeadAge < holdTime || w.pauses.has(p.Spout) || len(out) == showMost {
			continue
		}
		if open == nil {
			open = w.engine.Open(1 << 16)
		}
		var where []string
		for _, t := range open {
			if t.Origin == (core.Origin{Topic: p.Topic, Partition: p.Partition, Offset: p.Oldest}) {
				where = append(where, tupleText(t))
			}
		}
		if len(where) == 0 {
			where = []string{"its tuples are in queues, or wait for an output to be durable"}
		}
		out = append(out, fmt.Sprintf("%s/%d is held by offset %d for %v: %s", p.Topic, p.Partition, p.Oldest, p.HeadAge.Round(time.Second), strings.Join(where, ", ")))
	}
	return out
}

func tupleText(t engine.OpenTuple) string {
	switch t.State {
	case "executing":
		return fmt.Sprintf("component %q, task %d executes a tuple for %v", t.Component, t.Task, t.For.Round(time.Second))
	case "waiting":
		return fmt.Sprintf("a tuple is tried again in %v", t.Due.Round(time.Second))
	}
	return fmt.Sprintf("component %q, task %d holds a tuple", t.Component, t.Task)
}

// dump writes to the log what the worker is at: components, partitions, open tuples.
func (w *Worker) dump() {
	log := w.log.Info
	log().Stringer("state", state(w.state.Load())).Strs("paused", w.Paused()).Msg("dump: the worker")
	if !w.built.Load() {
		return
	}
	bolts, spouts := w.engine.Stats()
	for _, s := range spouts {
		log().Str("spout", s.Spout).Int64("emitted", s.Emitted).Int64("acked", s.Acked).Int64("dead", s.Dead).Int64("skipped", s.Skipped).
			Int64("replayed", s.Replayed).Int64("open", s.Pending).Msg("dump: spout")
	}
	for _, b := range bolts {
		log().Str("component", b.Component).Int64("executed", b.Executed).Int64("failed", b.Failed).Int64("dead", b.Dead).
			Int64("retries", b.Retries).Int64("held", b.Held).Int64("queued_batches", b.Queued).Msg("dump: bolt")
	}
	if w.reader != nil {
		st := w.reader.Status()
		log().Str("member", st.Member).Int32("generation", st.Generation).Bool("joined", st.Joined).Int32("number", st.Number).Str("standby", st.Standby).Msg("dump: group")
		for i := range st.Partitions {
			p := &st.Partitions[i]
			e := log().Str("topic", p.Topic).Int32("partition", p.Partition)
			if p.Stopped != "" {
				e.Str("stopped", p.Stopped).Msg("dump: partition")
				continue
			}
			e = e.Int64("position", p.Next).Int64("floor", p.Floor).Int64("committed", p.Committed).Int64("lag", p.Lag()).
				Int("started", p.Started).Int("waiting", p.Waiting).Int64("bytes", p.Bytes)
			if p.Oldest >= 0 {
				e = e.Int64("oldest_open", p.Oldest).Dur("held_for", p.HeadAge)
			}
			e.Bool("fetching_paused", p.Paused).Bool("releasing", p.Releasing).Str("blocked", p.Blocked).Msg("dump: partition")
		}
	}
	for _, s := range w.engine.Stuck() {
		log().Msg("dump: stuck: " + stuckText(s))
	}
	for _, t := range w.engine.Open(showMost) {
		log().Str("topic", t.Origin.Topic).Int32("partition", t.Origin.Partition).Int64("offset", t.Origin.Offset).Msg("dump: open: " + tupleText(t))
	}
}
