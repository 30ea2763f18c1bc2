package check

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	"github.com/killick-io/killick/examples/orders/data"
)

// scale is a run of the story over a part of the real input, as a worker without faults but one kill would leave it: the
// first process runs the records before kill, but commits only those before committed; the second runs what the
// commits do not name.
type scale struct{ from, to, every, committed, kill int }

var (
	full  = scale{from: 0, to: 6000, every: 250, committed: 2900, kill: 3000}
	short = scale{from: 1350, to: 2300, every: 50, committed: 670, kill: 720} // with order 104242 and the poison
)

const (
	partitions = 4
	pid1, pid2 = 4711, 4712
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// sim plays the worker, the broker and the observer.
type sim struct {
	h    History
	now  time.Time
	pid  int
	ends map[string][]int64 // topic -> partition -> end

	done      map[position]bool // finished, known to the worker only
	committed [partitions]Sample
}

// clean is the history of the story.
func clean(t *testing.T, sc scale) *History {
	t.Helper()
	rs, err := data.Records()
	if err != nil {
		t.Fatal(err)
	}
	s := &sim{
		h:    History{InputTopic: "orders", OutputTopic: "notifications", DeadLetterTopic: "orders.orders.dlq", MaxDuplicates: sc.kill - sc.committed},
		now:  start,
		pid:  pid1,
		ends: map[string][]int64{"orders": make([]int64, partitions), "notifications": make([]int64, partitions), "orders.orders.dlq": make([]int64, partitions)},
		done: map[position]bool{},
	}
	for p := range s.committed {
		s.committed[p] = Sample{Partition: int32(p), Offset: -1}
	}
	for _, r := range rs[sc.from:sc.to] {
		h := fnv.New32a()
		h.Write(r.Key)
		p := int32(h.Sum32() % partitions)
		s.h.Inputs = append(s.h.Inputs, s.append("orders", p, Record{Key: r.Key, Value: r.Value, Time: s.tick(),
			Headers: []Header{{"source", []byte("web")}, {"empty", []byte{}}, {"none", nil}}}))
	}
	for p, end := range s.ends["orders"] {
		s.h.LogEnds = append(s.h.LogEnds, End{"orders", int32(p), end})
	}
	s.h.Samples = append(s.h.Samples, s.observe()...)

	for i := range s.h.Inputs[:sc.kill] {
		if i == sc.committed {
			s.commit()
		}
		if i%sc.every == 0 && i < sc.committed {
			s.commit()
			s.h.Samples = append(s.h.Samples, s.observe()...)
		}
		s.run(i, 3)
	}
	kill := s.observe()
	s.h.Kills = []Kill{{At: s.tick(), Samples: kill}}

	s.pid = pid2
	s.done = map[position]bool{}
	for i, in := range s.h.Inputs {
		if covers(&kill[in.Partition], in.Offset) {
			s.done[position{in.Partition, in.Offset}] = true
			continue
		}
		s.run(i, 99)
		if i%sc.every == 0 {
			s.commit()
			s.h.Samples = append(s.h.Samples, s.observe()...)
		}
	}
	s.commit()
	s.h.Samples = append(s.h.Samples, s.observe()...)
	return &s.h
}

func (s *sim) tick() time.Time {
	s.now = s.now.Add(time.Millisecond)
	return s.now
}

func (s *sim) append(topic string, p int32, r Record) Record {
	r.Topic, r.Partition, r.Offset = topic, p, s.ends[topic][p]
	s.ends[topic][p]++
	return r
}

// run works on one record; a payment that needs more than patience calls is still under way when the process dies.
func (s *sim) run(i, patience int) {
	in := s.h.Inputs[i]
	var o struct {
		ID, Cents      int64
		Customer, Item string
	}
	status := ""
	if json.Unmarshal(in.Value, &o) == nil {
		var calls []string
		status, calls = story(o.ID, o.Cents)
		for k, outcome := range calls {
			if k == patience {
				return
			}
			s.h.Payments = append(s.h.Payments, Payment{o.ID, k + 1, outcome, s.tick().UnixNano(), s.pid})
		}
	}
	if status == "" {
		s.h.DeadLetters = append(s.h.DeadLetters, s.append("orders.orders.dlq", in.Partition, Record{Key: in.Key, Value: in.Value, Time: in.Time,
			Headers: append(slices.Clone(in.Headers),
				Header{"killick-dlq-topic", []byte("orders")},
				Header{"killick-dlq-partition", fmt.Append(nil, in.Partition)},
				Header{"killick-dlq-offset", fmt.Append(nil, in.Offset)},
				Header{"killick-dlq-error", []byte("no")})}))
	} else {
		s.h.Outputs = append(s.h.Outputs, s.append("notifications", in.Partition, Record{Key: in.Key, Time: in.Time,
			Value:   fmt.Appendf(nil, `{"order":%d,"customer":%q,"item":%q,"cents":%d,"status":%q}`, o.ID, o.Customer, o.Item, o.Cents, status),
			Headers: []Header{{"order-origin", fmt.Appendf(nil, "orders/%d/%d", in.Partition, in.Offset)}}}))
	}
	s.done[position{in.Partition, in.Offset}] = true
}

// story is the table of the example's README.md once more, in the shortest words.
func story(id, cents int64) (status string, calls []string) {
	switch {
	case cents > 25000:
		return "rejected", nil
	case id == 104242:
		return "", []string{"error", "error", "error", "error", "error"}
	case id == 100798: // the one order that fails twice and is then declined
		return "payment failed", []string{"error", "error", "declined"}
	case id%499 == 0:
		return "payment failed", []string{"declined"}
	case id%101 == 0:
		return "paid", []string{"error", "error", "paid"}
	case id%37 == 0:
		return "paid", []string{"error", "paid"}
	}
	return "paid", []string{"paid"}
}

func (s *sim) commit() {
	for p := range s.committed {
		c := Sample{Partition: int32(p)}
		for s.done[position{c.Partition, c.Offset}] {
			c.Offset++
		}
		for o := c.Offset; o < s.ends["orders"][p]; o++ {
			if s.done[position{c.Partition, o}] {
				c.Done = append(c.Done, o)
			}
		}
		c.Metadata = fmt.Sprint(c.Done)
		s.committed[p] = c
	}
}

func (s *sim) observe() []Sample {
	out := slices.Clone(s.committed[:])
	at := s.tick()
	var ends []End
	for _, topic := range []string{"notifications", "orders.orders.dlq"} {
		for p, end := range s.ends[topic] {
			ends = append(ends, End{topic, int32(p), end})
		}
	}
	for i := range out {
		out[i].At, out[i].Ends = at, ends
		if len(out[i].Metadata) > 1000 {
			out[i].Metadata = out[i].Metadata[:1000]
		}
	}
	return out
}

func covers(s *Sample, offset int64) bool {
	return offset < s.Offset || slices.Contains(s.Done, offset)
}

// clone is a copy that can be spoilt: all that the tests write to is copied.
func clone(h *History) *History {
	c := *h
	c.Inputs, c.Outputs, c.DeadLetters = slices.Clone(h.Inputs), slices.Clone(h.Outputs), slices.Clone(h.DeadLetters)
	for i := range c.DeadLetters {
		c.DeadLetters[i].Headers = slices.Clone(c.DeadLetters[i].Headers)
	}
	c.Payments, c.Samples, c.LogEnds, c.Kills = slices.Clone(h.Payments), slices.Clone(h.Samples), slices.Clone(h.LogEnds), slices.Clone(h.Kills)
	for i := range c.Kills {
		c.Kills[i].Samples = slices.Clone(c.Kills[i].Samples)
		for j := range c.Kills[i].Samples {
			c.Kills[i].Samples[j].Done = slices.Clone(c.Kills[i].Samples[j].Done)
		}
	}
	return &c
}
