package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recorder is a test that notes how it failed.
type recorder struct{ fatal, failed string }

func (r *recorder) Helper()                           {}
func (r *recorder) Errorf(format string, args ...any) { r.failed = fmt.Sprintf(format, args...) }
func (r *recorder) Fatalf(format string, args ...any) { r.fatal = fmt.Sprintf(format, args...) }

func TestReport(t *testing.T) {
	b, in, w := basic()
	rest(in, w)
	good := clean(t, b, byValue())
	var r recorder
	good.Fatal(&r)
	good.Error(&r)
	if good.Err() != nil || r != (recorder{}) || !strings.HasPrefix(good.String(), "verify: all rules kept\n") {
		t.Errorf("%v, %+v", good.Err(), r)
	}
	b, in, w = basic()
	w.effects(in, 10, 15)
	b.kill(w)
	v := b.worker("v", 1)
	v.effects(in, 14, 19)
	v.commit(in, 20, 0)
	bad := judge(t, b, byValue())
	bad.Error(&r)
	bad.Fatal(&r)
	want := []string{"verify: RULES BROKEN, 2 findings", "loss: in/3@19: no effect; commit of 20 (v-1.jsonl:7, ",
		"duplicate: in/3@14: v-1.jsonl:2: the effect of v-1 at ", "because of w-1 (1 of these, at most 0)", "killed w-1: 1 effects were repeated",
		"in/3: 19 of 20 records done, committed 20 of 20"}
	for _, text := range append(want, r.fatal, r.failed) {
		if err := bad.Err(); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), text) || text == "" {
			t.Errorf("%q is not in %v", text, err)
		}
	}
	var buf bytes.Buffer
	if err := bad.WriteJSON(&buf); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(buf.Bytes(), &back); err != nil || !reflect.DeepEqual(&back, bad) {
		t.Errorf("%v\n%+v\n%+v", err, back, bad)
	}
	if !strings.Contains(buf.String(), `"kind": "loss",
      "topic": "in",
      "partition": 3,
      "offset": 19,`) {
		t.Error(buf.String())
	}
	if err := bad.WriteText(broken{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestKinds: each kind is in the list that reports go by, or its findings would not be shown.
func TestKinds(t *testing.T) {
	seen := map[Kind]bool{}
	for _, k := range kinds {
		if seen[k] {
			t.Errorf("%s is listed twice", k)
		}
		seen[k] = true
	}
	if len(kinds) != 23 {
		t.Errorf("%d kinds are listed", len(kinds))
	}
}

// TestBadRules: mistakes of rules are told together.
func TestBadRules(t *testing.T) {
	_, err := Check(Rules{Guarantee: 9, Order: 9, Listed: -1, Skew: -1, MaxLost: 1, Healed: []Healing{{}}, Resets: make([]Reset, 65)}, &History{})
	for _, want := range []string{"Rules.Guarantee: 9", "Rules.Order: 9", "Rules.Listed: -1", "Rules.Skew -1ns", "Rules.MaxLost: 1", "Rules.Healed[0]", "Rules.Resets: 65"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// TestBrokenHistory: a history that contradicts itself gives no verdict, and an error that says where.
func TestBrokenHistory(t *testing.T) {
	good := func() *History {
		b, in, w := basic()
		b.look()
		rest(in, w)
		b.look()
		return b.history()
	}
	if _, err := Check(byValue(), good()); err != nil {
		t.Fatal(err)
	}
	failing := errors.New("disk on fire")
	out := Log{Topic: "out", End: 1, Stable: 1, Entries: Records(&kgo.Record{Topic: "out"})}
	wants := func(w Want) func(*Rules) { return func(r *Rules) { r.Want = func(*kgo.Record) Want { return w } } }
	for name, tt := range map[string]struct {
		break_ func(h *History)
		rules  func(r *Rules)
		want   string
	}{
		"nothing":         {func(h *History) { h.Inputs = nil }, nil, "no input logs"},
		"no topic":        {func(h *History) { h.Inputs[0].Topic = "" }, nil, "input /3: a log has a topic"},
		"bounds":          {func(h *History) { h.Inputs[0].Stable = 21 }, nil, "input in/3: start 0, stable 21, end 20"},
		"no entries":      {func(h *History) { h.Inputs[0].Entries = nil }, nil, "input in/3: no entries"},
		"twice":           {func(h *History) { h.Outputs = h.Inputs }, nil, "output in/3 is given twice"},
		"other partition": {func(h *History) { h.Inputs[0].Partition = 2 }, nil, "in/2@0: a record of in/3"},
		"descending": {func(h *History) {
			h.Inputs[0].Entries = Records(&kgo.Record{Topic: "in", Partition: 3, Offset: 2}, &kgo.Record{Topic: "in", Partition: 3, Offset: 2})
		}, nil, "in/3@2: want ascending offsets, above 2"},
		"behind the end": {func(h *History) { h.Inputs[0].End, h.Inputs[0].Stable = 19, 19 }, nil, "in/3@19: want ascending offsets"},
		"not stable":     {func(h *History) { h.Inputs[0].Stable = 19 }, nil, "in/3@19: visible, at or above the last stable offset 19"},
		"no state": {func(h *History) {
			h.Inputs[0].Entries = Entries(Entry{Record: &kgo.Record{Topic: "in", Partition: 3}, State: 9})
		}, nil, "in/3@0: state 9 is none"},
		"unreadable": {func(h *History) {
			h.Inputs[0].Entries = func(yield func(Entry, error) bool) { yield(Entry{}, failing) }
		}, nil, "read in/3: disk on fire"},
		"unreadable store":      {func(h *History) { h.Stored = func(yield func(Stored, error) bool) { yield(Stored{}, failing) } }, nil, "stored: disk on fire"},
		"nothing stored":        {func(h *History) { h.Stored = each([]Stored{{At: time.Unix(1, 0), Ref: "x"}}) }, nil, "(x): want a time, and a commit or a generation"},
		"another group's store": {func(h *History) { h.Stored = each(nil) }, nil, "samples have position 20 for in/3, and what the group stored has none"},
		"no file":               {func(h *History) { h.Events[0].Open = nil }, nil, `event file "w-1.jsonl" has no Open`},
		"file gone": {func(h *History) {
			h.Events[0].Open = func() (io.ReadCloser, error) { return nil, failing }
		}, nil, "open event file: disk on fire"},
		"samples out of order": {func(h *History) { h.Samples[0].Answered = h.Samples[1].Answered.Add(1) }, nil, "sample 1 was asked at"},
		"sample without end":   {func(h *History) { h.Outputs = []Log{out} }, nil, "sample 0 at"},
		"no events":            {func(h *History) { h.Events = nil }, nil, "records want an effect, and there are no event files"},
		"no log of outputs":    {func(*History) {}, wants(Want{Outputs: []Output{{Topic: "out"}}}), `in/3@0: Rules.Want asks for an output in "out"`},
		"dead and more":        {func(*History) {}, wants(Want{Dead: true, Effect: true}), "in/3@0: Rules.Want asks for a dead letter and for more"},
		"the same output twice": {func(h *History) { h.Outputs, h.Samples = []Log{out}, nil }, wants(Want{Outputs: []Output{{Topic: "out"}}}),
			"want the same output: say by Rules.Made"},
		"no generations":  {func(h *History) { h.Stored = nil }, func(r *Rules) { r.Exclusive = true }, "Exclusive needs the group's generations"},
		"no samples":      {func(h *History) { h.Samples = nil }, func(r *Rules) { r.MaxStall = 1 }, "MaxStall and Healed need samples"},
		"nothing exactly": {func(*History) {}, func(r *Rules) { r.Guarantee = ExactlyOnce }, "there are no output logs"},
	} {
		t.Run(name, func(t *testing.T) {
			h, r := good(), byValue()
			tt.break_(h)
			if tt.rules != nil {
				tt.rules(&r)
			}
			rep, err := Check(r, h)
			if rep != nil || err == nil || !strings.HasPrefix(err.Error(), "verify: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q\n%v", err, tt.want, rep)
			}
			if !errors.Is(err, ErrHistory) && !errors.Is(err, failing) {
				t.Errorf("%v is neither ErrHistory nor what failed", err)
			}
		})
	}
}
