package alo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/killick-io/killick/testenv/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inProcess is a runner without a process of its own.
func inProcess(ctx context.Context, j Job) ([]Result, error) { return j.Run(ctx) }

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// keepCollector undoes what slices do to the collector of the process.
func keepCollector(t *testing.T) {
	was := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(was) })
}

// endless starts a broker whose topic bench-100 has records without end.
func endless(t *testing.T) string {
	t.Helper()
	b, _ := NewBatch(20, 100)
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(Partitions, "bench-100"), kfake.SyntheticFetch(kfake.SyntheticBatch{Batch: b}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()[0]
}

func testSlice(t *testing.T, arm string, verify bool) Slice {
	t.Helper()
	keepCollector(t)
	s := Slice{Arm: arm, Topic: "bench-100", Group: "g", Size: 100, Batch: 20, End: 200, Fetch: 4 << 10, GOGC: 100, Commit: 20 * time.Millisecond, Verify: verify}
	if !withSink(arm) {
		s.Addr = endless(t)
		return s
	}
	// Outputs need a broker that stores, and this one stores what is read, too.
	b := embedded.Start(t, embedded.Topic("bench-100", Partitions), embedded.Topic("out-100", 3))
	s.Addr, s.Out = b.Addrs()[0], "out-100"
	fill(t, b, s)
	return s
}

func fill(t *testing.T, b *embedded.Broker, s Slice) {
	t.Helper()
	cl, err := kgo.NewClient(b.ClientOpts()...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := Fill(limited(t), cl, s.Topic, Partitions, s.Batch, s.Size, s.End); err != nil {
		t.Fatal(err)
	}
}

func TestArmsReadEachRecordOnce(t *testing.T) {
	for arm := range arms() {
		for _, verify := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", arm, verify), func(t *testing.T) {
				s := testSlice(t, arm, verify)
				r, err := s.Run(limited(t))
				if err != nil {
					t.Fatal(err)
				}
				if want := s.End * Partitions; r.Records != want || r.Decoded < want {
					t.Errorf("%d records, %d decoded; there are %d", r.Records, r.Decoded, want)
				}
				if r.CPU <= 0 || r.Wall <= 0 {
					t.Errorf("it took %v of processor time in %v", r.CPU, r.Wall)
				}
			})
		}
	}
}

func TestCommitElsewhereIsInvalid(t *testing.T) {
	s := testSlice(t, "fused", false)
	if _, err := s.Run(limited(t)); err != nil {
		t.Fatal(err)
	}
	s.End += 20
	look, err := newObserver(s)
	if err != nil {
		t.Fatal(err)
	}
	defer look.cl.Close()
	if err := look.committed(limited(t)); !errors.Is(err, ErrInvalid) {
		t.Errorf("a commit one batch short: %v", err)
	}
}

// What a sink has written is counted, and then deleted.
func TestWrittenElsewhereIsInvalid(t *testing.T) {
	s := testSlice(t, "bare-sink", false)
	look, err := newObserver(s)
	if err != nil {
		t.Fatal(err)
	}
	defer look.cl.Close()
	if _, err := s.Run(limited(t)); err != nil {
		t.Fatal(err)
	}
	for _, before := range []int64{-1, 1} { // one too many, one too few
		if err := look.wrote(limited(t), before); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d before: %v", before, err)
		}
	}
	if err := look.wrote(limited(t), 0); err != nil {
		t.Error(err)
	}
	starts, err := look.adm.ListStartOffsets(limited(t), s.Out)
	if err != nil {
		t.Fatal(err)
	}
	left := s.End * Partitions
	starts.Each(func(l kadm.ListedOffset) { left -= l.Offset })
	if left != 0 {
		t.Errorf("%d of the outputs are still there", left)
	}
}

// A topic that is not empty is not filled: its sums would be others.
func TestFillTakesEmptyTopics(t *testing.T) {
	b := embedded.Start(t, embedded.Topic("t", 2))
	cl, err := kgo.NewClient(b.ClientOpts()...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := Fill(limited(t), cl, "t", 2, 10, 100, 50); err != nil {
		t.Fatal(err)
	}
	ends, err := kadm.NewClient(cl).ListEndOffsets(limited(t), "t")
	if err != nil {
		t.Fatal(err)
	}
	for p := range int32(2) {
		if o, _ := ends.Lookup("t", p); o.Offset != 50 {
			t.Errorf("partition %d ends at %d, not 50", p, o.Offset)
		}
	}
	if err := Fill(limited(t), cl, "t", 2, 10, 100, 50); err == nil || !strings.Contains(err.Error(), "the batch is at 50") {
		t.Errorf("filled twice: %v", err)
	}
	if err := Fill(limited(t), cl, "missing", 1, 10, 100, 50); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a topic that does not exist: %v", err)
	}
	if err := Fill(limited(t), cl, "t", 3, 10, 100, 50); err == nil || !strings.Contains(err.Error(), "partition 2") {
		t.Errorf("a partition that does not exist: %v", err)
	}
}

// The checks must see a loss, a duplicate, and a loss that a duplicate hides from the count.
func TestMeterSeesWhatWentWrong(t *testing.T) {
	for name, plant := range map[string]func(vs []uint64) []uint64{
		"nothing":               func(vs []uint64) []uint64 { return vs },
		"loss":                  func(vs []uint64) []uint64 { return vs[1:] },
		"duplicate":             func(vs []uint64) []uint64 { return append(vs, vs[0]) },
		"loss beside duplicate": func(vs []uint64) []uint64 { return append(vs[1:], vs[1]) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMeter(Slice{Arm: "x", Size: 100, Batch: 1, End: 10})
			_, one := NewBatch(1, 100)
			vs := slices.Repeat([]uint64{one}, 10*Partitions)
			if name == "loss beside duplicate" { // values that differ
				m.s.Batch, m.s.End = 2, 2
				vs = vs[:0]
				for range Partitions {
					_, two := NewBatch(2, 100)
					vs = append(vs, one+7, two-one-7)
				}
			}
			ts := []*tally{m.tally(), m.tally()}
			m.begin()
			for i, v := range plant(vs) {
				ts[i%2].n++
				ts[i%2].sum += v
			}
			if _, err := m.end(); (err == nil) != (name == "nothing") || err != nil && !errors.Is(err, ErrInvalid) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestMarkSeesEachOffset(t *testing.T) {
	m := newMeter(Slice{Arm: "x", Verify: true, End: 100})
	for o := range int64(100) {
		m.mark(3, o)
	}
	if m.err != nil {
		t.Fatal(m.err)
	}
	for _, at := range []struct {
		partition int32
		offset    int64
	}{{3, 64}, {2, 100}, {2, -1}, {Partitions, 0}, {-1, 0}} {
		m.err = nil
		if m.mark(at.partition, at.offset); !errors.Is(m.err, ErrInvalid) {
			t.Errorf("partition %d, offset %d: %v", at.partition, at.offset, m.err)
		}
	}
}

// plan is one of a test; run is called for every slice.
func testPlan(arms string, rounds int, run Runner) *Plan {
	p := &Plan{Rounds: rounds, Batch: 20, Fetch: 4 << 10, GOGC: 400, Ballast: 1, Commit: time.Second, Sizes: []int{100}, Ends: map[int]int64{100: 200},
		Prefix: "bench", Run: run, Say: func(string) {},
		Topic: func(int) string { return "bench-100" }, Out: func(int) string { return "out-100" }}
	for arm := range strings.SplitSeq(arms, ",") {
		q := Pairing{Name: arm, Own: arm, Base: "bare"}
		if arm == "null" {
			q.Own = "bare"
		}
		p.Pairings = append(p.Pairings, q)
	}
	return p
}

func TestRoundsPairNeighbours(t *testing.T) {
	var ran []string
	var verified int
	groups := map[string]bool{}
	fake := func(_ context.Context, j Job) ([]Result, error) {
		s := j.Slices[0]
		ran = append(ran, s.Arm)
		groups[s.Group] = true
		if s.Verify {
			verified++
			if s.End != 40 {
				t.Errorf("the first round reads up to %d, not 40", s.End)
			}
		}
		if s.GOGC != 400 || s.Ballast != 1 {
			t.Errorf("%s has GOGC=%d and %d MiB of ballast", s.Arm, s.GOGC, s.Ballast)
		}
		cpu := map[string]time.Duration{"bare": 1, "fused": 2}[s.Arm]
		return []Result{{Arm: s.Arm, Records: 10, CPU: 10 * cpu, Wall: time.Duration(s.End) * time.Second}}, nil
	}
	p := testPlan("fused,null", 5, fake)
	ps, err := p.Measure(limited(t), 100)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(ran, " "), "bare fused bare bare fused bare bare bare fused bare bare bare bare fused bare bare bare fused bare bare"; got != want {
		t.Errorf("order:\n%s\nwant\n%s", got, want)
	}
	if verified != 4 || len(groups) != 20 {
		t.Errorf("%d slices checked each offset, and there were %d groups; want the 4 of the first round, and 20", verified, len(groups))
	}
	r := p.Report(ps, "a broker")
	if len(r.Rows) != 2 || r.Rows[0].CPU.Median != 0.5 || r.Rows[1].CPU.Median != 1 || len(r.Rows[0].OwnSlices) != 4 {
		t.Errorf("report: %+v", r)
	}
	var text, js bytes.Buffer
	if err := errors.Join(r.Text(&text), r.JSON(&js)); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || back.Rows[0].CPU != r.Rows[0].CPU {
		t.Errorf("JSON: %v: %s", err, js.String())
	}
	for _, want := range []string{"a broker", "fused, 100 B: 4 pairs of 10 records, GOGC=400, ballast 1 MiB", "0.500"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in the text:\n%s", want, text.String())
		}
	}
}

// TestRatios: each ratio is of two slices that ran one after the other, and above 1 where the own arm is better; the
// median of ratios is no ratio of medians.
func TestRatios(t *testing.T) {
	of := func(cpu, wall time.Duration) Result {
		return Result{Records: 1000, CPU: cpu * 1000, Wall: wall * time.Millisecond}
	}
	ps := Pairs{Pairing: Pairing{Name: "x", Own: "fused", Base: "pooled", Plain: true}, Size: 100,
		Base: []Result{of(100, 10), of(200, 20), of(400, 40)},
		Own:  []Result{of(200, 20), of(160, 20), of(100, 10)}}
	p := testPlan("fused", 4, nil)
	x := p.Report([]Pairs{ps}, "").Rows[0]
	if want := (Spread{1.25, 0.5, 4, 0.5, 4}); x.CPU != want {
		t.Errorf("CPU ratios %+v, want %+v", x.CPU, want)
	}
	if want := (Spread{1, 0.5, 4, 0.5, 4}); x.Rate != want {
		t.Errorf("rate ratios %+v, want %+v", x.Rate, want)
	}
	if x.Own.CPU.Median != 160 || x.Base.CPU.Median != 200 || x.Own.CPU.Min != 100 || x.Base.CPU.Max != 400 {
		t.Errorf("own %+v, base %+v: want 160 and 200 ns per record", x.Own.CPU, x.Base.CPU)
	}
	if x.Own.Rate.Median != 50_000 || x.Base.Rate.Max != 100_000 {
		t.Errorf("own %+v, base %+v: want 50,000 and at most 100,000 records a second", x.Own.Rate, x.Base.Rate)
	}
	if x.GOGC != 100 || x.Ballast != 0 || x.Pairs != 3 || x.Records != 1000 || x.BaseArm != "pooled" {
		t.Errorf("row %+v: a plain pairing has Go's own collector settings", x)
	}
}

func TestASliceThatFailsEndsTheRun(t *testing.T) {
	p := testPlan("fused", 3, func(context.Context, Job) ([]Result, error) { return nil, ErrInvalid })
	if _, err := p.Measure(limited(t), 100); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "slice bare of 100 B") {
		t.Errorf("%v", err)
	}
}

func TestRoundsOfRealSlices(t *testing.T) {
	s := testSlice(t, "", false)
	p := testPlan("fused", 2, inProcess)
	p.Addr = s.Addr
	ps, err := p.Measure(limited(t), s.Size)
	if err != nil {
		t.Fatal(err)
	}
	if len(ps) != 1 || len(ps[0].Own) != 1 || ps[0].Own[0].Records != 200*Partitions {
		t.Errorf("%+v", ps)
	}
}

// TestProfile: killick's arms alone have one, of as many slices as there were pairs.
func TestProfile(t *testing.T) {
	got := map[string]string{}
	p := testPlan("fused,null,hop", 3, func(_ context.Context, j Job) ([]Result, error) {
		for _, s := range j.Slices {
			got[j.Profile] += fmt.Sprintf("%s-%d ", s.Arm, s.Size)
		}
		return nil, nil
	})
	p.Sizes, p.Ends[1024] = []int{100, 1024}, 20
	dir := t.TempDir()
	file := filepath.Join(dir, "cpu.pprof")
	files, err := p.Profile(limited(t), file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, arm := range []string{"fused", "hop"} {
		for _, size := range p.Sizes {
			one := fmt.Sprintf("%s-%d", arm, size)
			want[filepath.Join(dir, "cpu-"+one+".pprof")] = strings.Repeat(one+" ", 2)
		}
	}
	if !maps.Equal(got, want) || len(files) != 4 {
		t.Errorf("files %q, slices %q; want %q", files, got, want)
	}
	p = testPlan("fused,null", 2, p.Run)
	clear(got)
	if files, err := p.Profile(limited(t), file); err != nil || len(files) != 1 || got[file] != "fused-100 " {
		t.Errorf("one profile alone: %v, files %q, slices %q", err, files, got)
	}

	s := testSlice(t, "fused", false)
	if _, err := (Job{Slices: []Slice{s}, Profile: file}).Run(limited(t)); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Size() == 0 {
		t.Errorf("no profile: %v", err)
	}
	s.Group = "g2"
	if _, err := (Job{Slices: []Slice{s}, Profile: filepath.Join(file, "x")}).Run(limited(t)); err == nil {
		t.Error("a profile below a file")
	}
}

// TestServe: a child answers what became of its job, and ends when nobody wants the answer any more.
func TestServe(t *testing.T) {
	s := testSlice(t, "fused", false)
	serve := func(t *testing.T, s Slice) answer {
		t.Helper()
		job, err := json.Marshal(Job{Slices: []Slice{s}})
		if err != nil {
			t.Fatal(err)
		}
		in, lifeline := io.Pipe()
		defer in.Close()
		go lifeline.Write(job)
		var out bytes.Buffer
		if err := Serve(limited(t), in, &out); err != nil {
			t.Fatal(err)
		}
		var a answer
		if err := json.Unmarshal(out.Bytes(), &a); err != nil {
			t.Fatalf("%v: %s", err, &out)
		}
		return a
	}
	if a := serve(t, s); a.Error != "" || len(a.Results) != 1 || a.Results[0].Records != 200*Partitions {
		t.Errorf("%+v", a)
	}
	s.Arm, s.Group = "slow", "g2"
	if a := serve(t, s); !strings.Contains(a.Error, `arm "slow" is unknown`) || a.Invalid {
		t.Errorf("%+v", a)
	}
	if err := Serve(limited(t), strings.NewReader("what"), io.Discard); err == nil {
		t.Error("a job that is none")
	}
	s.Arm, s.End = "fused", 1<<40
	job, err := json.Marshal(Job{Slices: []Slice{s}})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Serve(limited(t), bytes.NewReader(job), &out); err != nil || !strings.Contains(out.String(), "records, not") {
		t.Errorf("a child whose parent has gone: %v, %s", err, &out)
	}
}

// TestChild runs this test binary as the child, which is no killick: its answer is none.
func TestChild(t *testing.T) {
	if _, err := Child(io.Discard, "-test.run=^$")(limited(t), Job{}); err == nil || !strings.Contains(err.Error(), "answered") {
		t.Errorf("%v", err)
	}
	if _, err := Child(io.Discard, "-no-such-flag")(limited(t), Job{}); err == nil || !strings.Contains(err.Error(), "exit status") {
		t.Errorf("%v", err)
	}
	if err := error(invalid("bench: invalid run: x")); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v is not ErrInvalid", err)
	}
}

func TestStatistics(t *testing.T) {
	for _, c := range []struct {
		xs   []float64
		want float64
	}{{[]float64{3, 1, 2}, 2}, {[]float64{4, 1, 2, 3}, 2.5}, {[]float64{7}, 7}} {
		if got := median(c.xs); got != c.want {
			t.Errorf("median of %v is %v, not %v", c.xs, got, c.want)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("the median of nothing is a number")
	}
	lo, hi := interval([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9})
	if lo < 1 || lo >= 5 || hi <= 5 || hi > 9 {
		t.Errorf("interval of 1 to 9: %v to %v", lo, hi)
	}
	if lo, hi := interval([]float64{5, 5, 5}); lo != 5 || hi != 5 {
		t.Errorf("interval of a constant: %v to %v", lo, hi)
	}
}

func TestFlags(t *testing.T) {
	p := Plan{Sizes: []int{100, 1024}, Rounds: 9, Batch: 500, Fetch: 1 << 20, GOGC: 400, Ballast: 32, Commit: time.Second}
	if err := p.Check(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	fs := flag.NewFlagSet("x", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	p.Flags(fs)
	if err := fs.Parse(strings.Fields("-sizes 16,2048 -rounds 1 -batch 0 -fetch 1 -gogc 0 -ballast -1 -commit 0s")); err != nil || !slices.Equal(p.Sizes, []int{16, 2048}) {
		t.Fatalf("%v, sizes %v", err, p.Sizes)
	}
	err := p.Check()
	if err == nil {
		t.Fatal("no mistake is seen")
	}
	for _, want := range []string{"-rounds: 1", "-batch: 0", "-fetch: 1", "-gogc: 0", "-ballast: -1", "-commit: 0s"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing in:\n%v", want, err)
		}
	}
	for _, bad := range []string{"x", "15", "100,", "100,100", "1048577"} {
		if err := fs.Parse([]string{"-sizes", bad}); err == nil {
			t.Errorf("-sizes %s is taken", bad)
		}
	}
}
