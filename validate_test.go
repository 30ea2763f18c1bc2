package killick_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
)

// wanted collects the mistakes that a test has made on purpose, each with the line it was made
// on: that before the call of above.
type wanted struct{ ms []killick.Mistake }

func (w *wanted) above(component, what string) {
	_, file, line, _ := runtime.Caller(1)
	w.at(file, line-1, component, what)
}

func (w *wanted) at(file string, line int, component, what string) {
	dir, base := filepath.Split(file)
	w.ms = append(w.ms, killick.Mistake{Where: fmt.Sprintf("%s/%s:%d", filepath.Base(dir), base, line), Component: component, What: what})
}

// at2 is another mistake at the place of the last one.
func (w *wanted) at2(component, what string) {
	w.ms = append(w.ms, killick.Mistake{Where: w.ms[len(w.ms)-1].Where, Component: component, What: what})
}

// check compares all mistakes of top with those that were made: none more, none less.
func (w *wanted) check(t *testing.T, top *killick.Topology) {
	t.Helper()
	err := top.Validate()
	if spec, again := top.Spec(); spec != nil || fmt.Sprint(again) != fmt.Sprint(err) {
		t.Errorf("Spec returned %v, %v", spec, again)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("no joined error: %v", err)
	}
	left := append([]killick.Mistake(nil), w.ms...)
	for _, e := range joined.Unwrap() {
		var m *killick.Mistake
		if !errors.As(e, &m) {
			t.Errorf("not a Mistake: %v", e)
			continue
		}
		found := false
		for i, x := range left {
			if x.Where == m.Where && x.Component == m.Component && strings.Contains(m.What, x.What) {
				left = append(left[:i], left[i+1:]...)
				found = true
				break
			}
		}
		if !found {
			t.Errorf("not expected: %v", m)
		}
		if s := m.Error(); !strings.HasPrefix(s, "killick: "+m.Where+": ") || !strings.Contains(s, m.Component) || strings.Contains(s, "\n") {
			t.Errorf("Error() = %q", s)
		}
	}
	for _, x := range left {
		t.Errorf("not reported: %+v", x)
	}
}

func noop(context.Context, *killick.Tuple, killick.Emitter) error { return nil }

type ticking struct{ bolt.ExecuteFunc }

func (ticking) Tick(context.Context, killick.Untracked) error { return nil }

// knowing is a bolt that says of itself what a test wants.
type knowing struct {
	bolt.ExecuteFunc
	info killick.BoltInfo
	err  error
}

func (k knowing) BoltInfo() (killick.BoltInfo, error) {
	if k.info.InFlight < 0 {
		panic("no idea")
	}
	return k.info, k.err
}

func makes(b killick.Bolt) killick.BoltFactory { return func() killick.Bolt { return b } }

// source is a Source that says of itself what a test wants.
type source struct {
	info killick.SourceInfo
	err  error
}

func (s *source) SourceInfo() (killick.SourceInfo, error) { return s.info, s.err }

type endless struct{}

func (endless) Next(ctx context.Context) (killick.Message, func(error), error) {
	<-ctx.Done()
	return killick.Message{}, nil, ctx.Err()
}

type order struct{ ID string }

func TestValidateNamesEveryMistakeAtOnce(t *testing.T) {
	var w wanted
	top := killick.New("all sorts")
	w.above("", `name "all sorts" cannot be part of a topic name`)
	top.Timeout(0)
	w.above("", "Timeout is 0s")
	top.Pending(0, -1)
	w.above("", "Pending(0, -1): both limits must be positive")
	top.Retry(killick.Retry{Attempts: -1, Min: time.Second, Max: time.Millisecond})
	w.above("", "Retry.Attempts is -1")
	w.ms = append(w.ms, killick.Mistake{Where: w.ms[len(w.ms)-1].Where, What: "Retry.Min is 1s, above Retry.Max 1ms"})

	// Spouts.
	top.Spout("in", spout.KafkaSource{Topics: []string{"orders", "payments", "orders"}, Codec: killick.JSON[order]()})
	w.above("in", `topic "orders" is listed twice`)
	top.Spout("twin", spout.Kafka("payments"))
	w.above("twin", `topic "payments" is read by spout "in" too`)
	top.Spout("pattern", spout.KafkaSource{Pattern: "^ord"})
	w.above("pattern", `the pattern "^ord" matches topic "orders" of spout "in"`)
	top.Spout("pattern2", spout.KafkaSource{Pattern: "^ord"})
	w.above("pattern2", `the pattern "^ord" is that of spout "pattern" too`)
	w.ms = append(w.ms, killick.Mistake{Where: w.ms[len(w.ms)-1].Where, Component: "pattern2", What: `matches topic "orders" of spout "in"`})
	top.Spout("broken", spout.KafkaSource{Pattern: "a("})
	w.above("broken", `the pattern "a(" is not a regular expression`)
	top.Spout("topic", spout.Kafka("no topic"))
	w.above("topic", `"no topic" is no topic name`)
	top.Spout("nil", nil)
	w.above("nil", "the source is nil")
	top.Spout("nilfactory", spout.New(nil))
	w.above("nilfactory", "spout.New: the factory is nil")
	top.Spout("nilspout", spout.New(func() killick.Spout { return nil }))
	w.above("nilspout", "the spout factory returned nil")
	top.Spout("spoutpanic", spout.New(func() killick.Spout { panic("boom") }))
	w.above("spoutpanic", "the spout factory panicked: boom")
	top.Spout("sourcepanic", (*source)(nil))
	w.above("sourcepanic", "the source panicked")
	top.Spout("nothing", &source{})
	w.above("nothing", "neither topics nor a pattern nor a spout factory")
	top.Spout("both", &source{info: killick.SourceInfo{Pattern: "zzz", New: func() killick.Spout { return endless{} }}})
	w.above("both", "both topics and a spout factory")
	top.Spout("unset", spout.KafkaSource{})
	w.above("unset", "set Topics or Pattern")
	top.Spout("seq", spout.Seq(iter.Seq[killick.Message](nil)))
	w.above("seq", "spout.Seq: the sequence is nil")
	top.Spout("tasks", spout.Kafka("t1")).Tasks(2)
	w.above("tasks", "a Kafka spout has no tasks")
	top.Spout("zerotasks", spout.Slice()).Tasks(0)
	w.above("zerotasks", "Tasks(0): use between 1 and 32768")
	top.Spout("limits", spout.Kafka("t2")).Pending(-5, 1)
	w.above("limits", "Pending(-5, 1)")
	top.Spout("codec", spout.KafkaSource{Topics: []string{"t3"}, Codec: killick.NewCodec[int](nil, nil)})
	w.above("codec", "NewCodec[int] was given a nil function")
	top.Spout("lonely", spout.Kafka("t4"))
	w.above("lonely", "no bolt subscribes to the spout")
	top.Spout("..", spout.Kafka("t5"))
	w.above("..", `the component's name ".." is not allowed`)

	all := top.Bolt("all", bolt.Func(noop))
	for _, s := range []string{"in", "twin", "pattern", "pattern2", "broken", "topic", "nil", "nilfactory", "nilspout", "spoutpanic", "sourcepanic",
		"nothing", "both", "unset", "seq", "tasks", "zerotasks", "limits", "codec", ".."} {
		all.Shuffle(s)
	}

	// Bolts.
	top.Bolt("in", bolt.Func(noop)).Shuffle("twin")
	w.above("in", "the name is taken: it was declared at "+w.find("in"))
	top.Bolt("all", bolt.Func(noop))
	w.above("all", "the name is taken")
	top.Bolt("bad/name", bolt.Func(noop)).Shuffle("in")
	w.above("bad/name", `the component's name "bad/name" is not allowed`)
	top.Bolt("", bolt.Func(noop)).Shuffle("in")
	w.above("", `the component's name "" is not allowed`)
	top.Bolt("nilbolt", nil).Shuffle("in")
	w.above("nilbolt", "the bolt factory is nil")
	top.Bolt("nilfunc", bolt.Func(nil)).Shuffle("in")
	w.above("nilfunc", "the bolt factory is nil")
	top.Bolt("returnsnil", func() killick.Bolt { return nil }).Shuffle("in")
	w.above("returnsnil", "the bolt factory returned nil")
	top.Bolt("panics", func() killick.Bolt { panic(errors.New("no luck")) }).Shuffle("in")
	w.above("panics", "the bolt factory panicked: no luck")
	top.Bolt("infopanic", makes(knowing{info: killick.BoltInfo{InFlight: -1}})).Shuffle("in")
	w.above("infopanic", "BoltInfo panicked: no idea")
	top.Bolt("infoerr", makes(knowing{err: errors.New("out of order")})).Shuffle("in")
	w.above("infoerr", "out of order")
	top.Bolt("noinput", bolt.Func(noop))
	w.above("noinput", "the bolt has no input")
	top.Bolt("after", bolt.Func(noop)).Shuffle("noinput")
	w.above("after", "no spout reaches the bolt")
	top.Bolt("zero", bolt.Func(noop)).Tasks(0).Shuffle("in")
	w.above("zero", "Tasks(0): use between 1 and 32768")
	top.Bolt("many", bolt.Func(noop)).Tasks(1 << 20).Shuffle("in")
	w.above("many", "Tasks(1048576)")
	top.Bolt("inflight", bolt.Func(noop)).InFlight(-3).Shuffle("in")
	w.above("inflight", "InFlight(-3): use between 1 and 65536")
	top.Bolt("async", bolt.Async(0, noop)).Shuffle("in")
	w.above("async", "bolt.Async: n is 0; it must be at least 1")
	top.Bolt("async2", bolt.Async(1<<30, noop)).Shuffle("in")
	w.above("async2", "the bolt asks for 1073741824 executions at a time")
	top.Bolt("timeout", bolt.Func(noop)).Timeout(-time.Second).Shuffle("in")
	w.above("timeout", "Timeout(-1s): must be positive")
	top.Bolt("retry", bolt.Func(noop)).Retry(killick.Retry{Min: -1}).Shuffle("in")
	w.above("retry", "neither may be negative")
	top.Bolt("untimed", makes(ticking{})).Shuffle("in")
	w.above("untimed", "the bolt has a Tick method but no interval")
	top.Bolt("tickless", bolt.Func(noop)).Tick(time.Second).Shuffle("in")
	w.above("tickless", "Tick(1s) is set, but bolt.ExecuteFunc has no Tick method")
	top.Bolt("backwards", makes(ticking{})).Tick(-1).Shuffle("in")
	w.above("backwards", "Tick(-1ns): the interval must be positive")
	top.Bolt("zerotick", makes(ticking{})).Tick(0).Shuffle("in")
	w.above("zerotick", "Tick(0s): the interval must be positive")
	top.Bolt("twice", bolt.Func(noop)).Shuffle("in").Fields("in/", nil)
	w.above("twice", `the input "in/" is subscribed twice`)
	top.Bolt("pick", bolt.Func(noop)).Custom("in", nil)
	w.above("pick", `Custom("in", nil): the choosing function is nil`)
	top.Bolt("streams", bolt.Func(noop)).Shuffle("in").Stream("s", nil).Stream("s", killick.String()).Stream("a b", nil)
	w.above("streams", `stream "s" is declared twice, first at `)
	w.ms = append(w.ms, killick.Mistake{Where: w.ms[len(w.ms)-1].Where, Component: "streams", What: `the stream's name "a b" is not allowed`})
	top.Bolt("codecs", bolt.Func(noop)).Shuffle("in").Stream("", killick.NewCodec(func(int) ([]byte, error) { return nil, nil }, nil))
	w.above("codecs", "NewCodec[int] was given a nil function")
	top.Bolt("sink", bolt.Kafka("")).Shuffle("in")
	w.above("sink", "set Topic or TopicOf")
	top.Bolt("sink2", bolt.Kafka("in/out")).Shuffle("in")
	w.above("sink2", `the sink's topic "in/out" is no topic name`)
	top.Bolt("sink3", makes(knowing{info: killick.BoltInfo{Sink: &killick.SinkInfo{}}})).Shuffle("in")
	w.above("sink3", "the sink has neither a Topic nor a TopicOf")
	top.Bolt("sink4", bolt.KafkaSink{Topic: "out", TopicOf: func(*killick.Tuple) string { return "" }}.New).Shuffle("in")
	w.above("sink4", `both Topic ("out") and TopicOf are set`)
	top.Bolt("sink5", bolt.Kafka("out")).Shuffle("in").Stream("more", killick.String())
	w.above("sink5", `it has no stream "more"`)
	top.Bolt("behind", bolt.Func(noop)).Shuffle("sink5")
	w.above("behind", `"sink5" is a sink`)

	// Types.
	top.Bolt("typed", bolt.Map(func(context.Context, string) (int, error) { return 0, nil })).Shuffle("in")
	w.above("typed", `the bolt takes string, but stream "in" carries killick_test.order; give the stream a codec for string`)
	top.Bolt("raw", bolt.Filter(func(context.Context, string) (bool, error) { return true, nil })).Shuffle("limits")
	w.above("raw", `the bolt takes string, but stream "limits" carries []uint8`)
	top.Bolt("out", bolt.Map(func(context.Context, order) (int, error) { return 0, nil })).Shuffle("in").Stream("", killick.String())
	w.above("out", "the default stream's codec is for string, but the bolt emits int")
	top.Bolt("next", bolt.Map(func(context.Context, string) (int, error) { return 0, nil })).Shuffle("typed")
	w.above("next", `the bolt takes string, but stream "typed" carries int`)
	w.check(t, top)
}

// find returns the place of the first mistake of a component.
func (w *wanted) find(component string) string {
	for _, m := range w.ms {
		if m.Component == component {
			return m.Where
		}
	}
	return ""
}

func TestValidateSuggests(t *testing.T) {
	var w wanted
	top := killick.New("suggest")
	top.Spout("orders", spout.Kafka("orders"))
	top.Bolt("fraud", bolt.Func(noop)).Shuffle("orders").Stream("rejected", nil)
	top.Bolt("a", bolt.Func(noop)).Shuffle("order")
	w.above("a", `unknown input component "order"; did you mean "orders"?`)
	top.Bolt("b", bolt.Func(noop)).Shuffle("Frauds")
	w.above("b", `unknown input component "Frauds"; did you mean "fraud"?`)
	top.Bolt("c", bolt.Func(noop)).Shuffle("fruad/rejected")
	w.above("c", `did you mean "fraud"?`)
	top.Bolt("d", bolt.Func(noop)).Shuffle("fraud/reject")
	w.above("d", `component "fraud" declares no stream "reject"; add .Stream("reject", codec) to it; did you mean "rejected"?`)
	top.Bolt("e", bolt.Func(noop)).Shuffle("orders/rejected")
	w.above("e", `component "orders" declares no stream "rejected"; a spout has the default stream only`)
	top.Bolt("f", bolt.Func(noop)).Shuffle("something else")
	w.above("f", `unknown input component "something else"`)
	top.Bolt("g", bolt.Func(noop)).Shuffle("")
	w.above("g", `unknown input component ""`)
	w.check(t, top)
	for _, m := range strings.Split(top.Validate().Error(), "\n") {
		if strings.Contains(m, `"something else"`) && strings.Contains(m, "did you mean") {
			t.Errorf("nothing is spelled like that: %s", m)
		}
	}
}

func TestValidateCycles(t *testing.T) {
	var w wanted
	top := killick.New("cycles")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("a", bolt.Func(noop)).Shuffle("in").Shuffle("c")
	w.above("a", "the topology has a cycle: a -> b -> c -> a; tuples must flow one way")
	top.Bolt("b", bolt.Func(noop)).Shuffle("a")
	top.Bolt("c", bolt.Func(noop)).Shuffle("b")
	top.Bolt("after", bolt.Func(noop)).Shuffle("c") // reached from the spout: nothing to say
	top.Bolt("self", bolt.Func(noop)).Shuffle("self")
	w.above("self", "the topology has a cycle: self -> self")
	top.Bolt("behind", bolt.Func(noop)).Shuffle("self")
	w.above("behind", "no spout reaches the bolt")
	w.check(t, top)

	// A dense tangle must not take for ever: 60 bolts, each subscribed to all others.
	top = killick.New("tangle")
	top.Spout("in", spout.Kafka("in"))
	for i := range 60 {
		d := top.Bolt(fmt.Sprintf("b%d", i), bolt.Func(noop)).Shuffle("in")
		for j := range 60 {
			if i != j {
				d.Shuffle(fmt.Sprintf("b%d", j))
			}
		}
	}
	if err := top.Validate(); err == nil || !strings.Contains(err.Error(), "cycle: b0 -> b1 -> b0") {
		t.Errorf("tangle: %v", err)
	}
}

func TestValidateEmpty(t *testing.T) {
	var w wanted
	top := killick.New("empty")
	w.above("", "the topology has no spout")
	w.ms = append(w.ms, killick.Mistake{Where: w.ms[0].Where, What: "the topology has no bolt"})
	w.check(t, top)
	if top.Name() != "empty" {
		t.Errorf("Name() = %q", top.Name())
	}
}

// What is said and what is left to defaults may contradict each other.
func TestValidateDefaultsContradict(t *testing.T) {
	var w wanted
	top := killick.New("defaults")
	top.Retry(killick.Retry{Max: time.Minute})
	top.Spout("in", spout.Kafka("in"))
	d := top.Bolt("a", bolt.Func(noop)).Shuffle("in")
	d.Retry(killick.Retry{Min: 2 * time.Minute})
	w.above("a", "Retry.Min is 2m0s, above Retry.Max, which is 1m0s by default")
	top.Bolt("b", bolt.Batch(10, 30*time.Second, func(context.Context, []*killick.Held) error { return nil })).Shuffle("in")
	w.above("b", "the time-out is 30s, but the bolt may hold a tuple for 33s")
	top.Bolt("c", bolt.Batch(10, 30*time.Second, func(context.Context, []*killick.Held) error { return nil })).Shuffle("in").Timeout(40 * time.Second)
	// "For ever" is no wait that a time-out could be above.
	top.Bolt("e", bolt.Batch(10, math.MaxInt64, func(context.Context, []*killick.Held) error { return nil })).Shuffle("in")
	w.above("e", "the time-out is 30s, but the bolt may hold a tuple for 2562047h47m16.854775807s")
	top.Bolt("d", bolt.Batch(0, -1, func(context.Context, []*killick.Held) error { return nil })).Shuffle("in")
	w.above("d", "bolt.Batch: max is 0; it must be at least 1")
	w.ms = append(w.ms, killick.Mistake{Where: w.find("d"), Component: "d", What: "bolt.Batch: wait is -1ns; it must be positive"})
	w.check(t, top)
}

// What joins nothing is one mistake like any other.
func TestValidateTakesAnyError(t *testing.T) {
	var w wanted
	top := killick.New("errors")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("a", makes(knowing{err: joinsNothing{}})).Shuffle("in")
	w.above("a", "joins nothing")
	top.Bolt("b", makes(knowing{err: errors.Join(errors.New("one"), fmt.Errorf("two: %w", errors.New("three")))})).Shuffle("in")
	w.above("b", "one")
	w.at2("b", "two: three")
	w.check(t, top)
}

// A codec that cannot even say what it is for, such as a nil pointer in the interface.
func TestValidateCodecPanics(t *testing.T) {
	var w wanted
	top := killick.New("codecs")
	top.Spout("in", spout.KafkaSource{Topics: []string{"in"}, Codec: (*nilCodec)(nil)})
	w.above("in", "the codec's Type panicked: runtime error: invalid memory address")
	top.Bolt("b", bolt.Func(noop)).Shuffle("in").Stream("s", (*nilCodec)(nil))
	w.above("b", "the codec's Type panicked")
	top.Bolt("out", bolt.KafkaSink{Topic: "out", Codec: (*nilCodec)(nil)}.New).Shuffle("b/s")
	w.above("out", "BoltInfo panicked")
	w.check(t, top)
}

type nilCodec struct {
	killick.Codec
	t reflect.Type
}

func (c *nilCodec) Type() reflect.Type { return c.t }

type joinsNothing struct{}

func (joinsNothing) Error() string   { return "joins nothing" }
func (joinsNothing) Unwrap() []error { return nil }

// What a sink cannot write, and bytes that nothing makes, are seen before the first record.
func TestValidateBytes(t *testing.T) {
	orders := bolt.Map(func(context.Context, order) (order, error) { return order{}, nil })
	raw := bolt.Map(func(context.Context, []byte) (string, error) { return "", nil })
	var w wanted
	top := killick.New("bytes")
	top.Spout("json", spout.KafkaSource{Topics: []string{"a"}, Codec: killick.JSON[order]()})
	top.Spout("text", spout.KafkaSource{Topics: []string{"b"}, Codec: killick.String()})
	top.Spout("raw", spout.Kafka("c"))
	top.Spout("any", spout.Slice())
	top.Bolt("bare", orders).Shuffle("json")
	top.Bolt("coded", orders).Shuffle("json").Stream("", killick.JSON[order]())
	top.Bolt("length", bolt.Map(func(context.Context, string) (string, error) { return "", nil })).Shuffle("text")
	top.Bolt("open", bolt.Func(noop)).Shuffle("raw")
	top.Bolt("audit", raw).Shuffle("json").Shuffle("text").Shuffle("raw").Shuffle("any").Shuffle("coded").Shuffle("length").Shuffle("open")
	top.Bolt("out", bolt.Kafka("out")).Shuffle("json").Shuffle("text").Shuffle("raw").Shuffle("any").Shuffle("coded").Shuffle("length").Shuffle("open")
	top.Bolt("encodes", bolt.KafkaSink{Topic: "out", Codec: killick.JSON[order]()}.New).Shuffle("json").Shuffle("raw").Shuffle("any").Shuffle("bare").Shuffle("open")
	if err := top.Validate(); err != nil {
		t.Errorf("good topology: %v", err)
	}

	top.Bolt("out2", bolt.Kafka("out")).Shuffle("bare")
	w.above("out2", `the bolt takes bytes, but stream "bare" carries killick_test.order and has no codec; add .Stream("", codec) to "bare"`)
	top.Bolt("audit2", raw).Shuffle("bare")
	w.above("audit2", `the bolt takes bytes, but stream "bare" carries killick_test.order and has no codec`)
	top.Bolt("encodes2", bolt.KafkaSink{Topic: "out", Codec: killick.JSON[order]()}.New).Shuffle("text")
	w.above("encodes2", `the sink's codec is for killick_test.order, but stream "text" carries string; set a Codec for that`)
	// Bytes are what a codec decodes, as they are for a source.
	top.Bolt("encoded", bolt.Map(func(context.Context, order) ([]byte, error) { return nil, nil })).Shuffle("json").Stream("", killick.JSON[order]())
	top.Bolt("decoded", orders).Shuffle("encoded")
	filtered := top.Bolt("keeps", bolt.Filter(func(context.Context, []byte) (bool, error) { return true, nil })).Shuffle("json")
	filtered.Stream("", killick.JSON[order]()) // a filter of bytes passes on what comes
	w.check(t, top)
}

func TestInterfaceTypesAreOpen(t *testing.T) {
	top := killick.New("open")
	top.Spout("in", spout.KafkaSource{Topics: []string{"in"}, Codec: killick.JSON[any]()})
	top.Bolt("a", bolt.Map(func(context.Context, string) (any, error) { return nil, nil })).Shuffle("in").Stream("", killick.JSON[fmt.Stringer]())
	top.Bolt("b", bolt.Map(func(context.Context, time.Duration) (time.Duration, error) { return 0, nil })).Shuffle("a").Stream("", killick.JSON[fmt.Stringer]())
	top.Bolt("c", makes(knowing{info: killick.BoltInfo{In: reflect.TypeFor[fmt.Stringer]()}})).Shuffle("b")
	if err := top.Validate(); err != nil {
		t.Error(err)
	}
	var w wanted
	top.Spout("text", spout.KafkaSource{Topics: []string{"text"}, Codec: killick.String()})
	top.Bolt("d", makes(knowing{info: killick.BoltInfo{In: reflect.TypeFor[fmt.Stringer]()}})).Shuffle("text")
	w.above("d", `the bolt takes fmt.Stringer, but stream "text" carries string`)
	w.check(t, top)
}

func TestSpec(t *testing.T) {
	key := func(in *killick.Tuple) []byte { return in.Key() }
	pick := func(dst []int, _ *killick.Tuple, _ int) []int { return append(dst, 0) }
	made := map[string]int{}
	counted := func(name string, f killick.BoltFactory) killick.BoltFactory {
		return func() killick.Bolt { made[name]++; return f() }
	}
	top := killick.New("big").Timeout(time.Minute).Pending(100, 1000).Retry(killick.Retry{Attempts: 7, After: killick.Skip()})
	// Declared back to front, where that is possible.
	top.Bolt("out", counted("out", bolt.Kafka("out"))).Local("join").Local("all").Shuffle("custom")
	top.Bolt("join", counted("join", bolt.Func(noop))).Global("fields").PartialKey("map/odd", key).Tasks(3).Timeout(time.Second)
	top.Bolt("fields", counted("fields", bolt.Func(noop))).Fields("map", key).Fields("gen", nil).Tasks(4).
		Retry(killick.Retry{Min: time.Second, Tree: true, After: killick.Stop()})
	top.Bolt("all", counted("all", makes(ticking{}))).All("map").Tick(time.Hour).InFlight(2)
	top.Bolt("custom", counted("custom", bolt.Async(9, noop))).Custom("map", pick)
	top.Bolt("placed", counted("placed", bolt.Async(9, noop))).ByPartition("in").Placed().InFlight(3)
	top.Bolt("map", counted("map", bolt.Map(func(context.Context, order) (order, error) { return order{}, nil }))).ByPartition("in").Tasks(2).
		Stream("", killick.JSON[order]()).Stream("odd", nil)
	top.Spout("in", spout.KafkaSource{Topics: []string{"a", "b"}, Codec: killick.JSON[order]()})
	top.Spout("gen", spout.Slice()).Tasks(5).Pending(3, 4)

	s, err := top.Spec()
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range made {
		if n != 1 {
			t.Errorf("the factory of %s was called %d times", name, n)
		}
	}
	if s.Name != "big" || len(s.Spouts) != 2 || len(s.Bolts) != 7 {
		t.Fatalf("spec %+v", s)
	}
	in, gen := s.Spouts[0], s.Spouts[1]
	if !in.Kafka() || in.Pending != 100 || in.PendingBytes != 1000 || in.Streams[0].Codec == nil || !reflect.DeepEqual(in.Info.Topics, []string{"a", "b"}) {
		t.Errorf("in: %+v", in)
	}
	if _, ok := in.Source.(spout.KafkaSource); !ok {
		t.Errorf("in: source %T", in.Source)
	}
	if gen.Kafka() || gen.Tasks != 5 || gen.Pending != 3 || gen.PendingBytes != 4 {
		t.Errorf("gen: %+v", gen)
	}
	at := map[string]int{}
	for i, b := range s.Bolts {
		at[b.Name] = i
		for _, in := range b.Inputs {
			if from, isBolt := at[in.From]; isBolt && from >= i {
				t.Errorf("%s comes before its input %s", b.Name, in.From)
			} else if !isBolt && in.From != "in" && in.From != "gen" {
				t.Errorf("%s comes before its input %s", b.Name, in.From)
			}
		}
	}
	type facts struct {
		tasks, inFlight int
		placed          bool
		tick, timeout   time.Duration
		retry           killick.Retry
	}
	inherited := killick.Retry{Attempts: 7, Min: 100 * time.Millisecond, Max: 30 * time.Second, After: killick.Skip()}
	own := killick.Retry{Attempts: 7, Min: time.Second, Max: 30 * time.Second, Tree: true, After: killick.Stop()}
	want := map[string]facts{
		"out":    {1, 1, false, 0, time.Minute, inherited},
		"join":   {3, 1, true, 0, time.Second, inherited},
		"fields": {4, 1, true, 0, time.Minute, own},
		"all":    {1, 2, true, time.Hour, time.Minute, inherited},
		"custom": {1, 9, true, 0, time.Minute, inherited},
		"placed": {1, 3, true, 0, time.Minute, inherited},
		"map":    {2, 1, false, 0, time.Minute, inherited},
	}
	for _, b := range s.Bolts {
		if got := (facts{b.Tasks, b.InFlight, b.Placed, b.Tick, b.Timeout, b.Retry}); got != want[b.Name] {
			t.Errorf("%s: %+v, want %+v", b.Name, got, want[b.Name])
		}
		if b.Factory == nil || b.Streams[0].Name != "" {
			t.Errorf("%s: %+v", b.Name, b)
		}
	}
	m := s.Bolts[at["map"]]
	if len(m.Streams) != 2 || m.Streams[0].Codec == nil || m.Streams[1].Name != "odd" || m.Streams[1].Codec != nil || m.Info.In != reflect.TypeFor[order]() {
		t.Errorf("map: %+v", m)
	}
	j := s.Bolts[at["join"]]
	if len(j.Inputs) != 2 || j.Inputs[0].Grouping != killick.GlobalGrouping || j.Inputs[1].From != "map" || j.Inputs[1].Stream != "odd" || j.Inputs[1].Key == nil {
		t.Errorf("join: %+v", j.Inputs)
	}
	if c := s.Bolts[at["custom"]].Inputs[0]; c.Pick == nil || c.Grouping != killick.CustomGrouping {
		t.Errorf("custom: %+v", c)
	}
	if out := s.Bolts[at["out"]]; out.Info.Sink == nil || out.Info.Sink.Topic != "out" {
		t.Errorf("out: %+v", out)
	}
}

func TestSpecDefaults(t *testing.T) {
	top := killick.New("d")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("b", bolt.Func(noop)).Shuffle("in")
	s, err := top.Spec()
	if err != nil {
		t.Fatal(err)
	}
	if in := s.Spouts[0]; in.Pending != 1024 || in.PendingBytes != 8<<20 {
		t.Errorf("spout: %+v", in)
	}
	b := s.Bolts[0]
	if b.Tasks != 1 || b.InFlight != 1 || b.Timeout != 30*time.Second || b.Placed || len(b.Streams) != 1 ||
		b.Retry != (killick.Retry{Attempts: 5, Min: 100 * time.Millisecond, Max: 30 * time.Second, After: killick.DeadLetter()}) {
		t.Errorf("bolt: %+v", b)
	}
}

func TestGroupingNames(t *testing.T) {
	var names []string
	for g := killick.ShuffleGrouping; g <= killick.CustomGrouping; g++ {
		names = append(names, g.String())
	}
	if got := strings.Join(names, " "); got != "shuffle local by-partition fields partial-key global all custom" {
		t.Error(got)
	}
	if got := killick.Grouping(math.MaxUint8).String(); got != "Grouping(255)" {
		t.Error(got)
	}
}
