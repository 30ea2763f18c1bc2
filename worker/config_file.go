package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxFileBytes bounds a configuration file; a larger one is not one.
const maxFileBytes = 1 << 20

// setting is one value that was found somewhere.
type setting struct {
	key    *key
	values []string
	millis bool   // the text is a Java duration
	shown  string // what messages show instead of the value
	place  string
	inFile bool // its place does not name the key
}

// fileReader walks the nodes of one YAML file. It reads nodes rather than
// decoding into a struct, because only nodes know line and column, duplicate
// keys, and the text as it was written (group: 1.10 stays "1.10").
type fileReader struct {
	name   string
	lookup func(string) (string, bool) // variables for ${...}
	found  []setting
	wrong  mistakes
	seen   map[string]string // key or refused name -> place of its first value
}

// readFile reads one document. The mistakes it returns all begin with
// name:line:column.
func readFile(name string, data []byte, lookup func(string) (string, bool)) ([]setting, mistakes) {
	r := &fileReader{name: name, lookup: lookup, seen: make(map[string]string)}
	if n, what := badText(data); what != "" {
		r.wrong.add(r.offset(data, n), "%s", what)
		return nil, r.wrong
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	err := dec.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF):
		r.wrong.add(name+":1:1", "the document is empty; leave the file out for the defaults")
		return nil, r.wrong
	case err != nil:
		r.syntax(data, err)
		return nil, r.wrong
	}
	r.document(&doc)
	// A second document would silently be dropped.
	var second yaml.Node
	switch err := dec.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		r.syntax(data, err)
	default:
		r.wrong.add(r.at(&second), "a second document; one file holds one")
	}
	return r.found, r.wrong
}

// badText finds what YAML forbids everywhere, since the parser names no place
// for it.
func badText(data []byte) (offset int, what string) {
	for i := 0; i < len(data); {
		c, size := utf8.DecodeRune(data[i:])
		switch {
		case c == utf8.RuneError && size <= 1:
			return i, "not UTF-8 text"
		case c < ' ' && c != '\t' && c != '\n' && c != '\r', c == 0x7f:
			return i, fmt.Sprintf("control character %#02x", c)
		}
		i += size
	}
	return 0, ""
}

// offset is the place of a byte.
func (r *fileReader) offset(data []byte, n int) string {
	before := data[:n]
	line := 1 + bytes.Count(before, []byte{'\n'})
	column := 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return fmt.Sprintf("%s:%d:%d", r.name, line, column)
}

// at is the place of a node.
func (r *fileReader) at(n *yaml.Node) string {
	return fmt.Sprintf("%s:%d:%d", r.name, max(n.Line, 1), max(n.Column, 1))
}

// The parser puts the line, if it knows it, into its text only.
var (
	errorLine   = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)
	errorAnchor = regexp.MustCompile(`unknown anchor '([^']*)' referenced`)
)

// syntax adds the parser's own error at its place.
func (r *fileReader) syntax(data []byte, err error) {
	text := err.Error()
	line := 1
	if m := errorLine.FindStringSubmatch(text); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = max(n, 1)
		}
		text = text[len(m[0]):]
	}
	place := fmt.Sprintf("%s:%d:1", r.name, line)
	if m := errorAnchor.FindStringSubmatch(text); m != nil {
		if n := bytes.Index(data, []byte("*"+m[1])); n >= 0 {
			place = r.offset(data, n)
		}
	}
	r.wrong.add(place, "not YAML: %s", text)
}

// document reads the top of the file.
func (r *fileReader) document(doc *yaml.Node) {
	root := doc
	if root.Kind == yaml.DocumentNode && len(root.Content) > 0 {
		root = root.Content[0]
	}
	root = deref(root)
	switch {
	case root.Kind == yaml.MappingNode && len(root.Content) > 0:
		r.mapping("", root)
	case root.Kind == yaml.MappingNode, root.Kind == yaml.DocumentNode, isNull(root):
		r.wrong.add(r.at(root), "the document is empty; leave the file out for the defaults")
	default:
		r.wrong.add(r.at(root), "wants keys such as \"group: orders\", not %s", kindOf(root))
	}
}

// mapping reads the keys below a path. Unknown keys are not descended into, so
// depth is bounded by the table, also through aliases that point upwards.
func (r *fileReader) mapping(path string, m *yaml.Node) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		name, value := deref(m.Content[i]), m.Content[i+1]
		if name.Kind != yaml.ScalarNode {
			r.wrong.add(r.at(m.Content[i]), "a key must be a word, not %s", kindOf(name))
			continue
		}
		if name.ShortTag() == "!!merge" {
			r.wrong.add(r.at(name), "merge keys (<<) are not supported; write the keys out")
			continue
		}
		r.entry(join(path, name.Value), m.Content[i], value)
	}
}

// entry reads one key, by its own or its Java name.
func (r *fileReader) entry(path string, at, value *yaml.Node) {
	node := deref(value)
	k, millis := lookupKey(path), false
	if k == nil {
		if k = lookupJava(path); k != nil {
			millis = strings.HasSuffix(k.java, ".ms")
		}
	}
	if k != nil {
		if !r.first(k.name, path, at) {
			return
		}
		values, shown, ok := r.values(path, value, node, k.isSecret())
		if ok {
			r.found = append(r.found, setting{k, values, millis, shown, r.at(value), true})
		}
		return
	}
	if rule, ok := lookupRule(path); ok {
		if !r.first(path, path, at) {
			return
		}
		values, _, ok := r.values(path, value, node, true)
		if ok && (len(values) != 1 || !rule.allows(values[0])) {
			r.wrong.add(r.at(at), "%s is refused: %s", path, rule.why)
		}
		return
	}
	if isSection(path) {
		switch {
		case node.Kind == yaml.MappingNode:
			r.mapping(path, node)
		case isNull(node): // a section whose keys are all commented out
		default:
			r.wrong.add(r.at(value), "%s wants keys below it, not %s", path, kindOf(node))
		}
		return
	}
	r.wrong.add(r.at(at), "unknown key %s: %s", quote(path), unknown(path, func(k *key) string { return k.name }))
}

// first says whether this is the first value for a key; if not it adds the
// mistake. One setting under two of its names is a duplicate as well.
func (r *fileReader) first(name, path string, at *yaml.Node) bool {
	place := r.at(at)
	if before, ok := r.seen[name]; ok {
		r.wrong.add(place, "%s is set twice, first at %s", path, before)
		return false
	}
	r.seen[name] = place
	return true
}

// values gives the scalar, or the elements of a sequence, with variables put in.
// at is the node that messages name, node what it stands for.
func (r *fileReader) values(path string, at, node *yaml.Node, secret bool) (values []string, shown string, ok bool) {
	switch {
	case isNull(node):
		r.wrong.add(r.at(at), "%s has no value; leave it out for the default", path)
		return nil, "", false
	case node.Kind == yaml.ScalarNode:
		text, ok := r.scalar(path, at, node)
		// The template, not what the variable holds: it may be a secret.
		shown := node.Value
		if secret {
			shown = redacted
		}
		return []string{text}, shown, ok
	case node.Kind == yaml.SequenceNode:
		if k := lookupKey(path); k == nil || !k.isList() {
			if k = lookupJava(path); k == nil || !k.isList() {
				r.wrong.add(r.at(at), "%s wants one value, not a list", path)
				return nil, "", false
			}
		}
		ok = true
		for _, e := range node.Content {
			n := deref(e)
			if n.Kind != yaml.ScalarNode || isNull(n) {
				r.wrong.add(r.at(e), "%s wants words in its list, not %s", path, kindOf(n))
				ok = false
				continue
			}
			text, good := r.scalar(path, e, n)
			ok = ok && good
			values = append(values, text)
		}
		return values, "", ok
	}
	r.wrong.add(r.at(at), "%s wants a value, not %s", path, kindOf(node))
	return nil, "", false
}

// scalar gives the text of one scalar.
func (r *fileReader) scalar(path string, at, n *yaml.Node) (string, bool) {
	if n.Style&yaml.TaggedStyle != 0 {
		r.wrong.add(r.at(at), "%s has a tag (%s); tags are not supported", path, quote(n.Tag))
		return "", false
	}
	text, wrong := expandVars(n.Value, r.lookup)
	if wrong != "" {
		r.wrong.add(r.at(at), "%s: %s", path, wrong)
		return "", false
	}
	return text, true
}

// isSection says whether keys begin with path.
func isSection(path string) bool {
	for k := range configKeys() {
		if strings.HasPrefix(k.name, path+".") || k.java != "" && strings.HasPrefix("kafka."+k.java, path+".") {
			return true
		}
	}
	return false
}

// join puts a path together.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// deref follows an alias to its anchor; the parser lets an alias point to
// anchors only, never to another alias.
func deref(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// isNull says whether a node is YAML's null, also the empty one.
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// kindOf names a node's kind for a message.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	}
	return "a single value"
}
