package check

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// The checker must not share code with what it checks: outside its tests it imports the standard library only.
func TestImportsStandardLibraryOnly(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		ast, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		seen++
		for _, im := range ast.Imports {
			if first, _, _ := strings.Cut(strings.Trim(im.Path.Value, `"`), "/"); strings.Contains(first, ".") {
				t.Errorf("%s imports %s", f, im.Path.Value)
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d files looked at", seen)
	}
}

func TestExpect(t *testing.T) {
	for _, c := range []struct {
		id, cents int64
		status    string
		calls     []string
	}{
		{100000, 25000, "paid", []string{"paid"}},
		{100000, 25001, "rejected", nil},
		{100011, 5000, "paid", []string{"error", "paid"}},                        // 37 * 2703
		{100011, 25001, "rejected", nil},                                         // rejected comes first
		{100091, 5000, "paid", []string{"error", "error", "paid"}},               // 101 * 991
		{100899, 5000, "paid", []string{"error", "error", "paid"}},               // 37 * 101 * 27: twice wins
		{102295, 5000, "payment failed", []string{"declined"}},                   // 499 * 205
		{100798, 5000, "payment failed", []string{"error", "error", "declined"}}, // 499 * 101 * 2
		{104242, 5000, "", []string{"error", "error", "error", "error", "error"}},
	} {
		w := expect([]byte(`{"id":` + itoa(c.id) + `,"customer":"A","item":"B","cents":` + itoa(c.cents) + `,"delay":1,"at":"x"}`))
		if w.status != c.status || !slices.Equal(w.calls, c.calls) || w.poison {
			t.Errorf("order %d over %d: %+v, want %q with %q", c.id, c.cents, w, c.status, c.calls)
		}
	}
	for _, v := range []string{"", `{"id":1`, `{"id":"1"}`, "[]", "{}x"} {
		if w := expect([]byte(v)); !w.poison || !w.dead() || w.calls != nil {
			t.Errorf("%q: %+v, want poison", v, w)
		}
	}
}

func TestReadPayments(t *testing.T) {
	got, err := ReadPayments(strings.NewReader(
		`{"order":100000,"attempt":1,"outcome":"paid","at":5,"process":7}` + "\n" + `{"order":100003,"attempt":2,"outcome":"error","at":6,"process":7}` + "\n"))
	want := []Payment{{100000, 1, "paid", 5, 7}, {100003, 2, "error", 6, 7}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	_, err = ReadPayments(strings.NewReader(
		`{"order":100000,"attempt":1,"outcome":"paid","at":5,"process":7}` + "\n" + `{"order":1` + "\n" + `{"order":1,"attempt":0,"outcome":"paid","at":5,"process":7}` + "\n"))
	if err == nil || !strings.Contains(err.Error(), "payments:2") || !strings.Contains(err.Error(), "payments:3") {
		t.Errorf("error %v, want both lines named", err)
	}
	if _, err = ReadPayments(closed{}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v, want the reader's", err)
	}
}

type closed struct{}

func (closed) Read([]byte) (int, error)  { return 0, os.ErrClosed }
func (closed) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestReportText(t *testing.T) {
	r := &Report{
		Records: 6000, Ways: Ways{5676, 310, 12, 1, 1}, Trees: 6101, Reruns: 101, Tries: 6059, Retries: 277, Notifications: 6098, DeadLetters: 2,
		Duplicates: Duplicates{Notifications: 100, Payments: 95, Roots: 100, Bound: 300}, Samples: 104,
		Partitions: []PartitionReport{{0, 1500, 1500, 1500}, {1, 4500, 4500, 4500}},
		Kills: []KillReport{{At: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC), Saved: 480, Open: 3101,
			Partitions: []KillPartition{{0, 250, 1500, 480, 770}, {1, -1, 4500, 0, 4500}}}},
		Violations: []Violation{
			{Kind: Regress, Partition: -1, Offset: -1, Detail: "partition 1 at 03:04:05.006: committed 3, before it was 4"},
			{Kind: Loss, Partition: 1, Offset: 7, Order: 100003, Detail: "no notification"},
			{Kind: DeadLetterMissing, Partition: 1, Offset: 9, Detail: "no dead letter"},
		},
	}
	const want = `orders: DOES NOT ADD UP, 3 violations
  records             6000   5676 paid, 310 rejected, 12 payment failed, 1 undecodable, 1 undeliverable
  trees               6101   101 of them ran again after a kill
  payment calls       6059   277 of them retries
  notifications       6098
  dead letters           2
  duplicates           100   records (bound 300): 100 notifications, 95 payments, 0 dead letters
  commits seen         104   samples of committed offsets

killed at 03:04:05.006 UTC: the completion map saved 480 finished records from running again, 3101 were still to run
  partition  committed         of      saved     to run
          0        250       1500        480        770
          1       none       4500          0       4500

at the end
  partition  committed         of
          0       1500       1500
          1       4500       4500

violations
  regress: partition 1 at 03:04:05.006: committed 3, before it was 4
  loss: record 1@7, order 100003: no notification
  dead-letter-missing: record 1@9: no dead letter
`
	var b strings.Builder
	if err := r.WriteText(&b); err != nil || b.String() != want {
		t.Errorf("error %v, got\n%s\nwant\n%s", err, b.String(), want)
	}
	if err := r.WriteText(closed{}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v, want the writer's", err)
	}
	for len(r.Violations) < 25 {
		r.Violations = append(r.Violations, r.Violations[0])
	}
	b.Reset()
	if err := r.WriteText(&b); err != nil || !strings.HasSuffix(b.String(), "  ... and 5 more\n") {
		t.Errorf("error %v, a long list ends %q", err, b.String()[b.Len()-40:])
	}
	r.Violations, r.OK = nil, true
	b.Reset()
	if err := r.WriteText(&b); err != nil || !strings.HasPrefix(b.String(), "orders: everything adds up\n") || strings.Contains(b.String(), "violations") {
		t.Errorf("error %v, got %s", err, b.String())
	}
}

func TestReportJSON(t *testing.T) {
	h := clean(t, short)
	h.MaxDuplicates = 1
	r, err := Check(*h)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"ok", "records", "ways", "trees", "reruns", "tries", "retries", "notifications", "dead_letters", "duplicates",
		"samples", "partitions", "kills", "violations"} {
		if _, ok := m[k]; !ok {
			t.Errorf("no %q in %s", k, b)
		}
		delete(m, k)
	}
	if len(m) != 0 {
		t.Errorf("undocumented fields %v", m)
	}
}
