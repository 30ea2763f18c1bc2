package spout_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv"
	"github.com/killick-io/killick/testenv/bubble"
)

func numbers(n int) []killick.Message {
	ms := make([]killick.Message, n)
	for i := range ms {
		ms[i] = killick.Message{Bytes: fmt.Append(nil, i)}
	}
	return ms
}

// keep is a bolt that notes what comes, as origin=value.
type keep struct {
	mu  sync.Mutex
	got []string
}

func (k *keep) Execute(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
	o, _ := in.Origin()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.got = append(k.got, fmt.Sprintf("%s/%d/%d=%s", o.Topic, o.Partition, o.Offset, in.Bytes()))
	return nil
}

func run(t *testing.T, s killick.Source, tasks int, f killick.BoltFactory) *testenv.Result {
	t.Helper()
	top := killick.New("sources")
	top.Spout("in", s).Tasks(tasks)
	top.Bolt("b", f).Shuffle("in")
	return testenv.Run(t, top)
}

func TestSlice(t *testing.T) {
	var k keep
	if r := run(t, spout.Slice(numbers(1000)...), 1, bolt.Func(k.Execute)); r.Acked("in") != 1000 || r.Err() != nil {
		t.Errorf("acked %d, %v", r.Acked("in"), r.Err())
	}
	for i, s := range k.got {
		if s != fmt.Sprintf("in/0/%d=%d", i, i) {
			t.Fatalf("message %d is %s", i, s)
		}
	}
	// Of several tasks each takes its share; a partition is a task.
	k.got = nil
	if r := run(t, spout.Slice(numbers(10)...), 3, bolt.Func(k.Execute)); r.Acked("in") != 10 {
		t.Errorf("acked %d", r.Acked("in"))
	}
	slices.Sort(k.got)
	if got := strings.Join(k.got, " "); got != "in/0/0=0 in/0/1=3 in/0/2=6 in/0/3=9 in/1/0=1 in/1/1=4 in/1/2=7 in/2/0=2 in/2/1=5 in/2/2=8" {
		t.Error(got)
	}
	if r := run(t, spout.Slice(), 2, bolt.Func(k.Execute)); r.Acked("in") != 0 || r.Err() != nil {
		t.Errorf("an empty slice: acked %d, %v", r.Acked("in"), r.Err())
	}
}

// What a slice emits is a message like any other: key, headers, time, value, null.
func TestSliceMessages(t *testing.T) {
	at := time.UnixMilli(5)
	in := []killick.Message{
		{Key: []byte("k"), Value: "text", Headers: []killick.Header{{Key: "h", Value: []byte{}}}, Time: at},
		{Bytes: []byte{}}, {}, {Value: []byte("bytes")}, {Value: 7},
	}
	var got []killick.Message
	r := run(t, spout.Slice(in...), 1, bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		got = append(got, in.Message())
		return nil
	}))
	if r.Acked("in") != len(in) || len(got) != len(in) {
		t.Fatalf("acked %d, got %d", r.Acked("in"), len(got))
	}
	if m := got[0]; string(m.Key) != "k" || m.Value != "text" || len(m.Headers) != 1 || m.Headers[0].Value == nil || !m.Time.Equal(at) {
		t.Errorf("%+v", m)
	}
	value := func(i int) any {
		if got[i].Value != nil {
			return got[i].Value
		}
		return got[i].Bytes
	}
	if b := value(1).([]byte); b == nil || len(b) != 0 {
		t.Errorf("empty bytes became %#v", b)
	}
	if b := value(2).([]byte); b != nil {
		t.Errorf("a null value became %#v", b)
	}
	if string(value(3).([]byte)) != "bytes" || value(4) != 7 {
		t.Errorf("%v %v", value(3), value(4))
	}
	if got[2].Time.IsZero() {
		t.Error("no time: a message without one has the present")
	}
}

func TestSeq(t *testing.T) {
	var k keep
	if r := run(t, spout.Seq(slices.Values(numbers(100))), 1, bolt.Func(k.Execute)); r.Acked("in") != 100 {
		t.Errorf("acked %d", r.Acked("in"))
	}
	if !slices.IsSortedFunc(k.got, func(a, b string) int { return len(a) - len(b) }) || k.got[99] != "in/0/99=99" {
		t.Errorf("%v", k.got)
	}
	// An endless sequence that a stop interrupts is ended: its deferred calls run.
	ended := make(chan struct{})
	endless := iter.Seq[killick.Message](func(yield func(killick.Message) bool) {
		defer close(ended)
		for yield(killick.Message{}) {
		}
	})
	top := killick.New("endless").Retry(killick.Retry{After: killick.Stop()})
	top.Spout("in", spout.Seq(endless))
	n := 0
	top.Bolt("b", bolt.Func(func(context.Context, *killick.Tuple, killick.Emitter) error {
		if n++; n == 500 {
			return killick.Permanent(errStop)
		}
		return nil
	})).Shuffle("in")
	if r := testenv.Run(t, top); !errors.Is(r.Err(), errStop) {
		t.Errorf("the run ended with %v", r.Err())
	}
	<-ended
}

var errStop = errors.New("enough")

// scripted is a spout of n messages that notes all that happens to it.
type scripted struct {
	log    *log
	n      int
	task   killick.Task
	next   int
	errs   map[int]error // returned once before the i-th message
	last   error         // returned after the last message; default io.EOF
	failed int           // how often Prepare fails
}

type log struct {
	mu       sync.Mutex
	verdicts map[string][]error // by message
	events   []string
	open     int
	most     int
	next     []time.Time // of each call of Next
}

func (l *log) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, fmt.Sprintf(format, args...))
}

func (s *scripted) Prepare(_ context.Context, t killick.Task) error {
	s.task = t
	if s.failed > 0 {
		s.failed--
		s.log.add("prepare failed")
		return errors.New("not yet")
	}
	s.log.add("prepare %s %s %d of %d", t.Topology, t.Component, t.Index, t.Count)
	return nil
}

func (s *scripted) Cleanup(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		s.log.add("cleanup has no deadline")
	}
	s.log.add("cleanup %d", s.task.Index)
	return nil
}

func (s *scripted) Next(ctx context.Context) (killick.Message, func(error), error) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.log.next = append(s.log.next, time.Now())
	if err := s.errs[s.next]; err != nil {
		delete(s.errs, s.next)
		return killick.Message{Bytes: []byte("must not count")}, nil, err
	}
	if s.next == s.n {
		if s.last != nil {
			return killick.Message{}, nil, s.last
		}
		return killick.Message{}, nil, io.EOF
	}
	name := fmt.Sprintf("%d.%d", s.task.Index, s.next)
	s.next++
	s.log.open++
	s.log.most = max(s.log.most, s.log.open)
	return killick.Message{Bytes: []byte(name)}, func(err error) {
		s.log.mu.Lock()
		defer s.log.mu.Unlock()
		s.log.open--
		s.log.verdicts[name] = append(s.log.verdicts[name], err)
	}, nil
}

func newLog() *log { return &log{verdicts: map[string][]error{}} }

// done is called once per message: nil for a tree that ended well, an error for a dead one.
func TestDone(t *testing.T) {
	l := newLog()
	boom := errors.New("boom")
	r := run(t, spout.New(func() killick.Spout { return &scripted{log: l, n: 100} }), 3,
		bolt.Async(4, func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			switch v := string(in.Bytes()); {
			case v == "1.50":
				return killick.Permanent(boom)
			case strings.HasSuffix(v, "7") && in.Attempt() < 3:
				return errors.New("later")
			}
			return nil
		}))
	if r.Acked("in") != 299 || r.Err() != nil || len(l.verdicts) != 300 || l.open != 0 {
		t.Errorf("acked %d, %v, %d verdicts, %d open", r.Acked("in"), r.Err(), len(l.verdicts), l.open)
	}
	for name, errs := range l.verdicts {
		switch {
		case len(errs) != 1:
			t.Errorf("%s: done was called %d times: %v", name, len(errs), errs)
		case name == "1.50":
			if !errors.Is(errs[0], boom) || !strings.Contains(errs[0].Error(), `component "b"`) {
				t.Errorf("%s: %v", name, errs[0])
			}
		case errs[0] != nil:
			t.Errorf("%s: %v", name, errs[0])
		}
	}
	for i := range 3 {
		if !slices.Contains(l.events, fmt.Sprintf("prepare sources in %d of 3", i)) || !slices.Contains(l.events, fmt.Sprintf("cleanup %d", i)) {
			t.Errorf("task %d: %v", i, l.events)
		}
	}
	if len(l.events) != 6 {
		t.Errorf("%v", l.events)
	}
}

// A stop gives up what is open: done says so, once, and what has ended keeps its verdict.
func TestDoneAtStop(t *testing.T) {
	l := newLog()
	var held atomic.Int64
	top := killick.New("sources")
	top.Spout("in", spout.New(func() killick.Spout { return &scripted{log: l, n: 50} }))
	top.Bolt("b", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
		switch string(in.Bytes()) {
		case "0.20", "0.21": // never decided
			held.Add(1)
			out.Hold()
		case "0.30":
			return killick.Permanent(errStop)
		}
		return nil
	})).Shuffle("in").Retry(killick.Retry{After: killick.Stop()}).Timeout(time.Hour)
	r := testenv.Run(t, top)
	if !errors.Is(r.Err(), errStop) || held.Load() != 2 {
		t.Errorf("err %v, held %d", r.Err(), held.Load())
	}
	given := map[string]bool{"0.20": true, "0.21": true, "0.30": true}
	for name, errs := range l.verdicts {
		if len(errs) != 1 || (errs[0] != nil) != given[name] {
			t.Errorf("%s: %v", name, errs)
		}
	}
	if n := len(l.verdicts); l.open != 0 || n <= 30 {
		t.Errorf("%d verdicts, %d without", n, l.open)
	}
	if !slices.Contains(l.events, "cleanup 0") {
		t.Errorf("%v", l.events)
	}
}

// After an error Next is called again, with back-off; what it returned beside the error does
// not count. io.EOF ends the task, wrapped too.
func TestNextErrors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := newLog()
		var k keep
		top := killick.New("sources")
		top.Spout("in", spout.New(func() killick.Spout {
			return &scripted{log: l, n: 4, errs: map[int]error{0: errors.New("down"), 2: killick.Permanent(errors.New("down"))}, last: fmt.Errorf("the end: %w", io.EOF)}
		}))
		top.Bolt("b", bolt.Func(k.Execute)).Shuffle("in")
		r := testenv.RunReal(t, top)
		if r.Acked("in") != 4 || r.Err() != nil || len(k.got) != 4 || len(l.next) != 7 {
			t.Errorf("acked %d, %v, got %v, %d calls", r.Acked("in"), r.Err(), k.got, len(l.next))
		}
		if d := l.next[1].Sub(l.next[0]); d < 0 || d > 100*time.Millisecond {
			t.Errorf("called again after %v", d)
		}
	})
	// A spout that goes on failing is asked less and less often.
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var calls atomic.Int64
		top := killick.New("sources")
		top.Spout("in", spout.New(func() killick.Spout {
			return next(func(context.Context) (killick.Message, func(error), error) {
				calls.Add(1)
				if ctx.Err() != nil {
					return killick.Message{}, nil, io.EOF
				}
				if calls.Load()%2 == 0 {
					panic("a panic is an error, too")
				}
				return killick.Message{}, nil, errors.New("down")
			})
		}))
		top.Bolt("b", bolt.Func(new(keep).Execute)).Shuffle("in")
		if r := testenv.RunReal(t, top); r.Err() != nil {
			t.Error(r.Err())
		}
		// 15s on average at the limit of 30s, and about ten calls before that: about 50. One call
		// per 100ms, the shortest back-off, would be thousands.
		if n := calls.Load(); n < 20 || n > 150 {
			t.Errorf("%d calls in ten minutes", n)
		}
	})
}

// A sequence that panics has not ended: what comes after is missing, and a run must not end well as if
// it were all. It cannot go on either, so the spout fails until somebody looks.
func TestSeqPanics(t *testing.T) {
	info, err := spout.Seq(func(yield func(killick.Message) bool) {
		if yield(killick.Message{Bytes: []byte("1")}) {
			panic("the rest cannot be read")
		}
	}).SourceInfo()
	if err != nil {
		t.Fatal(err)
	}
	sp := info.New()
	if m, _, err := sp.Next(t.Context()); err != nil || string(m.Bytes) != "1" {
		t.Fatalf("%q, %v", m.Bytes, err)
	}
	func() {
		defer func() {
			if p := recover(); p != "the rest cannot be read" {
				t.Errorf("panic %v", p)
			}
		}()
		_, _, err := sp.Next(t.Context())
		t.Errorf("no panic, %v", err)
	}()
	for range 3 {
		if _, _, err := sp.Next(t.Context()); err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "spout.Seq: the sequence panicked: the rest cannot be read") {
			t.Errorf("after the panic: %v", err)
		}
	}
	if err := sp.(killick.Cleaner).Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
}

type next func(ctx context.Context) (killick.Message, func(error), error)

func (f next) Next(ctx context.Context) (killick.Message, func(error), error) { return f(ctx) }

// Never more roots open than the limit, per task; and the limit is used.
func TestPending(t *testing.T) {
	for _, limit := range []int{1, 7} {
		l := newLog()
		top := killick.New("sources")
		top.Spout("in", spout.New(func() killick.Spout { return &scripted{log: l, n: 60} })).Pending(limit, 1<<20)
		top.Bolt("b", bolt.Async(100, func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			if in.Attempt() == 1 && strings.HasSuffix(string(in.Bytes()), "3") {
				return errors.New("a retry does not free its place")
			}
			return nil
		})).Shuffle("in")
		if r := testenv.Run(t, top); r.Acked("in") != 60 || l.most != limit {
			t.Errorf("limit %d: acked %d, %d were open", limit, r.Acked("in"), l.most)
		}
	}
}

// Prepare is tried again; if it fails for good the run ends with its error, and no message was
// taken.
func TestPrepare(t *testing.T) {
	l := newLog()
	if r := run(t, spout.New(func() killick.Spout { return &scripted{log: l, n: 3, failed: 3} }), 1, bolt.Func(new(keep).Execute)); r.Acked("in") != 3 || r.Err() != nil {
		t.Errorf("acked %d, %v", r.Acked("in"), r.Err())
	}
	if got := strings.Join(l.events, ", "); got != "prepare failed, prepare failed, prepare failed, prepare sources in 0 of 1, cleanup 0" {
		t.Error(got)
	}
	l = newLog()
	r := run(t, spout.New(func() killick.Spout { return &scripted{log: l, n: 3, failed: 100} }), 1, bolt.Func(new(keep).Execute))
	if r.Acked("in") != 0 || r.Err() == nil || !strings.Contains(r.Err().Error(), "not yet") || !strings.Contains(r.Err().Error(), `"in"`) || len(l.next) != 0 {
		t.Errorf("acked %d, %v, %d calls of Next", r.Acked("in"), r.Err(), len(l.next))
	}
}

// A task has a spout of its own.
func TestNewPerTask(t *testing.T) {
	made := 0
	var mu sync.Mutex
	shares := map[int]int{}
	var k keep
	r := run(t, spout.New(func() killick.Spout {
		mu.Lock()
		defer mu.Unlock()
		made++
		return &scripted{log: newLog(), n: 5}
	}), 4, bolt.Func(func(ctx context.Context, in *killick.Tuple, out killick.Emitter) error {
		o, _ := in.Origin()
		mu.Lock()
		shares[int(o.Partition)]++
		mu.Unlock()
		return k.Execute(ctx, in, out)
	}))
	if want := map[int]int{0: 5, 1: 5, 2: 5, 3: 5}; r.Acked("in") != 20 || made != 5 || !maps.Equal(shares, want) {
		t.Errorf("acked %d, made %d (one of them to validate), shares %v", r.Acked("in"), made, shares)
	}
	if _, err := spout.New(nil).SourceInfo(); err == nil {
		t.Error("a nil factory was accepted")
	}
}
