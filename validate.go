package killick

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Validate reports all mistakes of the topology at once (errors.Join of *[Mistake]),
// each with the place in the code; nil: none. It calls every bolt factory once.
func (t *Topology) Validate() error {
	_, err := t.Spec()
	return err
}

// Spec validates the topology and returns what it says, with defaults filled in.
func (t *Topology) Spec() (*Spec, error) {
	b := build{t: t, spec: &Spec{Name: t.name}, places: map[string]string{}, types: map[string]reflect.Type{}}
	b.topology()
	for _, d := range t.spouts {
		b.spout(d)
	}
	for _, d := range t.bolts {
		b.bolt(d)
	}
	b.topics()
	b.inputs()
	b.order()
	if len(b.errs) > 0 {
		return nil, errors.Join(b.errs...)
	}
	return b.spec, nil
}

// build is one validation in progress.
type build struct {
	t      *Topology
	spec   *Spec
	errs   []error
	places map[string]string       // component -> where it was declared first
	types  map[string]reflect.Type // "component/stream" -> type of its values; absent: not a stream; nil: any
}

func (b *build) wrong(where, component, format string, args ...any) {
	b.errs = append(b.errs, &Mistake{where, component, fmt.Sprintf(format, args...)})
}

var nameRE = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

const nameRule = "use 1 to 100 letters, digits, '.', '_' or '-'"

func (b *build) topology() {
	t := b.t
	b.errs = append(b.errs, t.mistakes...)
	if !nameRE.MatchString(t.name) || t.name == "." || t.name == ".." {
		b.wrong(t.where, "", "the topology's name %q cannot be part of a topic name; %s", t.name, nameRule)
	}
	if len(t.spouts) == 0 {
		b.wrong(t.where, "", "the topology has no spout; add one with Spout")
	}
	if len(t.bolts) == 0 {
		b.wrong(t.where, "", "the topology has no bolt; add one with Bolt")
	}
}

// declare checks a component's name and notes it.
func (b *build) declare(name, where string) (ok bool) {
	if !nameRE.MatchString(name) {
		b.wrong(where, name, "bad component name; %s", nameRule)
	}
	if first, dup := b.places[name]; dup {
		b.wrong(where, name, "the name is taken: it was declared at %s; names are unique over spouts and bolts", first)
		return false
	}
	b.places[name] = where
	return true
}

func (b *build) spout(d *SpoutDecl) {
	b.errs = append(b.errs, d.mistakes...)
	if !b.declare(d.name, d.where) {
		return
	}
	s := SpoutSpec{Name: d.name, Source: d.source, Tasks: d.tasks}
	p := pending{DefaultPending, DefaultPendingBytes, true}
	if b.t.pending.set {
		p = b.t.pending
	}
	if d.pending.set {
		p = d.pending
	}
	s.Pending, s.PendingBytes = p.records, p.bytes
	if d.source == nil {
		b.wrong(d.where, d.name, "the source is nil; use one of package spout, such as spout.Kafka(topic)")
	} else if info, err := d.source.SourceInfo(); err != nil {
		b.wrong(d.where, d.name, "%v", err)
	} else {
		s.Info = info
		switch {
		case info.New == nil && len(info.Topics) == 0 && info.Pattern == "":
			b.wrong(d.where, d.name, "the source has neither topics nor a pattern nor a spout factory")
		case info.New == nil && d.tasksSet:
			b.wrong(d.where, d.name, "a Kafka spout has no tasks: its partitions are the unit; remove Tasks")
		}
	}
	s.Streams = []StreamSpec{{Codec: s.Info.Codec}}
	b.types[d.name+"/"] = typeOf(s.Info.Codec, reflect.TypeFor[[]byte]())
	if s.Info.New != nil && s.Info.Codec == nil {
		b.types[d.name+"/"] = nil
	}
	b.spec.Spouts = append(b.spec.Spouts, s)
}

func typeOf(c Codec, otherwise reflect.Type) reflect.Type {
	if c == nil {
		return otherwise
	}
	return c.Type()
}

func (b *build) bolt(d *BoltDecl) {
	b.errs = append(b.errs, d.mistakes...)
	if !b.declare(d.name, d.where) {
		return
	}
	s := BoltSpec{Name: d.name, Factory: d.factory, Tasks: d.tasks, Placed: d.placed,
		InFlight: d.inFlight, Tick: d.tick, Timeout: d.timeout}
	s.Retry = d.retry.withDefaults(b.t.retry).withDefaults(defaultRetry)
	if s.Timeout == 0 {
		s.Timeout = b.t.timeout
	}
	if s.Timeout == 0 {
		s.Timeout = DefaultTimeout
	}
	b.describe(d, &s)
	if s.InFlight == 0 {
		s.InFlight = max(s.Info.InFlight, 1)
	}
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
	if d.factory == nil {
		b.wrong(d.where, d.name, "the bolt factory is nil; wrap a function with bolt.Func")
		return
	}
	one, err := makeOne(d.factory)
	if err != nil {
		b.wrong(d.where, d.name, "%v", err)
		return
	}
	if i, ok := one.(Informer); ok {
		info, err := i.BoltInfo()
		if err != nil {
			b.wrong(d.where, d.name, "%v", err)
		}
		s.Info = info
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
	if k := s.Info.Sink; k != nil && k.Topic == "" && k.TopicOf == nil {
		b.wrong(d.where, d.name, "the sink has neither a Topic nor a TopicOf")
	}
}

func makeOne(f BoltFactory) (one Bolt, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the bolt factory panicked: %v", r)
		}
	}()
	if one = f(); one == nil {
		return nil, errors.New("the bolt factory returned nil")
	}
	return one, nil
}

func (b *build) streams(d *BoltDecl, s *BoltSpec) {
	s.Streams = []StreamSpec{{}}
	seen := map[string]string{}
	b.types[d.name+"/"] = s.Info.Out
	for _, st := range d.streams {
		if first, dup := seen[st.name]; dup {
			b.wrong(st.where, d.name, "stream %q is declared twice, first at %s", st.name, first)
			continue
		}
		seen[st.name] = st.where
		if st.name == "" {
			s.Streams[0].Codec = st.codec
			if t := typeOf(st.codec, nil); t != nil && s.Info.Out != nil && t != s.Info.Out {
				b.wrong(st.where, d.name, "the default stream's codec is for %v, but the bolt emits %v", t, s.Info.Out)
			}
			if st.codec != nil {
				b.types[d.name+"/"] = st.codec.Type()
			}
			continue
		}
		if !nameRE.MatchString(st.name) {
			b.wrong(st.where, d.name, "bad stream name %q; %s", st.name, nameRule)
		}
		s.Streams = append(s.Streams, StreamSpec{st.name, st.codec})
		b.types[d.name+"/"+st.name] = typeOf(st.codec, nil)
	}
}

// topics refuses two Kafka spouts on one topic: each record would be two roots with one
// offset.
func (b *build) topics() {
	owner := map[string]string{}
	for _, s := range b.spec.Spouts {
		for _, topic := range s.Info.Topics {
			if first, dup := owner[topic]; dup && first != s.Name {
				b.wrong(b.places[s.Name], s.Name, "topic %q is read by spout %q too; a topic has one spout, and several bolts may subscribe to it", topic, first)
			} else if dup {
				b.wrong(b.places[s.Name], s.Name, "topic %q is listed twice", topic)
			}
			owner[topic] = s.Name
		}
	}
	for _, s := range b.spec.Spouts {
		if s.Info.Pattern == "" {
			continue
		}
		re, err := regexp.Compile(s.Info.Pattern)
		if err != nil {
			b.wrong(b.places[s.Name], s.Name, "the pattern %q is not a regular expression: %v", s.Info.Pattern, err)
			continue
		}
		for _, o := range b.spec.Spouts {
			for _, topic := range o.Info.Topics {
				if o.Name != s.Name && re.MatchString(topic) {
					b.wrong(b.places[s.Name], s.Name, "the pattern %q matches topic %q of spout %q; a topic has one spout", s.Info.Pattern, topic, o.Name)
				}
			}
		}
	}
}

func (b *build) inputs() {
	for _, d := range b.t.bolts {
		if len(d.inputs) == 0 {
			b.wrong(d.where, d.name, "the bolt has no input; subscribe it with Shuffle, Fields, ...")
		}
		seen := map[string]bool{}
		for _, in := range d.inputs {
			b.input(d, in, seen)
		}
	}
}

func (b *build) input(d *BoltDecl, in input, seen map[string]bool) {
	from, st, _ := strings.Cut(in.from, "/")
	key := from + "/" + st
	if seen[key] {
		b.wrong(in.where, d.name, "the input %q is subscribed twice; each tuple would be delivered twice", in.from)
		return
	}
	seen[key] = true
	if in.grouping == CustomGrouping && in.pick == nil {
		b.wrong(in.where, d.name, "Custom(%q, nil): the choosing function is nil", in.from)
	}
	if _, ok := b.places[from]; !ok {
		b.wrong(in.where, d.name, "unknown input component %q%s", from, b.suggest(from))
		return
	}
	t, ok := b.types[key]
	if !ok {
		b.wrong(in.where, d.name, "component %q declares no stream %q; add .Stream(%q, codec) to it", from, st, st)
		return
	}
	want := b.info(d.name).In
	if want != nil && t != nil && !t.AssignableTo(want) {
		b.wrong(in.where, d.name, "the bolt takes %v, but stream %q carries %v; give the stream a codec for %v", want, in.from, t, want)
	}
}

func (b *build) info(bolt string) BoltInfo {
	for _, s := range b.spec.Bolts {
		if s.Name == bolt {
			return s.Info
		}
	}
	return BoltInfo{}
}

// suggest names a component that is spelled much like name.
func (b *build) suggest(name string) string {
	for have := range b.places {
		if strings.EqualFold(have, name) || len(name) > 2 && (strings.HasPrefix(have, name) || strings.HasPrefix(name, have)) {
			return fmt.Sprintf("; did you mean %q?", have)
		}
	}
	return ""
}

// order sorts the bolts topologically, and finds cycles and what no spout reaches.
func (b *build) order() {
	done := map[string]bool{}
	for _, s := range b.spec.Spouts {
		done[s.Name] = true
	}
	rest := b.spec.Bolts
	var sorted []BoltSpec
	for len(rest) > 0 {
		var next []BoltSpec
		for _, s := range rest {
			if slices.ContainsFunc(s.Inputs, func(in InputSpec) bool { return !done[in.From] }) {
				next = append(next, s)
				continue
			}
			sorted = append(sorted, s)
			done[s.Name] = true
		}
		if len(next) == len(rest) {
			b.stuck(next)
			return
		}
		rest = next
	}
	b.spec.Bolts = sorted
}

// stuck explains why the bolts of rest cannot be ordered: they form a cycle, or wait for
// one, or for a component that is missing (said already).
func (b *build) stuck(rest []BoltSpec) {
	byName := map[string]*BoltSpec{}
	for i := range rest {
		byName[rest[i].Name] = &rest[i]
	}
	told := map[string]bool{}
	for _, s := range rest {
		if told[s.Name] {
			continue
		}
		if way := cycle(byName, s.Name, nil); way != nil {
			for _, n := range way {
				if told[n] {
					way = nil // a part of one that was told
					break
				}
			}
			for _, n := range way {
				told[n] = true
			}
			if way != nil {
				b.wrong(b.places[s.Name], s.Name, "the topology has a cycle: %s -> %s; tuples must flow one way", strings.Join(way, " -> "), way[0])
			}
		}
	}
	for _, s := range rest {
		if told[s.Name] {
			continue
		}
		known := len(s.Inputs) > 0
		for _, in := range s.Inputs {
			if _, ok := b.places[in.From]; !ok {
				known = false
			}
		}
		if known {
			b.wrong(b.places[s.Name], s.Name, "no spout reaches the bolt: all its tuples would come from a cycle or from components that have no input")
		}
	}
}

// cycle returns the way from name back to it over inputs, or nil.
func cycle(bolts map[string]*BoltSpec, name string, way []string) []string {
	if i := slices.Index(way, name); i >= 0 {
		if i == 0 {
			return way
		}
		return nil
	}
	s := bolts[name]
	if s == nil {
		return nil
	}
	way = append(way, name)
	for _, in := range s.Inputs {
		if w := cycle(bolts, in.From, way); w != nil {
			return w
		}
	}
	return nil
}
