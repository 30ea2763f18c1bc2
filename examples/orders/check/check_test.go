package check

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCleanHistoryPasses(t *testing.T) {
	h := clean(t, full)
	r, err := Check(*h)
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK || len(r.Violations) != 0 {
		t.Fatalf("violations in a clean history: %v", r.Violations)
	}
	// Counted from orders.tsv by other means (jq), not by this package.
	if want := (Ways{Paid: 5676, Rejected: 310, PaymentFailed: 12, Poison: 1, GatewayDown: 1}); r.Ways != want {
		t.Errorf("ways %+v, want %+v", r.Ways, want)
	}
	again := full.kill - full.committed // finished after the last commit
	if r.Records != 6000 || r.Trees != 6000+again+1 || r.Reruns != again+1 {
		t.Errorf("records, trees, reruns: %d, %d, %d; want 6000 and %d more trees, order %d's among them",
			r.Records, r.Trees, r.Reruns, again+1, brokenOrder)
	}
	if r.Notifications != 5998+again || r.DeadLetters != 2 {
		t.Errorf("%d notifications, %d dead letters", r.Notifications, r.DeadLetters)
	}
	rejected := 0
	for _, in := range h.Inputs[full.committed:full.kill] {
		if expect(in.Value).status == statusRejected {
			rejected++
		}
	}
	if want := (Duplicates{Notifications: again, Payments: again - rejected, Roots: again, Bound: again}); r.Duplicates != want || rejected == 0 {
		t.Errorf("duplicates %+v, want %+v", r.Duplicates, want)
	}
	// 5,960 calls and 267 + 4 retries in a run without a kill (jq again); the rest is what the kill made run twice.
	calls, retries := 0, 0
	for _, p := range h.Payments {
		if p.Process == pid1 && !covers(h.Kills[0].sample(partitionOf(h, p.Order)), offsetOf(h, p.Order)) {
			calls++
			if p.Attempt > 1 {
				retries++
			}
		}
	}
	if r.Tries != 5960+calls || r.Retries != 271+retries || calls < 90 {
		t.Errorf("%d calls, %d retries; want 5960 and 271, and %d and %d more", r.Tries, r.Retries, calls, retries)
	}
	k := r.Kills[0]
	before := 0
	for _, p := range k.Partitions {
		before += int(p.Committed)
	}
	if before+k.Saved != full.committed-1 || k.Saved == 0 || k.Open != 6000-full.committed+1 {
		t.Errorf("at the kill %d committed, %d saved, %d open; want all but one of %d, and some saved", before, k.Saved, k.Open, full.committed)
	}
	for _, p := range r.Partitions {
		if p.Committed != p.LogEnd || p.Records == 0 {
			t.Errorf("%+v did not end", p)
		}
	}
}

func partitionOf(h *History, id int64) int32 { return h.Inputs[input(h, id)].Partition }
func offsetOf(h *History, id int64) int64    { return h.Inputs[input(h, id)].Offset }

// input is the place in Inputs of an order; ids rise by 3.
func input(h *History, id int64) int { return int(id-expect(h.Inputs[0].Value).order.ID) / 3 }

// output is the place in Outputs of the nth notification of an order.
func output(h *History, id int64, nth int) int {
	want := "orders/" + itoa(int64(partitionOf(h, id))) + "/" + itoa(offsetOf(h, id))
	for k, o := range h.Outputs {
		if v, _ := header(o.Headers, originHeader); v == want {
			if nth == 0 {
				return k
			}
			nth--
		}
	}
	panic("no such output")
}

// deadLetter is the place in DeadLetters of an order that stands there once.
func deadLetter(h *History, id int64) int {
	return slices.IndexFunc(h.DeadLetters, func(d Record) bool { return string(d.Value) == string(h.Inputs[input(h, id)].Value) })
}

// Orders with a known fate in the short scale. early* ran before the kill and were committed or named then, late* ran
// after it.
const (
	poison = 106_000
	broken = brokenOrder

	early, early2, earlyRejected = 104_050, 104_053, 104_065
	late, late2, lateRejected    = 106_402, 106_405, 106_615
	lateOnce                     = 106_486 // fails once
	lateDeclined                 = 106_786
	twice                        = 106_081 // finished before the kill, after the last commit
)

func TestChosenOrdersHaveTheirFate(t *testing.T) {
	h := clean(t, short)
	for id, status := range map[int64]string{early: statusPaid, early2: statusPaid, earlyRejected: statusRejected, lateRejected: statusRejected,
		late: statusPaid, late2: statusPaid, lateOnce: statusPaid, lateDeclined: statusFailed, twice: statusPaid} {
		i := input(h, id)
		w := expect(h.Inputs[i].Value)
		if w.order.ID != id || w.status != status {
			t.Errorf("order %d is %+v, want status %q", id, w, status)
		}
		saved := covers(h.Kills[0].sample(h.Inputs[i].Partition), h.Inputs[i].Offset)
		if want := id < twice; saved != want {
			t.Errorf("order %d saved at the kill: %t, want %t", id, saved, want)
		}
	}
	if w := expect(h.Inputs[input(h, lateOnce)].Value); len(w.calls) != 2 {
		t.Errorf("order %d has calls %q", lateOnce, w.calls)
	}
}

// Each spoilt history must be caught with exactly these kinds, and at this order.
func TestPlantedFaultsAreCaught(t *testing.T) {
	good := clean(t, short)
	for _, c := range []struct {
		name  string
		spoil func(h *History)
		order int64 // 0: the violation belongs to no single record
		kinds []Kind
	}{
		{"lost notification", func(h *History) { cut(&h.Outputs, output(h, early, 0)) }, early, []Kind{EarlyCommit, Loss}},
		{"lost notification of a rejected order", func(h *History) { cut(&h.Outputs, output(h, lateRejected, 0)) }, lateRejected, []Kind{EarlyCommit, Loss}},
		{"lost payment", func(h *History) { cut(&h.Payments, payment(h, late, 1)) }, late, []Kind{EarlyCommit, Loss}},

		{"duplicates over the bound", func(h *History) { h.MaxDuplicates-- }, 0, []Kind{Duplicate}},
		{"duplicate without a kill", func(h *History) { again(h, &h.Outputs, output(h, late, 0)); h.MaxDuplicates++ }, late, []Kind{Duplicate}},
		{"three times with one kill", func(h *History) { again(h, &h.Outputs, output(h, twice, 0)) }, twice, []Kind{Duplicate}},
		{"one twice, the other never", func(h *History) { over(h, early, early2); h.MaxDuplicates++ }, early, []Kind{Duplicate, EarlyCommit, Loss}},
		{"payment twice in one process", func(h *History) {
			h.Payments = append(h.Payments, h.Payments[payment(h, late, 1)])
			h.MaxDuplicates++
		}, late, []Kind{Duplicate}},
		{"ran again though saved", func(h *History) { again(h, &h.Outputs, output(h, early, 0)); h.MaxDuplicates++ }, early, []Kind{Rerun}},
		{"rejected one ran again though saved", func(h *History) { again(h, &h.Outputs, output(h, earlyRejected, 0)); h.MaxDuplicates++ }, earlyRejected, []Kind{Rerun}},
		{"paid again though saved", func(h *History) {
			p := h.Payments[payment(h, early, 1)]
			p.Process, p.At = pid2, h.Payments[payment(h, late, 1)].At
			h.Payments = slices.Insert(h.Payments, payment(h, late, 1), p)
			h.MaxDuplicates++
		}, early, []Kind{Rerun}},

		{"contents swapped", func(h *History) { a, b := both(h); a.Value, b.Value = b.Value, a.Value }, late, []Kind{Swap, Swap}},
		{"keys swapped", func(h *History) { a, b := both(h); a.Key, b.Key = b.Key, a.Key }, late2, []Kind{Swap, Swap}},
		{"origins swapped", func(h *History) { a, b := both(h); a.Headers, b.Headers = b.Headers, a.Headers }, late, []Kind{Swap, Swap}},

		{"commit ahead of its outputs", func(h *History) { h.Samples[4*5].Offset = h.Samples[4*6].Offset }, 0, nil},
		{"commit ahead of a payment", func(h *History) { h.Payments[payment(h, late, 1)].At += int64(time.Hour) }, late, []Kind{EarlyCommit}},
		{"map ahead of an output", func(h *History) {
			k := &h.Kills[0].Samples[partitionOf(h, lateRejected)]
			k.Done = append(k.Done, offsetOf(h, lateRejected))
		}, lateRejected, []Kind{EarlyCommit}},
		{"map ahead of a payment", func(h *History) {
			k := &h.Kills[0].Samples[partitionOf(h, late)]
			k.Done = append(k.Done, offsetOf(h, late))
		}, late, []Kind{EarlyCommit, Rerun}},
		{"commit falls", func(h *History) { h.Samples[4*8].Offset = h.Samples[4*7].Offset - 1 }, 0, []Kind{Regress}},
		{"commit forgotten", func(h *History) { h.Samples[4*8].Offset = -1 }, 0, []Kind{Regress}},
		{"commit never arrives", func(h *History) { h.Samples[len(h.Samples)-1].Offset-- }, 0, []Kind{NotAtEnd}},
		{"commit past the end", func(h *History) { h.Samples[len(h.Samples)-1].Offset++ }, 0, []Kind{NotAtEnd, PastEnd}},
		{"map past the end", func(h *History) {
			s := &h.Samples[len(h.Samples)-1]
			s.Done = append(s.Done, s.Offset)
		}, 0, []Kind{PastEnd}},
		{"metadata too long", func(h *History) { h.Samples[9].Metadata = strings.Repeat("\U0001F409", 2049) }, 0, []Kind{Metadata}},

		{"dead letter missing", func(h *History) { cut(&h.DeadLetters, deadLetter(h, poison)) }, 0, []Kind{DeadLetterMissing, EarlyCommit}},
		{"dead letter of a good order", func(h *History) {
			d := h.DeadLetters[deadLetter(h, broken)]
			in := h.Inputs[input(h, late)]
			d.Key, d.Value, d.Headers = in.Key, in.Value, slices.Clone(d.Headers)
			d.Headers[4].Value, d.Headers[5].Value = []byte(itoa(int64(in.Partition))), []byte(itoa(in.Offset))
			h.DeadLetters = append(h.DeadLetters, d)
		}, late, []Kind{DeadLetterExtra}},
		{"dead letter again though saved", func(h *History) {
			again(h, &h.DeadLetters, deadLetter(h, poison))
			h.MaxDuplicates++
		}, 0, []Kind{Rerun}},
		{"dead letter three times", func(h *History) {
			again(h, &h.DeadLetters, deadLetter(h, broken))
			again(h, &h.DeadLetters, deadLetter(h, broken))
			h.MaxDuplicates++
		}, broken, []Kind{DeadLetterExtra}},
		{"dead letter in another topic", func(h *History) { h.DeadLetters[0].Topic = "dlq" }, 0, []Kind{DeadLetterExtra, DeadLetterMissing, EarlyCommit}},
		{"dead letter with another value", func(h *History) { h.DeadLetters[deadLetter(h, broken)].Value = []byte("{}") }, broken, []Kind{DeadLetterAltered}},
		{"dead letter without its key", func(h *History) { h.DeadLetters[deadLetter(h, broken)].Key = nil }, broken, []Kind{DeadLetterAltered}},
		{"dead letter with another time", func(h *History) {
			d := &h.DeadLetters[deadLetter(h, broken)]
			d.Time = d.Time.Add(time.Second)
		}, broken, []Kind{DeadLetterAltered}},
		{"dead letter lost a header", func(h *History) { cut(&h.DeadLetters[deadLetter(h, broken)].Headers, 0) }, broken, []Kind{DeadLetterAltered}},
		{"empty header became nil", func(h *History) { h.DeadLetters[deadLetter(h, broken)].Headers[1].Value = nil }, broken, []Kind{DeadLetterAltered}},
		{"dead letter names another origin", func(h *History) { h.DeadLetters[deadLetter(h, broken)].Headers[5].Value = []byte("999999") }, broken,
			[]Kind{DeadLetterAltered, DeadLetterMissing, EarlyCommit}},
		{"dead letter names its origin twice", func(h *History) {
			d := &h.DeadLetters[deadLetter(h, broken)]
			d.Headers = append(d.Headers, d.Headers[3])
		}, broken, []Kind{DeadLetterAltered, DeadLetterMissing, EarlyCommit}},

		{"rejected order is called paid", func(h *History) { edit(h, lateRejected, "rejected", "paid") }, lateRejected, []Kind{WrongWay}},
		{"declined order is called paid", func(h *History) { edit(h, lateDeclined, "payment failed", "paid") }, lateDeclined, []Kind{WrongWay}},
		{"rejected order pays", func(h *History) {
			p := h.Payments[payment(h, late, 1)]
			p.Order = lateRejected
			h.Payments = append(h.Payments, p)
		}, lateRejected, []Kind{WrongWay}},
		{"dead order notifies", func(h *History) {
			o := h.Outputs[output(h, late, 0)]
			o.Headers = []Header{{originHeader, []byte("orders/" + itoa(int64(partitionOf(h, broken))) + "/" + itoa(offsetOf(h, broken)))}}
			h.Outputs = append(h.Outputs, o)
		}, broken, []Kind{WrongWay}},

		{"other content", func(h *History) { edit(h, late, `"cents":`, `"cents":1`) }, late, []Kind{Altered}},
		{"one field more", func(h *History) { edit(h, late, `{`, `{"debug":true,`) }, late, []Kind{Altered}},
		{"two values", func(h *History) { edit(h, late, `}`, `}{}`) }, late, []Kind{Altered}},
		{"unknown order", func(h *History) { edit(h, late, `"order":1`, `"order":9`) }, late, []Kind{Unknown}},
		{"no origin", func(h *History) { h.Outputs[output(h, late, 0)].Headers = nil }, late, []Kind{EarlyCommit, Loss, Unknown}},
		{"unknown topic", func(h *History) {
			o := h.Outputs[0]
			o.Topic = "other"
			h.Outputs = append(h.Outputs, o)
		}, 0, []Kind{Unknown}},
		{"payment of an unknown order", func(h *History) {
			p := h.Payments[len(h.Payments)-1]
			p.Order = 1
			h.Payments = append(h.Payments, p)
		}, 0, []Kind{Unknown}},

		{"one try too many", func(h *History) {
			p := h.Payments[payment(h, late, 1)]
			p.Attempt = 2
			h.Payments = append(h.Payments, p)
		}, late, []Kind{EarlyCommit, Tries}},
		{"first try skipped", func(h *History) { cut(&h.Payments, payment(h, lateOnce, 1)) }, lateOnce, []Kind{EarlyCommit, Tries}},
		{"last try skipped", func(h *History) { cut(&h.Payments, payment(h, lateOnce, 2)) }, lateOnce, []Kind{EarlyCommit, Tries}},
		{"other outcome", func(h *History) { h.Payments[payment(h, lateDeclined, 1)].Outcome = "paid" }, lateDeclined, []Kind{EarlyCommit, Tries}},
		{"a third process", func(h *History) {
			for k := payment(h, late, 1); k < len(h.Payments); k++ {
				h.Payments[k].Process = 4713
			}
		}, 0, []Kind{Process}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := clone(good)
			c.spoil(h)
			r, err := Check(*h)
			if err != nil {
				t.Fatal(err)
			}
			if r.OK {
				t.Fatal("not caught")
			}
			var kinds []Kind
			at := false
			for _, v := range r.Violations {
				kinds = append(kinds, v.Kind)
				at = at || v.Order == c.order
			}
			slices.Sort(kinds)
			if c.kinds == nil { // a sample that is ahead is early for each record between
				kinds, c.kinds = slices.Compact(kinds), []Kind{EarlyCommit}
				at = len(r.Violations) > 1
			}
			if !slices.Equal(kinds, c.kinds) || !at {
				t.Errorf("got %v, want kinds %q and order %d", r.Violations, c.kinds, c.order)
			}
		})
	}
}

func cut[T any](s *[]T, i int) { *s = slices.Delete(*s, i, i+1) }

// again appends a copy of record i at the end of its partition, as a second run would.
func again(h *History, rs *[]Record, i int) {
	r := (*rs)[i]
	for _, o := range *rs {
		if o.Partition == r.Partition {
			r.Offset = max(r.Offset, o.Offset+1)
		}
	}
	*rs = append(*rs, r)
}

// over puts the notification of order a in the place of order b's.
func over(h *History, a, b int64) {
	from, to := h.Outputs[output(h, a, 0)], &h.Outputs[output(h, b, 0)]
	to.Key, to.Value, to.Headers = from.Key, from.Value, from.Headers
}

// both are the notifications of two orders with different customers.
func both(h *History) (a, b *Record) {
	return &h.Outputs[output(h, late, 0)], &h.Outputs[output(h, late2, 0)]
}

func edit(h *History, id int64, from, to string) {
	o := &h.Outputs[output(h, id, 0)]
	v := strings.Replace(string(o.Value), from, to, 1)
	if v == string(o.Value) {
		panic("nothing to edit")
	}
	o.Value = []byte(v)
}

// payment is the place in Payments of an attempt for an order.
func payment(h *History, id int64, attempt int) int {
	return slices.IndexFunc(h.Payments, func(p Payment) bool { return p.Order == id && p.Attempt == attempt })
}

func TestUnusableHistoryIsNoVerdict(t *testing.T) {
	good := clean(t, short)
	for _, c := range []struct {
		name  string
		spoil func(h *History)
		want  string
	}{
		{"nothing", func(h *History) { *h = History{} }, "no inputs"},
		{"no topic", func(h *History) { h.OutputTopic = "" }, "no name"},
		{"input twice", func(h *History) { h.Inputs = append(h.Inputs, h.Inputs[5]) }, "given twice"},
		{"order twice", func(h *History) { h.Inputs[5].Value = h.Inputs[6].Value }, "order id 104068"},
		{"no id", func(h *History) { h.Inputs[5].Value = []byte(`{}`) }, "order id 0"},
		{"other topic", func(h *History) { h.Inputs[5].Topic = "x" }, "topic"},
		{"log end too low", func(h *History) { h.LogEnds[0].Offset = 3 }, "log end"},
		{"log end missing", func(h *History) { h.LogEnds = h.LogEnds[1:] }, "log end"},
		{"log end twice", func(h *History) { h.LogEnds = append(h.LogEnds, h.LogEnds[0]) }, "log end orders-0"},
		{"no samples", func(h *History) { h.Samples, h.Kills = nil, nil }, "no sample of partition 2"},
		{"sample without time", func(h *History) { h.Samples[0].At = time.Time{} }, "sample of partition 0"},
		{"sample without ends", func(h *History) { h.Samples[7].Ends = nil }, "no end of notifications-"},
		{"kill without a partition", func(h *History) { h.Kills[0].Samples = h.Kills[0].Samples[1:] }, "kill 0 has no sample of partition 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := clone(good)
			c.spoil(h)
			r, err := Check(*h)
			if r != nil || !errors.Is(err, ErrHistory) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("report %v, error %v; want none and one with %q", r != nil, err, c.want)
			}
		})
	}
}

func TestNoKillNoDuplicates(t *testing.T) {
	h := clean(t, short)
	h.Kills = nil // the same traces, but nothing explains the second process
	r, err := Check(*h)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[Kind]int{}
	for _, v := range r.Violations {
		kinds[v.Kind]++
	}
	if kinds[Duplicate] != short.kill-short.committed || kinds[Process] != 1 || len(kinds) != 2 {
		t.Errorf("kinds %v, want %d duplicates and a process", kinds, short.kill-short.committed)
	}
}
