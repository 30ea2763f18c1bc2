package worker

import (
	"fmt"
	"strings"

	"github.com/killick-io/killick"
)

// mermaid is the topology as a flowchart that Mermaid draws, as most places that show Markdown do.
// Nodes are numbered: a component may have a name that Mermaid takes for a word of its own, such as
// end.
func mermaid(s *killick.Spec) string {
	m := &chart{nodes: map[string]string{}}
	m.line("flowchart LR")
	for i := range s.Spouts {
		sp := &s.Spouts[i]
		what := count(sp.Tasks, "task")
		if sp.Kafka() {
			what = "Kafka spout"
		}
		id := m.node(sp.Name, `(["%s<br/>%s"])`, sp.Name, what)
		for _, t := range sp.Info.Topics {
			m.line("  %s --> %s", m.topic(t), id)
		}
		if sp.Info.Pattern != "" {
			m.line("  %s --> %s", m.topic(sp.Info.Pattern), id)
		}
	}
	for i := range s.Bolts {
		b := &s.Bolts[i]
		where := "local"
		if b.Placed {
			where = "placed"
		}
		id := m.node(b.Name, `["%s<br/>%s, %s"]`, b.Name, count(b.Tasks, "task"), where)
		for _, in := range b.Inputs {
			label := in.Grouping.String()
			if in.Stream != "" {
				label = in.Stream + ": " + label
			}
			m.line("  %s -- %q --> %s", m.nodes[in.From], text(label), id)
		}
		if k := b.Info.Sink; k != nil {
			name := k.Topic
			if name == "" {
				name = "topics that inputs choose"
			}
			m.line("  %s --> %s", id, m.topic(name))
		}
	}
	for i := range s.Spouts {
		if s.Guarantee == killick.AtMostOnce {
			break // what fails is dropped
		}
		for _, t := range deadLetters(&s.Spouts[i], s.Name) {
			m.line("  %s -. dead letters .-> %s", m.nodes[s.Spouts[i].Name], m.topic(t))
		}
	}
	return m.b.String()
}

type chart struct {
	b      strings.Builder
	nodes  map[string]string // component -> id
	topics []string
}

func (m *chart) line(format string, args ...any) { fmt.Fprintf(&m.b, format+"\n", args...) }

// node writes a component's node and returns its id.
func (m *chart) node(component, shape string, args ...any) string {
	id := fmt.Sprintf("c%d", len(m.nodes))
	m.nodes[component] = id
	for i := range args {
		args[i] = text(args[i].(string))
	}
	m.line("  "+id+shape, args...)
	return id
}

// topic returns the id of a topic's node, which it writes the first time.
func (m *chart) topic(name string) string {
	for i, t := range m.topics {
		if t == name {
			return fmt.Sprintf("t%d", i)
		}
	}
	m.topics = append(m.topics, name)
	id := fmt.Sprintf("t%d", len(m.topics)-1)
	m.line(`  %s[("%s")]`, id, text(name))
	return id
}

// text makes a name harmless inside the quotes of a label.
func text(s string) string {
	return strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", `\`, "#92;", "\n", " ").Replace(s)
}
