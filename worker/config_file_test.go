package worker

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// variables is the environment of files in tests.
func variables(name string) (string, bool) {
	v, ok := map[string]string{"HOST": "db1", "EMPTY": "", "SECRET": "hunter2", "EVIL": "x\ngroup: pwned"}[name]
	return v, ok
}

// TestFileMistakes: what is wrong in a file is named with its line, all of it at once.
// FC-47: open-telemetry/opentelemetry-collector-contrib #40145.
func TestFileMistakes(t *testing.T) {
	tests := []struct{ name, file, want string }{
		{"unknown key", "grup: x", `f:1:1: unknown key "grup": did you mean group?`},
		{"unknown key in a section", "kafka:\n  bootstrap_server: [a:1]", `f:2:3: unknown key "kafka.bootstrap_server": did you mean kafka.bootstrap_servers?`},
		{"unknown section is one mistake", "cluster:\n  a: 1\n  b: {c: 2}", `f:1:1: unknown key "cluster": --help lists all settings`},
		{"wrong level", "bootstrap.servers: a:1\nkafka:\n  drain: 1s\n  mechanism: PLAIN",
			"f:1:1: unknown key \"bootstrap.servers\": did you mean kafka.bootstrap_servers?\n" +
				"f:3:3: unknown key \"kafka.drain\": did you mean drain?\n" +
				"f:4:3: unknown key \"kafka.mechanism\": did you mean kafka.sasl.mechanism?"},
		{"duplicate key", "group: a\ndrain: 1s\ngroup: b", `f:3:1: group is set twice, first at f:1:1`},
		{"duplicate section, different keys", "kafka: {rack: a}\nkafka: {client_id: b}", ``},
		{"duplicate key over sections", "kafka: {rack: a}\nkafka.rack: b", `f:2:1: kafka.rack is set twice, first at f:1:9`},
		{"duplicate by the Java name", "kafka:\n  session_timeout: 9s\n  session.timeout.ms: 9000",
			`f:3:3: kafka.session.timeout.ms is set twice, first at f:2:3`},
		{"no unit", "drain: 30", `f:1:8: drain: "30" has no unit; write 30s or 30ms`},
		{"wrong type: list", "group: [a, b]", `f:1:8: group wants one value, not a list`},
		{"wrong type: mapping", "group: {a: b}", `f:1:8: group wants a value, not a mapping`},
		{"wrong type: section", "kafka: 5", `f:1:8: kafka wants keys below it, not a single value`},
		{"wrong type: word for a number", "topics: {replication: three}", `f:1:23: topics.replication: "three" is not a whole number`},
		{"wrong type: list of mappings", "kafka:\n  bootstrap_servers:\n  - a:1\n  - host: b", `f:4:5: kafka.bootstrap_servers wants words in its list, not a mapping`},
		{"yes is not true", "topics: {create: yes}", `f:1:18: topics.create: "yes" is neither true nor false`},
		{"a unit under a Java name", "kafka: {session.timeout.ms: 10s}",
			`f:1:29: kafka.session_timeout: "10s" is not a whole number of milliseconds, as this Java name wants`},
		{"nothing", "group:\ndrain: ~", "f:1:7: group has no value; leave it out for the default\nf:2:8: drain has no value; leave it out for the default"},
		{"empty text", `group: ""`, `f:1:8: group: is empty; leave it out for the default (killick.<topology>)`},
		{"empty list", "kafka: {bootstrap_servers: []}", `f:1:28: kafka.bootstrap_servers: is an empty list`},
		{"empty file", "", `f:1:1: the document is empty; leave the file out for the defaults`},
		{"only comments", "# nothing\n\n", `f:1:1: the document is empty; leave the file out for the defaults`},
		{"empty mapping", "{}", `f:1:1: the document is empty; leave the file out for the defaults`},
		{"null document", "---\n", `f:2:1: the document is empty; leave the file out for the defaults`},
		{"list document", "- group: a", `f:1:1: wants keys such as "group: orders", not a list`},
		{"text document", "group", `f:1:1: wants keys such as "group: orders", not a single value`},
		{"two documents", "group: a\n---\ngroup: b", `f:2:1: a second document; one file holds one`},
		{"syntax", "group: a\n  drain: 1s", `f:2:1: not YAML: mapping values are not allowed in this context`},
		{"syntax: tab", "kafka:\n\track: a", `f:2:1: not YAML: found character that cannot start any token`},
		{"syntax: second document", "group: a\n---\nb: [", `f:3:1: not YAML: did not find expected node content`},
		{"anchor", "group: a\nplace: *no", `f:2:8: not YAML: unknown anchor 'no' referenced`},
		{"control character", "group: a\nplace: b\x01", `f:2:9: control character 0x01`},
		{"not UTF-8", "group: a\nplace: \xff", `f:2:8: not UTF-8 text`},
		{"tag", "group: !!binary aGk=", `f:1:8: group has a tag ("!!binary"); tags are not supported`},
		{"merge key", "a: &a {group: x}\n<<: *a", "f:1:1: unknown key \"a\": --help lists all settings\nf:2:1: merge keys (<<) are not supported; write the keys out"},
		{"key that is no word", "[a, b]: c\n? {d: e}\n: f", "f:1:1: a key must be a word, not a list\nf:2:3: a key must be a word, not a mapping"},
		{"unset variable", "group: a-${NOPE}", `f:1:8: group: variable NOPE is not set; write ${NOPE:default} for a default`},
		{"open variable", "group: a-${NOPE", `f:1:8: group: ${ without }; write $${ for the text itself`},
		{"open literal", "group: a-${{NOPE}", `f:1:8: group: ${{ without }}`},
		{"no variable", "group: a-${no pe}", `f:1:8: group: "${no pe}" names no variable; write ${NAME} or ${NAME:default}`},
		{"a variable's value is not shown", "drain: ${SECRET}", `f:1:8: drain: "${SECRET}" is not a duration such as 500ms, 10s or 1m30s`},
		{"refused by name", "kafka:\n  enable.auto.commit: true\n  auto.commit.interval.ms: 5000\n  acks: 1\n  enable.idempotence: false\n" +
			"  partition.assignment.strategy: range\n  isolation.level: read_uncommitted\n  auto.offset.reset: latest\n  acks: all",
			"f:2:3: kafka.enable.auto.commit is refused: offsets are committed by killick alone, when trees have ended; see commit_interval\n" +
				"f:3:3: kafka.auto.commit.interval.ms is refused: offsets are committed by killick alone, when trees have ended; see commit_interval\n" +
				"f:4:3: kafka.acks is refused: a weaker value loses acknowledged outputs; it is always all\n" +
				"f:5:3: kafka.enable.idempotence is refused: without it a retry inside the client duplicates or reorders outputs; it is always on\n" +
				"f:6:3: kafka.partition.assignment.strategy is refused: killick has its own balancer, which moves a partition only when its trees have ended\n" +
				"f:7:3: kafka.isolation.level is refused: aborted records must not become tuples; it is always read_committed\n" +
				"f:8:3: kafka.auto.offset.reset is refused: where to start, and what to do when an offset is gone, belongs to the spout: KafkaSource.Start and KafkaSource.Lost\n" +
				"f:9:3: kafka.acks is set twice, first at f:4:3"},
		{"what killick does anyway", "kafka:\n  enable.auto.commit: false\n  acks: ALL\n  enable.idempotence: true\n  isolation.level: read_committed\n  group.protocol: classic", ``},
		{"an alias that points upwards", "kafka: &k\n  rack: a\n  kafka: *k", `f:3:3: unknown key "kafka.kafka": --help lists all settings`},
		{"long values are cut", "drain: " + strings.Repeat("x", 200), `f:1:8: drain: "` + strings.Repeat("x", 80) + `..." is not a duration such as 500ms, 10s or 1m30s`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found, wrong := readFile("f", []byte(tt.file), variables)
			var c Config
			c.origins = map[string]string{}
			c.apply(found, &wrong)
			var got []string
			for _, m := range wrong {
				got = append(got, m.Error())
			}
			if d := cmp.Diff(tt.want, strings.Join(got, "\n")); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestFileValues(t *testing.T) {
	file := `
group: 1.10                  # a number keeps its text
place: ${HOST}-${N:0}
prefix: "${EMPTY:kf}"
drain: &long 1m30s
topics:
log: {level: DEBUG}
kafka:
  bootstrap.servers: a:1, b:2
  client_id: "${EVIL}"
  rack: "${{HOST}} $${HOST} $HOST"
  session_timeout: *long
  linger.ms: 0
  fetch_max_bytes: 4194304
`
	found, wrong := readFile("f", []byte(file), variables)
	c := Config{origins: map[string]string{}}
	c.apply(found, &wrong)
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	got := map[string]string{}
	for _, name := range []string{"group", "place", "prefix", "drain", "log.level", "kafka.bootstrap_servers", "kafka.client_id", "kafka.rack",
		"kafka.session_timeout", "kafka.linger", "kafka.fetch_max_bytes"} {
		got[name] = lookupKey(name).text(&c)
	}
	want := map[string]string{
		"group": "1.10", "place": "db1-0", "prefix": "kf", "drain": "1m30s", "log.level": "debug", "kafka.bootstrap_servers": "a:1,b:2",
		"kafka.client_id": "x\ngroup: pwned", // put in after parsing: it cannot add a key
		"kafka.rack":      "${HOST} ${HOST} $HOST", "kafka.session_timeout": "1m30s", "kafka.linger": "0s", "kafka.fetch_max_bytes": "4MiB",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if c.Linger >= 0 {
		t.Error("an explicit linger of 0 must not turn into the default")
	}
}

func TestFileTooLarge(t *testing.T) {
	write(t, "k.yaml", "# "+strings.Repeat("x", maxFileBytes))
	_, err := Load([]string{"--config=k.yaml"}, nil)
	if d := cmp.Diff([]string{"flag --config: k.yaml is larger than 1MiB"}, lines(t, err)); d != "" {
		t.Error(d)
	}
}

// filePlace is how a mistake found in a file begins.
var filePlace = regexp.MustCompile(`^f:[1-9][0-9]*:[1-9][0-9]*: `)

// FuzzConfig: no file makes Load's reader panic, each mistake has a place in it,
// and a file without mistakes gives a Config that prints as a file which gives
// the same Config.
func FuzzConfig(f *testing.F) {
	example, err := os.ReadFile("testdata/example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	f.Fuzz(func(t *testing.T, data []byte) {
		found, wrong := readFile("f", data, variables)
		c := Config{origins: map[string]string{}}
		c.apply(found, &wrong)
		for _, m := range wrong {
			if text := m.Error(); !filePlace.MatchString(text) {
				t.Errorf("no place: %q", text)
			}
		}
		if len(wrong) > 0 || c.SASL.Password.IsSet() {
			return
		}
		// Validate may find more, but must not panic on what was read. It reads
		// files: give it none.
		c.TLS, c.SASL = TLS{}, SASL{}
		for _, line := range c.check() {
			if line.Error() == "" {
				t.Error("an empty mistake")
			}
		}
		again, wrong := readFile("f", []byte(c.String()), variables)
		d := Config{origins: map[string]string{}}
		d.apply(again, &wrong)
		if len(wrong) > 0 || d.String() != c.String() {
			t.Errorf("printed file differs: %v\n%s\n%s", wrong, c, d)
		}
	})
}

// TestExampleFile: the example in testdata has every key, with values that are
// valid together.
func TestExampleFile(t *testing.T) {
	data, err := os.ReadFile("testdata/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found, wrong := readFile("f", data, func(string) (string, bool) { return "", false })
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	have := map[string]bool{}
	for _, s := range found {
		have[s.key.name] = true
	}
	for k := range configKeys() {
		// The password has two ways, a file one of them.
		if !have[k.name] && k.name != "kafka.sasl.password" {
			t.Errorf("testdata/example.yaml lacks %s", k.name)
		}
	}
	c := Config{origins: map[string]string{}}
	c.apply(found, &wrong)
	for _, m := range append(wrong, c.check()...) {
		if !strings.Contains(m.Error(), "no such file") { // certificates are not part of the example
			t.Error(m)
		}
	}
}
