package killick

import (
	"errors"
	"reflect"
	"strings"
)

func (b *build) spout(d *SpoutDecl) {
	b.errs = append(b.errs, d.mistakes...)
	if !b.declare(d.name, d.where) {
		return
	}
	s := SpoutSpec{Name: d.name, Source: d.source, Tasks: d.tasks, OnEnd: d.onEnd}
	p := pending{DefaultPending, DefaultPendingBytes, true}
	if b.t.pending.set {
		p = b.t.pending
	}
	if d.pending.set {
		p = d.pending
	}
	s.Pending, s.PendingBytes = p.records, p.bytes
	if s.Order = b.t.order; d.orderWhere != "" {
		s.Order = d.order
	}
	s.Info = b.source(d)
	b.codec(d.where, d.name, s.Info.Codec)
	s.Streams = []StreamSpec{{Codec: s.Info.Codec}}
	raw := bytesType
	if s.Info.New != nil || d.source == nil {
		raw = nil // a user's spout emits what it likes
	}
	b.stream(d.name, "", typeOf(s.Info.Codec, raw), s.Info.Codec)
	b.spec.Spouts = append(b.spec.Spouts, s)
}

// source asks a source what it is, and makes one spout to see that it can be made.
func (b *build) source(d *SpoutDecl) (info SourceInfo) {
	if d.source == nil {
		b.wrong(d.where, d.name, "the source is nil; use one of package spout, such as spout.Kafka(topic)")
		return info
	}
	err := guarded("the source", func() (err error) {
		info, err = d.source.SourceInfo()
		return err
	})
	if err != nil {
		b.because(d.where, d.name, err)
		return info
	}
	kafka := len(info.Topics) > 0 || info.Pattern != ""
	switch {
	case info.New == nil && !kafka:
		b.wrong(d.where, d.name, "the source has neither topics nor a pattern nor a spout factory")
	case info.New != nil && kafka:
		b.wrong(d.where, d.name, "the source has both topics and a spout factory; it is one or the other")
	case info.New == nil && d.tasksSet:
		b.wrong(d.where, d.name, "a Kafka spout has no tasks: its partitions are the unit; remove Tasks")
	case info.New != nil:
		b.because(d.where, d.name, guarded("the spout factory", func() error {
			if info.New() == nil {
				return errors.New("the spout factory returned nil")
			}
			return nil
		}))
	}
	return info
}

func (b *build) bolt(d *BoltDecl) {
	b.errs = append(b.errs, d.mistakes...)
	if !b.declare(d.name, d.where) {
		return
	}
	s := BoltSpec{Name: d.name, Factory: d.factory, Tasks: d.tasks, Placed: d.placed,
		InFlight: d.inFlight, Tick: d.tick, Timeout: d.timeout}
	s.Retry = d.retry.withDefaults(b.t.retry).withDefaults(defaultRetry)
	if d.retry.validate() == nil && b.t.retry.validate() == nil {
		where := d.retryWhere
		if where == "" {
			where = d.where
		}
		b.because(where, d.name, s.Retry.checkFilled())
	}
	if s.Timeout == 0 {
		s.Timeout = b.t.timeout
	}
	if s.Timeout == 0 {
		s.Timeout = DefaultTimeout
	}
	b.describe(d, &s)
	b.streams(d, &s)
	for _, in := range d.inputs {
		from, st, _ := strings.Cut(in.from, "/")
		s.Inputs = append(s.Inputs, InputSpec{from, st, in.grouping, in.key, in.pick})
		s.Placed = s.Placed || in.grouping.placed()
	}
	b.spec.Bolts = append(b.spec.Bolts, s)
}

// describe makes one bolt to learn what it is.
func (b *build) describe(d *BoltDecl, s *BoltSpec) {
	s.InFlight = max(s.InFlight, 1)
	if d.factory == nil {
		b.wrong(d.where, d.name, "the bolt factory is nil; wrap a function with bolt.Func")
		return
	}
	var one Bolt
	err := guarded("the bolt factory", func() error {
		if one = d.factory(); one == nil {
			return errors.New("the bolt factory returned nil")
		}
		return nil
	})
	if err != nil {
		b.because(d.where, d.name, err)
		return
	}
	if i, ok := one.(Informer); ok {
		err := guarded("BoltInfo", func() (err error) {
			s.Info, err = i.BoltInfo()
			return err
		})
		if err != nil {
			b.because(d.where, d.name, err)
			return
		}
	}
	if d.inFlight == 0 {
		if s.InFlight = max(s.Info.InFlight, 1); s.InFlight > maxInFlight {
			b.wrong(d.where, d.name, "the bolt asks for %d executions at a time; the limit is %d", s.InFlight, maxInFlight)
		}
	}
	if s.Tick == 0 {
		s.Tick = s.Info.Tick
	}
	_, ticks := one.(Ticker)
	switch {
	case ticks && s.Tick == 0:
		b.wrong(d.where, d.name, "the bolt has a Tick method but no interval; add Tick(every)")
	case !ticks && s.Tick != 0:
		b.wrong(d.where, d.name, "Tick(%v) is set, but %T has no Tick method", s.Tick, one)
	}
	if s.Info.Keeps > 0 && s.Timeout > 0 && s.Timeout <= s.Info.Keeps {
		b.wrong(d.where, d.name, "the time-out is %v, but the bolt may hold a tuple for %v before it works on it, and would lose it; raise Timeout above that", s.Timeout, s.Info.Keeps)
	}
	b.sink(d, s.Info.Sink)
}

func (b *build) sink(d *BoltDecl, k *SinkInfo) {
	if k == nil {
		return
	}
	b.sinks[d.name] = true
	b.codec(d.where, d.name, k.Codec)
	switch {
	case k.Topic == "" && k.TopicOf == nil:
		b.wrong(d.where, d.name, "the sink has neither a Topic nor a TopicOf")
	case k.Topic != "" && badTopic(k.Topic):
		b.wrong(d.where, d.name, "the sink's topic %q is no topic name; %s", k.Topic, topicRule)
	}
	for _, st := range d.streams {
		b.wrong(st.where, d.name, "the component is a sink: what it emits goes to Kafka, so it has no stream %q; remove Stream, and set the sink's Codec", st.name)
	}
}

func (b *build) streams(d *BoltDecl, s *BoltSpec) {
	s.Streams = []StreamSpec{{}}
	out := s.Info.Out
	seen := map[string]string{}
	for _, st := range d.streams {
		if first, dup := seen[st.name]; dup {
			b.wrong(st.where, d.name, "stream %q is declared twice, first at %s", st.name, first)
			continue
		}
		seen[st.name] = st.where
		b.codec(st.where, d.name, st.codec)
		if st.name == "" {
			s.Streams[0].Codec = st.codec
			t := typeOf(st.codec, nil)
			if !fits(out, t) && out != bytesType { // bytes are decoded
				b.wrong(st.where, d.name, "the default stream's codec is for %v, but the bolt emits %v", t, out)
			}
			if known(t) != nil {
				out = t
			}
			continue
		}
		if badName(st.name) {
			b.wrong(st.where, d.name, "the stream's name %q is not allowed; %s", st.name, nameRule)
		}
		s.Streams = append(s.Streams, StreamSpec{st.name, st.codec})
		b.stream(d.name, st.name, typeOf(st.codec, nil), st.codec)
	}
	b.stream(d.name, "", out, s.Streams[0].Codec)
}

var (
	bytesType  = reflect.TypeFor[[]byte]()
	stringType = reflect.TypeFor[string]()
)

// fits reports whether a value of type t may go where want is asked for, as far as types can
// tell. nil is any type.
func fits(t, want reflect.Type) bool {
	switch {
	case t == nil || want == nil || t == want || t.Kind() == reflect.Interface:
		return true
	case want.Kind() == reflect.Interface:
		return t.Implements(want)
	}
	return false // not even when assignable: type assertions ask for the very type
}
