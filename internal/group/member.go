package group

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/internal/crash"
	"github.com/killick-io/killick/internal/kafka"
	"github.com/killick-io/killick/internal/partition"
	"github.com/killick-io/killick/internal/rules"
)

// assigned renews the lease: that of the partitions that were kept, too.
func (r *Reader) assigned(_ context.Context, cl *kgo.Client, added map[string][]int32) {
	member, gen := cl.GroupMetadata()
	l := &kafka.Lease{Member: member, Generation: gen}
	if id := r.cfg.Consumer.InstanceID; id != "" {
		l.Instance = &id
	}
	if rules.LeaseIsRenewed || len(added) > 0 {
		r.lease.Store(l)
	}
	crash.At(crash.Renewed)
	for t, ps := range added {
		for _, p := range ps {
			r.proto.gone(partition.Key{Topic: t, ID: p}) // to the client it is new
		}
	}
	r.joined.Store(true)
	r.commits.poke() // what an older lease was refused with
	r.granted(cl, l)
	r.mu.Lock()
	r.outside, r.saidOutside = "", time.Time{} // after granted; see full
	r.mu.Unlock()
	if len(added) == 0 {
		return
	}
	if !r.drains.Load() {
		cl.ResumeFetchPartitions(added) // pauses outlive assignments in the client
	}
	r.mu.Lock()
	r.stats.Assigned++
	for t, ps := range added {
		for _, p := range ps {
			k := partition.Key{Topic: t, ID: p}
			delete(r.stopped, k)
			r.fresh[k] = true
		}
	}
	r.mu.Unlock()
	r.log.Info().Int32("generation", gen).Str("member", member).Interface("partitions", added).Msg("assigned")
}

// granted takes over what an assignment says beside its partitions.
func (r *Reader) granted(cl *kgo.Client, l *kafka.Lease) {
	g, ok, again := r.proto.took(l.Member, l.Generation, func() string { id, _ := cl.GroupMetadata(); return id })
	if !ok {
		r.unread(l)
		return
	}
	r.mu.Lock()
	r.number = g.Number
	r.mu.Unlock()
	r.active(g.Standby == "", g.Standby)
	r.rel.ask(g.Asks)
	if again {
		r.rel.again()
	}
}

// unread is granted for an assignment of which only the partitions could be read. They count. Whether
// this member may do what is not in partitions is not known, so it does not where one may at a time.
func (r *Reader) unread(l *kafka.Lease) {
	r.rel.ask(nil)
	cause, first := r.proto.unread()
	standby := ""
	if r.cfg.Single && rules.UnreadStandsBy {
		standby = "what the group's leader says cannot be read, and one member at a time may work on this topology: run the same version of killick in all workers of the group"
	}
	if first {
		r.log.Warn().Err(cause).Str("group", r.cfg.Group).Str("member", l.Member).Int32("generation", l.Generation).Bool("stands_by", standby != "").
			Msg("this worker cannot read what the group's leader says beside the partitions, so it cannot give away what it is asked for: run the same version of killick in all workers of the group")
	}
	r.active(standby == "", standby)
}

// active notes whether this member may work, and why not.
func (r *Reader) active(is bool, standby string) {
	r.mu.Lock()
	changed := r.standby != standby
	r.standby = standby
	r.mu.Unlock()
	if changed && standby != "" {
		r.log.Info().Str("why", standby).Msg("standing by")
	} else if changed {
		r.log.Info().Msg("not standing by any more")
	}
	if r.cfg.Active != nil {
		r.cfg.Active(is)
	}
}

func (r *Reader) revoked(_ context.Context, _ *kgo.Client, m map[string][]int32) {
	crash.At(crash.Revoked)
	r.away("revoked", m, func(s *Stats) *int64 { return &s.Revoked })
}

func (r *Reader) lost(_ context.Context, _ *kgo.Client, m map[string][]int32) {
	crash.At(crash.Lost)
	r.proto.left()
	r.rel.ask(nil)
	r.active(false, "")
	r.away("lost", m, func(s *Stats) *int64 { return &s.Lost })
}

// lostInAJoin is lost for a membership whose end the client itself learns of in a join: it calls no
// callback then, and would go on with what it had. The partitions stay the client's own until the next
// assignment, which does not have them (protocol.closed).
func (r *Reader) lostInAJoin(m map[string][]int32) {
	r.rel.ask(nil)
	r.active(false, "")
	r.log.Warn().Str("group", r.cfg.Group).Msg("the membership has ended while this worker was about to join again; joining anew")
	r.away("lost", m, func(s *Stats) *int64 { return &s.Lost })
}

// away closes partitions that are not ours any more. Nothing is committed for them.
func (r *Reader) away(why string, m map[string][]int32, stat func(*Stats) *int64) {
	if len(m) == 0 {
		return
	}
	r.mu.Lock()
	*stat(&r.stats)++
	r.mu.Unlock()
	r.tell(why, func() {
		for t, ps := range m {
			for _, p := range ps {
				k := partition.Key{Topic: t, ID: p}
				if rules.LossCloses {
					r.shut(k, why)
				}
				r.proto.gone(k)
				r.rel.lost(k)
				r.mu.Lock()
				delete(r.stopped, k)
				delete(r.late, k)
				delete(r.fetched, k)
				delete(r.fresh, k)
				r.mu.Unlock()
			}
		}
	})
	r.log.Info().Interface("partitions", m).Msg(why)
}

// offsetsFetched keeps the metadata beside the offsets, which the client itself drops.
func (r *Reader) offsetsFetched(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := map[[16]byte]string{}
	for _, t := range r.topics {
		names[t.ID] = t.Name
	}
	add := func(topic string, id [16]byte, p int32, off int64, meta *string, code int16) {
		if topic == "" {
			topic = names[id]
		}
		if code != 0 || off < 0 || topic == "" {
			return
		}
		c := committed{offset: off}
		if meta != nil {
			c.metadata = *meta
		}
		r.fetched[partition.Key{Topic: topic, ID: p}] = c
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			add(t.Topic, [16]byte{}, p.Partition, p.Offset, p.Metadata, p.ErrorCode)
		}
	}
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				add(t.Topic, t.TopicID, p.Partition, p.Offset, p.Metadata, p.ErrorCode)
			}
		}
	}
	return nil
}
