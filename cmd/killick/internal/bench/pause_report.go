package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// PauseReport is what [Pause] has found. In JSON the fields have these names.
type PauseReport struct {
	Broker  string       `json:"broker"`
	Go      string       `json:"go"`
	Cores   int          `json:"cores"`
	Others  int          `json:"other_partitions"`
	Rate    int          `json:"records_per_second_of_each"`
	Busy    int64        `json:"busy_records"`
	For     string       `json:"time_of_each_measurement"`
	Load    string       `json:"load_average,omitempty"` // of the machine, see alo.Load
	Idle    []IdleRow    `json:"idle"`
	Latency []LatencyRow `json:"latency"`
	Drain   []DrainRow   `json:"drain"`
}

// IdleRow is what a worker does while no record comes.
type IdleRow struct {
	Wait    float64 `json:"fetch_max_wait_ms"`
	Fetches float64 `json:"fetches_per_second"`
	CPU     float64 `json:"cpu_ms_per_second"` // of this process; what it does to measure included
}

// LatencyRow is what records of the other partitions took, from the time that they were due to their execution, while the
// busy partition was in a state.
type LatencyRow struct {
	Wait    float64 `json:"fetch_max_wait_ms"`
	State   string  `json:"busy_partition"`
	Records int     `json:"records"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	Max     float64 `json:"max_ms"`
	Fetches float64 `json:"fetches_per_second"`
	Busy    float64 `json:"busy_records_per_second"`
	// Pauses are gaps of more than 5 ms between two batches that were read of the busy partition.
	Pauses float64 `json:"busy_pauses_per_second"`
}

// DrainRow is how the busy partition was read, while the others were silent.
type DrainRow struct {
	Wait    float64 `json:"fetch_max_wait_ms"`
	Window  string  `json:"window"`
	Rate    float64 `json:"records_per_second"`
	Fetches float64 `json:"fetches_per_second"`
	// Again is how many records were decoded for one that was delivered: a pause drops what the client has fetched ahead.
	Again  float64 `json:"decoded_per_record"`
	Pauses float64 `json:"pauses_per_second"`
}

func newPauseReport(p *probe) PauseReport {
	return PauseReport{Broker: p.k.what, Go: runtime.Version(), Cores: runtime.NumCPU(), Others: others, Rate: p.o.Rate, Busy: p.busyEnd, For: p.o.For.String()}
}

func newIdleRow(wait time.Duration, c counts, cpu, took time.Duration) IdleRow {
	return IdleRow{Wait: ms(wait), Fetches: per(c.fetches, took), CPU: ms(cpu) / took.Seconds()}
}

func newLatencyRow(wait time.Duration, s state, ls []time.Duration, c counts, took time.Duration) LatencyRow {
	ls = slices.Sorted(slices.Values(ls))
	return LatencyRow{Wait: ms(wait), State: string(s), Records: len(ls), P50: ms(percentile(ls, 50)), P99: ms(percentile(ls, 99)), Max: ms(percentile(ls, 100)),
		Fetches: per(c.fetches, took), Busy: per(c.ended, took), Pauses: per(c.gaps, took)}
}

// newDrainRow is of what has been up to the end, and of the part that took the time.
func newDrainRow(wait time.Duration, window int64, all, c counts, took time.Duration) DrainRow {
	return DrainRow{Wait: ms(wait), Window: FormatBytes(window), Rate: per(c.ended, took), Fetches: per(c.fetches, took),
		Again: float64(all.read) / float64(max(all.ended, 1)), Pauses: per(c.gaps, took)}
}

func ms(d time.Duration) float64              { return float64(d) / float64(time.Millisecond) }
func per(n int64, took time.Duration) float64 { return float64(n) / took.Seconds() }
func percentile(sorted []time.Duration, p int) time.Duration {
	// The nearest rank: the least value that p per cent of all do not exceed.
	return sorted[max((len(sorted)*p+99)/100, 1)-1]
}

// JSON writes the report as one object.
func (r PauseReport) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Text writes the report for people.
func (r PauseReport) Text(w io.Writer) error {
	fmt.Fprintf(w, "%s; %s, %d cores\n", r.Broker, r.Go, r.Cores)
	if r.Load != "" {
		fmt.Fprintf(w, "load average: %s\n", r.Load)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nNo records at all:")
	fmt.Fprintln(t, "fetch_max_wait\tfetches/s\tCPU ms/s\t")
	for _, x := range r.Idle {
		fmt.Fprintf(t, "%gms\t%.0f\t%.1f\t\n", x.Wait, x.Fetches, x.CPU)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nLatency of %d partitions with %d records a second each, beside one that is busy, for %s each:\n", r.Others, r.Rate, r.For)
	fmt.Fprintln(t, "fetch_max_wait\tbusy one\trecords\tp50 ms\tp99 ms\tmax ms\tfetches/s\tbusy records/s\tpauses/s\t")
	for _, x := range r.Latency {
		fmt.Fprintf(t, "%gms\t%s\t%d\t%.1f\t%.1f\t%.1f\t%.0f\t%.0f\t%.1f\t\n", x.Wait, x.State, x.Records, x.P50, x.P99, x.Max, x.Fetches, x.Busy, x.Pauses)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nDrain of the busy partition (%d records), the others silent:\n", r.Busy)
	fmt.Fprintln(t, "fetch_max_wait\twindow\trecords/s\tfetches/s\tdecoded/record\tpauses/s\t")
	for _, x := range r.Drain {
		fmt.Fprintf(t, "%gms\t%s\t%.0f\t%.0f\t%.2f\t%.1f\t\n", x.Wait, x.Window, x.Rate, x.Fetches, x.Again, x.Pauses)
	}
	return t.Flush()
}
