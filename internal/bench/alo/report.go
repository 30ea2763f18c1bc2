package alo

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is everything that a run has found. In JSON the fields have these names.
type Report struct {
	Broker     string `json:"broker"`
	Go         string `json:"go"`
	OS         string `json:"os"`
	Cores      int    `json:"cores"`
	Procs      int    `json:"gomaxprocs"` // of the process under test
	Partitions int    `json:"partitions"`
	Batch      int    `json:"batch_records"`
	Commit     string `json:"commit_interval"`
	Fetch      string `json:"fetch"`
	Load       string `json:"load_average,omitempty"` // of the machine, see Load
	Rows       []Row  `json:"rows"`
}

// Row is a pairing at one size.
type Row struct {
	Name       string   `json:"name"`
	Arm        string   `json:"arm"`
	BaseArm    string   `json:"base_arm"`
	Size       int      `json:"value_bytes"`
	Records    int64    `json:"records_per_slice"`
	Pairs      int      `json:"pairs"`
	GOGC       int      `json:"gogc"`
	Ballast    int      `json:"ballast_mib"`
	Own        Side     `json:"own"`
	Base       Side     `json:"base"`
	CPU        Spread   `json:"cpu_ratio"`  // base / own: above 1 is cheaper than the base
	Rate       Spread   `json:"rate_ratio"` // own / base: above 1 is faster
	OwnSlices  []Result `json:"own_slices"`
	BaseSlices []Result `json:"base_slices"`
}

// Side sums the slices of an arm up.
type Side struct {
	CPU         Spread  `json:"cpu_ns"` // per record
	Rate        Spread  `json:"records_per_second"`
	Collections float64 `json:"collections_median"`
	Allocs      float64 `json:"allocs_per_record"`
	Bytes       float64 `json:"bytes_per_record"`
	Beyond      float64 `json:"decoded_beyond_the_end"` // share of the records
}

// Spread is a median with its bootstrap interval.
type Spread struct {
	Median float64 `json:"median"`
	Lo     float64 `json:"lo95"`
	Hi     float64 `json:"hi95"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func sideOf(rs []Result) Side {
	of := func(f func(r Result) float64) []float64 {
		var out []float64
		for _, r := range rs {
			out = append(out, f(r))
		}
		return out
	}
	return Side{CPU: spreadOf(of(Result.cpuPerRecord)), Rate: spreadOf(of(Result.rate)),
		Collections: median(of(func(r Result) float64 { return float64(r.Collections) })),
		Allocs:      median(of(func(r Result) float64 { return float64(r.Allocs) / float64(r.Records) })),
		Bytes:       median(of(func(r Result) float64 { return float64(r.AllocBytes) / float64(r.Records) })),
		Beyond:      median(of(func(r Result) float64 { return float64(r.Decoded)/float64(r.Records) - 1 })),
	}
}

func spreadOf(xs []float64) Spread {
	lo, hi := interval(xs)
	return Spread{median(xs), lo, hi, slices.Min(xs), slices.Max(xs)}
}

// Report sums the pairs up. The caller says what the broker was.
func (p *Plan) Report(all []Pairs, broker string) Report {
	r := Report{Broker: broker, Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), Procs: 1,
		Partitions: Partitions, Batch: p.Batch, Commit: p.Commit.String(),
		Fetch: fmt.Sprintf("%d KiB of each partition, wait %v", p.Fetch>>10, FetchMaxWait)}
	for _, ps := range all {
		s := p.slice(ps.Pairing.Own, ps.Pairing, ps.Size)
		r.Rows = append(r.Rows, Row{Name: ps.Name, Arm: ps.Pairing.Own, BaseArm: ps.Pairing.Base, Size: ps.Size, Records: ps.Own[0].Records,
			Pairs: len(ps.Own), GOGC: s.GOGC, Ballast: s.Ballast, Own: sideOf(ps.Own), Base: sideOf(ps.Base),
			CPU:       spreadOf(ps.ratios(func(base, own Result) float64 { return base.cpuPerRecord() / own.cpuPerRecord() })),
			Rate:      spreadOf(ps.ratios(func(base, own Result) float64 { return own.rate() / base.rate() })),
			OwnSlices: ps.Own, BaseSlices: ps.Base})
	}
	return r
}

// JSON writes the report as one object, with every slice.
func (r Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Text writes the report for people.
func (r Report) Text(w io.Writer) error {
	fmt.Fprintf(w, "%s; %s %s, %d cores; processes under test have GOMAXPROCS=%d\n", r.Broker, r.Go, r.OS, r.Cores, r.Procs)
	fmt.Fprintf(w, "%d partitions, uncompressed batches of %d records, fetch %s, commit each %s\n", r.Partitions, r.Batch, r.Fetch, r.Commit)
	if r.Load != "" {
		fmt.Fprintf(w, "load average: %s\n", r.Load)
	}
	fmt.Fprintln(w, "every slice: count, sum of values and committed offsets are right; ratios above 1 mean better than the base")
	for _, x := range r.Rows {
		if err := x.text(w); err != nil {
			return err
		}
	}
	return nil
}

func (x Row) text(w io.Writer) error {
	fmt.Fprintf(w, "\n%s, %d B: %d pairs of %d records, GOGC=%d, ballast %d MiB\n", x.Name, x.Size, x.Pairs, x.Records, x.GOGC, x.Ballast)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tCPU ns/record\tmin..max\tM records/s\tmin..max\tcollections\tallocs/record\tB/record\tdecoded beyond\t")
	for _, side := range []struct {
		arm string
		Side
	}{{x.Arm, x.Own}, {x.BaseArm, x.Base}} {
		fmt.Fprintf(t, "%s\t%.1f\t%.1f..%.1f\t%.2f\t%.2f..%.2f\t%.0f\t%.3f\t%.0f\t%.1f%%\t\n", side.arm, side.CPU.Median, side.CPU.Min, side.CPU.Max,
			side.Rate.Median/1e6, side.Rate.Min/1e6, side.Rate.Max/1e6, side.Collections, side.Allocs, side.Bytes, 100*side.Beyond)
	}
	fmt.Fprintf(t, "ratio\t%.3f\t%.2f..%.2f\t%.3f\t%.2f..%.2f\t\t\t\t\t\n", x.CPU.Median, x.CPU.Min, x.CPU.Max, x.Rate.Median, x.Rate.Min, x.Rate.Max)
	fmt.Fprintf(t, "95 %%\t\t%.3f..%.3f\t\t%.3f..%.3f\t\t\t\t\t\n", x.CPU.Lo, x.CPU.Hi, x.Rate.Lo, x.Rate.Hi)
	return t.Flush()
}

// Load is the machine's load average of the last minute, with the time; "" where it is not told
// (Linux tells it). A run under load says less.
func Load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one + " at " + time.Now().Format(time.TimeOnly)
}
