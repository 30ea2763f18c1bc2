package worker

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// docs/metrics.md has every metric, with its labels and its help, in the order of the table.
func TestMetricsAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(b), "|---|---|---|\n")
	if !ok {
		t.Fatal("docs/metrics.md has no table")
	}
	var want strings.Builder
	for _, m := range metrics {
		labels := "`" + strings.Join(m.labels, "`, `") + "`"
		if len(m.labels) == 0 {
			labels = ""
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", m.name, labels, m.help)
	}
	if got := table[:min(len(table), want.Len())]; got != want.String() {
		t.Errorf("the table of docs/metrics.md is not the one of metrics.go, which is:\n%s", &want)
	}
}
