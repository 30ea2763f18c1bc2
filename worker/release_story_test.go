package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
)

// hands is a bolt whose tuples end by hand.
type hands struct {
	mu   sync.Mutex
	held map[string]*killick.Held
	c    tally
}

func (h *hands) topology(timeout time.Duration) *killick.Topology {
	top := killick.New("t")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("hold", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.held == nil {
			h.held = map[string]*killick.Held{}
		}
		v := string(in.Bytes())
		h.c.add(v)
		if strings.HasPrefix(v, "hold") {
			h.held[v] = out.Hold()
		}
		return nil
	})).Shuffle("in").Timeout(timeout)
	return top
}

func (h *hands) of(v string) *killick.Held {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held[v]
}

// A partition that was asked for, and whose taker is gone before it is free, comes back to the same
// worker and is read on there.
func TestReleasedPartitionComesBack(t *testing.T) {
	tell(t, func(s *story) {
		var h hands
		a := s.start(h.topology(time.Hour))
		s.share(map[*running]int{a: 2})
		s.produce("in", 0, "hold 0", "a")
		s.produce("in", 1, "hold 1", "b")
		s.until("all are executed", func() bool { return h.c.total() == 4 })
		var other hands
		b := s.start(other.topology(time.Hour))
		s.until("a partition is asked for", func() bool { return len(s.logs.lines("releasing the partition")) > 0 })
		s.pass(2 * time.Second)
		if got := a.parts("in"); len(got) != 2 {
			s.Errorf("while a tuple is open the partitions here are %v", got)
		}
		b.end()
		s.pass(time.Second)
		h.of("hold 0").Ack()
		h.of("hold 1").Ack()
		s.until("it is released", func() bool { return len(s.logs.lines("the partition is released")) > 0 })
		s.produce("in", 0, "c")
		s.produce("in", 1, "d")
		s.drained("in")
		a.end()
		h.c.once(s, "hold 0", "hold 1", "a", "b", "c", "d")
		if other.c.total() > 0 {
			s.Errorf("%d executions at the other worker", other.c.total())
		}
	}, embedded.Topic("in", 2))
}

// The limit of a release: the partition goes with its open record, which is named and counted and
// runs again at the next owner; the verdict that comes later changes nothing.
// FC-16: twmb/franz-go #187 and #1200.
func TestReleaseLimit(t *testing.T) {
	tell(t, func(s *story) {
		var h hands
		s.cfg.Drain = 5 * time.Second
		a := s.start(h.topology(time.Hour))
		s.share(map[*running]int{a: 2})
		for p := range int32(2) {
			s.produce("in", p, fmt.Sprintf("hold %d", p), fmt.Sprintf("after %d", p))
		}
		s.until("all are executed", func() bool { return h.c.total() == 4 })
		begin := time.Now()
		var again hands
		b := s.start(again.topology(time.Hour))
		s.share(map[*running]int{a: 1, b: 1})
		if took := time.Since(begin); took < s.cfg.Drain || took > s.cfg.Drain+5*time.Second {
			s.Errorf("it moved after %v, with a limit of %v", took, s.cfg.Drain)
		}
		lines := s.logs.lines("released with open records")
		if len(lines) != 1 || lines[0]["open"] != 1.0 || lines[0]["why"] != "the drain limit passed" {
			s.Fatalf("what is said: %v", lines)
		}
		p := int(lines[0]["partition"].(float64))
		moved := fmt.Sprintf("hold %d", p)
		s.until("it runs at the next owner", func() bool { return again.c.of(moved) == 1 })
		if h.of(moved).Ack() {
			s.Error("a verdict for a partition that has moved was taken")
		}
		if got := a.metric("killick_ignored_acks_total", "reason=lost_partition"); got != 1 {
			s.Errorf("%v verdicts were ignored, want 1", got)
		}
		s.pass(5 * time.Second)
		if got := s.committed("in")[int32(p)]; got != 0 {
			s.Errorf("partition %d is committed up to %d, its first record is open", p, got)
		}
		again.of(moved).Ack()
		h.of(fmt.Sprintf("hold %d", 1-p)).Ack()
		s.drained("in")
		if again.c.of(fmt.Sprintf("after %d", p)) != 0 {
			s.Error("what had ended above the committed offset ran again")
		}
		a.end()
		b.end()
	}, embedded.Topic("in", 2))
}

// A partition whose record waits for a retry is not waited for: the retry runs at once. If it fails
// again the record stays open for the next owner, whose tries begin anew.
func TestReleaseDuringBackoff(t *testing.T) {
	for _, second := range []string{"succeeds", "fails"} {
		t.Run("the retry "+second, func(t *testing.T) {
			tell(t, func(s *story) {
				var c tally
				var mu sync.Mutex
				attempts := map[string][]int{}
				moved := false
				top := func(who string) *killick.Topology {
					top := killick.New("t")
					top.Retry(killick.Retry{Attempts: 5})
					top.Spout("in", spout.Kafka("in"))
					top.Bolt("b", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
						mu.Lock()
						defer mu.Unlock()
						v := string(in.Bytes())
						c.add(v)
						attempts[v+" "+who] = append(attempts[v+" "+who], in.Attempt())
						if strings.HasPrefix(v, "bad") && who == "a" && (!moved || second == "fails") {
							return killick.RetryAfter(time.Hour, errors.New("not yet"))
						}
						return nil
					})).Shuffle("in")
					return top
				}
				a := s.start(top("a"))
				s.share(map[*running]int{a: 2})
				for p := range int32(2) {
					s.produce("in", p, fmt.Sprintf("bad %d", p), fmt.Sprintf("good %d", p))
				}
				s.until("all have been tried", func() bool { return c.total() == 4 })
				mu.Lock()
				moved = true
				mu.Unlock()
				begin := time.Now()
				b := s.start(top("b"))
				s.share(map[*running]int{a: 1, b: 1})
				if took := time.Since(begin); took > 10*time.Second {
					s.Errorf("it moved after %v: it waited for the retry", took)
				}
				p := b.parts("in")[0]
				bad, good := fmt.Sprintf("bad %d", p), fmt.Sprintf("good %d", p)
				s.until("the moved partition is drained", func() bool { return s.committed("in")[int32(p)] == 2 })
				mu.Lock()
				got := fmt.Sprint(attempts[bad+" a"], attempts[bad+" b"])
				mu.Unlock()
				if want := map[string]string{"succeeds": "[1 2] []", "fails": "[1 2] [1]"}[second]; got != want {
					s.Errorf("tries at the old and the new owner: %s, want %s", got, want)
				}
				if c.of(good) != 1 {
					s.Errorf("a record that had ended ran %d times", c.of(good))
				}
				if lines := s.logs.lines("released with open records"); (len(lines) > 0) != (second == "fails") {
					s.Errorf("said: %v", lines)
				}
				b.end()
				// The other bad record waits still: the stop tries it once, too, and says so.
				a.stop()
				if err := a.wait(); (err != nil) != (second == "fails") {
					s.Errorf("the first worker ended with: %v", err)
				}
			}, embedded.Topic("in", 2))
		})
	}
}

// What a batch has collected of a partition that is released is flushed, however much is missing to a
// full one, and although other partitions go on filling it.
// FC-03: redpanda-data/connect #4010, PR #4009.
func TestReleaseFlushesBatches(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		var mu sync.Mutex
		var sizes []int
		top := func() *killick.Topology {
			top := killick.New("t")
			top.Spout("in", spout.Kafka("in"))
			top.Bolt("batch", bolt.Batch(1000, 20*time.Minute, func(_ context.Context, ins []*killick.Held) error {
				mu.Lock()
				defer mu.Unlock()
				sizes = append(sizes, len(ins))
				for _, in := range ins {
					c.add(string(in.Tuple().Bytes()))
				}
				return nil
			})).Shuffle("in").Timeout(time.Hour)
			return top
		}
		a := s.start(top())
		s.share(map[*running]int{a: 2})
		s.produce("in", 0, numbers(0, 20)...)
		s.produce("in", 1, numbers(20, 40)...)
		s.pass(time.Second)
		if n := c.total(); n > 0 {
			s.Fatalf("%d records were written before the batch was full", n)
		}
		begin := time.Now()
		b := s.start(top())
		s.share(map[*running]int{a: 1, b: 1})
		if took := time.Since(begin); took > 5*time.Second {
			s.Errorf("the move took %v", took)
		}
		if lines := s.logs.lines("released with open records"); len(lines) > 0 {
			s.Errorf("left open: %v", lines)
		}
		b.end()
		a.end()
		c.once(s, numbers(0, 40)...)
		mu.Lock()
		defer mu.Unlock()
		if len(sizes) > 4 {
			s.Errorf("batches of %v", sizes)
		}
	}, embedded.Topic("in", 2))
}

// The last commit of a release that is refused: what can never be stored is asked once or twice, and the
// partition goes without; what may pass is tried again, less and less often, up to the drain limit.
func TestReleaseWithoutItsCommit(t *testing.T) {
	for _, tt := range []struct {
		code     *kerr.Error
		n        int // commits that are refused; -1: all
		requests int // at most, those of assignments included
		why      string
	}{
		{kerr.TopicAuthorizationFailed, -1, 6, "TOPIC_AUTHORIZATION_FAILED"},
		{kerr.GroupAuthorizationFailed, -1, 6, "GROUP_AUTHORIZATION_FAILED"},
		{kerr.OffsetMetadataTooLarge, -1, 6, "OFFSET_METADATA_TOO_LARGE"},
		{kerr.InvalidCommitOffsetSize, -1, 6, "INVALID_COMMIT_OFFSET_SIZE"},
		{kerr.UnknownMemberID, -1, 6, "UNKNOWN_MEMBER_ID"},
		{kerr.FencedInstanceID, -1, 6, "FENCED_INSTANCE_ID"},
		{kerr.UnknownServerError, -1, 25, "its last position could not be committed within the drain limit"},
		{kerr.RebalanceInProgress, -1, 25, "its last position could not be committed within the drain limit"},
		{kerr.IllegalGeneration, 1, 1, ""},
		{kerr.RebalanceInProgress, 5, 5, ""},
		{kerr.UnknownServerError, 5, 5, ""},
	} {
		t.Run(fmt.Sprint(tt.code.Message, " ", tt.n), func(t *testing.T) {
			tell(t, func(s *story) {
				s.cfg.Drain, s.cfg.CommitInterval = 8*time.Second, time.Hour
				var first, second tally
				a := s.start(counting(&first, spout.Kafka("in"), nil))
				s.share(map[*running]int{a: 2})
				s.until("the first positions are committed", func() bool { return len(s.committed("in")) == 2 })
				s.pass(time.Second)
				member := s.logs.lines("assigned")[0]["member"]
				fault := s.b.Fail(kmsg.OffsetCommit, tt.code, tt.n, func(req kmsg.Request) bool { return req.(*kmsg.OffsetCommitRequest).MemberID == member })
				s.produce("in", 0, "x0")
				s.produce("in", 1, "x1")
				s.until("both are executed", func() bool { return first.total() == 2 })
				begin := time.Now()
				b := s.start(counting(&second, spout.Kafka("in"), nil))
				s.until("it is released", func() bool { return len(s.logs.lines("the partition is released")) > 0 })
				took := time.Since(begin)
				if n := fault.Hits(); n > tt.requests {
					s.Errorf("%d commits were asked for, want at most %d", n, tt.requests)
				}
				fault.Remove()
				line := s.logs.lines("the partition is released")[0]
				said, _ := line["why"].(string)
				clean := line["message"] == "the partition is released"
				if clean != (tt.why == "") || !strings.Contains(said, tt.why) || !clean && line["open"] != 0.0 {
					s.Errorf("said: %v", line)
				}
				if most := s.cfg.Drain + 3*time.Second; took > most || tt.requests <= 6 && took > 6*time.Second {
					s.Errorf("it moved after %v", took)
				}
				s.share(map[*running]int{a: 1, b: 1})
				moved := fmt.Sprint("x", line["partition"])
				if !clean {
					s.until("it runs again at its next owner", func() bool { return second.of(moved) == 1 })
				}
				a.end()
				b.end()
				s.drained("in")
				if clean && second.total() > 0 {
					s.Errorf("%d executions at the next owner, of a release that was clean", second.total())
				}
			}, embedded.Topic("in", 2))
		})
	}
}
