package group

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/kafka"
	"github.com/killick-io/killick/internal/partition"
	"github.com/killick-io/killick/spout"
)

// Source is a Kafka spout of the topology.
type Source struct {
	Spec  *killick.SpoutSpec
	Kafka spout.KafkaSource
	Feed  *partition.Feed

	pattern *regexp.Regexp
}

// Config is what a reader needs.
type Config struct {
	Cluster  kafka.Cluster
	Group    string
	Topology string
	Consumer kafka.Consumer // its settings of time and size; the rest is the reader's
	Sources  []*Source

	CommitInterval time.Duration // Default: 1s.
	// Refresh is how often the position of an idle partition is committed again, so that the
	// broker does not expire it. Default: 1h.
	Refresh time.Duration
	// TailIdle is how long a partition must have been idle before the reader asks what is at
	// its position: the end of a log may be compacted away. Default: 10s.
	TailIdle time.Duration

	Log zerolog.Logger
	// Fatal is told what the reader cannot go on from. Called at most once.
	Fatal func(error)
	// NewTopic is called, once per topic and before any of its partitions opens, from the
	// client's goroutine.
	NewTopic func(ctx context.Context, t kafka.Topic) error
}

// Reader is the membership of one worker. Use: New, Start, Run in a goroutine, Commit until
// everything is committed, Close.
type Reader struct {
	cfg   Config
	cl    *kgo.Client
	admin *kafka.Admin
	adm   *kgo.Client
	log   zerolog.Logger

	lease   atomic.Pointer[kafka.Lease]
	posts   chan post
	poll    atomic.Pointer[context.CancelFunc] // ends the poll in progress
	closing atomic.Bool
	joined  atomic.Bool
	contact atomic.Int64 // unix nanos of the last answer of a broker
	fatal   sync.Once
	done    chan struct{} // the poll loop has ended

	commits commits

	mu      sync.Mutex
	topics  map[string]kafka.Topic
	fetched map[partition.Key]committed // by OnOffsetsFetched, until the partitions open
	stopped map[partition.Key]string    // partitions that cannot go on, and why
	bounds  map[kafka.Partition]kafka.Bounds
	stats   Stats

	// open is the poll loop's own; others see partitions through their feeds.
	open map[partition.Key]*owned
}

// owned is a partition that is open.
type owned struct {
	p   *partition.Partition
	src *Source
}

type committed struct {
	offset   int64
	metadata string
}

// Stats counts what happened to the membership.
type Stats struct {
	Assigned, Revoked, Lost int64 // callbacks that named partitions
	LostOffsets             int64 // records that were gone before they could be read
	Abandoned               int64 // roots that were open when their partition was lost
}

// post is a message to the poll loop.
type post struct {
	kind string
	f    func()
	done chan struct{}
}

// Topics returns what the sources read, from the cluster: missing topics are an error.
func (r *Reader) resolve(ctx context.Context) error {
	var errs []error
	for _, s := range r.cfg.Sources {
		names := s.Spec.Info.Topics
		if s.pattern != nil {
			all, err := r.admin.Matching(ctx, s.pattern, r.derived)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			names = all
		}
		ts, err := r.admin.Topics(ctx, names...)
		if err != nil {
			errs = append(errs, fmt.Errorf("spout %q: %w", s.Spec.Name, err))
		}
		for _, t := range ts {
			if err := r.newTopic(ctx, t); err != nil {
				errs = append(errs, err)
			}
		}
		if err := r.bound(ctx, s, ts); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// derived reports whether topic is one that this topology writes dead letters to: a pattern must
// not read them, or failures would breed failures.
func (r *Reader) derived(topic string) bool {
	return strings.HasSuffix(topic, "."+r.cfg.Topology+".dlq")
}

// newTopic notes a topic, and tells the owner if it is new.
func (r *Reader) newTopic(ctx context.Context, t kafka.Topic) error {
	r.mu.Lock()
	have, ok := r.topics[t.Name]
	r.topics[t.Name] = t
	r.mu.Unlock()
	if ok && have.Partitions >= t.Partitions || r.cfg.NewTopic == nil {
		return nil
	}
	return r.cfg.NewTopic(ctx, t)
}

// New makes a reader. It does not talk to anybody yet.
func New(cfg Config) (*Reader, error) {
	if cfg.CommitInterval == 0 {
		cfg.CommitInterval = time.Second
	}
	if cfg.Refresh == 0 {
		cfg.Refresh = time.Hour
	}
	if cfg.TailIdle == 0 {
		cfg.TailIdle = 10 * time.Second
	}
	if cfg.Fatal == nil {
		cfg.Fatal = func(error) {}
	}
	r := &Reader{cfg: cfg, log: cfg.Log, posts: make(chan post), done: make(chan struct{}), open: map[partition.Key]*owned{},
		topics: map[string]kafka.Topic{}, fetched: map[partition.Key]committed{}, stopped: map[partition.Key]string{},
		bounds: map[kafka.Partition]kafka.Bounds{}}
	r.commits.r = r
	r.commits.acked = map[*partition.Partition]acked{}
	r.commits.now = make(chan struct{}, 1)
	for _, s := range cfg.Sources {
		if s.Spec.Info.Pattern != "" {
			re, err := regexp.Compile("^(?:" + s.Spec.Info.Pattern + ")$")
			if err != nil {
				return nil, fmt.Errorf("group: spout %q: %w", s.Spec.Name, err)
			}
			s.pattern = re
		}
	}
	return r, nil
}

// source returns the spout that reads topic.
func (r *Reader) source(topic string) *Source {
	for _, s := range r.cfg.Sources {
		if slices.Contains(s.Spec.Info.Topics, topic) {
			return s
		}
	}
	for _, s := range r.cfg.Sources {
		if s.pattern != nil && s.pattern.MatchString(topic) {
			return s
		}
	}
	return nil
}

// Start looks the topics up, resolves the ends of bounded spouts, and joins the group. ctx bounds
// all that.
func (r *Reader) Start(ctx context.Context) (err error) {
	if r.adm, err = kafka.NewAdminClient(r.cfg.Cluster); err != nil {
		return err
	}
	r.admin = kafka.NewAdmin(r.adm)
	if err := r.resolve(ctx); err != nil {
		r.adm.Close()
		return err
	}
	c := r.cfg.Consumer
	c.Group = r.cfg.Group
	start := kgo.NewOffset().AtStart() // decide has the last word
	c.Start = &start
	var names, patterns []string
	for _, s := range r.cfg.Sources {
		names = append(names, s.Spec.Info.Topics...)
		if s.pattern != nil {
			patterns = append(patterns, "(?:"+s.Spec.Info.Pattern+")")
		}
	}
	if c.Topics = names; len(patterns) > 0 {
		for _, n := range names {
			patterns = append(patterns, regexp.QuoteMeta(n))
		}
		c.Topics, c.Pattern = nil, strings.Join(patterns, "|")
		c.Exclude = []string{`.*\.` + regexp.QuoteMeta(r.cfg.Topology) + `\.dlq`}
	}
	c.OnAssigned, c.OnRevoked, c.OnLost, c.OnOffsetsFetched = r.assigned, r.revoked, r.lost, r.offsetsFetched
	c.Adjust = r.adjust
	cluster := r.cfg.Cluster
	cluster.Extra = append(slices.Clone(cluster.Extra), kgo.WithHooks(contactHook{r}))
	if r.cl, err = kafka.NewConsumer(cluster, c); err != nil {
		r.adm.Close()
		return err
	}
	return nil
}

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

// Run polls and commits until ctx ends.
func (r *Reader) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { r.commits.loop(ctx) })
	wg.Go(func() { r.tails(ctx) })
	r.loop(ctx)
	wg.Wait()
}

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
		fetches := r.cl.PollFetches(pctx)
		cancel()
		r.deliver(fetches)
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
	fetches.EachError(r.fetchError)
	var pause map[string][]int32
	touched := map[*partition.Feed]struct{}{}
	fetches.EachPartition(func(ft kgo.FetchTopicPartition) {
		if len(ft.Records) == 0 {
			return
		}
		o := r.open[partition.Key{Topic: ft.Topic, ID: ft.Partition}]
		if o == nil {
			return // lost, or stopped
		}
		full, err := o.p.Deliver(ft.Records)
		if err != nil {
			r.halt(partition.Key{Topic: ft.Topic, ID: ft.Partition}, err.Error())
			return
		}
		touched[o.src.Feed] = struct{}{}
		if full {
			if pause == nil {
				pause = map[string][]int32{}
			}
			pause[ft.Topic] = append(pause[ft.Topic], ft.Partition)
		}
	})
	if pause != nil {
		r.cl.PauseFetchPartitions(pause)
	}
	for f := range touched {
		f.Delivered()
	}
}

// Resume lets fetching of p go on. It is the feeds' hook.
func (r *Reader) Resume(p *partition.Partition) {
	if cl := r.cl; cl != nil {
		cl.ResumeFetchPartitions(map[string][]int32{p.Topic: {p.ID}})
	}
}

// PauseAll stops fetching: intake has ended.
func (r *Reader) PauseAll() {
	m := map[string][]int32{}
	for _, s := range r.cfg.Sources {
		for _, p := range s.Feed.Partitions() {
			m[p.Topic] = append(m[p.Topic], p.ID)
		}
	}
	if len(m) > 0 {
		r.cl.PauseFetchPartitions(m)
	}
}

// fetchError handles what a poll says about a partition, or about the client.
func (r *Reader) fetchError(topic string, id int32, err error) {
	k := partition.Key{Topic: topic, ID: id}
	var gone *kgo.ErrDataLoss
	var session *kgo.ErrGroupSession
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrClientClosed):
	case errors.Is(err, kerr.OffsetOutOfRange):
		r.outOfRange(k, err)
	case errors.As(err, &gone):
		r.halt(k, fmt.Sprintf("records were lost: the log was truncated below offset %d, which was read already: %v", gone.ConsumedTo, err))
	case errors.Is(err, kerr.FencedInstanceID):
		r.stop(fmt.Errorf("%w: another worker with the place %q has joined the group %q", kerr.FencedInstanceID, r.cfg.Consumer.InstanceID, r.cfg.Group))
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		r.stop(fmt.Errorf("topic %q was deleted and made anew while it was read; its offsets mean other records now. Start again with the group's offsets of it reset: %w", topic, err))
	case errors.Is(err, kerr.GroupAuthorizationFailed), errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		r.stop(fmt.Errorf("not allowed to read topic %q as group %q: %w", topic, r.cfg.Group, err))
	case errors.As(err, &session):
		r.log.Warn().Err(err).Msg("the group session has ended; joining again")
	default:
		var big *kgo.ErrDecompressTooLarge
		if errors.As(err, &big) {
			r.halt(k, err.Error())
			return
		}
		r.log.Warn().Str("topic", topic).Int32("partition", id).Err(err).Msg("fetch error; the client goes on")
	}
}

// halt stops a partition: it stays owned, nothing of it is read or committed any more, and it is
// named to people.
func (r *Reader) halt(k partition.Key, why string) {
	r.mu.Lock()
	r.stopped[k] = why
	r.mu.Unlock()
	r.log.Error().Str("topic", k.Topic).Int32("partition", k.ID).Str("reason", why).Msg("the partition has stopped")
	r.cl.PauseFetchPartitions(map[string][]int32{k.Topic: {k.ID}})
	if o := r.open[k]; o != nil {
		r.shut(k, "stopped")
	}
}

func (r *Reader) stop(err error) { r.fatal.Do(func() { r.cfg.Fatal(err) }) }

// shut closes an open partition; poll loop only.
func (r *Reader) shut(k partition.Key, why string) {
	o := r.open[k]
	if o == nil {
		return
	}
	delete(r.open, k)
	left := o.p.Close()
	o.src.Feed.Remove(o.p)
	r.commits.forget(o.p)
	if left > 0 {
		r.mu.Lock()
		r.stats.Abandoned += int64(left)
		r.mu.Unlock()
		r.log.Warn().Str("topic", k.Topic).Int32("partition", k.ID).Int("open", left).Str("why", why).
			Msg("the partition went away with open records; its next owner runs them again")
	}
}

// assigned renews the lease: that of the partitions that were kept, too.
func (r *Reader) assigned(_ context.Context, cl *kgo.Client, added map[string][]int32) {
	member, gen := cl.GroupMetadata()
	l := &kafka.Lease{Member: member, Generation: gen}
	if id := r.cfg.Consumer.InstanceID; id != "" {
		l.Instance = &id
	}
	r.lease.Store(l)
	r.joined.Store(true)
	if len(added) == 0 {
		return
	}
	cl.ResumeFetchPartitions(added) // pauses outlive assignments in the client
	r.mu.Lock()
	r.stats.Assigned++
	for t, ps := range added {
		for _, p := range ps {
			delete(r.stopped, partition.Key{Topic: t, ID: p})
		}
	}
	r.mu.Unlock()
	r.log.Info().Int32("generation", gen).Str("member", member).Interface("partitions", added).Msg("assigned")
}

func (r *Reader) revoked(_ context.Context, _ *kgo.Client, m map[string][]int32) {
	r.away("revoked", m, func(s *Stats) *int64 { return &s.Revoked })
}

func (r *Reader) lost(_ context.Context, _ *kgo.Client, m map[string][]int32) {
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
				r.shut(partition.Key{Topic: t, ID: p}, why)
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

// Close leaves the group and ends the clients. Run must have returned, or be about to: its
// context has ended.
func (r *Reader) Close() {
	r.closing.Store(true)
	if r.cl != nil {
		<-r.done
		r.cl.CloseAllowingRebalance()
	}
	if r.adm != nil {
		r.adm.Close()
	}
}

// Status is a snapshot of the membership.
type Status struct {
	Stats      Stats
	Commits    CommitStats
	Member     string
	Generation int32
	Joined     bool
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
	s := Status{Stats: r.stats, Joined: r.joined.Load()}
	r.mu.Unlock()
	if l := r.lease.Load(); l != nil {
		s.Member, s.Generation = l.Member, l.Generation
	}
	s.Commits = r.commits.stats()
	for _, src := range r.cfg.Sources {
		for _, p := range src.Feed.Partitions() {
			ps := PartitionStatus{Status: p.Status(), Spout: src.Spec.Name, Committed: r.commits.committed(p), Stable: -1, Start: -1}
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
