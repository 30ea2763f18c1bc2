package worker_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// redLines are the names of the checks that are not well.
func (r *running) redLines() string {
	_, checks := r.Ready()
	var red []string
	for _, c := range checks {
		if !c.OK {
			red = append(red, c.Name)
		}
	}
	return strings.Join(red, ",")
}

// Readiness, state by state: which checks are red. Where nothing is said, all are green.
func TestReadinessTruthTable(t *testing.T) {
	for name, tt := range map[string]struct {
		red string
		do  func(s *story, r *running)
	}{
		"running":       {"", func(*story, *running) {}},
		"idle for long": {"", func(s *story, _ *running) { s.pass(5 * time.Minute) }},
		"no broker answers": {"kafka", func(s *story, _ *running) {
			s.b.Down()
			s.pass(2 * time.Minute)
		}},
		"the broker is back": {"", func(s *story, r *running) {
			s.b.Down()
			s.pass(2 * time.Minute)
			if err := s.b.Up(); err != nil {
				s.Fatal(err)
			}
			s.until("green again", func() bool { return r.redLines() == "" })
			s.produce("in", 0, "a")
			s.drained("in")
		}},
		"a short outage": {"", func(s *story, r *running) {
			s.b.Down()
			s.pass(10 * time.Second)
			if got := r.redLines(); got != "" {
				s.Errorf("red after 10 s: %s", got)
			}
			if err := s.b.Up(); err != nil {
				s.Fatal(err)
			}
			s.pass(30 * time.Second)
		}},
		"dead letters cannot be written": {"dead-letters", func(s *story, _ *running) {
			s.failWrites(dlq, kerr.NotEnoughReplicas, -1)
			s.produce("in", 0, "poison")
			s.pass(time.Minute)
		}},
		"a partition has stopped": {"partitions", func(s *story, r *running) {
			if err := s.b.Cluster().DeleteTopic("other"); err != nil {
				s.Fatal(err)
			}
			s.pass(time.Minute)
		}},
		"commits are refused": {"commits", func(s *story, _ *running) {
			s.b.Fail(kmsg.OffsetCommit, kerr.GroupAuthorizationFailed, -1)
			s.produce("in", 0, "a")
			s.pass(10 * time.Second)
		}},
		"draining": {"state", func(s *story, r *running) {
			s.produce("in", 0, "stuck")
			s.until("it is stuck", func() bool { return r.metric("killick_trees_pending") == 1 })
			r.stop()
			s.pass(5 * time.Second)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				top := killick.New("t")
				top.Spout("in", spout.Kafka("in", "other"))
				top.Bolt("x", bolt.Func(func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
					switch string(in.Bytes()) {
					case "poison":
						return killick.Permanent(errTry)
					case "stuck":
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				})).Shuffle("in").Timeout(time.Hour)
				r := s.start(top, func(c *worker.Config) { c.FetchMaxWait = 2 * time.Second })
				s.drained("in")
				s.drained("other")
				if got := r.redLines(); got != "" {
					t.Fatalf("red at the start: %s", got)
				}
				tt.do(s, r)
				if got := r.redLines(); got != tt.red {
					_, checks := r.Ready()
					t.Errorf("red: %q, want %q: %+v", got, tt.red, checks)
				}
			}, embedded.Topic("in", 1), embedded.Topic("other", 1))
		})
	}
}

// A worker that commits seldom, or cannot reach a broker, is alive all the same.
func TestAlive(t *testing.T) {
	tell(t, func(s *story) {
		r := s.start(counting(new(tally), spout.Kafka("in"), nil), func(c *worker.Config) {
			c.CommitInterval, c.FetchMaxWait, c.Heartbeat = time.Hour, 5*time.Second, 3*time.Second
		})
		s.drained("in")
		for _, down := range []bool{false, true} {
			if down {
				s.b.Down()
			}
			for range 4 {
				s.pass(time.Minute)
				if !r.Alive() {
					t.Fatalf("it counts as hung; broker away: %v", down)
				}
			}
		}
		if err := s.b.Up(); err != nil {
			t.Fatal(err)
		}
		r.end()
	}, embedded.Topic("in", 1))
}

// Before the first assignment, and while a component does not come up, a worker is not ready.
func TestNotReadyBeforeItRuns(t *testing.T) {
	tell(t, func(s *story) {
		w, err := worker.New(counting(new(tally), spout.Kafka("in"), nil), s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if ok, checks := w.Ready(); ok || len(checks) != 1 || !contains(checks[0].Text, "new") {
			t.Errorf("a new worker: %+v", checks)
		}
		gate := make(chan struct{})
		held := s.b.Hold(kmsg.JoinGroup, gate)
		up := make(chan struct{})
		top := killick.New("t")
		top.Spout("in", spout.Kafka("in"))
		top.Bolt("x", func() killick.Bolt { return prepared{up} }).Shuffle("in")
		r := s.start(top)
		if err := held.Wait(s.ctx(), 1); err != nil {
			t.Fatal(err)
		}
		s.until("it runs, and is not ready", func() bool { return r.redLines() == "prepared,group" })
		close(gate)
		held.Remove()
		s.until("it has joined", func() bool { ok, _ := r.ready("group"); return ok })
		if got := r.redLines(); got != "prepared" {
			t.Errorf("red before Prepare: %s", got)
		}
		close(up)
		s.until("ready", func() bool { return r.redLines() == "" })
		r.end()
		if got := r.redLines(); !contains(got, "state") {
			t.Errorf("red after the end: %s", got)
		}
	}, embedded.Topic("in", 1))
}

// prepared is a bolt that takes its time to come up.
type prepared struct{ up chan struct{} }

func (p prepared) Prepare(ctx context.Context, _ killick.Task) error {
	select {
	case <-p.up:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (prepared) Execute(context.Context, *killick.Tuple, killick.Emitter) error { return nil }

// Over HTTP: the codes, the body, and metrics that parse, keep Prometheus' rules, and add up.
func TestHTTP(t *testing.T) {
	b := embedded.Start(t, embedded.Topic("in", 2))
	s := newStory(t, b)
	s.cfg.HTTP = "127.0.0.1:0"
	s.produce("in", 0, numbers(0, 100)...)
	s.produce("in", 1, "poison")
	var c tally
	r := s.start(counting(&c, spout.Kafka("in"), func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		switch v := string(in.Bytes()); {
		case v == "poison":
			return killick.Permanent(errTry)
		case v == "7" && c.of(v) == 1:
			return errTry
		}
		return nil
	}))
	s.drained("in")
	get := func(path string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.HTTPAddr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	defer http.DefaultClient.CloseIdleConnections()
	if code, body := get("/livez"); code != 200 || body != "ok\n" {
		t.Errorf("livez: %d %s", code, body)
	}
	var ready struct {
		Ready  bool
		Checks []worker.Check
	}
	if code, body := get("/readyz"); code != 200 || json.Unmarshal([]byte(body), &ready) != nil || !ready.Ready || len(ready.Checks) < 6 {
		t.Errorf("readyz: %d %s", code, body)
	}
	if code, _ := get("/nothing"); code != 404 {
		t.Errorf("/nothing: %d", code)
	}
	var text string
	s.until("the commits are counted", func() bool { _, text = get("/metrics"); return strings.Contains(text, "killick_consumer_lag") })
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("metrics do not parse: %v", err)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
	value := func(name string, labels ...string) float64 { return r.metric(name, labels...) }
	for _, m := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"killick_tuples_emitted_total", []string{"component=in"}, 101},
		{"killick_tuples_executed_total", []string{"component=count", "result=ack"}, 100},
		{"killick_tuples_executed_total", []string{"component=count", "result=fail"}, 2},
		{"killick_tuples_executed_total", []string{"component=count", "result=dead"}, 1},
		{"killick_trees_completed_total", []string{"spout=in", "result=acked"}, 100},
		{"killick_trees_completed_total", []string{"spout=in", "result=dead"}, 1},
		{"killick_trees_pending", nil, 0},
		{"killick_retries_total", []string{"component=count", "kind=tuple"}, 1},
		{"killick_dead_letters_total", []string{"reason=permanent"}, 1},
		{"killick_dead_letters_waiting", nil, 0},
		{"killick_committed_offset", []string{"topic=in", "partition=0"}, 100},
		{"killick_committed_offset", []string{"topic=in", "partition=1"}, 1},
		{"killick_ledger_pending", nil, 0},
		{"killick_ledger_gap_offsets", nil, 0},
		{"killick_paused_partitions", nil, 0},
		{"killick_stopped_partitions", nil, 0},
		{"killick_rebalances_total", []string{"kind=assigned"}, 1},
		{"killick_commits_total", []string{"result=refused"}, 0},
		{"killick_build_info", nil, 1},
	} {
		if got := value(m.name, m.labels...); got != m.want {
			t.Errorf("%s%v = %v, want %v", m.name, m.labels, got, m.want)
		}
		if families[m.name] == nil {
			t.Errorf("%s is not in the answer", m.name)
		}
	}
	if h := families["killick_execute_duration_seconds"]; h == nil || h.Metric[0].GetHistogram().GetSampleCount() != 102 {
		t.Errorf("killick_execute_duration_seconds: %v", h)
	}
	for name := range families {
		if strings.HasPrefix(name, "killick_") && !contains(text, "# HELP "+name+" ") {
			t.Errorf("%s has no help", name)
		}
	}
	r.end()
	if r.HTTPAddr() == "" {
		t.Error("the address is forgotten")
	}
}
