package embedded

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Outcome is what became of a recorded commit.
type Outcome uint8

const (
	// Pending: the broker has not answered yet.
	Pending Outcome = iota
	// Accepted: answered without an error.
	Accepted
	// Refused: answered with an error, Commit.Err. After REQUEST_TIMED_OUT
	// the broker has stored it nevertheless.
	Refused
	// AnswerLost: the broker stored it, or refused it with Commit.Err, and
	// the answer did not reach the client (LoseAnswers).
	AnswerLost
	// Unanswered: the connection ended before the broker answered. It may
	// have stored it or not.
	Unanswered
)

func (o Outcome) String() string {
	names := [...]string{"pending", "accepted", "refused", "answer lost", "unanswered"}
	if int(o) < len(names) {
		return names[o]
	}
	return "unknown outcome"
}

// Commit is one partition of an OffsetCommit or TxnOffsetCommit request as the
// broker received it.
type Commit struct {
	TransactionalID string // empty: a plain OffsetCommit
	Group           string
	Member          string
	Generation      int32
	Instance        *string // nil: none was sent
	ClientID        string

	Topic       string // empty if it came by an id that the broker does not know
	TopicID     [16]byte
	Partition   int32
	Offset      int64
	LeaderEpoch int32
	Metadata    *string

	Outcome  Outcome
	Err      error     // the partition's error code as *kerr.Error, nil for none
	Received time.Time // when the broker had read the request
	Answered time.Time // when it answered; zero if it did not
}

// Accepted reports whether the broker has surely stored the offset: answered
// without error, whether or not the answer arrived.
func (c Commit) Accepted() bool {
	return c.Outcome == Accepted || c.Outcome == AnswerLost && c.Err == nil
}

// Assignment is one member's part of one generation of a classic consumer
// group, as the broker handed it out in a SyncGroup answer.
type Assignment struct {
	Group      string
	Member     string
	Generation int32
	Instance   *string
	ClientID   string
	Protocol   string // the balancer's name
	Partitions map[string][]int32
	UserData   []byte
	At         time.Time
}

func recorded(k kmsg.Key) bool {
	return k == kmsg.OffsetCommit || k == kmsg.TxnOffsetCommit || k == kmsg.SyncGroup
}

// recorder keeps what the wire saw, bounded by limit entries of each kind.
type recorder struct {
	limit int

	mu          sync.Mutex
	open        map[*exchange]struct{} // received, without answer
	commits     []Commit               // ended, in the order in which they ended
	assignments []Assignment
	dropped     int
	names       map[[16]byte]string // topic ids, learned from the broker
	changed     chan struct{}       // closed and replaced at each new entry
}

func newRecorder(limit int) *recorder {
	return &recorder{
		limit:   limit,
		open:    make(map[*exchange]struct{}),
		names:   make(map[[16]byte]string),
		changed: make(chan struct{}),
	}
}

// observeTopicNames learns the names of topic ids from the broker itself: an
// observing fault sees each commit request after the broker has resolved its
// ids and before it answers.
func (b *Broker) observeTopicNames() {
	rec := b.wire.rec
	b.cluster.Fault(kfake.Fault{
		Keys:    []kmsg.Key{kmsg.OffsetCommit, kmsg.TxnOffsetCommit},
		Observe: true,
		Count:   -1,
		When: func(req kmsg.Request) bool {
			switch req := req.(type) {
			case *kmsg.OffsetCommitRequest:
				for _, t := range req.Topics {
					rec.learn(t.TopicID, t.Topic)
				}
			case *kmsg.TxnOffsetCommitRequest:
				for _, t := range req.Topics {
					rec.learn(t.TopicID, t.Topic)
				}
			}
			return false
		},
	})
}

func (r *recorder) learn(id [16]byte, name string) {
	if id == ([16]byte{}) || name == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names[id] = name
}

func (r *recorder) received(x *exchange) {
	if x.key != kmsg.OffsetCommit && x.key != kmsg.TxnOffsetCommit {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[x] = struct{}{}
}

// lost records that the connection ended without an answer.
func (r *recorder) lost(x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.open[x]; !ok {
		return
	}
	delete(r.open, x)
	for _, c := range explode(x) {
		c.Outcome = Unanswered
		r.appendLocked(c)
	}
	r.signalLocked()
}

// answered records an answer; cut says that it will not reach the client.
func (r *recorder) answered(x *exchange, resp kmsg.Response, cut bool) {
	if !recorded(x.key) {
		return
	}
	now := time.Now()
	codes := map[key]int16{}
	switch resp := resp.(type) {
	case *kmsg.SyncGroupResponse:
		r.assigned(x, resp, now)
		return
	case *kmsg.OffsetCommitResponse:
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				codes[key{t.Topic, t.TopicID, p.Partition}] = p.ErrorCode
			}
		}
	case *kmsg.TxnOffsetCommitResponse:
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				codes[key{t.Topic, t.TopicID, p.Partition}] = p.ErrorCode
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, x)
	for _, c := range explode(x) {
		code, ok := codes[key{c.Topic, c.TopicID, c.Partition}]
		if ok {
			c.Answered = now
			c.Err = kerr.ErrorForCode(code)
		}
		switch {
		case !ok:
			c.Outcome = Unanswered // the broker left this partition out
		case cut:
			c.Outcome = AnswerLost
		case c.Err != nil:
			c.Outcome = Refused
		default:
			c.Outcome = Accepted
		}
		r.appendLocked(c)
	}
	r.signalLocked()
}

// key names a partition in a request and its answer. Requests and answers
// carry either name or id, by version, and the same one in both.
type key struct {
	topic     string
	id        [16]byte
	partition int32
}

func (r *recorder) assigned(x *exchange, resp *kmsg.SyncGroupResponse, now time.Time) {
	req := x.req.(*kmsg.SyncGroupRequest)
	if resp.ErrorCode != 0 {
		return
	}
	a := Assignment{
		Group:      req.Group,
		Member:     req.MemberID,
		Generation: req.Generation,
		Instance:   req.InstanceID,
		ClientID:   x.clientID,
		Partitions: make(map[string][]int32),
		At:         now,
	}
	if resp.Protocol != nil {
		a.Protocol = *resp.Protocol
	}
	m := kmsg.NewConsumerMemberAssignment()
	if len(resp.MemberAssignment) > 0 && m.ReadFrom(resp.MemberAssignment) == nil {
		a.UserData = m.UserData
		for _, t := range m.Topics {
			a.Partitions[t.Topic] = append(a.Partitions[t.Topic], t.Partitions...)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var n int
	r.assignments, n = bounded(r.assignments, a, r.limit)
	r.dropped += n
	r.signalLocked()
}

func (r *recorder) appendLocked(c Commit) {
	var n int
	r.commits, n = bounded(r.commits, c, r.limit)
	r.dropped += n
}

// bounded appends, after dropping the oldest tenth of a full slice (a tenth at
// a time, so that the copying does not show), and says how many it dropped.
func bounded[T any](s []T, v T, limit int) ([]T, int) {
	n := 0
	if len(s) >= limit {
		n = 1 + limit/10
		s = slices.Delete(s, 0, n)
	}
	return append(s, v), n
}

func (r *recorder) signalLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// explode makes one Commit of each partition in the request.
func explode(x *exchange) []Commit {
	var out []Commit
	base := Commit{ClientID: x.clientID, Received: x.received}
	switch req := x.req.(type) {
	case *kmsg.OffsetCommitRequest:
		base.Group, base.Member, base.Generation, base.Instance = req.Group, req.MemberID, req.Generation, req.InstanceID
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				c := base
				c.Topic, c.TopicID, c.Partition = t.Topic, t.TopicID, p.Partition
				c.Offset, c.LeaderEpoch, c.Metadata = p.Offset, p.LeaderEpoch, p.Metadata
				out = append(out, c)
			}
		}
	case *kmsg.TxnOffsetCommitRequest:
		base.TransactionalID = req.TransactionalID
		base.Group, base.Member, base.Generation, base.Instance = req.Group, req.MemberID, req.Generation, req.InstanceID
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				c := base
				c.Topic, c.TopicID, c.Partition = t.Topic, t.TopicID, p.Partition
				c.Offset, c.LeaderEpoch, c.Metadata = p.Offset, p.LeaderEpoch, p.Metadata
				out = append(out, c)
			}
		}
	}
	return out
}

func (r *recorder) nameLocked(c *Commit) {
	if c.Topic == "" {
		c.Topic = r.names[c.TopicID]
	}
}

// Commits is every partition of every OffsetCommit and TxnOffsetCommit seen at
// the broker so far: the ended ones in the order in which the broker answered,
// then the pending ones in the order in which they came. An entry is there
// before the client has the answer. It works after Close, too.
func (b *Broker) Commits() []Commit {
	r := b.wire.rec
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.commits)
	open := slices.SortedFunc(maps.Keys(r.open), func(a, b *exchange) int { return a.received.Compare(b.received) })
	for _, x := range open {
		out = append(out, explode(x)...)
	}
	for i := range out {
		r.nameLocked(&out[i])
	}
	return out
}

// Assignments is every assignment that the broker has handed out, in order.
// Groups of the KIP-848 protocol have none here.
func (b *Broker) Assignments() []Assignment {
	r := b.wire.rec
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.assignments)
}

// Dropped is the number of commits and assignments that were forgotten because
// of RecordLimit. A test that judges all of them should check that it is 0.
func (b *Broker) Dropped() int {
	r := b.wire.rec
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}

// CommitsByNonOwners returns the accepted commits that name a partition which
// was not assigned to the sender in the generation that it sent. Kafka checks
// member and generation of a commit, not ownership, so these are the commits
// that move the offsets of somebody else. Commits without a member, as tools
// send them to an empty group, count as such. It judges classic groups only.
func (b *Broker) CommitsByNonOwners() []Commit {
	type owner struct {
		group, member string
		generation    int32
		topic         string
		partition     int32
	}
	owners := make(map[owner]bool)
	for _, a := range b.Assignments() {
		for t, ps := range a.Partitions {
			for _, p := range ps {
				owners[owner{a.Group, a.Member, a.Generation, t, p}] = true
			}
		}
	}
	var out []Commit
	for _, c := range b.Commits() {
		if c.Accepted() && !owners[owner{c.Group, c.Member, c.Generation, c.Topic, c.Partition}] {
			out = append(out, c)
		}
	}
	return out
}

// WaitCommits returns when ok accepts what Commits returns, or with the error
// of ctx and what there was.
func (b *Broker) WaitCommits(ctx context.Context, ok func([]Commit) bool) ([]Commit, error) {
	r := b.wire.rec
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		got := b.Commits()
		if ok(got) {
			return got, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return got, ctx.Err()
		}
	}
}
