package group

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/internal/balance"
	"github.com/killick-io/killick/internal/partition"
	"github.com/killick-io/killick/internal/rules"
)

// Protocol is the name of killick's way to share out partitions. Every member of a group has to know
// the same one, so a group cannot have killick's workers and other consumers at once.
const Protocol = "killick"

// errNothing: an assignment is empty, user data and all.
var errNothing = fmt.Errorf("%w: the assignment is empty", balance.ErrForeign)

// protocol is this member's side of the group protocol. Its metadata are Kafka's own for consumers,
// which Kafka's tools can read, with balance.Facts as user data; so are its assignments, with what is
// not about partitions of balance.Grant. It is called from the client's goroutines.
type protocol struct {
	log zerolog.Logger

	mu    sync.Mutex
	facts balance.Facts // Released is not used: closed is
	// closed are the partitions that were released, as long as the client counts them among its
	// own: until an assignment without them has come.
	closed map[partition.Key]bool
	// came is what came with the assignment that the client is about to tell the reader of.
	came balance.Grant
	ok   bool // came could be read
	// cause is why it could not; told: people know.
	cause error
	told  bool
	// large: the group's record was about to be too large when this member led it last.
	large bool
	// member and generation are those of the assignment that was taken last; "" and -1: none is valid.
	// The client's own are ahead of them: it has a new generation when a join is answered, and keeps it
	// if the assignment never comes.
	member     string
	generation int32

	current func() string // the client's member id of now
	// lost closes partitions that the client has lost with its membership, and still counts among its
	// own. It is called without mu, from the client's goroutine that joins.
	lost func(map[string][]int32)
}

func newProtocol(log zerolog.Logger, facts balance.Facts) *protocol {
	return &protocol{log: log, facts: facts, closed: map[partition.Key]bool{}, generation: -1}
}

// set changes what this member says of itself from its next join on.
func (p *protocol) set(f func(*balance.Facts)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.facts)
}

// close takes a partition out of the claims.
func (p *protocol) close(k partition.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed[k] = true
}

func (p *protocol) isClosed(k partition.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed[k]
}

// gone says that the client does not count a partition among its own any more.
func (p *protocol) gone(k partition.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.closed, k)
}

// took is called in the callback of an assignment, that of a member and generation; now returns the
// client's member id at any time. It returns what came with the assignment, and whether this member has
// to join again, since it is not what the leader thinks that it is, or has closed what the assignment
// still lists.
func (p *protocol) took(member string, generation int32, now func() string) (g balance.Grant, ok, again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.member, p.generation, p.current = member, generation, now
	if p.ok {
		p.facts.Number = p.came.Number
	}
	other := p.ok && p.came.Echo != p.facts.Echo() && !p.came.Echo.Blind()
	return p.came, p.ok, other || len(p.closed) > 0
}

// unread returns why what came with the assignment could not be read, and whether that is news.
func (p *protocol) unread() (cause error, news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news, p.told = !p.told, true
	return p.cause, news
}

// foreign reports whether the assignment that has come was computed for another shape than this
// worker's.
func (p *protocol) foreign() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ok && p.came.Echo.Shape != p.facts.Shape && !p.came.Echo.Blind()
}

// valid reports whether an assignment was taken, and the membership that it is of has not ended since.
func (p *protocol) valid() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.member != ""
}

// left forgets what came with a membership that is over.
func (p *protocol) left() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.closed)
	p.leftLocked()
}

func (p *protocol) leftLocked() {
	p.came, p.ok = balance.Grant{}, false
	p.member, p.generation = "", -1
}

// stale reports whether the client has lost the membership that its partitions come from. The broker may
// say so in the answer to a join: then the client forgets its member id and joins anew at once, but keeps
// its partitions and tells nobody. Others may have had them meanwhile.
func (p *protocol) stale(current map[string][]int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return rules.LossInAJoinIsSeen && len(current) > 0 && p.member != "" && p.current() != p.member
}

func (p *protocol) ProtocolName() string { return Protocol }

// IsCooperative: partitions that stay are read on during a rebalance.
func (p *protocol) IsCooperative() bool { return true }

// JoinGroupMetadata claims what the client owns and the reader has not closed, as of the generation in
// which it was given. (The client's own generation may be of an assignment that has never come: a claim
// under it would be as good as that of the member to which that assignment gave the partition.)
func (p *protocol) JoinGroupMetadata(topics []string, current map[string][]int32, _ int32) []byte {
	if p.stale(current) {
		p.lost(current)
		p.mu.Lock()
		p.leftLocked()
		for t, ids := range current {
			for _, id := range ids {
				p.closed[partition.Key{Topic: t, ID: id}] = true
			}
		}
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.facts
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.Topics, m.Generation = 2, topics, p.generation
	for _, t := range slices.Sorted(maps.Keys(current)) {
		o := kmsg.NewConsumerMemberMetadataOwnedPartition()
		o.Topic = t
		for _, id := range current[t] {
			if p.closed[partition.Key{Topic: t, ID: id}] {
				f.Released = append(f.Released, balance.Part{Topic: t, ID: id})
			} else {
				o.Partitions = append(o.Partitions, id)
			}
		}
		if len(o.Partitions) > 0 {
			m.OwnedPartitions = append(m.OwnedPartitions, o)
		}
	}
	m.UserData = f.Encode()
	return m.AppendTo(nil)
}

// ParseSyncAssignment reads what the leader has given to this member. What it says beside the
// partitions waits for the callback.
func (p *protocol) ParseSyncAssignment(data []byte) (map[string][]int32, error) {
	a := kmsg.NewConsumerMemberAssignment()
	parts := map[string][]int32{}
	var g balance.Grant
	cause := errNothing
	if len(data) > 0 { // a leader may give nothing at all
		if err := a.ReadFrom(data); err != nil {
			return nil, fmt.Errorf("group: the assignment cannot be read: %w", err)
		}
		for _, t := range a.Topics {
			parts[t.Topic] = append(parts[t.Topic], t.Partitions...)
		}
		g, cause = balance.DecodeGrant(a.UserData)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.came, p.ok, p.cause, p.told = g, cause == nil, cause, p.told && cause != nil
	return parts, nil
}

// MemberBalancer is called when this member is the leader.
func (p *protocol) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	p.mu.Lock()
	single := p.facts.Single
	p.mu.Unlock()
	l := &leader{p: p, log: p.log, unread: map[string]error{}}
	cb, err := kgo.NewConsumerBalancer(l, members)
	if err != nil {
		return nil, nil, fmt.Errorf("group: a member's metadata cannot be read: %w", err)
	}
	cb.EachMember(func(m *kmsg.JoinGroupResponseMember, meta *kmsg.ConsumerMemberMetadata) {
		facts, err := balance.DecodeFacts(meta.UserData)
		if err != nil {
			l.unread[m.MemberID] = err
			facts = balance.Unread(single)
		}
		l.bytes += len(m.MemberID) + len(m.ProtocolMetadata) + 100 // and what the broker adds
		b := balance.Member{ID: m.MemberID, Topics: meta.Topics, Generation: meta.Generation, Facts: facts}
		for _, o := range meta.OwnedPartitions {
			for _, id := range o.Partitions {
				b.Owned = append(b.Owned, balance.Part{Topic: o.Topic, ID: id})
			}
		}
		l.members = append(l.members, b)
	})
	return cb, cb.MemberTopics(), nil
}

// leader computes one assignment.
type leader struct {
	p       *protocol
	log     zerolog.Logger
	bytes   int // that the members say
	members []balance.Member
	unread  map[string]error // members whose facts could not be read, and why
}

func (l *leader) Balance(_ *kgo.ConsumerBalancer, topics map[string]int32) kgo.IntoSyncAssignment {
	plan := balance.Plan(l.members, topics)
	for _, id := range slices.Sorted(maps.Keys(l.unread)) {
		g := plan[id]
		then := "it stands by"
		if g.Standby == "" {
			then = "nobody else is at work, so it goes on, and the workers of this version stand by"
		}
		l.log.Warn().Err(l.unread[id]).Str("member", id).Int("partitions", len(g.Parts)).Str("then", then).
			Msg("a member of the group is of another kind or version: run the same version of killick in all workers of the group")
	}
	l.weigh(assignment(plan))
	return assignment(plan)
}

// largeRecord is how many bytes of a group are said to be too many, soon: a broker keeps all of them in one
// record of __consumer_offsets, of 1048588 bytes at most, unless its max.message.bytes was raised.
const largeRecord = 900_000

// weigh says when the record of the group is about to be too large. A broker that cannot write it answers
// UNKNOWN_SERVER_ERROR, and no assignment ever comes.
func (l *leader) weigh(a assignment) {
	n := l.bytes
	if n > largeRecord/4 { // most of it is what members say
		for _, m := range a.IntoSyncAssignment() {
			n += len(m.MemberAssignment)
		}
	}
	l.p.mu.Lock()
	news := n > largeRecord && !l.p.large
	l.p.large = n > largeRecord
	l.p.mu.Unlock()
	if news {
		l.log.Warn().Int("bytes", n).Int("members", len(l.members)).Msg("the brokers keep what the group's members say and get in one record of __consumer_offsets; " +
			"if it exceeds the max.message.bytes of that topic (1048588 by default) no assignment comes: raise that, or read fewer topics, or with fewer workers, in one group")
	}
}

// assignment is a plan on its way to the members. kgo's own plans have no user data.
type assignment map[string]balance.Grant

func (a assignment) IntoSyncAssignment() []kmsg.SyncGroupRequestGroupAssignment {
	var out []kmsg.SyncGroupRequestGroupAssignment
	for _, id := range slices.Sorted(maps.Keys(a)) {
		g := a[id]
		m := kmsg.NewConsumerMemberAssignment()
		parts := balance.Group(g.Parts)
		for _, t := range slices.Sorted(maps.Keys(parts)) {
			at := kmsg.NewConsumerMemberAssignmentTopic()
			at.Topic, at.Partitions = t, parts[t]
			m.Topics = append(m.Topics, at)
		}
		m.UserData = g.Encode()
		s := kmsg.NewSyncGroupRequestGroupAssignment()
		s.MemberID, s.MemberAssignment = id, m.AppendTo(nil)
		out = append(out, s)
	}
	return out
}
