package worker

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/outbox"
	"github.com/killick-io/killick/spout"
)

// describe is the topology as text: components in topological order, and for each what it reads,
// how, and what it emits to whom. It says what counts, defaults filled in.
func describe(s *killick.Spec, c Config) string {
	var b strings.Builder
	fmt.Fprintf(&b, "topology %s, consumer group %s\n", s.Name, c.Group)
	if s.Guarantee != killick.AtLeastOnce {
		fmt.Fprintf(&b, "guarantee: %s\n", s.Guarantee)
	}
	g := newGraph(s)
	for i := range s.Spouts {
		sp := &s.Spouts[i]
		fmt.Fprintf(&b, "\nspout %s\n", sp.Name)
		rows(&b, func(row func(name, format string, args ...any)) {
			unit := "task"
			if sp.Kafka() {
				unit = "partition"
				row("reads", "%s", reads(sp))
				if s.Guarantee == killick.AtMostOnce {
					row("dead letters", "none")
				} else {
					row("dead letters", "%s", strings.Join(deadLetters(sp, s.Name), ", "))
				}
			} else {
				row("source", "%T, %s", sp.Source, count(sp.Tasks, "task"))
			}
			row("pending", "%d records, %s per %s", sp.Pending, shortBytes(sp.PendingBytes), unit)
			if sp.Order != killick.NoOrder {
				row("order", "%s", sp.Order)
			}
			g.streams(row, sp.Name, sp.Streams)
		})
	}
	for i := range s.Bolts {
		bo := &s.Bolts[i]
		where := "local: in each worker"
		if bo.Placed {
			where = "placed: in the topology"
		}
		fmt.Fprintf(&b, "\nbolt %s\n", bo.Name)
		rows(&b, func(row func(name, format string, args ...any)) {
			row("tasks", "%d, %s", bo.Tasks, where)
			for _, in := range bo.Inputs {
				row("input", "%s by %s", streamName(in.From, in.Stream), grouping(in))
			}
			if bo.InFlight > 1 {
				row("in flight", "%d executions per task", bo.InFlight)
			}
			if bo.Tick > 0 {
				row("tick", "every %s", shortDuration(bo.Tick))
			}
			row("time-out", "%s", shortDuration(bo.Timeout))
			if s.Guarantee == killick.AtMostOnce {
				row("retry", "none: what fails is dropped")
			} else {
				row("retry", "%s", retry(bo.Retry))
			}
			if k := bo.Info.Sink; k != nil && k.Topic != "" {
				row("writes", "topic %s", k.Topic)
			} else if k != nil {
				row("writes", "topics that its inputs choose")
			}
			g.streams(row, bo.Name, bo.Streams)
		})
	}
	return b.String()
}

// rows writes indented lines of two columns.
func rows(b *strings.Builder, f func(row func(name, format string, args ...any))) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	f(func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	})
	_ = w.Flush() // a Builder never fails
}

// graph is who subscribes to what.
type graph struct{ to map[string][]subscriber }

type subscriber struct {
	bolt string
	in   killick.InputSpec
}

func newGraph(s *killick.Spec) graph {
	g := graph{map[string][]subscriber{}}
	for i := range s.Bolts {
		for _, in := range s.Bolts[i].Inputs {
			k := streamName(in.From, in.Stream)
			g.to[k] = append(g.to[k], subscriber{s.Bolts[i].Name, in})
		}
	}
	return g
}

// streams writes a row for each output.
func (g graph) streams(row func(name, format string, args ...any), component string, list []killick.StreamSpec) {
	for _, st := range list {
		var to []string
		for _, s := range g.to[streamName(component, st.Name)] {
			to = append(to, s.bolt+" ("+grouping(s.in)+")")
		}
		if len(to) == 0 {
			to = []string{"nobody"}
			if st.Name == "" && st.Codec == nil {
				continue // the default stream that every component has
			}
		}
		name := "emits"
		if st.Name != "" {
			name = "emits " + st.Name
		}
		row(name, "%s -> %s", values(st.Codec), strings.Join(to, ", "))
	}
}

// streamName is a stream as the builder's inputs name it.
func streamName(component, stream string) string {
	if stream == "" {
		return component
	}
	return component + "/" + stream
}

func grouping(in killick.InputSpec) string {
	g := in.Grouping.String()
	if keyed := in.Grouping == killick.FieldsGrouping || in.Grouping == killick.PartialKeyGrouping; keyed && in.Key != nil {
		return g + " of a function"
	} else if keyed {
		return g + " of the key"
	}
	return g
}

// values says what a stream carries.
func values(c killick.Codec) string {
	switch {
	case c == nil:
		return "bytes"
	case c.Type() == nil:
		return "values of any type"
	}
	return c.Type().String()
}

func reads(s *killick.SpoutSpec) string {
	what := "topics " + strings.Join(s.Info.Topics, ", ")
	switch {
	case s.Info.Pattern != "":
		what = "topics that match " + s.Info.Pattern
	case len(s.Info.Topics) == 1:
		what = "topic " + s.Info.Topics[0]
	}
	k, ok := kafkaSource(s.Source)
	if !ok {
		return what
	}
	start := k.Start
	if !start.IsSet() {
		start = spout.Earliest()
	}
	what += ", from " + start.String()
	if k.Until.IsSet() {
		what += " until " + k.Until.String()
	}
	if k.Lost.IsSet() {
		what += "; where offsets are lost, goes on at " + k.Lost.String()
	}
	return what
}

// kafkaSource is the source as package spout makes it.
func kafkaSource(s killick.Source) (spout.KafkaSource, bool) {
	if p, ok := s.(*spout.KafkaSource); ok && p != nil {
		return *p, true
	}
	k, ok := s.(spout.KafkaSource)
	return k, ok
}

// deadLetters are the topics that dead letters of the spout's records go to.
func deadLetters(s *killick.SpoutSpec, topology string) (out []string) {
	for _, t := range s.Info.Topics {
		out = append(out, outbox.Topic(t, topology))
	}
	if s.Info.Pattern != "" {
		out = append(out, outbox.Topic("<topic>", topology))
	}
	return out
}

func retry(r killick.Retry) string {
	what := "the tuple"
	if r.Tree {
		what = "the whole tree"
	}
	if r.Attempts == 1 {
		return "none, then " + r.After.String()
	}
	return fmt.Sprintf("%s, %s in all, waiting up to %s, doubled each time to at most %s, then %s",
		what, count(r.Attempts, "try"), shortDuration(r.Min), shortDuration(max(r.Max, time.Nanosecond)), r.After)
}

// count is "1 task", "2 tasks", "2 tries".
func count(n int, what string) string {
	if n != 1 {
		if s, ok := strings.CutSuffix(what, "y"); ok {
			what = s + "ie"
		}
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
