package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// server serves /livez, /readyz and /metrics. It owns one goroutine, which close waits for.
type server struct {
	http *http.Server
	ln   net.Listener
	done chan struct{}
}

// serve starts the server; with HTTP "off" it serves nothing.
func serve(w *Worker) (*server, error) {
	if w.cfg.HTTP == "off" {
		return &server{}, nil
	}
	ln, err := net.Listen("tcp", w.cfg.HTTP)
	if err != nil {
		return nil, fmt.Errorf("worker: http address %s: %w; choose another with --http, or off", w.cfg.HTTP, err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), newCollector(w))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", w.livez)
	mux.HandleFunc("GET /readyz", w.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	s := &server{ln: ln, done: make(chan struct{}), http: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			w.log.Error().Err(err).Msg("the http server has ended")
		}
	}()
	w.log.Info().Str("address", ln.Addr().String()).Msg("health and metrics")
	return s, nil
}

func (s *server) close() {
	if s.http == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	<-s.done
}

// HTTPAddr is where health and metrics are served, once Run has started; "" before, and when
// they are off.
func (w *Worker) HTTPAddr() string {
	if s := w.http.Load(); s != nil && s.ln != nil {
		return s.ln.Addr().String()
	}
	return ""
}

// Check is one line of readiness.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text,omitempty"` // what is wrong, or worth knowing
}

// contactLimit is how long no broker may have answered. Heartbeats make sure that one does.
const contactLimit = 60 * time.Second

// Ready lists what readiness looks at; ok is whether all of it is well.
func (w *Worker) Ready() (ok bool, checks []Check) {
	ok = true
	add := func(name string, good bool, format string, args ...any) {
		c := Check{Name: name, OK: good}
		if !good {
			c.Text = fmt.Sprintf(format, args...)
			ok = false
		}
		checks = append(checks, c)
	}
	st := state(w.state.Load())
	add("state", st == stateRunning, "the worker is %s", st)
	if !w.built.Load() {
		return ok, checks
	}
	add("spouts", true, "")
	if paused := w.Paused(); len(paused) > 0 { // somebody wants it so: that is no fault
		checks[len(checks)-1].Text = "paused: " + strings.Join(paused, ", ")
	}
	add("prepared", w.engine.Ready(), "a component's Prepare has not succeeded yet")
	var stuck []string
	for _, s := range w.engine.Stuck() {
		stuck = append(stuck, stuckText(s))
	}
	add("tasks", len(stuck) == 0, "%s", strings.Join(stuck, "; "))
	if w.reader == nil {
		return ok, checks
	}
	status := w.reader.Status()
	switch {
	case status.Outside != "":
		add("group", false, "%s", status.Outside)
	case !w.reader.Joined():
		add("group", false, "no assignment from group %q yet", w.cfg.Group)
	default:
		add("group", true, "")
		if status.Standby != "" {
			checks[len(checks)-1].Text = "stands by: " + status.Standby
		}
	}
	at := w.reader.Contact()
	add("kafka", time.Since(at) < contactLimit, "no broker has answered since %s", at.Format(time.RFC3339))
	letters := w.letters.Stats()
	add("dead-letters", letters.Since.IsZero(), "%d dead letters cannot be written since %s: %v", letters.Waiting, letters.Since.Format(time.RFC3339), letters.Err)
	var stopped, blocked []string
	for _, p := range status.Partitions {
		if p.Stopped != "" {
			stopped = append(stopped, fmt.Sprintf("%s/%d has stopped: %s", p.Topic, p.Partition, p.Stopped))
		}
		if p.Blocked != "" {
			blocked = append(blocked, fmt.Sprintf("%s/%d: %s", p.Topic, p.Partition, p.Blocked))
		}
	}
	add("partitions", len(stopped) == 0, "%s", strings.Join(stopped, "; "))
	add("commits", len(blocked) == 0, "%s", strings.Join(blocked, "; "))
	add("floors", true, "") // a record may take long, and the reason is worth knowing
	checks[len(checks)-1].Text = strings.Join(w.holders(status), "; ")
	return ok, checks
}

// livez says whether the process works, not whether Kafka does: a broker that is away must not
// make somebody restart all workers.
func (w *Worker) livez(rw http.ResponseWriter, _ *http.Request) {
	if !w.alive() {
		rw.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(rw, "a loop of the worker hangs")
		return
	}
	fmt.Fprintln(rw, "ok")
}

func (w *Worker) alive() bool { return !w.built.Load() || w.reader == nil || w.reader.Alive() }

func (w *Worker) readyz(rw http.ResponseWriter, _ *http.Request) {
	ok, checks := w.Ready()
	rw.Header().Set("Content-Type", "application/json")
	if !ok {
		rw.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(rw).Encode(struct {
		Ready  bool    `json:"ready"`
		Checks []Check `json:"checks"`
	}{ok, checks})
}
