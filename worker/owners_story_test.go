package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// full reports whether the long form of a test is wanted.
func full() bool { return os.Getenv("KILLICK_FULL") != "" }

// seed returns the seed of a random story: KILLICK_SEED, or one of its own. It is logged.
func seed(t *testing.T) *rand.Rand {
	n := uint64(time.Now().UnixNano()) // inside a bubble: always the same
	if v := os.Getenv("KILLICK_SEED"); v != "" {
		var err error
		if n, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatalf("KILLICK_SEED=%q: want a number", v)
		}
	}
	t.Logf("KILLICK_SEED=%d", n)
	return rand.New(rand.NewPCG(n, 0))
}

// TestOnlyOwnersCommit: members join, leave and freeze past their session, while commits are held up
// at random so that they cross joins and syncs. No commit that the broker takes names a partition
// outside its sender's assignment of that generation, and positions fall only where an answer was
// lost, and rise again. KILLICK_FULL=1 makes it 200 rounds.
// FC-16: twmb/franz-go #187 and #1200, confluentinc/confluent-kafka-go #767.
func TestOnlyOwnersCommit(t *testing.T) {
	rounds := 10
	if full() {
		rounds = 200
	}
	const partitions, slots = 8, 4
	random := seed(t)
	tell(t, func(s *story) {
		var c tally
		top := func() *killick.Topology {
			top := killick.New("t")
			top.Spout("in", spout.Kafka("in")).Pending(50, 1<<20)
			top.Bolt("work", bolt.Async(16, func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
				c.add(string(in.Bytes()))
				o, _ := in.Origin()
				select {
				case <-time.After(time.Duration(o.Offset*37%400) * time.Millisecond):
				case <-ctx.Done():
				}
				return ctx.Err()
			})).Shuffle("in")
			return top
		}
		var running [slots]*running
		name := func(i int) string { return fmt.Sprintf("w%d", i) }
		start := func(i int) {
			running[i] = s.start(top(), func(c *worker.Config) { c.ClientID = name(i) })
		}
		member := func(i int) (id string) { // of its newest assignment
			for _, a := range s.b.Assignments() {
				if a.ClientID == running[i].clientID(name(i)) {
					id = a.Member
				}
			}
			return id
		}
		start(0)
		stop, fed := make(chan struct{}), make(chan int)
		go func() {
			n := 0
			defer func() { fed <- n }()
			for {
				for p := range int32(partitions) {
					if err := s.b.Produce(context.Background(), &kgo.Record{Topic: "in", Partition: p, Value: fmt.Append(nil, n)}); err != nil {
						s.Error(err)
						return
					}
					n++
				}
				select {
				case <-stop:
					return
				case <-time.After(250 * time.Millisecond):
				}
			}
		}()
		var froze, joined, left int
		for range rounds {
			gate := make(chan struct{})
			held := s.b.Hold(kmsg.OffsetCommit, gate)
			time.AfterFunc(time.Duration(random.IntN(3000))*time.Millisecond, func() { close(gate); held.Remove() })
			switch i := random.IntN(slots); {
			case running[i] == nil:
				start(i)
				joined++
			case random.IntN(2) == 0 && i > 0:
				running[i].stop()
				r := running[i]
				s.until("it has ended", func() bool {
					select {
					case <-r.done:
						return true
					default:
						return false
					}
				})
				running[i] = nil
				left++
			default: // its heartbeats and commits do not come through, for longer than its session
				id := member(i)
				thaw := make(chan struct{})
				f := s.b.Hold(kmsg.Heartbeat, thaw, func(r kmsg.Request) bool { return r.(*kmsg.HeartbeatRequest).MemberID == id })
				g := s.b.Hold(kmsg.OffsetCommit, thaw, func(r kmsg.Request) bool { return r.(*kmsg.OffsetCommitRequest).MemberID == id })
				s.pass(time.Duration(8+random.IntN(8)) * time.Second)
				close(thaw)
				f.Remove()
				g.Remove()
				froze++
			}
			s.pass(time.Duration(random.IntN(3000)) * time.Millisecond)
			<-gate
		}
		close(stop)
		n := <-fed
		s.drained("in")
		for _, r := range running {
			if r != nil {
				r.end()
			}
		}
		for i := range n {
			if c.of(fmt.Sprint(i)) == 0 {
				s.Fatalf("record %d was lost", i)
			}
		}
		s.falls()
		s.Logf("%d joined, %d left, %d froze; %d executions of %d records, %d assignments, %d commits", joined, left, froze, c.total(), n,
			len(s.b.Assignments()), len(s.b.Commits()))
		if joined < rounds/10 || froze < rounds/10 {
			s.Errorf("nothing was tried: %d joined, %d froze", joined, froze)
		}
	}, embedded.Topic("in", partitions)) // non-owners' commits are looked for in newStory
}

// clientID is what the broker sees of a worker's consumer.
func (r *running) clientID(configured string) string { return configured + ".t.consumer" }

// falls checks that a committed position falls only below one whose answer its sender never got, within
// the generation, and that it has risen again in the end.
func (s *story) falls() {
	s.Helper()
	type key struct {
		topic     string
		partition int32
	}
	high, now := map[key]int64{}, map[key]int64{}
	lost := map[key]bool{}
	for _, c := range s.b.Commits() {
		k := key{c.Topic, c.Partition}
		if c.Outcome == embedded.AnswerLost || c.Outcome == embedded.Unanswered {
			lost[k] = true
		}
		if !c.Accepted() {
			continue
		}
		if c.Offset < high[k] && !lost[k] {
			s.Errorf("the position of %v fell from %d to %d, and no answer was lost", k, high[k], c.Offset)
		}
		high[k], now[k] = max(high[k], c.Offset), c.Offset
	}
	for k, h := range high {
		if now[k] < h {
			s.Errorf("the position of %v fell from %d to %d for good", k, h, now[k])
		}
	}
}
