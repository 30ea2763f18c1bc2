package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/tabwriter"
)

// report is everything that a run has found.
type report struct {
	Go      string `json:"go"`
	OS      string `json:"os"`
	Cores   int    `json:"cores"`
	Procs   int    `json:"gomaxprocs"` // of the process under test
	GOGC    int    `json:"gogc"`
	Ballast int    `json:"ballast_mib"`
	Batch   int    `json:"batch_records"`
	Commit  string `json:"commit_interval"`
	Fetch   string `json:"fetch"`
	Pairs   int    `json:"pairs"`
	Rows    []row  `json:"rows"`
}

// row is one arm at one size.
type row struct {
	Arm        string   `json:"arm"`
	Size       int      `json:"value_bytes"`
	Records    int64    `json:"records_per_slice"`
	Own        side     `json:"own"`
	Bare       side     `json:"bare"`
	CPU        spread   `json:"cpu_ratio"`  // bare / own: above 1 is cheaper than the bare loop
	Rate       spread   `json:"rate_ratio"` // own / bare: above 1 is faster
	OwnSlices  []result `json:"own_slices"`
	BareSlices []result `json:"bare_slices"`
}

// side sums the slices of an arm up.
type side struct {
	CPUMedian   float64 `json:"cpu_ns_median"` // per record
	CPUMin      float64 `json:"cpu_ns_min"`
	RateMedian  float64 `json:"records_per_second_median"`
	RateMax     float64 `json:"records_per_second_max"`
	Collections float64 `json:"collections_median"`
	Allocs      float64 `json:"allocs_per_record"`
	Bytes       float64 `json:"bytes_per_record"`
	Beyond      float64 `json:"decoded_beyond_the_end"` // share of the records
}

// spread is a median of pairs with its bootstrap interval.
type spread struct {
	Median float64 `json:"median"`
	Lo     float64 `json:"lo95"`
	Hi     float64 `json:"hi95"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func sideOf(rs []result) side {
	of := func(f func(r result) float64) []float64 {
		var out []float64
		for _, r := range rs {
			out = append(out, f(r))
		}
		return out
	}
	cpu, rate := of(result.cpuPerRecord), of(result.rate)
	return side{CPUMedian: median(cpu), CPUMin: slices.Min(cpu), RateMedian: median(rate), RateMax: slices.Max(rate),
		Collections: median(of(func(r result) float64 { return float64(r.Collections) })),
		Allocs:      median(of(func(r result) float64 { return float64(r.Allocs) / float64(r.Records) })),
		Bytes:       median(of(func(r result) float64 { return float64(r.AllocBytes) / float64(r.Records) })),
		Beyond:      median(of(func(r result) float64 { return float64(r.Decoded)/float64(r.Records) - 1 })),
	}
}

func spreadOf(xs []float64) spread {
	lo, hi := interval(xs)
	return spread{median(xs), lo, hi, slices.Min(xs), slices.Max(xs)}
}

func (p plan) report(all []pairs) report {
	r := report{Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), Procs: 1, GOGC: p.gogc, Ballast: p.ballast,
		Batch: p.batch, Commit: p.commit.String(), Pairs: p.rounds - 1,
		Fetch: fmt.Sprintf("%d KiB of each partition, wait %v", p.fetch>>10, fetchMaxWait)}
	for _, ps := range all {
		r.Rows = append(r.Rows, row{Arm: ps.arm, Size: ps.size, Records: ps.own[0].Records, Own: sideOf(ps.own), Bare: sideOf(ps.bare),
			CPU:       spreadOf(ps.ratios(func(bare, own result) float64 { return bare.cpuPerRecord() / own.cpuPerRecord() })),
			Rate:      spreadOf(ps.ratios(func(bare, own result) float64 { return own.rate() / bare.rate() })),
			OwnSlices: ps.own, BareSlices: ps.bare})
	}
	return r
}

func (r report) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r report) text(w io.Writer) error {
	fmt.Fprintf(w, "%s %s, %d cores; processes under test: GOMAXPROCS=%d GOGC=%d ballast %d MiB\n", r.Go, r.OS, r.Cores, r.Procs, r.GOGC, r.Ballast)
	fmt.Fprintf(w, "%d partitions, uncompressed batches of %d records, fetch %s, commit each %s; %d pairs, the first round thrown away\n",
		partitions, r.Batch, r.Fetch, r.Commit, r.Pairs)
	fmt.Fprintln(w, "every slice: count, sum of values and committed offsets are right; ratios are above 1 where the arm is better than bare")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "value B\tarm\trecords\tCPU-ns med\tmin\tbare med\tmin\tCPU ratio\t95 %\tmin..max\trate ratio\tM rec/s\tbare\tGCs\tbare\tallocs\tB/rec\tbare B/rec\tbeyond\tbare\t")
	for _, x := range r.Rows {
		fmt.Fprintf(t, "%d\t%s\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.3f\t%.3f..%.3f\t%.2f..%.2f\t%.3f\t%.2f\t%.2f\t%.0f\t%.0f\t%.3f\t%.0f\t%.0f\t%.1f%%\t%.1f%%\t\n",
			x.Size, x.Arm, x.Records, x.Own.CPUMedian, x.Own.CPUMin, x.Bare.CPUMedian, x.Bare.CPUMin, x.CPU.Median, x.CPU.Lo, x.CPU.Hi, x.CPU.Min, x.CPU.Max,
			x.Rate.Median, x.Own.RateMedian/1e6, x.Bare.RateMedian/1e6, x.Own.Collections, x.Bare.Collections, x.Own.Allocs, x.Own.Bytes, x.Bare.Bytes,
			100*x.Own.Beyond, 100*x.Bare.Beyond)
	}
	return t.Flush()
}
