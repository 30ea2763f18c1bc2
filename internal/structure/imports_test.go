package structure

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// Modules that packages may import, by what they are for.
const (
	kafkaClient = "github.com/twmb/franz-go"
	logger      = "github.com/rs/zerolog"
	metrics     = "github.com/prometheus/client_golang"
	yaml        = "go.yaml.in/yaml/v3"
	fakeBroker  = "github.com/twmb/franz-go/pkg/kfake"
)

// arrow says what the packages below a path may import, beside the standard library.
type arrow struct {
	from string   // a path below the module, or a pattern of path.Match
	own  []string // packages of this module; "public" is all that users may import
	mods []string // other modules, by the beginning of the path
	free bool     // anything
	why  string
}

// arrows are the rules, the first that fits counts. Packages that hold a guarantee are pure or
// nearly so; those that users link stay light; examples show that the public packages suffice.
var arrows = []arrow{
	{from: "internal/rules", why: "everything may import it"},
	{from: "internal/crash", why: "what ends in a special build may import it"},
	{from: "ack", own: []string{"internal/rules"}, why: "pure: no goroutine, clock or network"},
	{from: "offsets", own: []string{"internal/rules"}, why: "pure: no goroutine, clock or network"},
	{from: "internal/core", own: []string{"internal/rules"}, why: "the bodies of the root's types"},
	{from: ".", own: []string{"internal/core"}, why: "the language, and nothing of what runs it"},
	{from: "spout", own: []string{"."}, why: "says where records come from; the engine's side is internal"},
	{from: "bolt", own: []string{"."}, why: "what a user could write as well"},
	{from: "internal/engine", own: []string{".", "ack", "internal/core", "internal/crash", "internal/rules"}, why: "one process, no Kafka: sources are Feeds"},
	{from: "internal/kafka", own: []string{"internal/rules"}, mods: []string{kafkaClient}, why: "Kafka, and nothing of topologies"},
	{from: "internal/partition", own: []string{"ack", "offsets", "internal/core", "internal/engine", "internal/rules"}, mods: []string{kafkaClient},
		why: "one partition, without the group that it was assigned by"},
	{from: "internal/outbox", own: []string{".", "ack", "internal/core", "internal/crash", "internal/engine", "internal/partition", "internal/rules"},
		mods: []string{kafkaClient}, why: "what leaves the process"},
	{from: "internal/balance", own: []string{"internal/rules"}, why: "pure: who owns which partition is a function of what members say"},
	{from: "internal/group", own: []string{".", "ack", "offsets", "spout", "internal/balance", "internal/crash", "internal/kafka", "internal/partition", "internal/rules"},
		mods: []string{kafkaClient, logger}, why: "membership and commits"},
	{from: "internal/tty", why: "for package worker and the command: nothing but the standard library"},
	{from: "worker", own: []string{".", "ack", "offsets", "spout", "internal/core", "internal/crash", "internal/engine", "internal/group", "internal/kafka",
		"internal/outbox", "internal/partition", "internal/rules", "internal/tty"}, mods: []string{kafkaClient, logger, metrics, yaml}, why: "puts all that together"},
	{from: "testenv/bubble", why: "virtual time, for anyone's tests"},
	{from: "testenv/kafkaenv", own: []string{"testenv/internal/jvm"}, mods: []string{kafkaClient, "golang.org/x/sync"}, why: "Kafka as processes, for anyone's tests"},
	{from: "testenv/internal/*", why: "servers of tests"},
	{from: "testenv/embedded", mods: []string{kafkaClient}, why: "a broker for anyone's tests"},
	{from: "testenv/faults", own: []string{"internal/crash"}, mods: []string{kafkaClient}, why: "faults for anyone's tests, of any broker"},
	{from: "testenv/verify", mods: []string{kafkaClient}, why: "a judge shares no code with what it judges"},
	{from: "testenv", own: []string{".", "ack", "internal/core", "internal/engine", "internal/rules", "testenv/bubble"}, why: "tests of topologies need no Kafka"},
	{from: "examples/*/check", why: "a judge shares no code with what it judges"},
	{from: "examples/*", own: []string{"public", "examples"}, why: "public packages must suffice"},
	{from: "examples/*/*", own: []string{"public", "examples"}, why: "public packages must suffice"},
	{from: "examples/*/*/*", own: []string{"public", "examples"}, why: "public packages must suffice"},
	{from: "cmd/*", free: true},
	{from: "cmd/*/internal/*", free: true},
	{from: "internal/tools/*", why: "they run before anything else builds"},
	{from: "internal/structure"},
	{from: "internal/proof", free: true},
	{from: "internal/bench", free: true},
	{from: "internal/bench/*", free: true},
}

var public = []string{".", "ack", "offsets", "spout", "bolt", "worker", "testenv", "testenv/bubble", "testenv/embedded", "testenv/faults", "testenv/kafkaenv", "testenv/verify"}

func (a *arrow) allows(from, imp string) bool {
	if a.free || std(imp) {
		return true
	}
	if !own(imp) {
		return slices.ContainsFunc(a.mods, func(m string) bool {
			return (imp == m || strings.HasPrefix(imp, m+"/")) && (!strings.HasPrefix(imp, fakeBroker) || from == "testenv/embedded")
		})
	}
	imp = short(imp)
	for _, o := range a.own {
		switch {
		case o == imp,
			o == "public" && slices.Contains(public, imp),
			o == "examples" && sameExample(from, imp):
			return true
		}
	}
	return false
}

// sameExample reports whether both are folders of one story.
func sameExample(a, b string) bool {
	x, y := strings.Split(a, "/"), strings.Split(b, "/")
	return len(x) > 1 && len(y) > 1 && x[0] == "examples" && y[0] == "examples" && x[1] == y[1]
}

func rule(from string) *arrow {
	for i := range arrows {
		if ok, err := path.Match(arrows[i].from, from); ok && err == nil {
			return &arrows[i]
		}
	}
	return nil
}

// TestArrows compares what the packages import with the rules.
func TestArrows(t *testing.T) {
	used := map[*arrow]bool{}
	for _, p := range packages(t) {
		a := rule(p.short())
		if a == nil {
			t.Errorf("package %s has no rule: add what it may import to arrows", p.short())
			continue
		}
		used[a] = true
		for _, imp := range p.Imports {
			if !a.allows(p.short(), imp) {
				t.Errorf("%s imports %s, which it must not: %s", p.short(), imp, a.why)
			}
		}
	}
	for i := range arrows {
		if a := &arrows[i]; !used[a] && !strings.Contains(a.from, "*") {
			t.Errorf("the rule for %s is for no package", a.from)
		}
	}
}

// TestArrowsCatch plants imports that must be found.
func TestArrowsCatch(t *testing.T) {
	for _, tt := range []struct{ from, imp string }{
		{".", module + "/ack"},
		{".", logger},
		{"ack", module + "/internal/core"},
		{"offsets", "github.com/cespare/xxhash/v2"},
		{"bolt", module + "/internal/core"},
		{"internal/engine", kafkaClient + "/pkg/kgo"},
		{"internal/engine", module + "/internal/partition"},
		{"internal/partition", module + "/internal/group"},
		{"worker", module + "/testenv/embedded"},
		{"worker", fakeBroker},
		{"worker", "github.com/spf13/cobra"},
		{"testenv", kafkaClient + "/pkg/kgo"},
		{"testenv/verify", module + "/offsets"},
		{"testenv/verify", fakeBroker},
		{"examples/orders", module + "/internal/engine"},
		{"examples/orders", module + "/examples/other/topology"},
		{"examples/orders/check", module + "/offsets"},
	} {
		if a := rule(tt.from); a == nil || a.allows(tt.from, tt.imp) {
			t.Errorf("%s may import %s", tt.from, tt.imp)
		}
	}
}

// TestWorkerLinks looks at what is linked into a user's program: over all levels.
func TestWorkerLinks(t *testing.T) {
	banned := map[string]string{
		fakeBroker:                   "the embedded broker",
		module + "/testenv":          "test support",
		module + "/cmd":              "the command",
		module + "/examples":         "examples",
		module + "/internal/tools":   "tools of the project",
		"testing":                    "package testing, whose flags would show up in programs",
		"pgregory.net/rapid":         "a test library",
		"go.uber.org/goleak":         "a test library",
		"github.com/google/go-cmp":   "a test library",
		"github.com/stretchr":        "a test library",
		"honnef.co/go/tools":         "a linter",
		"net/http/pprof":             "handlers that it would add to the default mux",
		"github.com/spf13":           "a library for commands",
		"github.com/go-zookeeper/zk": "the coordinator's client: nothing here uses it",
	}
	// What may come in, by module: each is a decision, since a user cannot leave it out.
	allowed := []string{
		kafkaClient, logger, metrics, yaml,
		"github.com/klauspost/compress", "github.com/pierrec/lz4", // franz-go: compression
		"github.com/mattn/go-colorable", "github.com/mattn/go-isatty", // zerolog: the console
		"github.com/beorn7/perks", "github.com/cespare/xxhash/v2", "github.com/prometheus/client_model", "github.com/prometheus/common",
		"github.com/prometheus/procfs", "github.com/munnerz/goautoneg", "google.golang.org/protobuf", // the Prometheus client
		"golang.org/x/sys", "golang.org/x/crypto", "golang.org/x/sync", "golang.org/x/text", "golang.org/x/net",
	}
	below := func(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
	for _, p := range packages(t) {
		if !slices.Contains([]string{"worker", ".", "bolt", "spout", "ack", "offsets"}, p.short()) {
			continue
		}
		for _, d := range p.Deps {
			for b, what := range banned {
				if below(d, b) {
					t.Errorf("package %s links %s: %s", p.short(), d, what)
				}
			}
			if !std(d) && !own(d) && !slices.ContainsFunc(allowed, func(a string) bool { return below(d, a) }) {
				t.Errorf("package %s links %s, of a module that is not on the list", p.short(), d)
			}
			if p.short() != "worker" && !std(d) && !own(d) {
				t.Errorf("package %s links %s; it needs the standard library only", p.short(), d)
			}
		}
	}
}

// banned imports have something better, here.
var bannedImports = map[string]string{
	"io/ioutil":                          "use io and os",
	"math/rand":                          "use math/rand/v2",
	"github.com/pkg/errors":              "use errors and fmt",
	"gopkg.in/yaml.v3":                   "use " + yaml,
	"gopkg.in/yaml.v2":                   "use " + yaml,
	"github.com/stretchr/testify":        "use testing and go-cmp",
	"github.com/hashicorp/go-multierror": "use errors.Join",
}

func TestBannedImports(t *testing.T) {
	for _, f := range goFiles(t) {
		for _, imp := range f.ast.Imports {
			p := strings.Trim(imp.Path.Value, `"`)
			for b, why := range bannedImports {
				if p == b || strings.HasPrefix(p, b+"/") && b != "math/rand" {
					t.Errorf("%s: imports %s: %s", f.place(imp), p, why)
				}
			}
			if p == "unsafe" && !f.test {
				t.Errorf("%s: imports unsafe, which only tests may, to measure sizes", f.place(imp))
			}
			// The logger comes in by the configuration; the default one would write beside it.
			if p == "log" && !f.test && f.ast.Name.Name != "main" {
				t.Errorf("%s: imports log; loggers come in by the configuration", f.place(imp))
			}
			if p == "flag" && !f.test && f.ast.Name.Name != "main" && !strings.HasPrefix(f.path, "worker/") && !strings.HasPrefix(f.path, "cmd/") {
				t.Errorf("%s: imports flag, which is for worker and for commands", f.place(imp))
			}
		}
	}
}
