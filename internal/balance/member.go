package balance

import (
	"cmp"
	"slices"
	"strings"

	"github.com/killick-io/killick/internal/rules"
)

// Part is a partition of a topic.
type Part struct {
	Topic string
	ID    int32
}

func compareParts(a, b Part) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	return cmp.Compare(a.ID, b.ID)
}

// NoNumber is the number of a worker that has none yet.
const NoNumber = -1

// Facts is what a member says of itself when it joins, beside what Kafka's own metadata has.
type Facts struct {
	// Place is the stable name of the place that the worker runs in (a StatefulSet's ordinal, a
	// slot), or "". It is for people; the group knows the instance id.
	Place string
	// Number is the worker number that an earlier plan has granted, or NoNumber. It is claimed as
	// the partitions are.
	Number int32
	// Shape is the hash of what the topology is made of. Members of another shape stand by. It is "" for
	// those whose facts could not be read; see Unread.
	Shape string
	// Plan is the version of the member's settings. It is echoed only.
	Plan int64
	// Stopping says that the member wants to end: it is given nothing, and asked for nothing, since
	// it releases all by itself.
	Stopping bool
	// Single says that only one member of the shape may work: parts of the topology are not in the
	// partitions, and would run once for each member.
	Single bool
	// Released are partitions that the member has closed, and that its client still counts among its
	// own.
	Released []Part
}

// Unread stands in for the facts of a member of another kind or version. single is what the leader says of
// its own topology, which is that member's, too, most likely.
func Unread(single bool) Facts { return Facts{Number: NoNumber, Single: single} }

// Echo is what the leader saw of a member. A member that is not any more what its grant echoes
// (a static one whose old assignment came back) has to join again.
type Echo struct {
	Shape    string
	Plan     int64
	Stopping bool
}

// Echo returns what a leader echoes of f.
func (f *Facts) Echo() Echo { return Echo{f.Shape, f.Plan, f.Stopping} }

// Blind says that the leader could not read the member's facts: joining again would not help.
func (e Echo) Blind() bool { return e.Shape == "" }

// Member is a member as the leader sees it.
type Member struct {
	ID     string   // of the member; unique
	Topics []string // that it subscribes to
	// Owned are the partitions that it claims: those that are open, or about to be.
	Owned []Part
	// Generation is that of the assignment that the claims come from; below 0: none.
	Generation int32
	Facts
}

// Grant is what a plan gives to a member.
type Grant struct {
	Parts []Part // sorted; all that the member owns now
	// Asks are those of Parts that the member should release. Sorted.
	Asks []Part
	// Number is the worker number: the smallest that was free, kept while it is claimed.
	Number int32
	// AllStop says that every member of the shape at work is stopping, and that no partition is
	// claimed any more: nobody will come to take anything over.
	AllStop bool
	// Standby says why the member works on nothing although it could; "" if it does not stand by.
	Standby string
	Echo    Echo
}

// claims returns the owner of each partition that somebody has a valid claim on. Of several claims
// the one of the highest generation counts. Two of the same generation cannot both be right; the
// smaller member id keeps it, so that all leaders decide alike.
func claims(ms []*Member) map[Part]*Member {
	owner := map[Part]*Member{}
	for _, m := range ms { // sorted by id
		for _, p := range m.Owned {
			if m.Generation < 0 {
				continue
			}
			if o := owner[p]; o == nil || o.Generation < m.Generation && rules.NewestClaimCounts {
				owner[p] = m
			}
		}
	}
	return owner
}

// numbers gives each member its number.
func numbers(ms []*Member) map[*Member]int32 {
	holder := map[int32]*Member{}
	for _, m := range ms {
		if m.Number < 0 || m.Generation < 0 {
			continue
		}
		if o := holder[m.Number]; o == nil || o.Generation < m.Generation {
			holder[m.Number] = m
		}
	}
	out := make(map[*Member]int32, len(ms))
	for n, m := range holder {
		out[m] = n
	}
	next := int32(0)
	for _, m := range ms {
		if _, ok := out[m]; ok {
			continue
		}
		for holder[next] != nil {
			next++
		}
		out[m], holder[next] = next, m
	}
	return out
}

// atWork returns the shape that works now: that of the newest valid claim; without claims, the
// smallest of those members that stay, or of all if none does. What members say whose facts could not be
// read counts where nobody else claims, or stays: then it is "", they share the work, and those of
// every shape that is known stand by.
func atWork(ms []*Member, owner map[Part]*Member) string {
	working := map[*Member]bool{}
	for _, m := range owner {
		working[m] = true
	}
	better := func(a, b *Member) *Member { // b may be nil
		switch {
		case b == nil, b.Shape == "" && a.Shape != "":
			return a
		case a.Shape == "":
			return b
		case a.Generation > b.Generation || a.Generation == b.Generation && a.Shape < b.Shape:
			return a
		}
		return b
	}
	var best *Member
	for _, m := range ms {
		if working[m] {
			best = better(m, best)
		}
	}
	if best != nil {
		return best.Shape
	}
	known := func(ok func(*Member) bool) (shapes []string) {
		for _, m := range ms {
			if ok(m) {
				shapes = append(shapes, m.Shape)
			}
		}
		return shapes
	}
	for _, ok := range []func(*Member) bool{
		func(m *Member) bool { return !m.Stopping && m.Shape != "" },
		func(m *Member) bool { return !m.Stopping },
		func(m *Member) bool { return m.Shape != "" },
	} {
		if shapes := known(ok); len(shapes) > 0 {
			return slices.Min(shapes)
		}
	}
	return ""
}
