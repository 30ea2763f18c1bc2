package worker_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// memberOf is the id under which a worker was given its newest assignment.
func (s *story) memberOf(clientID string) (id string) {
	for _, a := range s.b.Assignments() {
		if a.ClientID == clientID+".t.consumer" {
			id = a.Member
		}
	}
	return id
}

// A worker whose session ends while its join is on the way learns of that from the answer to the join, and
// its client joins anew without a word. Meanwhile others have had its partitions, and have gone: it starts
// where they have come to, and not where it was itself.
func TestSessionEndsInAJoin(t *testing.T) {
	for name, top := range map[string]func(c *tally) *killick.Topology{
		"at least once": func(c *tally) *killick.Topology { return counting(c, spout.Kafka("in"), nil) },
		"at most once":  func(c *tally) *killick.Topology { return once(c, 100, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				var first, second tally
				a := s.start(top(&first), func(c *worker.Config) { c.ClientID = "a" })
				s.share(map[*running]int{a: 2})
				s.produce("in", 0, "0")
				s.produce("in", 1, "1")
				s.drained("in")
				id := s.memberOf("a")
				gate := make(chan struct{})
				joins := s.b.Hold(kmsg.JoinGroup, gate, func(r kmsg.Request) bool { return r.(*kmsg.JoinGroupRequest).MemberID == id })
				b := s.start(top(&second))
				if err := joins.Wait(s.ctx(), 1); err != nil {
					s.Fatal(err)
				}
				s.share(map[*running]int{b: 2})
				// What a does of these as long as it does not know is its last.
				s.produce("in", 0, numbers(100, 110)...)
				s.produce("in", 1, numbers(200, 210)...)
				s.drained("in")
				s.pass(time.Second)
				zombie := first.total()
				b.end()
				had := s.committed("in")
				close(gate)
				joins.Remove()
				s.share(map[*running]int{a: 2})
				s.produce("in", 0, "2")
				s.produce("in", 1, "3")
				s.drained("in")
				s.until("the new ones have run", func() bool { return first.of("2") == 1 && first.of("3") == 1 })
				if got := first.total() - zombie; got != 2 {
					s.Errorf("%d records ran after it was back, of 2 new ones: %v", got, first.order[zombie:])
				}
				for p, o := range s.committed("in") {
					if o != had[p]+1 {
						s.Errorf("partition %d is at %d, want %d", p, o, had[p]+1)
					}
				}
				s.falls()
				if n := a.metric("killick_rebalances_total", "kind=lost"); n != 1 {
					s.Errorf("%v losses are counted", n)
				}
				a.end()
			}, embedded.Topic("in", 2))
		})
	}
}

// Workers that die in the middle of their first join, while the group waits for another, are members all the
// same, and are given partitions, or take part in who is asked for what. It is over when their sessions end.
func TestDeathInTheFirstJoin(t *testing.T) {
	tell(t, func(s *story) {
		const partitions = 8
		var c tally
		top := func() *killick.Topology { return counting(&c, spout.Kafka("in"), nil) }
		a := s.start(top(), func(c *worker.Config) { c.ClientID = "a" })
		s.share(map[*running]int{a: partitions})
		id := s.memberOf("a")
		gate := make(chan struct{})
		joins := s.b.Hold(kmsg.JoinGroup, gate, func(r kmsg.Request) bool { return r.(*kmsg.JoinGroupRequest).MemberID == id })
		cables := make([]cable, 3)
		var dead []*running
		for i := range cables {
			dead = append(dead, s.start(top(), cables[i].over(s)))
		}
		if _, err := s.b.Cluster().WaitGroupInfo(s.ctx(), "g", func(g *kfake.GroupInfo) bool { return len(g.Members) == 4 }); err != nil {
			s.Fatal(err)
		}
		for i := range cables {
			cables[i].cut()
		}
		close(gate)
		joins.Remove()
		s.until("partitions are asked for", func() bool { return len(s.logs.lines("the partition is released")) > 0 })
		begin := time.Now()
		s.share(map[*running]int{a: partitions})
		if d := time.Since(begin); d > 15*time.Second {
			s.Errorf("the dead workers' partitions were away for %v; the session is 10 s", d)
		}
		for p := range int32(partitions) {
			s.produce("in", p, fmt.Sprint(p))
		}
		s.drained("in")
		for _, r := range dead {
			r.stop()
			if err := r.wait(); err != nil && !errors.Is(err, worker.ErrDrain) {
				s.Errorf("a dead one ended with: %v", err)
			}
		}
		a.end()
		c.once(s, numbers(0, partitions)...)
	}, embedded.Topic("in", 8))
}
