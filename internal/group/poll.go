package group

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/internal/crash"
	"github.com/killick-io/killick/internal/partition"
	"github.com/killick-io/killick/internal/rules"
)

// Run polls and commits until ctx ends.
func (r *Reader) Run(ctx context.Context) {
	r.running.Store(true)
	var wg sync.WaitGroup
	wg.Go(func() { r.commits.loop(ctx) })
	wg.Go(func() { r.tails(ctx) })
	wg.Go(func() { r.rel.loop(ctx) })
	wg.Go(func() { r.hunt.loop(ctx) })
	r.loop(ctx)
	wg.Wait()
}

// pollRecords is how many records one poll takes from what the client has buffered. A whole buffer
// may be 80,000 records, and each pass over it (deliver, execute, end) would miss the caches; the
// size of fetches does not depend on it. A pause in mid-buffer makes the client fetch the rest of
// that partition's answer again: at most one of the eight full fetches below the high water.
const pollRecords = 2048

// loop is the poll loop.
func (r *Reader) loop(ctx context.Context) {
	defer close(r.done)
	for ctx.Err() == nil {
		pctx, cancel := context.WithCancel(ctx)
		r.poll.Store(&cancel)
		// A message that was posted before cancel was in place must not wait for records.
		select {
		case m := <-r.posts:
			cancel()
			r.handle(m)
			continue
		default:
		}
		fetches := r.cl.PollRecords(pctx, pollRecords)
		cancel()
		r.deliver(fetches)
		// Let a dispatcher that waits for a processor take what came while it is in the cache.
		runtime.Gosched()
		for {
			select {
			case m := <-r.posts:
				r.handle(m)
				continue
			default:
			}
			break
		}
	}
	for k := range r.open {
		r.shut(k, "stop")
	}
}

func (r *Reader) handle(m post) {
	m.f()
	close(m.done)
}

// tell runs f on the poll loop and waits for it. It is what callbacks do, and all they do.
func (r *Reader) tell(kind string, f func()) {
	if r.closing.Load() {
		return
	}
	m := post{kind, f, make(chan struct{})}
	if r.waiting.CompareAndSwap(0, time.Now().UnixNano()) {
		defer r.waiting.Store(0)
	}
	slow := time.NewTimer(2 * time.Second)
	defer slow.Stop()
	sent := r.posts
	for {
		if c := r.poll.Load(); c != nil {
			(*c)()
		}
		again := time.NewTimer(time.Millisecond) // the loop may be between storing cancel and polling
		select {
		case sent <- m:
			again.Stop()
			sent = nil
			<-m.done // the loop is running it: it does not block
			return
		case <-again.C:
		case <-r.done:
			again.Stop()
			return
		case <-slow.C:
			again.Stop()
			r.log.Error().Str("callback", kind).Msg("the poll loop has not taken a group callback for 2 s")
		}
	}
}

// deliver hands polled records to their partitions.
func (r *Reader) deliver(fetches kgo.Fetches) {
	fetches.EachPartition(func(ft kgo.FetchTopicPartition) {
		if ft.Err != nil { // where a broker has answered it has said what there is, too
			r.fetchError(ft.Topic, ft.Partition, ft.Err, ft.HighWatermark > 0)
		}
	})
	var full []*partition.Partition
	touched := map[*partition.Feed]struct{}{}
	fetches.EachPartition(func(ft kgo.FetchTopicPartition) {
		if len(ft.Records) == 0 {
			return
		}
		o := r.open[partition.Key{Topic: ft.Topic, ID: ft.Partition}]
		if o == nil {
			return // lost, or stopped
		}
		crash.At(crash.Fetched)
		pause, err := o.p.Deliver(ft.Records)
		if err != nil {
			r.halt(partition.Key{Topic: ft.Topic, ID: ft.Partition}, err.Error())
			return
		}
		touched[o.src.Feed] = struct{}{}
		delete(r.broken, partition.Key{Topic: ft.Topic, ID: ft.Partition})
		if pause && rules.HighWaterPauses {
			full = append(full, o.p)
		}
	})
	if len(full) > 0 {
		r.cl.PauseFetchPartitions(names(full))
		for _, p := range full {
			if p.Paused() {
				r.Resume(p)
			}
		}
	}
	if len(touched) > 0 {
		crash.At(crash.Delivered)
	}
	for f := range touched {
		f.Delivered()
	}
}

func names(ps []*partition.Partition) map[string][]int32 {
	m := map[string][]int32{}
	for _, p := range ps {
		m[p.Topic] = append(m[p.Topic], p.ID)
	}
	return m
}

// Resume lets fetching of p go on. It is the feeds' hook.
func (r *Reader) Resume(p *partition.Partition) {
	if !r.drains.Load() && rules.PausesEnd && r.unreadable(p) == "" {
		r.cl.ResumeFetchPartitions(names([]*partition.Partition{p}))
	}
}

// PauseAll stops fetching: intake has ended.
func (r *Reader) PauseAll() {
	r.drains.Store(true)
	for _, s := range r.cfg.Sources {
		if ps := s.Feed.Partitions(); len(ps) > 0 {
			r.cl.PauseFetchPartitions(names(ps))
		}
	}
}

// fetchError handles what a poll says about a partition, or about the client. answered says that it is
// about records that a broker has sent.
func (r *Reader) fetchError(topic string, id int32, err error, answered bool) {
	k := partition.Key{Topic: topic, ID: id}
	ours := r.open[k] != nil // an error may come late, about a partition that has gone
	var gone *kgo.ErrDataLoss
	var session *kgo.ErrGroupSession
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrClientClosed):
	case errors.Is(err, kerr.OffsetOutOfRange):
		r.outOfRange(k)
	case errors.As(err, &gone) && ours && rules.TruncationStops:
		r.halt(k, fmt.Sprintf("records are lost: the log was truncated below offset %d, which was read already: %v", gone.ConsumedTo, err))
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		r.stop(fmt.Errorf("group: group %q has members that are not killick workers (another protocol than %q), and all members of a group must share partitions out alike: "+
			"stop them, or give this topology a group of its own: %w", r.cfg.Group, Protocol, err))
	case errors.Is(err, kerr.InvalidSessionTimeout):
		r.stop(fmt.Errorf("group: kafka.session_timeout is %v, and the brokers do not allow that for group %q: "+
			"choose a value between their group.min.session.timeout.ms and group.max.session.timeout.ms, or change those: %w", r.cfg.Consumer.SessionTimeout, r.cfg.Group, err))
	case errors.Is(err, kerr.GroupMaxSizeReached):
		r.full(err)
	case errors.Is(err, kerr.FencedInstanceID):
		r.stop(fmt.Errorf("group: another worker with the place %q has joined the group %q: %w", r.cfg.Consumer.InstanceID, r.cfg.Group, err))
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		r.suspect(k)
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		r.stop(fmt.Errorf("group: not allowed to be a member of group %q: %w", r.cfg.Group, r.admin.Denied(err, kmsg.ACLOperationRead, kmsg.ACLResourceTypeGroup, r.cfg.Group)))
	case isDenied(err) && topic != "" && rules.DenialEndsTheRun:
		r.stop(fmt.Errorf("group: not allowed to read topic %q in group %q: %w", topic, r.cfg.Group, r.admin.Denied(err, kmsg.ACLOperationRead, kmsg.ACLResourceTypeTopic, topic)))
	case errors.As(err, &session):
		r.log.Warn().Err(err).Msg("the group session has ended; joining again")
	default:
		var big *kgo.ErrDecompressTooLarge
		if errors.As(err, &big) && ours {
			r.halt(k, err.Error())
			return
		}
		if ours && answered && isBroken(err) && rules.BrokenBatchesStop {
			r.damaged(k, err)
			return
		}
		r.log.Warn().Str("topic", topic).Int32("partition", id).Err(err).Msg("fetch error; the client goes on")
	}
}

func isDenied(err error) bool {
	return errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed)
}

// brokenTries is how often in a row a batch is fetched that cannot be read: what has gone wrong on the
// way is whole the next time, what is wrong in the log never will be.
const brokenTries = 3

// isBroken reports whether the client has an answer for a partition and cannot read what it says: a wrong
// checksum, a compression that it does not know, a batch that is none. What a broker itself says is wrong
// comes as its code.
func isBroken(err error) bool {
	var code *kerr.Error
	var lost *kgo.ErrDataLoss
	return !errors.As(err, &code) && !errors.As(err, &lost)
}

// damaged handles an answer that cannot be read. The client asks for the same again at once, and would do
// so for ever. The partition stays open: what was read before ends and is committed. Poll loop only.
func (r *Reader) damaged(k partition.Key, err error) {
	p := r.open[k].p
	at := p.Status().Next
	if r.broken[k]++; r.broken[k] < brokenTries {
		r.log.Warn().Str("topic", k.Topic).Int32("partition", k.ID).Int64("offset", at).Err(err).Msg("what was fetched cannot be read; it is fetched again")
		return
	}
	why := fmt.Sprintf("what the log has at offset %d cannot be read, after %d tries: %v; repair the log, or set the group's offset behind the batch, and start again", at, brokenTries, err)
	r.mu.Lock()
	r.damage[p] = why
	r.mu.Unlock()
	r.cl.PauseFetchPartitions(names([]*partition.Partition{p}))
	r.log.Error().Str("topic", k.Topic).Int32("partition", k.ID).Str("reason", why).Msg("the partition has stopped")
}

// unreadable is why nothing more of an open partition is read; "": all is well.
func (r *Reader) unreadable(p *partition.Partition) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.damage[p]
}

// full notes that the group has no room for this worker. The client goes on trying: a member may go.
func (r *Reader) full(err error) {
	why := fmt.Sprintf("group %q has as many members as the brokers' group.max.size allows, so this worker waits until one goes: end another one, or raise group.max.size: %v", r.cfg.Group, err)
	r.mu.Lock()
	if r.proto.valid() { // the news is old: it has joined since
		r.mu.Unlock()
		return
	}
	r.outside = why
	say := time.Since(r.saidOutside) >= time.Minute
	if say {
		r.saidOutside = time.Now()
	}
	r.mu.Unlock()
	if say {
		r.log.Warn().Msg(why)
	}
}

// halt stops a partition: it stays owned, nothing of it is read or committed any more, and it is
// named to people. Poll loop only.
func (r *Reader) halt(k partition.Key, why string) {
	r.mu.Lock()
	before := r.stopped[k]
	if before == "" {
		r.stopped[k] = why
	}
	r.mu.Unlock()
	r.cl.PauseFetchPartitions(map[string][]int32{k.Topic: {k.ID}})
	if before != "" {
		return // the first reason is the one that counts
	}
	r.log.Error().Str("topic", k.Topic).Int32("partition", k.ID).Str("reason", why).Msg("the partition has stopped")
	r.shut(k, "stopped")
}

// suspect says that a topic may have been deleted, and perhaps made anew: nothing is committed on it,
// and the partition is not fetched, since the client would ask without a pause, until look has seen
// which. (A broker whose metadata lags says the same of a sound topic.) Poll loop only.
func (r *Reader) suspect(k partition.Key) {
	r.cl.PauseFetchPartitions(map[string][]int32{k.Topic: {k.ID}})
	r.mu.Lock()
	r.suspects[k.Topic] = true
	r.mu.Unlock()
	select {
	case r.lookNow <- struct{}{}:
	default:
	}
}

// sound ends a suspicion.
func (r *Reader) sound(topic string) {
	r.mu.Lock()
	was := r.suspects[topic]
	delete(r.suspects, topic)
	r.mu.Unlock()
	if !was {
		return
	}
	r.tell("sound", func() {
		for k, o := range r.open {
			if s := o.p.Status(); k.Topic == topic && !s.Paused && !s.Releasing {
				r.Resume(o.p)
			}
		}
	})
}

// recreated is drop from another goroutine than the poll loop.
func (r *Reader) recreated(topic string, cause error) {
	r.tell("recreated", func() { r.drop(topic, cause) })
}

// drop gives up a topic that is another one now under its old name: what was read of the old one
// must not be committed to the new one, which brokers before 4.1 would accept (KIP-848 names
// topics in commits by id only from OffsetCommit 10 on).
func (r *Reader) drop(topic string, cause error) {
	why := fmt.Sprintf("topic %q was deleted and created again while it was read", topic)
	for k := range r.open {
		if k.Topic == topic {
			r.halt(k, why)
		}
	}
	r.stop(fmt.Errorf("group: %s: its offsets mean other records now, and nothing more is committed to it. "+
		"Delete what group %q has committed on it, and start again: %w", why, r.cfg.Group, cause))
}

// stop ends the run, once.
func (r *Reader) stop(err error) { r.fatal.Do(func() { r.cfg.Fatal(err) }) }

// shut closes an open partition; poll loop only.
func (r *Reader) shut(k partition.Key, why string) {
	o := r.open[k]
	if o == nil {
		return
	}
	delete(r.open, k)
	delete(r.broken, k)
	r.mu.Lock()
	delete(r.damage, o.p)
	r.mu.Unlock()
	left := o.p.Close()
	o.src.Feed.Remove(o.p)
	r.commits.forget(o.p)
	if left > 0 {
		r.mu.Lock()
		r.stats.Abandoned += int64(left)
		r.mu.Unlock()
		what := "the partition went away with open records; its next owner runs them again"
		if o.src.Feed.First() {
			what = "the partition went away with records that were committed and have not ended: they are not run again"
		}
		r.log.Warn().Str("topic", k.Topic).Int32("partition", k.ID).Int("open", left).Str("why", why).Msg(what)
	}
}
