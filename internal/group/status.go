package group

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick/internal/kafka"
	"github.com/killick-io/killick/internal/partition"
)

// contactHook notes when a broker has answered.
type contactHook struct{ r *Reader }

func (h contactHook) OnBrokerE2E(_ kgo.BrokerMetadata, _ int16, e kgo.BrokerE2E) {
	if e.ReadErr == nil && e.WriteErr == nil {
		h.r.contact.Store(time.Now().UnixNano())
	}
}

// Contact is when a broker answered last; zero: never.
func (r *Reader) Contact() time.Time {
	if n := r.contact.Load(); n > 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

// Joined reports whether an assignment has come, an empty one included.
func (r *Reader) Joined() bool { return r.joined.Load() }

// aliveTime is after what time without a sign of life the loops count as hung: all their waits are
// shorter.
const aliveTime = 30 * time.Second

// Alive reports whether the loops of the reader still turn. A broker that is away does not matter.
func (r *Reader) Alive() bool {
	old := func(nanos int64) bool { return nanos > 0 && time.Since(time.Unix(0, nanos)) > aliveTime }
	return !old(r.commits.tick.Load()) && !old(r.waiting.Load())
}

// Status is a snapshot of the membership.
type Status struct {
	Stats      Stats
	Commits    CommitStats
	Member     string
	Generation int32
	Joined     bool
	Number     int32  // of this worker in the group, -1: none yet
	Standby    string // why this member works on nothing; "": it works
	Outside    string // why the group does not take it now; "": it does
	Releases   ReleaseStats
	Careful    CarefulStats
	Partitions []PartitionStatus
}

// PartitionStatus is one partition, of those that are open or stopped here.
type PartitionStatus struct {
	partition.Status
	Spout     string
	Committed int64  // acked by the broker; -1: none yet
	Stable    int64  // last stable offset, when it was asked last; -1: unknown
	Start     int64  // of the log; -1: unknown
	Stopped   string // why it has stopped; "": it has not
	Blocked   string // why it goes on, but its position cannot be committed; "": it can
}

// Lag is how many offsets are not committed, against what a read_committed reader can see; -1:
// unknown.
func (p *PartitionStatus) Lag() int64 {
	if p.Stable < 0 {
		return -1
	}
	return max(0, p.Stable-max(p.Committed, p.Start))
}

// Status returns a snapshot.
func (r *Reader) Status() Status {
	r.mu.Lock()
	stopped := maps.Clone(r.stopped)
	bounds := maps.Clone(r.bounds)
	s := Status{Stats: r.stats, Joined: r.joined.Load(), Number: r.number, Standby: r.standby, Outside: r.outside}
	r.mu.Unlock()
	if l := r.lease.Load(); l != nil {
		s.Member, s.Generation = l.Member, l.Generation
	}
	s.Commits, s.Releases, s.Careful = r.commits.stats(), r.rel.stats(), r.hunt.stats()
	for _, src := range r.cfg.Sources {
		for _, p := range src.Feed.Partitions() {
			ps := PartitionStatus{Status: p.Status(), Spout: src.Spec.Name, Stable: -1, Start: -1}
			ps.Committed, ps.Blocked = r.commits.committed(p)
			ps.Stopped = r.unreadable(p)
			if b, ok := bounds[kafka.Partition{Topic: p.Topic, ID: p.ID}]; ok {
				ps.Stable, ps.Start = b.Stable, b.Start
			}
			s.Partitions = append(s.Partitions, ps)
		}
	}
	for k, why := range stopped {
		ps := PartitionStatus{Status: partition.Status{Topic: k.Topic, Partition: k.ID, Oldest: -1}, Committed: -1, Stable: -1, Start: -1, Stopped: why}
		if src := r.source(k.Topic); src != nil {
			ps.Spout = src.Spec.Name
		}
		s.Partitions = append(s.Partitions, ps)
	}
	slices.SortFunc(s.Partitions, func(a, b PartitionStatus) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition - b.Partition)
	})
	return s
}
