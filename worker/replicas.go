package worker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/rules"
)

// trees lets the reader end the trees of partitions that are given away. The engine is made after
// the reader, and before the reader starts.
type trees struct{ w *Worker }

func (t trees) Release(e *ack.Epoch)  { t.w.engine.Release(e) }
func (t trees) Flush()                { t.w.engine.Flush() }
func (t trees) Busy() bool            { return t.w.engine.Busy() }
func (t trees) Left(e *ack.Epoch) int { return t.w.engine.Left(e) }

// single reports whether only one replica at a time may work on the topology: its tuples are spread
// over tasks by key, or all go to one, and each replica has those tasks of its own; or a spout of its
// own would emit the same in each of them.
func single(s *killick.Spec) bool {
	if !rules.OneWhereTasksAreShared {
		return false
	}
	for i := range s.Spouts {
		if !s.Spouts[i].Kafka() {
			return true
		}
	}
	for i := range s.Bolts {
		if s.Bolts[i].Placed {
			return true
		}
	}
	return false
}

// shape is the hash of what replicas must have in common to work at the same time: the components
// whose tasks are shared by all of them. Replicas that share no task may differ.
func shape(s *killick.Spec) string {
	type placed struct {
		Name   string
		Tasks  int
		Inputs []string
	}
	var parts []placed
	for i := range s.Bolts {
		if b := &s.Bolts[i]; b.Placed {
			p := placed{Name: b.Name, Tasks: b.Tasks}
			for _, in := range b.Inputs {
				p.Inputs = append(p.Inputs, in.From+"/"+in.Stream+" "+in.Grouping.String())
			}
			parts = append(parts, p)
		}
	}
	text, err := json.Marshal(struct {
		Topology string
		Placed   []placed
	}{s.Name, parts})
	if err != nil {
		panic(err) // strings and numbers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
