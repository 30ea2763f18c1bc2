package killick

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
)

// Validate reports all mistakes of the topology at once (errors.Join of *[Mistake]),
// each with the place in the code; nil: none. It calls every factory once.
func (t *Topology) Validate() error {
	_, err := t.Spec()
	return err
}

// Spec validates the topology and returns what it says, with defaults filled in.
func (t *Topology) Spec() (*Spec, error) {
	b := build{t: t, spec: &Spec{Name: t.name}, places: map[string]string{},
		types: map[string]reflect.Type{}, coded: map[string]bool{}, ports: map[string][]string{}, sinks: map[string]bool{}}
	b.topology()
	for _, d := range t.spouts {
		b.spout(d)
	}
	for _, d := range t.bolts {
		b.bolt(d)
	}
	b.guarantee()
	b.topics()
	b.inputs()
	b.order()
	if len(b.errs) > 0 {
		return nil, errors.Join(b.errs...)
	}
	return b.spec, nil
}

// build is one validation in progress. A component whose name is taken is reported and left
// out of all that follows.
type build struct {
	t      *Topology
	spec   *Spec
	errs   []error
	places map[string]string       // component -> where it was declared first
	types  map[string]reflect.Type // "component/stream" -> type of its values; absent: not a stream; nil: any
	coded  map[string]bool         // "component/stream": it has a codec
	ports  map[string][]string     // component -> its streams, for suggestions
	sinks  map[string]bool         // components whose output goes to Kafka
}

func (b *build) wrong(where, component, format string, args ...any) {
	b.errs = append(b.errs, &Mistake{where, component, fmt.Sprintf(format, args...)})
}

// because is wrong for an error of others, which may join several.
func (b *build) because(where, component string, err error) {
	b.errs = append(b.errs, mistakes(where, component, err)...)
}

// stream notes a stream of a component.
func (b *build) stream(component, name string, t reflect.Type, c Codec) {
	b.types[component+"/"+name] = known(t)
	b.coded[component+"/"+name] = c != nil
	b.ports[component] = append(b.ports[component], name)
}

// known is nil for an interface type: what is in it is seen at run time only.
func known(t reflect.Type) reflect.Type {
	if t == nil || t.Kind() == reflect.Interface {
		return nil
	}
	return t
}

var (
	nameRE  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)
	topicRE = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)
)

const (
	nameRule  = "use 1 to 100 letters, digits, '.', '_' or '-'"
	topicRule = "Kafka allows 1 to 249 letters, digits, '.', '_' and '-', but not \".\" and \"..\""
)

func badName(s string) bool  { return !nameRE.MatchString(s) || s == "." || s == ".." }
func badTopic(s string) bool { return !topicRE.MatchString(s) || s == "." || s == ".." }

func (b *build) topology() {
	t := b.t
	b.errs = append(b.errs, t.mistakes...)
	if badName(t.name) {
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
	if badName(name) {
		b.wrong(where, name, "the component's name %q is not allowed; %s", name, nameRule)
	}
	if first, dup := b.places[name]; dup {
		b.wrong(where, name, "the name is taken: it was declared at %s; names are unique over spouts and bolts", first)
		return false
	}
	b.places[name] = where
	return true
}

// codec checks what can be known of a codec before it is used.
func (b *build) codec(where, component string, c Codec) {
	if c == nil {
		return
	}
	b.because(where, component, guarded("the codec's Type", func() error { c.Type(); return nil }))
	if c, ok := c.(interface{ check() error }); ok {
		b.because(where, component, c.check())
	}
}

// typeOf returns the type of c's values, otherwise if there is no codec. nil: any, or not known
// since the codec panics, which codec reports.
func typeOf(c Codec, otherwise reflect.Type) (t reflect.Type) {
	if c == nil {
		return otherwise
	}
	defer func() {
		if recover() != nil {
			t = nil
		}
	}()
	return c.Type()
}

// guarded calls user code that describes a component; a panic is an error.
func guarded(what string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s panicked: %v", what, r)
		}
	}()
	return f()
}
