package killick

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// topics refuses two Kafka spouts on one topic: each record would be two roots with one
// offset. What two patterns have in common is seen at run time only.
func (b *build) topics() {
	owner := map[string]string{}
	for _, s := range b.spec.Spouts {
		for _, topic := range s.Info.Topics {
			switch first, dup := owner[topic]; {
			case dup && first != s.Name:
				b.wrong(b.places[s.Name], s.Name, "topic %q is read by spout %q too; a topic has one spout, and several bolts may subscribe to it", topic, first)
			case dup:
				b.wrong(b.places[s.Name], s.Name, "topic %q is listed twice", topic)
			case badTopic(topic):
				b.wrong(b.places[s.Name], s.Name, "%q is no topic name; %s", topic, topicRule)
			}
			owner[topic] = s.Name
		}
	}
	patterns := map[string]string{}
	for _, s := range b.spec.Spouts {
		if s.Info.Pattern == "" {
			continue
		}
		re, err := regexp.Compile(s.Info.Pattern)
		if err != nil {
			b.wrong(b.places[s.Name], s.Name, "the pattern %q is not a regular expression: %v", s.Info.Pattern, err)
			continue
		}
		if first, dup := patterns[s.Info.Pattern]; dup {
			b.wrong(b.places[s.Name], s.Name, "the pattern %q is that of spout %q too; a topic has one spout", s.Info.Pattern, first)
		}
		patterns[s.Info.Pattern] = s.Name
		for _, o := range b.spec.Spouts {
			for i, topic := range o.Info.Topics {
				if o.Name != s.Name && re.MatchString(topic) && slices.Index(o.Info.Topics, topic) == i {
					b.wrong(b.places[s.Name], s.Name, "the pattern %q matches topic %q of spout %q; a topic has one spout", s.Info.Pattern, topic, o.Name)
				}
			}
		}
	}
}

// inputs checks each subscription. Of components with one name only the first counts, as in
// the spec.
func (b *build) inputs() {
	subscribed := map[string]bool{}
	for _, s := range b.spec.Bolts {
		i := slices.IndexFunc(b.t.bolts, func(d *BoltDecl) bool { return d.name == s.Name })
		d := b.t.bolts[i]
		if len(d.inputs) == 0 {
			b.wrong(d.where, d.name, "the bolt has no input; subscribe it with Shuffle, Fields, ...")
		}
		seen := map[string]bool{}
		for k, in := range d.inputs {
			subscribed[s.Inputs[k].From] = true
			b.input(&s, in, s.Inputs[k], seen)
		}
	}
	for _, s := range b.spec.Spouts {
		if !subscribed[s.Name] && len(b.t.bolts) > 0 {
			b.wrong(b.places[s.Name], s.Name, "no bolt subscribes to the spout; its records would be acked unread")
		}
	}
}

func (b *build) input(s *BoltSpec, in input, spec InputSpec, seen map[string]bool) {
	key := spec.From + "/" + spec.Stream
	if seen[key] {
		b.wrong(in.where, s.Name, "the input %q is subscribed twice; each tuple would be delivered twice", in.from)
		return
	}
	seen[key] = true
	if in.grouping == CustomGrouping && in.pick == nil {
		b.wrong(in.where, s.Name, "Custom(%q, nil): the choosing function is nil", in.from)
	}
	if _, ok := b.places[spec.From]; !ok {
		b.wrong(in.where, s.Name, "unknown input component %q%s", spec.From, suggest(spec.From, keys(b.places)))
		return
	}
	if b.sinks[spec.From] {
		b.wrong(in.where, s.Name, "%q is a sink: what it emits goes to Kafka; subscribe to what it subscribes to", spec.From)
		return
	}
	t, ok := b.types[key]
	if !ok {
		what := fmt.Sprintf("add .Stream(%q, codec) to it", spec.Stream)
		if slices.ContainsFunc(b.spec.Spouts, func(s SpoutSpec) bool { return s.Name == spec.From }) {
			what = "a spout has the default stream only"
		}
		b.wrong(in.where, s.Name, "component %q declares no stream %q; %s%s", spec.From, spec.Stream, what, suggest(spec.Stream, b.ports[spec.From]))
		return
	}
	switch want, sink := s.Info.In, s.Info.Sink != nil; {
	case fits(t, want) || sink && t == bytesType:
	case sink:
		b.wrong(in.where, s.Name, "the sink's codec is for %v, but stream %q carries %v; set a Codec for that", want, in.from, t)
	default:
		b.wrong(in.where, s.Name, "the bolt takes %v, but stream %q carries %v; give the stream a codec for %v", want, in.from, t, want)
	}
	if s.Info.Raw && t != nil && t != bytesType && t != stringType && !b.coded[key] {
		b.wrong(in.where, s.Name, "the bolt takes bytes, but stream %q carries %v and has no codec; add .Stream(%q, codec) to %q", in.from, t, spec.Stream, spec.From)
	}
}

func keys(m map[string]string) []string {
	var ks []string
	for k := range m {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}

// suggest names what is spelled much like name: nearest first, then in the order of names.
func suggest(name string, names []string) string {
	best, least := "", 3
	for _, have := range names {
		d := distance(strings.ToLower(name), strings.ToLower(have))
		if len(name) > 2 && len(have) > 2 && (strings.HasPrefix(have, name) || strings.HasPrefix(name, have)) {
			d = min(d, 2)
		}
		if d < least && d < max(len(name), len(have)) {
			best, least = have, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance is Levenshtein's: how many letters to change, add or drop.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d = min(diagonal, row[j], row[j+1]) + 1
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}

// order sorts the bolts topologically, as near to the order of declaration as that allows,
// and finds cycles and what no spout reaches.
func (b *build) order() {
	isBolt := map[string]bool{}
	for _, s := range b.spec.Bolts {
		isBolt[s.Name] = true
	}
	done := map[string]bool{}
	rest := b.spec.Bolts
	var sorted []BoltSpec
	for len(rest) > 0 {
		var next []BoltSpec
		for _, s := range rest {
			// An unknown input was reported already, and holds up nothing here.
			if slices.ContainsFunc(s.Inputs, func(in InputSpec) bool { return isBolt[in.From] && !done[in.From] }) {
				next = append(next, s)
				continue
			}
			sorted = append(sorted, s)
			done[s.Name] = true
		}
		if len(next) == len(rest) {
			break
		}
		rest = next
	}
	inCycle := b.cycles(rest)
	b.unreached(inCycle)
	b.spec.Bolts = append(sorted, rest...)
}

// cycles reports the cycles among rest, the bolts that could not be sorted: each bolt is named
// in one of them at most. The others of rest come after a cycle.
func (b *build) cycles(rest []BoltSpec) (in map[string]bool) {
	inputs := map[string][]InputSpec{}
	for _, s := range rest {
		inputs[s.Name] = s.Inputs
	}
	in = map[string]bool{}
	for _, s := range rest {
		if in[s.Name] {
			continue
		}
		way := wayBack(inputs, s.Name)
		told := slices.ContainsFunc(way, func(n string) bool { return in[n] })
		for _, n := range way {
			in[n] = true
		}
		if way != nil && !told {
			b.wrong(b.places[s.Name], s.Name, "the topology has a cycle: %s; tuples must flow one way", strings.Join(append(way, way[0]), " -> "))
		}
	}
	return in
}

// wayBack returns the shortest way of tuples from name back to it, nil if there is none.
func wayBack(inputs map[string][]InputSpec, name string) []string {
	after := map[string]string{} // bolt -> the next one on its way to name
	queue := []string{name}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, in := range inputs[at] {
			if _, seen := after[in.From]; seen {
				continue
			}
			if _, stuck := inputs[in.From]; !stuck {
				continue
			}
			after[in.From] = at
			queue = append(queue, in.From)
		}
	}
	if after[name] == "" {
		return nil
	}
	way := []string{name}
	for at := after[name]; at != name; at = after[at] {
		way = append(way, at)
	}
	return way
}

// unreached reports the bolts that no spout reaches, but those of which the reason was
// reported already: they have no input, an unknown one, or are in a cycle.
func (b *build) unreached(inCycle map[string]bool) {
	reached := map[string]bool{}
	for _, s := range b.spec.Spouts {
		reached[s.Name] = true
	}
	for grew := true; grew; {
		grew = false
		for _, s := range b.spec.Bolts {
			if !reached[s.Name] && slices.ContainsFunc(s.Inputs, func(in InputSpec) bool { return reached[in.From] }) {
				reached[s.Name], grew = true, true
			}
		}
	}
	for _, s := range b.spec.Bolts {
		known := !slices.ContainsFunc(s.Inputs, func(in InputSpec) bool { return b.places[in.From] == "" })
		if !reached[s.Name] && !inCycle[s.Name] && known && len(s.Inputs) > 0 {
			b.wrong(b.places[s.Name], s.Name, "no spout reaches the bolt: all its tuples would come from bolts that get none")
		}
	}
}
