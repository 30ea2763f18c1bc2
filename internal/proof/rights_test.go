//go:build unix && killick_crash

package proof

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/kafkaenv"
	"github.com/killick-io/killick/worker"
)

// right is a line of the list in docs/security.md.
type right struct {
	text      string
	operation kadm.ACLOperation
	kind      string // topic or group
	name      string
	prefixed  bool
}

var aclLine = regexp.MustCompile(`^kafka-acls\.sh .* --add --allow-principal User:orders --operation (\w+) --(topic|group) (\S+)( --resource-pattern-type prefixed)?$`)

// documented reads the list of rights in docs/security.md.
func documented(t *testing.T) (all []right) {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(doc)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "kafka-acls.sh") {
			continue
		}
		m := aclLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("docs/security.md has a line that is not understood: %s", line)
		}
		op, err := kmsg.ParseACLOperation(m[1])
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, right{text: m[1] + " on " + m[2] + " " + m[3], operation: op, kind: m[2], name: m[3], prefixed: m[4] != ""})
	}
	return all
}

// acl is the right for topics and a group of this test: the names of the document with the test's
// name before them.
func (r right) acl(prefix string) *kadm.ACLBuilder {
	b := kadm.NewACLs().Operations(r.operation).Allow("User:orders").AllowHosts("*")
	pattern := kadm.ACLPatternLiteral
	if r.prefixed {
		pattern = kadm.ACLPatternPrefixed
	}
	if r.kind == "group" {
		return b.Groups(prefix + r.name).ResourcePatternType(pattern)
	}
	return b.Topics(prefix + r.name).ResourcePatternType(pattern)
}

// TestRights (row 69): a worker runs with just the rights that docs/security.md lists, and without
// any one of them it ends soon, with an error that names what it lacks.
func TestRights(t *testing.T) {
	t.Parallel()
	k := cluster(t, kafkaenv.User("orders", canary), kafkaenv.ACLs())
	rights := documented(t)
	if len(rights) < 4 {
		t.Fatalf("docs/security.md lists %d rights", len(rights))
	}
	// try runs a worker over one good record and one that becomes a dead letter.
	try := func(t *testing.T, without int) {
		w := newWorld(t, k)
		in := w.topic("orders", 1)
		out := w.topic("payments", 1)
		w.write(in, 0, "good", "bad")
		prefix := w.name + "."
		for i, r := range rights {
			if i == without {
				continue
			}
			if _, err := w.adm.CreateACLs(w.ctx(), r.acl(prefix)); err != nil {
				t.Fatal(err)
			}
		}
		top := killick.New("billing")
		top.Spout("in", spout.Kafka(in))
		top.Bolt("pay", bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			if string(in.Bytes()) == "bad" {
				return killick.Permanent(errNo)
			}
			out.Emit(killick.Message{Bytes: in.Bytes()})
			return nil
		})).Shuffle("in")
		top.Bolt("out", bolt.Kafka(out)).Shuffle("pay")
		start := time.Now()
		r := w.start(top, func(c *worker.Config) {
			c.Bootstrap, c.Group = k.AddrsOf(kafkaenv.SASL), prefix+"killick.billing"
			c.SecurityProtocol, c.SASL = "sasl_plaintext", worker.SASL{Mechanism: "SCRAM-SHA-256", User: "orders", Password: worker.NewSecret(canary)}
		})
		w.name = prefix + "killick.billing" // whose positions drained looks at
		if without < 0 {
			w.drained(in)
			r.end()
			if got := w.read(out); len(got) != 1 || string(got[0].Value) != "good" {
				t.Errorf("the output has %d records", len(got))
			}
			if got := w.read(in + ".billing.dlq"); len(got) != 1 || string(got[0].Value) != "bad" {
				t.Errorf("the dead letters are %d", len(got))
			}
			return
		}
		lacks := rights[without]
		err := r.wait()
		t.Logf("after %v: %v", time.Since(start).Round(10*time.Millisecond), err)
		if !says(err, strings.ToUpper(fmt.Sprint(lacks.operation)), prefix+lacks.name) || worker.ExitCode(err) != 1 {
			t.Errorf("exit code %d: %v; want the operation and the %s named", worker.ExitCode(err), err, lacks.kind)
		}
		if at := w.committed(in); at[0] > 0 {
			t.Errorf("committed up to %d", at[0])
		}
	}
	t.Run("all", func(t *testing.T) { try(t, -1) })
	for i, r := range rights {
		t.Run("without "+r.text, func(t *testing.T) { try(t, i) })
	}
}
