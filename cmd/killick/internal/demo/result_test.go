package demo

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/killick-io/killick/examples/orders/check"
)

func TestResult(t *testing.T) {
	r := Result{OK: true, Broker: "the embedded broker", Seconds: 7.25, Kill: Kill{PID: 11, Through: 2500}, Successor: 12,
		Report: &check.Report{OK: true, Records: 6000}}
	var text, js strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"on the embedded broker, 7.2 seconds", "Worker 11 was killed with SIGKILL when 2500 of 6000",
		"worker 12 went on", "everything adds up"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("text does not say %q:\n%s", want, &text)
		}
	}
	if err := r.WriteJSON(&js); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(js.String()), &got); err != nil || got["ok"] != true || got["report"].(map[string]any)["records"] != 6000.0 {
		t.Errorf("JSON %s, %v", &js, err)
	}
}
