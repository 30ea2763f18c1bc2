package worker

import "github.com/prometheus/client_golang/prometheus"

// Collector is what /metrics shows of a worker, for tests in virtual time, where nothing listens.
func (w *Worker) Collector() prometheus.Collector { return newCollector(w) }

// Alive is what /livez says.
func (w *Worker) Alive() bool { return w.alive() }

// Dump is what SIGUSR1 does.
func (w *Worker) Dump() { w.dump() }

// ProgressText is what the progress line shows, without a rate.
func (w *Worker) ProgressText() string {
	s, ok := w.sample()
	if !ok {
		return ""
	}
	return s.text(sample{})
}
