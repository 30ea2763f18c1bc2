package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/internal/rules"
)

// Consumer configures the group client of a topology.
type Consumer struct {
	// Group is the consumer group.
	Group string
	// Topics to read. Exactly one of Topics and Pattern is needed.
	Topics []string
	// Pattern is a regular expression over whole topic names. Topics that
	// come to match later are noticed within MetadataMaxAge.
	Pattern string
	// Exclude are regular expressions, too, for topics that Pattern does not mean,
	// such as the topology's own dead letters.
	Exclude []string
	// Start is where a partition without a committed offset begins.
	// Required: kgo.NewOffset().AtStart(), or an offset the caller resolved.
	// It never applies to offsets out of range: those are errors.
	Start *kgo.Offset
	// InstanceID makes the member static. It must be the same after a
	// restart of the same place, and unique in the group. Default: dynamic.
	InstanceID string
	// Balancers decide who gets what. Default: cooperative-sticky.
	Balancers []kgo.GroupBalancer

	// SessionTimeout is how long a dead member keeps its partitions, and
	// holds up every rebalance of its group. Default: 10s.
	SessionTimeout time.Duration
	// HeartbeatInterval bounds how fast a rebalance is noticed. At most a
	// third of SessionTimeout. Default: 500ms, or a third of SessionTimeout
	// if that is less.
	HeartbeatInterval time.Duration
	// RebalanceTimeout is how long the group waits for a member to join a
	// rebalance. Callbacks return at once here, so it bounds stalls only.
	// Default: 30s.
	RebalanceTimeout time.Duration
	// FetchMaxWait is how long a broker may keep a fetch that has no data.
	// It is also what resuming a paused partition costs. Default: 50ms.
	FetchMaxWait time.Duration
	// FetchMaxBytes bounds one fetch from one broker, compressed.
	// Default: 16 MiB.
	FetchMaxBytes int32
	// MaxDecompressBytes bounds one decompressed batch; a larger one stops
	// its partition with kgo.ErrDecompressTooLarge. Default: 128 MiB.
	MaxDecompressBytes int
	// MetadataMaxAge is how late new partitions and topics may be seen.
	// Default: 1m.
	MetadataMaxAge time.Duration

	// The callbacks run one at a time on a goroutine of the client and must
	// return at once: no commit, drain or flush in them. Maps may be empty.
	OnAssigned, OnRevoked, OnLost func(context.Context, *kgo.Client, map[string][]int32)
	// OnOffsetsFetched sees the committed offsets with their metadata before
	// the assigned partitions are fetched. An error makes the member rejoin.
	OnOffsetsFetched func(context.Context, *kgo.Client, *kmsg.OffsetFetchResponse) error
	// Adjust may change where the assigned partitions are fetched from. It runs after
	// OnOffsetsFetched and before the first fetch; its context ends with the group session.
	Adjust func(context.Context, map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error)
}

const (
	// memberTime is how long joins, syncs and heartbeats are tried while no coordinator can be
	// reached; kgo's default is the session's time. Nothing is fetched or committed meanwhile; what
	// runs may run again elsewhere if others have taken over, as after any loss.
	memberTime = 2 * time.Minute
	// otherTime is that of other requests, as by default.
	otherTime = 30 * time.Second
	// requestTime is the most that an answer may take; kgo's default.
	requestTime = 10 * time.Second
	// The pauses between tries double.
	retryFirst = 50 * time.Millisecond
	retryMost  = 500 * time.Millisecond
)

func (k Consumer) withDefaults() Consumer {
	def(&k.SessionTimeout, 10*time.Second)
	def(&k.HeartbeatInterval, min(500*time.Millisecond, k.SessionTimeout/3))
	def(&k.RebalanceTimeout, 30*time.Second)
	def(&k.FetchMaxWait, 50*time.Millisecond)
	def(&k.FetchMaxBytes, 16<<20)
	def(&k.MaxDecompressBytes, 128<<20)
	def(&k.MetadataMaxAge, time.Minute)
	return k
}

// def sets a field that is zero.
func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (k Consumer) validate() error {
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("kafka: consumer: "+format, args...))
	}
	if k.Group == "" {
		fail("the group is empty")
	}
	switch {
	case len(k.Topics) == 0 && k.Pattern == "":
		fail("group %q reads no topic: set Topics or Pattern", k.Group)
	case len(k.Topics) > 0 && k.Pattern != "":
		fail("group %q has both Topics and a Pattern; set one", k.Group)
	}
	for _, t := range k.Topics {
		if t == "" {
			fail("group %q: a topic name is empty", k.Group)
		}
	}
	for _, p := range append([]string{k.Pattern}, k.Exclude...) {
		if _, err := regexp.Compile(p); err != nil {
			fail("topic pattern %q: %w", p, err)
		}
	}
	if k.Pattern == "" && len(k.Exclude) > 0 {
		fail("Exclude %q without a Pattern", k.Exclude)
	}
	if k.Start == nil {
		fail("group %q has no Start: say where a partition without a committed offset begins", k.Group)
	}
	for name, d := range map[string]time.Duration{"SessionTimeout": k.SessionTimeout, "HeartbeatInterval": k.HeartbeatInterval,
		"RebalanceTimeout": k.RebalanceTimeout, "FetchMaxWait": k.FetchMaxWait, "MetadataMaxAge": k.MetadataMaxAge} {
		if d < 0 {
			fail("%s is %v, which is negative", name, d)
		}
	}
	if k.HeartbeatInterval > k.SessionTimeout/3 {
		fail("HeartbeatInterval %v is more than a third of SessionTimeout %v: two lost heartbeats would end the session",
			k.HeartbeatInterval, k.SessionTimeout)
	}
	return errors.Join(errs...)
}

// opts are the options of the group client.
func (k Consumer) opts() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.ConsumerGroup(k.Group),
		// Offsets are committed by the ledger's owner through Commit.
		// kgo's own notion, "polled" or "marked", is not "tree acked".
		kgo.DisableAutoCommit(),
		kgo.ConsumeStartOffset(*k.Start),
		// Loud and fatal for the partition: a reset would skip or repeat
		// records without anybody having decided so.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// Markers move the position. Without them an aborted tail is never
		// passed, and the committed offset stops short of the log's end.
		kgo.KeepControlRecords(),
		kgo.SessionTimeout(k.SessionTimeout),
		kgo.HeartbeatInterval(k.HeartbeatInterval),
		kgo.RebalanceTimeout(k.RebalanceTimeout),
		kgo.FetchMaxWait(k.FetchMaxWait),
		kgo.FetchMaxBytes(k.FetchMaxBytes),
		kgo.MaxDecompressBatchBytes(k.MaxDecompressBytes),
		kgo.MetadataMaxAge(k.MetadataMaxAge),
		// Brokers that are away are asked again for as long as the coordinator may need to come
		// back, and often: it decides whether we are still a member, not the clock. See away.
		kgo.RequestRetries(math.MaxInt32),
		// A broker that is there and does not answer is given up soon enough for two of its kind in
		// a row, the old coordinator and one that is asked for the new, to cost no membership.
		// Fetches, joins and syncs get this on top of the time that they may take.
		kgo.RequestTimeoutOverhead(min(max(k.SessionTimeout/3, time.Second), requestTime)),
		kgo.RetryTimeoutFn(func(key int16) time.Duration {
			switch kmsg.Key(key) {
			case kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat:
				return memberTime
			}
			return otherTime
		}),
		kgo.RetryBackoffFn(func(tries int) time.Duration {
			d := min(retryFirst<<min(tries-1, 10), retryMost)
			return d - rand.N(d/4)
		}),
		// Decoding into used slabs costs less than new ones and their collection. Records
		// that are not recycled are the collector's.
		kgo.WithPools(new(slabs)),
	}
	if k.Pattern != "" {
		opts = append(opts, kgo.ConsumeRegex(), kgo.ConsumeTopics(whole(k.Pattern)))
		for _, p := range k.Exclude {
			opts = append(opts, kgo.ConsumeExcludeTopics(whole(p)))
		}
	} else {
		opts = append(opts, kgo.ConsumeTopics(k.Topics...))
	}
	if k.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(k.InstanceID))
	}
	if len(k.Balancers) > 0 {
		opts = append(opts, kgo.Balancers(k.Balancers...))
	}
	if k.OnAssigned != nil {
		opts = append(opts, kgo.OnPartitionsAssigned(k.OnAssigned))
	}
	if k.OnRevoked != nil {
		opts = append(opts, kgo.OnPartitionsRevoked(k.OnRevoked))
	}
	if k.OnLost != nil {
		opts = append(opts, kgo.OnPartitionsLost(k.OnLost))
	}
	if k.OnOffsetsFetched != nil {
		opts = append(opts, kgo.OnOffsetsFetched(k.OnOffsetsFetched))
	}
	if k.Adjust != nil {
		opts = append(opts, kgo.AdjustFetchOffsetsFn(k.Adjust))
	}
	return opts
}

// whole makes a pattern match whole names only.
func whole(pattern string) string { return "^(?:" + pattern + ")$" }

// NewConsumer makes the group client of a topology, which joins the group at
// once. The caller owns it and closes it with CloseAllowingRebalance or Close.
//
// There is no BlockRebalanceOnPoll: one poll goroutine owns the ledgers and
// callbacks are messages to it, so kept partitions go on during a rebalance.
func NewConsumer(c Cluster, k Consumer) (*kgo.Client, error) {
	k = k.withDefaults()
	if err := errors.Join(c.validate(), k.validate()); err != nil {
		return nil, err
	}
	d := c.dialer()
	d.patient = rules.BrokersAreWaitedFor
	opts := append(c.opts("consumer", d), k.opts()...)
	return newChecked(append(opts, c.Extra...), []rule{
		{"ConsumerGroup", kgo.ConsumerGroup, k.Group, "the group is the topology's"},
		{"DisableAutoCommit", kgo.DisableAutoCommit, true, "offsets are committed by the ledger only"},
		{"AutoCommitMarks", kgo.AutoCommitMarks, false, "offsets are committed by the ledger only"},
		{"GreedyAutoCommit", kgo.GreedyAutoCommit, false, "offsets are committed by the ledger only"},
		{"BlockRebalanceOnPoll", kgo.BlockRebalanceOnPoll, false, "it stops kept partitions during a rebalance"},
		{"ConsumeStartOffset", kgo.ConsumeStartOffset, *k.Start, "the start belongs to the source"},
		{"ConsumeResetOffset", kgo.ConsumeResetOffset, kgo.NoResetOffset(), "a reset would skip or repeat records silently"},
		{"FetchIsolationLevel", kgo.FetchIsolationLevel, int8(1) /* read_committed */, "aborted records must not be processed"},
		{"KeepControlRecords", kgo.KeepControlRecords, true, "without markers an aborted tail is never passed"},
		{"AlwaysRetryEOF", kgo.AlwaysRetryEOF, true, "two closed connections would lose the membership"},
	})
}

// newChecked makes a client whose options keep the rules. kgo shows the options
// of a client only, so a refused one lives for a moment; it is closed before
// it has polled or produced anything.
func newChecked(opts []kgo.Opt, rules []rule) (*kgo.Client, error) {
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	if err := check(cl, rules); err != nil {
		cl.Close()
		return nil, err
	}
	return cl, nil
}
