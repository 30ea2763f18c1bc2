package worker

import (
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/engine"
)

// collector turns the worker's counters into metrics when they are asked for: nothing is counted
// twice on the hot path. Labels are bounded: components, streams, topics and partitions, never
// keys or offsets.
type collector struct {
	w     *Worker
	descs []*prometheus.Desc
	m     map[string]*prometheus.Desc
}

// metric names, with help and labels beside topology.
var metrics = []struct {
	name, help string
	labels     []string
}{
	{"killick_tuples_emitted_total", "Messages that components emitted.", []string{"component", "stream"}},
	{"killick_tuples_executed_total", "Executions of tuples. result: ack (returned or acked well, or held), fail, dead, skip (its tree had failed already).", []string{"component", "result"}},
	{"killick_execute_duration_seconds", "Time in user code per execution, sampled by batch.", []string{"component"}},
	{"killick_execute_inflight", "Goroutines that execute the component now.", []string{"component"}},
	{"killick_backpressure_seconds_total", "Time that what a component emitted waited for room at the tasks downstream.", []string{"component"}},
	{"killick_held_tuples", "Held tuples without a verdict.", []string{"component"}},
	{"killick_queued_batches", "Batches that wait at the component's tasks.", []string{"component"}},
	{"killick_trees_completed_total", "Roots whose trees have ended. result: acked, dead, skipped, replayed.", []string{"spout", "result"}},
	{"killick_trees_pending", "Roots that were started and have not ended.", []string{"spout"}},
	{"killick_tree_duration_seconds", "Time from the start of a root's last attempt to the end of its tree, retries included, of one root in 64.", []string{"spout"}},
	{"killick_retries_total", "Tries after the first. kind: tuple, tree.", []string{"component", "kind"}},
	{"killick_timeouts_total", "Tries that user code had for longer than the message time-out.", []string{"component"}},
	{"killick_retries_waiting", "Tuples and roots that wait for their next try.", nil},
	{"killick_dead_letters_total", "Dead letters that are durable.", []string{"reason"}},
	{"killick_dead_letter_errors_total", "Tries to write a dead letter that failed.", nil},
	{"killick_dead_letters_waiting", "Dead letters that are not durable yet; their records are not committed.", nil},
	{"killick_ignored_acks_total", "Verdicts that changed nothing. reason: double, late, lost_partition.", []string{"reason"}},
	{"killick_misuse_total", "Uses of an emitter or handle after its end.", []string{"component"}},
	{"killick_ledger_pending", "Records that were delivered and have not ended.", []string{"topic", "partition"}},
	{"killick_ledger_gap_offsets", "Position less floor: offsets that a crash may run again.", []string{"topic", "partition"}},
	{"killick_ledger_head_age_seconds", "How long the floor has been held by the same open record.", []string{"topic", "partition"}},
	{"killick_committed_offset", "Last committed offset.", []string{"topic", "partition"}},
	{"killick_consumer_lag", "Offsets up to the last stable one that are not committed.", []string{"topic", "partition"}},
	{"killick_paused_partitions", "Partitions whose fetching is paused by the high water.", nil},
	{"killick_paused_spouts", "1 for a spout that somebody has paused, else 0.", []string{"spout"}},
	{"killick_careful", "1 while the process runs one record at a time, to find the one that kills it.", nil},
	{"killick_careful_records_total", "Records that ran alone. result: run, convicted (set aside unexecuted).", []string{"result"}},
	{"killick_partition_deaths", "Owners in a row that died while records of the partition were open which may be open again.", []string{"topic", "partition"}},
	{"killick_stopped_partitions", "Partitions that have stopped and need a person.", nil},
	{"killick_lost_offsets_total", "Offsets that left the log before they were read.", nil},
	{"killick_commits_total", "Committed positions. result: ok, refused, failed.", []string{"result"}},
	{"killick_commit_duration_seconds", "Time of commit requests.", nil},
	{"killick_rebalances_total", "Group callbacks that named partitions. kind: assigned, revoked, lost.", []string{"kind"}},
	{"killick_released_partitions_total", "Partitions that were given to another worker. how: clean (all their trees had ended), cut (not all had, and run again there).", []string{"how"}},
	{"killick_release_duration_seconds", "Time from the end of a partition's intake to its release.", nil},
	{"killick_drain_duration_seconds", "How long the stop of the worker has been draining; 0: it does not stop.", nil},
	{"killick_worker_info", "The worker's number in its group, \"none\" before it has one, its place, and whether it stands by.", []string{"number", "place", "standby"}},
	{"killick_drain_abandoned_total", "Roots that were open when their partition went away.", nil},
	{"killick_dropped_total", "Records of an at-most-once topology that are known to be dropped. reason: failed (its one try), abandoned (it was committed and had not ended when its partition went away).", []string{"reason"}},
	{"killick_log_lines_lost_total", "Log lines that could not be written; not counted where the program has brought a logger of its own.", nil},
	{"killick_build_info", "Version of killick and of Go.", []string{"version", "goversion"}},
}

func newCollector(w *Worker) *collector {
	c := &collector{w: w, m: map[string]*prometheus.Desc{}}
	for _, d := range metrics {
		desc := prometheus.NewDesc(d.name, d.help, d.labels, prometheus.Labels{"topology": w.spec.Name})
		c.m[d.name] = desc
		c.descs = append(c.descs, desc)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	count := func(name string, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(c.m[name], prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(name string, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(c.m[name], prometheus.GaugeValue, v, labels...)
	}
	gauge("killick_build_info", 1, version(), runtime.Version())
	if g := c.w.gate; g != nil {
		count("killick_log_lines_lost_total", g.w.lost.Load())
	}
	if !c.w.built.Load() {
		return
	}
	gauge("killick_drain_duration_seconds", c.w.draining().Seconds())
	histogram := func(name string, bounds []float64, counts []int64, nanos int64, labels ...string) {
		buckets, sum := map[float64]uint64{}, uint64(0)
		for i, bound := range bounds {
			sum += uint64(counts[i])
			buckets[bound] = sum
		}
		ch <- prometheus.MustNewConstHistogram(c.m[name], sum+uint64(counts[len(counts)-1]), float64(nanos)/1e9, buckets, labels...)
	}
	seconds := func(name string, nanos int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(c.m[name], prometheus.CounterValue, float64(nanos)/1e9, labels...)
	}
	e := c.w.engine
	bolts, spouts := e.Stats()
	for _, b := range bolts {
		for stream, n := range b.Emitted {
			count("killick_tuples_emitted_total", n, b.Component, stream)
		}
		count("killick_tuples_executed_total", max(0, b.Executed-b.Failed), b.Component, "ack")
		count("killick_tuples_executed_total", b.Failed, b.Component, "fail")
		count("killick_tuples_executed_total", b.Dead, b.Component, "dead")
		count("killick_tuples_executed_total", b.Skipped, b.Component, "skip")
		count("killick_retries_total", b.Retries, b.Component, "tuple")
		count("killick_retries_total", b.Replays, b.Component, "tree")
		count("killick_timeouts_total", b.Timeouts, b.Component)
		count("killick_misuse_total", b.Misuse, b.Component)
		gauge("killick_held_tuples", float64(b.Held), b.Component)
		gauge("killick_queued_batches", float64(b.Queued), b.Component)
		gauge("killick_execute_inflight", float64(b.Running), b.Component)
		seconds("killick_backpressure_seconds_total", b.Blocked, b.Component)
		histogram("killick_execute_duration_seconds", engine.DurationBounds[:], b.Buckets, b.Nanos, b.Component)
	}
	dropped := int64(0)
	for _, s := range spouts {
		dropped += s.Dead + s.Skipped
		count("killick_tuples_emitted_total", s.Emitted, s.Spout, "")
		for result, n := range map[string]int64{"acked": s.Acked, "dead": s.Dead, "skipped": s.Skipped, "replayed": s.Replayed} {
			count("killick_trees_completed_total", n, s.Spout, result)
		}
		gauge("killick_trees_pending", float64(s.Pending), s.Spout)
		seconds("killick_backpressure_seconds_total", s.Blocked, s.Spout)
		histogram("killick_tree_duration_seconds", engine.TreeBounds[:], s.TreeBuckets, s.TreeNanos, s.Spout)
		paused := 0.0
		if c.w.pauses.has(s.Spout) {
			paused = 1
		}
		gauge("killick_paused_spouts", paused, s.Spout)
	}
	gauge("killick_retries_waiting", float64(e.Waiting()))
	for reason, n := range map[string]int64{"double": e.Ignored.Double.Load(), "late": e.Ignored.Late.Load(), "lost_partition": e.Ignored.Lost.Load()} {
		count("killick_ignored_acks_total", n, reason)
	}
	if c.w.spec.Guarantee == killick.AtMostOnce {
		count("killick_dropped_total", dropped, "failed")
		if c.w.reader != nil {
			count("killick_dropped_total", c.w.reader.Status().Stats.Abandoned, "abandoned")
		}
	}
	if c.w.reader != nil {
		c.kafka(count, gauge, ch)
	}
}

func (c *collector) kafka(count func(string, int64, ...string), gauge func(string, float64, ...string), ch chan<- prometheus.Metric) {
	l := c.w.letters.Stats()
	for reason, n := range l.ByReason {
		count("killick_dead_letters_total", n, reason)
	}
	count("killick_dead_letter_errors_total", l.Errors)
	gauge("killick_dead_letters_waiting", float64(l.Waiting))
	s := c.w.reader.Status()
	paused, stopped := 0, 0
	for i := range s.Partitions {
		p := &s.Partitions[i]
		id := strconv.Itoa(int(p.Partition))
		if p.Stopped != "" {
			stopped++
			continue
		}
		if p.Paused {
			paused++
		}
		gauge("killick_partition_deaths", float64(p.Deaths), p.Topic, id)
		gauge("killick_ledger_pending", float64(p.Started+p.Waiting), p.Topic, id)
		gauge("killick_ledger_gap_offsets", float64(p.Next-p.Floor), p.Topic, id)
		gauge("killick_ledger_head_age_seconds", p.HeadAge.Seconds(), p.Topic, id)
		if p.Committed >= 0 {
			gauge("killick_committed_offset", float64(p.Committed), p.Topic, id)
		}
		if lag := p.Lag(); lag >= 0 { // unknown is not zero
			gauge("killick_consumer_lag", float64(lag), p.Topic, id)
		}
	}
	careful := 0.0
	if !s.Careful.Since.IsZero() {
		careful = 1
	}
	gauge("killick_careful", careful)
	count("killick_careful_records_total", s.Careful.Alone, "run")
	count("killick_careful_records_total", s.Careful.Convicted, "convicted")
	gauge("killick_paused_partitions", float64(paused))
	gauge("killick_stopped_partitions", float64(stopped))
	rel := s.Releases
	count("killick_released_partitions_total", rel.Clean, "clean")
	count("killick_released_partitions_total", rel.Cut, "cut")
	ch <- prometheus.MustNewConstSummary(c.m["killick_release_duration_seconds"], uint64(rel.Clean+rel.Cut), float64(rel.Nanos)/1e9, nil)
	number := "none"
	if s.Number >= 0 {
		number = strconv.Itoa(int(s.Number))
	}
	gauge("killick_worker_info", 1, number, c.w.cfg.Place, strconv.FormatBool(s.Standby != ""))
	count("killick_lost_offsets_total", s.Stats.LostOffsets)
	count("killick_drain_abandoned_total", s.Stats.Abandoned)
	for result, n := range map[string]int64{"ok": s.Commits.OK, "refused": s.Commits.Refused, "failed": s.Commits.Failed} {
		count("killick_commits_total", n, result)
	}
	ch <- prometheus.MustNewConstSummary(c.m["killick_commit_duration_seconds"], uint64(s.Commits.Requests), float64(s.Commits.Nanos)/1e9, nil)
	for kind, n := range map[string]int64{"assigned": s.Stats.Assigned, "revoked": s.Stats.Revoked, "lost": s.Stats.Lost} {
		count("killick_rebalances_total", n, kind)
	}
}

// version is the module's version in the binary that runs.
func version() string {
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, d := range b.Deps {
			if d.Path == "github.com/killick-io/killick" {
				return d.Version
			}
		}
		if b.Main.Path == "github.com/killick-io/killick" {
			return b.Main.Version
		}
	}
	return "unknown"
}
