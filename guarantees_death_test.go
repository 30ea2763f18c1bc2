package killick_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/offsets"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
)

// G4: a record that kills the process is found and set aside after few deaths, wherever it lies, and
// no other is: not those that ran beside it, and not those of partitions that have seen more deaths.
func TestG4RecordThatKills(t *testing.T) {
	const partitions, each = 3, 100
	for name, tt := range map[string]struct {
		killer killick.Origin
		most   int // deaths
		before func(p int32) offsets.State
	}{
		// A life's first commit is slow: it would have run long before.
		"the first record": {killick.Origin{Topic: "in", Partition: 1, Offset: 0}, 5, nil},
		"amid others":      {killick.Origin{Topic: "in", Partition: 1, Offset: 62}, 6, nil},
		// Two deaths are known of the other partitions, and none of its own: all take turns.
		"no death of its own": {killick.Origin{Topic: "in", Partition: 1, Offset: 62}, 2, func(p int32) offsets.State {
			if p == 1 {
				return offsets.State{Suspect: offsets.None}
			}
			return offsets.State{TakenOver: true, Deaths: 2, Suspect: offsets.None, Until: each}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.cfg.CommitInterval = time.Second
				for p := range int32(partitions) {
					w.produce("in", p, each)
					if tt.before != nil {
						w.commit("in", p, 0, offsets.Encode(offsets.Map{Held: tt.before(p)}))
					}
				}
				var c, ends tally
				deaths := 0
				for {
					dies := make(chan struct{}, 1)
					top := killick.New("t")
					top.Spout("in", spout.Kafka("in")).OnEnd(func(o killick.Origin, err error) {
						if err != nil {
							ends.add(fmt.Sprint(o))
						}
					})
					top.Bolt("b", bolt.Func(func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
						o, _ := in.Origin()
						if o == tt.killer {
							select {
							case dies <- struct{}{}:
							default:
							}
							<-ctx.Done()
							return ctx.Err()
						}
						c.add(fmt.Sprint(o))
						<-time.After(time.Millisecond)
						return nil
					})).ByPartition("in").Tasks(partitions)
					gate := make(chan struct{})
					slow := w.b.Hold(kmsg.OffsetCommit, gate)
					time.AfterFunc(50*time.Millisecond, func() { close(gate) })
					r := w.start(top)
					if w.diesOr(dies, func() bool { return w.allCommitted("in", partitions, each) }) {
						deaths++
						r.kill()
						slow.Remove()
						if deaths > tt.most {
							w.Fatalf("%d deaths", deaths)
						}
						continue
					}
					slow.Remove()
					r.end()
					break
				}
				letters, err := w.b.ReadAll(w.ctx(), "in.t.dlq")
				if err != nil {
					w.Fatal(err)
				}
				if len(letters) != 1 || letters[0].Partition != tt.killer.Partition || reasonOf(letters[0]) != "worker-death" {
					w.Errorf("dead letters: %v", letters)
				}
				if n := ends.of(fmt.Sprint(tt.killer)); n != 1 || ends.total() != 1 {
					w.Errorf("the spout was told %d times that the record has been given up, and %d times of all", n, ends.total())
				}
				for p := range int32(partitions) {
					for o := range int64(each) {
						if at := (killick.Origin{Topic: "in", Partition: p, Offset: o}); c.of(fmt.Sprint(at)) == 0 && at != tt.killer {
							w.Errorf("%v has not run", at)
						}
					}
				}
			}, embedded.Topic("in", partitions))
		})
	}
}

// diesOr waits for one or the other.
func (w *world) diesOr(dies <-chan struct{}, ok func() bool) (died bool) {
	w.Helper()
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	end := time.After(patience)
	for {
		select {
		case <-dies:
			return true
		case <-t.C:
			if ok() {
				return false
			}
		case <-end:
			w.Fatalf("neither dead nor done within %v", patience)
		}
	}
}

func (w *world) allCommitted(topic string, partitions int32, end int64) bool {
	w.Helper()
	for p := range partitions {
		if w.committed(topic, p) != end {
			return false
		}
	}
	return true
}

// commit commits as a tool would.
func (w *world) commit(topic string, p int32, offset int64, metadata string) {
	w.Helper()
	cl, err := kgo.NewClient(w.b.ClientOpts()...)
	if err != nil {
		w.Fatal(err)
	}
	defer cl.Close()
	var os kadm.Offsets
	os.Add(kadm.Offset{Topic: topic, Partition: p, At: offset, LeaderEpoch: -1, Metadata: metadata})
	if err := kadm.NewClient(cl).CommitAllOffsets(w.ctx(), "g", os); err != nil {
		w.Fatal(err)
	}
}

// reasonOf is the reason of a dead letter.
func reasonOf(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == "killick-dlq-reason" {
			return string(h.Value)
		}
	}
	return ""
}
