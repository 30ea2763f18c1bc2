package group

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/balance"
	"github.com/killick-io/killick/internal/kafka"
	"github.com/killick-io/killick/internal/partition"
	"github.com/killick-io/killick/internal/rules"
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

	// Drain is how long the trees of a partition that is released may take. Default: 30s.
	Drain time.Duration
	// Patience is how long careful mode waits for a root that is open while no user code is at work,
	// such as one that waits for its next try. Default: 30s.
	Patience time.Duration
	// Trees ends the trees of the partitions.
	Trees Trees
	// Shape is the hash of what all members at work must have in common; see balance.Facts.
	Shape string
	// Single says that one member at a time may work.
	Single bool
	// Active is told whether this member may work: it has joined, and does not stand by. It is
	// called from the client's goroutines, for each assignment, and must not block.
	Active func(bool)

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
	abort context.CancelFunc // ends all that cl does, at once
	admin *kafka.Admin
	adm   *kgo.Client
	log   zerolog.Logger

	lease   atomic.Pointer[kafka.Lease]
	posts   chan post
	poll    atomic.Pointer[context.CancelFunc] // ends the poll in progress
	waiting atomic.Int64                       // unix nanos since when a callback waits; 0: none does
	closing atomic.Bool
	drains  atomic.Bool // intake has ended: nothing is resumed any more
	joined  atomic.Bool
	contact atomic.Int64 // unix nanos of the last answer of a broker
	fatal   sync.Once
	running atomic.Bool
	done    chan struct{} // the poll loop has ended

	commits commits
	rel     releases
	hunt    hunt
	proto   *protocol

	// first is what was known of the topics before this worker joined; see newborn. Written by
	// Start only.
	first map[string]first

	mu      sync.Mutex
	topics  map[string]kafka.Topic
	fetched map[partition.Key]committed // by OnOffsetsFetched, until the partitions open
	fresh   map[partition.Key]bool      // assigned, and neither open, stopped nor late so far
	stopped map[partition.Key]string    // partitions that cannot go on, and why
	late    map[partition.Key]*late     // partitions that wait for an answer of the cluster
	bounds  map[kafka.Partition]kafka.Bounds
	stats   Stats
	number  int32  // of this worker in the group; balance.NoNumber: none yet
	standby string // why this member stands by; "": it does not
	// outside is why the group does not take this worker now, although it may later; "": it does, or
	// nothing is known. saidOutside is when that was logged last.
	outside     string
	saidOutside time.Time
	// suspects are topics that may be other ones by now.
	suspects map[string]bool
	// damage has open partitions whose next batch cannot be read, and why.
	damage map[*partition.Partition]string

	lookNow chan struct{} // look before the interval is over

	// missing and complained are tails' own: since when looks have missed a topic, and when a look
	// that failed was logged last.
	missing    map[string]time.Time
	complained time.Time

	// open is the poll loop's own; others see partitions through their feeds.
	open map[partition.Key]*owned
	// broken counts, for partitions that are open, answers in a row that cannot be read. The poll loop's own.
	broken map[partition.Key]int
}

// owned is a partition that is open.
type owned struct {
	p   *partition.Partition
	src *Source
}

// first says what a topic was like before this worker joined.
type first struct {
	partitions int
	committed  bool // the group had a commit on it
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

// resolve looks at what the sources read: missing topics are an error. It notes what the topics
// are like before this worker joins, and where bounded spouts end.
func (r *Reader) resolve(ctx context.Context) error {
	commits, err := r.admin.Committed(ctx, r.cfg.Group)
	if err != nil && !errors.Is(err, kafka.ErrUnstable) {
		return fmt.Errorf("group: %w", err)
	}
	used := map[string]bool{}
	for p := range commits {
		used[p.Topic] = true
	}
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
		if err != nil && rules.MissingTopicsAreRefused {
			errs = append(errs, fmt.Errorf("spout %q: %w", s.Spec.Name, err))
		}
		for _, t := range ts {
			if err := r.clash(t.Name); err != nil {
				errs = append(errs, fmt.Errorf("group: %w", err))
				continue
			}
			r.first[t.Name] = first{t.Partitions, used[t.Name]}
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

// newborn reports whether a partition without a commit was born after the group had begun to read
// its topic: it starts at its beginning then, or what was written before it was noticed would be
// skipped. All of a fresh group's first positions are committed together, so a group that has
// committed on the topic has done so for every partition that there was; but one without a leader
// then starts at its beginning, too, if the worker ends before that has come back.
func (r *Reader) newborn(k partition.Key) bool {
	f, ok := r.first[k.Topic]
	return !ok || int(k.ID) >= f.partitions || f.committed
}

// derived reports whether topic is one that this topology writes dead letters to: a pattern must
// not read them, or failures would breed failures.
func (r *Reader) derived(topic string) bool {
	return strings.HasSuffix(topic, "."+r.cfg.Topology+".dlq")
}

// newTopic tells the owner of a topic that is new, or has grown, and notes it.
func (r *Reader) newTopic(ctx context.Context, t kafka.Topic) error {
	r.mu.Lock()
	have, ok := r.topics[t.Name]
	r.mu.Unlock()
	if (!ok || have.Partitions < t.Partitions) && r.cfg.NewTopic != nil {
		if err := r.cfg.NewTopic(ctx, t); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.topics[t.Name] = t
	return nil
}

// same reports whether t is the topic that was there before under its name, and not another one.
func (r *Reader) same(t kafka.Topic) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	have, ok := r.topics[t.Name]
	return !ok || have.ID == t.ID || !rules.TopicsAreKnownByID
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
	if cfg.Drain == 0 {
		cfg.Drain = 30 * time.Second
	}
	if cfg.Patience == 0 {
		cfg.Patience = 30 * time.Second
	}
	if cfg.Fatal == nil {
		cfg.Fatal = func(error) {}
	}
	r := &Reader{cfg: cfg, log: cfg.Log, posts: make(chan post), done: make(chan struct{}), open: map[partition.Key]*owned{}, broken: map[partition.Key]int{}, damage: map[*partition.Partition]string{},
		topics: map[string]kafka.Topic{}, fetched: map[partition.Key]committed{}, fresh: map[partition.Key]bool{}, stopped: map[partition.Key]string{},
		bounds: map[kafka.Partition]kafka.Bounds{}, first: map[string]first{}, missing: map[string]time.Time{},
		suspects: map[string]bool{}, late: map[partition.Key]*late{}, lookNow: make(chan struct{}, 1)}
	r.commits.r, r.rel.r, r.number = r, r, balance.NoNumber
	r.rel.now, r.rel.asked, r.rel.under = make(chan struct{}, 1), map[partition.Key]bool{}, map[partition.Key]*release{}
	r.proto = newProtocol(cfg.Log, balance.Facts{Place: cfg.Consumer.InstanceID, Number: balance.NoNumber, Shape: cfg.Shape, Single: cfg.Single})
	r.proto.lost = r.lostInAJoin
	if r.proto.facts.Shape == "" {
		r.proto.facts.Shape = "none"
	}
	r.hunt = hunt{r: r, gate: partition.NewGate(), now: make(chan struct{}, 1)}
	for _, s := range cfg.Sources {
		s.Feed.Share(r.hunt.gate)
	}
	r.commits.mine = map[partition.Key][2]committed{}
	r.commits.acked = map[*partition.Partition]acked{}
	r.commits.blocked = map[*partition.Partition]string{}
	r.commits.final = map[*partition.Partition]final{}
	r.commits.now, r.commits.turn = make(chan struct{}, 1), make(chan struct{}, 1)
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

// clash reports whether the patterns of two spouts match topic: each of its records would be two
// roots with one offset. Only the cluster shows it.
func (r *Reader) clash(topic string) error {
	var name string
	for _, s := range r.cfg.Sources {
		if s.pattern == nil || !s.pattern.MatchString(topic) {
			continue
		}
		if name != "" {
			return fmt.Errorf("topic %q is matched by the patterns of spouts %q and %q; a topic has one spout, and several bolts may subscribe to it", topic, name, s.Spec.Name)
		}
		name = s.Spec.Name
	}
	return nil
}

// Start looks the topics up, resolves the ends of bounded spouts, and joins the group. ctx bounds
// all that. After an error there is nothing to close.
func (r *Reader) Start(ctx context.Context) (err error) {
	if r.adm, err = kafka.NewAdminClient(r.cfg.Cluster); err != nil {
		return err
	}
	r.admin = kafka.NewAdmin(r.adm, r.cfg.Cluster.User)
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
	c.Balancers = []kgo.GroupBalancer{r.proto}
	cluster := r.cfg.Cluster
	life, abort := context.WithCancel(context.Background())
	r.abort = abort
	cluster.Extra = append(slices.Clone(cluster.Extra), kgo.WithHooks(contactHook{r}), kgo.WithContext(life))
	if r.cl, err = kafka.NewConsumer(cluster, c); err != nil {
		abort()
		r.adm.Close()
		return err
	}
	return nil
}

// leaveTime bounds how long Close waits to leave the group. The client cannot leave while it joins,
// and a join takes as long as the slowest member of the group; who has not left is missed by the
// group when its session ends.
const leaveTime = 10 * time.Second

// Close leaves the group and ends the clients. Run's context must have ended.
func (r *Reader) Close() {
	r.closing.Store(true)
	if r.running.Load() {
		<-r.done
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if err := r.cl.LeaveGroupContext(ctx); err != nil {
		r.log.Warn().Err(err).Str("group", r.cfg.Group).Msg("the group was not left; it notices when the session ends")
		r.abort() // else Close would wait for the join
	}
	r.cl.Close()
	r.abort()
	r.adm.Close()
}
