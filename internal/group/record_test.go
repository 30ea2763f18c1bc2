package group

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/killick-io/killick/internal/partition"
)

// joinAll has one member that owns everything, and then others that come all at once, until nothing moves any
// more. It returns the sizes of the group's record: the largest on the way, and that at the end.
func joinAll(t *testing.T, members int, topics map[string]int32) (ms []*member, most, end, rounds int) {
	t.Helper()
	var names []string
	for name := range topics {
		names = append(names, name)
	}
	for i := range members {
		// Kafka makes the id of the client's and a UUID.
		m := newMember(fmt.Sprintf("killick.orders.consumer-%08d-0000-0000-0000-000000000000", i), "0123456789abcdef")
		m.facts.Place, m.topics = fmt.Sprintf("orders-%d", i), names
		ms = append(ms, m)
	}
	rebalance(t, 1, topics, ms[0])
	for asked := true; asked; rounds++ {
		end = rebalance(t, int32(rounds+2), topics, ms...)
		most = max(most, end)
		asked = false
		for _, m := range ms {
			g, _, _ := m.took()
			for _, p := range g.Asks {
				m.close(partition.Key{Topic: p.Topic, ID: p.ID})
				asked = true
			}
		}
	}
	end = rebalance(t, int32(rounds+2), topics, ms...)
	return ms, most, end, rounds
}

// A group of 60 members and 2,000 partitions is even after few assignments, and the record that the broker
// keeps of it is far from the 1 MB that it may have.
func TestBigGroup(t *testing.T) {
	t.Parallel()
	ms, most, end, rounds := joinAll(t, 60, map[string]int32{"in": 2000})
	for _, m := range ms {
		if n := len(m.current["in"]); n < 33 || n > 34 {
			t.Errorf("%s has %d partitions", m.id, n)
		}
	}
	if rounds > 3 {
		t.Errorf("it took %d assignments", rounds)
	}
	if most > 256<<10 {
		t.Errorf("the group's record has %d bytes", most)
	}
	t.Logf("%d bytes at most, %d in the end, after %d assignments", most, end, rounds)
}

// The sizes that README.md tells people to expect, in its section on limits: the record of a group with many
// topics, measured against the formula there.
func TestManyTopicsInAGroup(t *testing.T) {
	t.Parallel()
	const limit = 1048588 // max.message.bytes of __consumer_offsets, unless somebody has raised it
	for _, c := range []struct {
		members, topics, name, partitions int
		fits                              bool
	}{
		{20, 1000, 40, 1, true},
		{20, 1200, 40, 1, false},
		{3, 200, 40, 1, true},
		{10, 90, 40, 6, true},
		{50, 20, 40, 12, true},
		{10, 200, 100, 1, true},
	} {
		topics := map[string]int32{}
		for i := range c.topics {
			name := fmt.Sprintf("topic-%05d-", i)
			topics[name+strings.Repeat("x", c.name-len(name))] = int32(c.partitions)
		}
		_, most, end, _ := joinAll(t, c.members, topics)
		parts := c.topics * c.partitions
		want := c.members*(c.topics*(c.name+2)+300) + 2*min(parts, c.members*c.topics)*(c.name+6) + 8*parts
		if end > want || end < want*95/100 {
			t.Errorf("%+v: %d bytes, and README.md says %d", c, end, want)
		}
		if most > want*115/100 {
			t.Errorf("%+v: %d bytes while partitions move, README.md says %d and up to 15 %% more", c, most, want)
		}
		if (max(most, end) <= limit) != c.fits {
			t.Errorf("%+v: %d bytes, of %d", c, max(most, end), limit)
		}
	}
}

// Before the record is too large for the broker, which answers nothing but UNKNOWN_SERVER_ERROR then, the
// leader says so.
func TestRecordIsLargeIsSaid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		topics int
		says   int
	}{{500, 0}, {1100, 1}} {
		var log bytes.Buffer
		topics := map[string]int32{}
		var names []string
		for i := range c.topics {
			name := fmt.Sprintf("topic-%034d", i)
			names, topics[name] = append(names, name), 1
		}
		var ms []*member
		for i := range 20 {
			m := newMember(fmt.Sprint("m", i), "s")
			m.topics, m.log = names, zerolog.New(&log)
			ms = append(ms, m)
		}
		kept := 0
		for generation := range int32(3) {
			kept = rebalance(t, generation, topics, ms...)
		}
		if n := strings.Count(log.String(), "__consumer_offsets"); n != c.says {
			t.Errorf("%d topics, %d bytes: said %d times: %s", c.topics, kept, n, log.String())
		}
	}
}
