package group

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/internal/balance"
	"github.com/killick-io/killick/internal/partition"
)

// member is a member of a group without a broker and a client.
type member struct {
	*protocol
	id         string
	topics     []string // that it reads
	current    map[string][]int32
	generation int32
}

func newMember(id, shape string) *member {
	return &member{id: id, topics: []string{"in"}, generation: -1, protocol: newProtocol(zerolog.Nop(), balance.Facts{Number: balance.NoNumber, Shape: shape})}
}

// rebalance has the first member assign, as the group's leader, and all of them take what they get. It
// returns the size of the record that the broker keeps of the group.
func rebalance(t *testing.T, generation int32, topics map[string]int32, ms ...*member) (kept int) {
	t.Helper()
	var joins []kmsg.JoinGroupResponseMember
	record := kmsg.GroupMetadataValue{Version: 3, ProtocolType: "consumer", Generation: generation, Protocol: kmsg.StringPtr(Protocol), Leader: &ms[0].id}
	for _, m := range ms {
		j := kmsg.NewJoinGroupResponseMember()
		j.MemberID = m.id
		j.ProtocolMetadata = m.JoinGroupMetadata(m.topics, m.current, m.generation)
		joins = append(joins, j)
	}
	b, _, err := ms[0].MemberBalancer(joins)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := b.(kgo.GroupMemberBalancerOrError).BalanceOrError(topics)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string][]byte{}
	for _, a := range plan.IntoSyncAssignment() {
		by[a.MemberID] = a.MemberAssignment
	}
	for i, m := range ms {
		o := kmsg.NewGroupMetadataValueMember()
		o.MemberID, o.InstanceID, o.ClientID, o.ClientHost = m.id, kmsg.StringPtr(m.facts.Place), "killick.orders.consumer", "/10.20.30.40"
		o.Subscription, o.Assignment = joins[i].ProtocolMetadata, by[m.id]
		record.Members = append(record.Members, o)
		m.take(t, by[m.id], generation)
	}
	return len(record.AppendTo(nil))
}

// take is what the client does with an assignment.
func (m *member) take(t *testing.T, data []byte, generation int32) {
	t.Helper()
	got, err := m.ParseSyncAssignment(data)
	if err != nil {
		t.Fatal(err)
	}
	for topic, ps := range m.current {
		for _, p := range ps {
			if !slices.Contains(got[topic], p) {
				m.gone(partition.Key{Topic: topic, ID: p})
			}
		}
	}
	m.current, m.generation = got, generation
	m.took()
}

// took is what the callback of an assignment does. A second time it says the same.
func (m *member) took() (g balance.Grant, ok, again bool) {
	return m.protocol.took(m.id, m.generation, func() string { return m.id })
}

// A partition moves in two assignments: it is asked for, closed, and given to the other.
func TestProtocolMoves(t *testing.T) {
	t.Parallel()
	a, b := newMember("a", "s"), newMember("b", "s")
	topics := map[string]int32{"in": 2}
	rebalance(t, 1, topics, a)
	rebalance(t, 2, topics, a, b)
	g, ok, again := a.took()
	if !ok || again || len(g.Asks) != 1 || len(a.current["in"]) != 2 || len(b.current["in"]) != 0 {
		t.Fatalf("a has %v and is asked for %v, b has %v", a.current, g.Asks, b.current)
	}
	asked := partition.Key{Topic: "in", ID: g.Asks[0].ID}
	a.close(asked)
	rebalance(t, 3, topics, a, b)
	if !slices.Equal(b.current["in"], []int32{asked.ID}) || len(a.current["in"]) != 1 || a.isClosed(asked) {
		t.Errorf("a has %v, b has %v", a.current, b.current)
	}
	if ga, _, _ := a.took(); ga.Number != 0 {
		t.Errorf("a's number is %d", ga.Number)
	}
	if gb, _, _ := b.took(); gb.Number != 1 {
		t.Errorf("b's number is %d", gb.Number)
	}
}

// An assignment from before a close does not start what was closed, and has the member join again.
func TestProtocolLateAssignment(t *testing.T) {
	t.Parallel()
	a := newMember("a", "s")
	topics := map[string]int32{"in": 2}
	rebalance(t, 1, topics, a)
	k := partition.Key{Topic: "in", ID: 1}
	a.close(k)
	a.take(t, assigned(t, a, balance.Grant{Echo: a.facts.Echo()}, 0, 1), 2)
	if _, ok, again := a.took(); !ok || !again || !a.isClosed(k) {
		t.Errorf("ok %v, join again %v, closed %v", ok, again, a.isClosed(k))
	}
}

// joined is what a member says of itself when it joins.
func joined(t *testing.T, m *member) (owned []int32, generation int32, facts balance.Facts) {
	t.Helper()
	meta := kmsg.NewConsumerMemberMetadata()
	if err := meta.ReadFrom(m.JoinGroupMetadata([]string{"in"}, m.current, m.generation)); err != nil {
		t.Fatal(err)
	}
	for _, o := range meta.OwnedPartitions {
		owned = append(owned, o.Partitions...)
	}
	facts, err := balance.DecodeFacts(meta.UserData)
	if err != nil {
		t.Fatal(err)
	}
	return owned, meta.Generation, facts
}

// The client has a new generation as soon as its join is answered. If the assignment of it never comes, the
// claims are of the one before still: in that generation they may have been somebody else's.
func TestProtocolMissedAssignment(t *testing.T) {
	t.Parallel()
	m := newMember("a", "s")
	if _, generation, _ := joined(t, m); generation != -1 {
		t.Errorf("before the first assignment it claims under generation %d", generation)
	}
	m.take(t, assigned(t, m, balance.Grant{Echo: m.facts.Echo()}, 0, 1), 4)
	m.generation = 5
	if owned, generation, _ := joined(t, m); !slices.Equal(owned, []int32{0, 1}) || generation != 4 {
		t.Errorf("it claims %v under generation %d", owned, generation)
	}
}

// A client that is told in a join that its membership has ended joins again under no id, with what it had.
// Nothing of that is claimed, and all of it is closed first.
func TestProtocolLossInAJoin(t *testing.T) {
	t.Parallel()
	m := newMember("a", "s")
	var lost []map[string][]int32
	m.lost = func(ps map[string][]int32) {
		if m.isClosed(partition.Key{Topic: "in"}) {
			t.Error("a partition is out of the claims before it is closed")
		}
		lost = append(lost, ps)
	}
	m.take(t, assigned(t, m, balance.Grant{Number: 3, Echo: m.facts.Echo()}, 0, 1), 4)
	joined(t, m)
	if len(lost) > 0 {
		t.Fatalf("lost %v while it is a member", lost)
	}
	was := m.id
	for _, id := range []string{"", "b"} { // the broker gives it an id first
		m.id = id
		owned, generation, facts := joined(t, m)
		if len(owned) > 0 || generation != -1 || !slices.Equal(facts.Released, []balance.Part{{Topic: "in", ID: 0}, {Topic: "in", ID: 1}}) {
			t.Errorf("as %q it claims %v under generation %d, and has released %v", id, owned, generation, facts.Released)
		}
	}
	if len(lost) != 1 || len(lost[0]["in"]) != 2 {
		t.Errorf("lost %v", lost)
	}
	// The leader has to take them away before it can give them back.
	m.take(t, assigned(t, m, balance.Grant{Echo: m.facts.Echo()}), 9)
	if _, _, again := m.took(); again {
		t.Error("it joins again after an assignment without them")
	}
	m.take(t, assigned(t, m, balance.Grant{Echo: m.facts.Echo()}, 0, 1), 10)
	if owned, generation, _ := joined(t, m); len(owned) != 2 || generation != 10 || len(lost) != 1 || was == m.id {
		t.Errorf("then it claims %v under generation %d, after losing %v", owned, generation, lost)
	}
}

// assigned is an assignment of partitions of in as a leader encodes it.
func assigned(t *testing.T, m *member, g balance.Grant, ids ...int32) []byte {
	t.Helper()
	for _, id := range ids {
		g.Parts = append(g.Parts, balance.Part{Topic: "in", ID: id})
	}
	return assignment{m.id: g}.IntoSyncAssignment()[0].MemberAssignment
}

// What a static member is given when it comes back may have been computed for what it was: Kafka hands
// out the old bytes (measured on 4.x). It joins again, and opens nothing of it if its shape is another.
func TestProtocolEcho(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		echo           balance.Echo
		again, foreign bool
	}{
		{"the same", balance.Echo{Shape: "s"}, false, false},
		{"another shape", balance.Echo{Shape: "old"}, true, true},
		{"it was stopping then", balance.Echo{Shape: "s", Stopping: true}, true, false},
		{"other settings", balance.Echo{Shape: "s", Plan: 1}, true, false},
		{"a leader that could not read it, and never will", balance.Echo{}, false, false},
	} {
		m := newMember("a", "s")
		m.take(t, assigned(t, m, balance.Grant{Echo: c.echo}, 0), 1)
		if _, _, again := m.took(); again != c.again || m.foreign() != c.foreign {
			t.Errorf("%s: join again %v, foreign %v", c.name, again, m.foreign())
		}
	}
}

// What cannot be read does no harm: partitions count, the rest is as if it were not there.
func TestProtocolForeignBytes(t *testing.T) {
	t.Parallel()
	m := newMember("a", "s")
	a := kmsg.NewConsumerMemberAssignment()
	at := kmsg.NewConsumerMemberAssignmentTopic()
	at.Topic, at.Partitions = "in", []int32{3}
	a.Topics, a.UserData = append(a.Topics, at), []byte("sticky")
	m.take(t, a.AppendTo(nil), 1)
	if _, ok, again := m.took(); ok || again || !slices.Equal(m.current["in"], []int32{3}) || m.foreign() {
		t.Errorf("ok %v, join again %v, %v", ok, again, m.current)
	}
	m.take(t, nil, 2)
	if len(m.current) != 0 {
		t.Errorf("an empty assignment gives %v", m.current)
	}
	if _, err := m.ParseSyncAssignment([]byte{0}); err == nil {
		t.Error("half an assignment was read")
	}
	// A member of another kind stands by.
	j := kmsg.NewJoinGroupResponseMember()
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics, meta.UserData = []string{"in"}, []byte("?")
	j.MemberID, j.ProtocolMetadata = "x", meta.AppendTo(nil)
	own := kmsg.NewJoinGroupResponseMember()
	own.MemberID, own.ProtocolMetadata = "a", m.JoinGroupMetadata([]string{"in"}, nil, -1)
	b, _, err := m.MemberBalancer([]kmsg.JoinGroupResponseMember{j, own})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := b.(kgo.GroupMemberBalancerOrError).BalanceOrError(map[string]int32{"in": 2})
	if err != nil {
		t.Fatal(err)
	}
	if g := plan.(assignment); len(g["a"].Parts) != 2 || g["x"].Standby == "" {
		t.Errorf("%+v", g)
	}
}

// What the leader logs of a member that it cannot read is what happens to it.
func TestProtocolSaysWhatHappens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		ours   map[string][]int32 // what the leader, which can be read, claims
		says   string
		stands bool // the other one
	}{
		{"ours are at work", map[string][]int32{"in": {0}}, "it stands by", true},
		{"nobody of ours is", nil, "the workers of this version stand by", false},
	} {
		var log bytes.Buffer
		own := newMember("a", "s")
		own.log = zerolog.New(&log)
		own.current, own.protocol.generation = c.ours, 4
		meta := kmsg.NewConsumerMemberMetadata()
		meta.Version, meta.Generation, meta.Topics, meta.UserData = 2, 9, []string{"in"}, []byte(`{"v":2}`)
		o := kmsg.NewConsumerMemberMetadataOwnedPartition()
		o.Topic, o.Partitions = "in", []int32{1}
		meta.OwnedPartitions = append(meta.OwnedPartitions, o)
		x, a := kmsg.NewJoinGroupResponseMember(), kmsg.NewJoinGroupResponseMember()
		x.MemberID, x.ProtocolMetadata = "x", meta.AppendTo(nil)
		a.MemberID, a.ProtocolMetadata = "a", own.JoinGroupMetadata([]string{"in"}, own.current, 4)
		b, _, err := own.MemberBalancer([]kmsg.JoinGroupResponseMember{x, a})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := b.(kgo.GroupMemberBalancerOrError).BalanceOrError(map[string]int32{"in": 2})
		if err != nil {
			t.Fatal(err)
		}
		g := plan.(assignment)
		if (g["x"].Standby != "") != c.stands || (g["a"].Standby == "") != c.stands {
			t.Errorf("%s: %+v", c.name, g)
		}
		for _, s := range []string{c.says, `"member":"x"`, "version 2, this worker knows 1", "the same version of killick"} {
			if !strings.Contains(log.String(), s) {
				t.Errorf("%s: the log lacks %q: %s", c.name, s, log.String())
			}
		}
	}
}
