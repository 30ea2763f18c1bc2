package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inProcess is a runner without a process of its own.
func inProcess(ctx context.Context, s slice) (result, error) { return s.run(ctx) }

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

func testSlice(t *testing.T, arm string, verify bool) slice {
	t.Helper()
	keepCollector(t)
	c, err := newBroker(20, 100)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return slice{Arm: arm, Addr: c.ListenAddrs()[0], Group: "g", Size: 100, Batch: 20, End: 200, Fetch: 4 << 10, GOGC: 100, Commit: 20 * time.Millisecond, Verify: verify}
}

func TestArmsReadEachRecordOnce(t *testing.T) {
	for arm := range arms() {
		for _, verify := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", arm, verify), func(t *testing.T) {
				s := testSlice(t, arm, verify)
				r, err := s.run(limited(t))
				if err != nil {
					t.Fatal(err)
				}
				if want := s.End * partitions; r.Records != want || r.Decoded < want {
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
	if _, err := s.run(limited(t)); err != nil {
		t.Fatal(err)
	}
	s.End += 20
	if err := s.checkCommitted(limited(t)); !errors.Is(err, errInvalid) {
		t.Errorf("a commit one batch short: %v", err)
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
			m := newMeter(slice{Arm: "x", Size: 100, Batch: 1, End: 10})
			_, one := newBatch(1, 100)
			vs := slices.Repeat([]uint64{one}, 10*partitions)
			if name == "loss beside duplicate" { // values that differ
				m.s.Batch, m.s.End = 2, 2
				vs = vs[:0]
				for range partitions {
					_, two := newBatch(2, 100)
					vs = append(vs, one+7, two-one-7)
				}
			}
			ts := []*tally{m.tally(), m.tally()}
			m.begin()
			for i, v := range plant(vs) {
				ts[i%2].n++
				ts[i%2].sum += v
			}
			if _, err := m.end(); (err == nil) != (name == "nothing") || err != nil && !errors.Is(err, errInvalid) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestMarkSeesEachOffset(t *testing.T) {
	m := newMeter(slice{Arm: "x", Verify: true, End: 100})
	for o := range int64(100) {
		m.mark(3, o)
	}
	if m.err != nil {
		t.Fatal(m.err)
	}
	for _, at := range []struct {
		partition int32
		offset    int64
	}{{3, 64}, {2, 100}, {2, -1}, {partitions, 0}, {-1, 0}} {
		m.err = nil
		if m.mark(at.partition, at.offset); !errors.Is(m.err, errInvalid) {
			t.Errorf("partition %d, offset %d: %v", at.partition, at.offset, m.err)
		}
	}
}

func TestRoundsPairNeighbours(t *testing.T) {
	var ran []string
	var verified int
	fake := func(_ context.Context, s slice) (result, error) {
		ran = append(ran, s.Arm)
		if s.Verify {
			verified++
		}
		cpu := map[string]time.Duration{"bare": 1, "null": 1, "fused": 2}[s.Arm]
		return result{Arm: s.Arm, Records: 10, CPU: 10 * cpu, Wall: time.Duration(s.End) * time.Second}, nil
	}
	p := plan{arms: []string{"fused", "null"}, rounds: 5, seconds: 1, batch: 10}
	ps, err := p.measure(limited(t), "", 100, fake, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(ran, " "), "bare fused bare null fused bare null bare fused bare null bare bare fused bare null bare fused bare null"; got != want {
		t.Errorf("order:\n%s\nwant\n%s", got, want)
	}
	if verified != 4 {
		t.Errorf("%d slices checked each offset; the four of the first round should", verified)
	}
	r := p.report(ps)
	if len(r.Rows) != 2 || r.Rows[0].CPU.Median != 0.5 || r.Rows[1].CPU.Median != 1 || len(r.Rows[0].OwnSlices) != 4 {
		t.Errorf("report: %+v", r)
	}
	var text, js bytes.Buffer
	if err := errors.Join(r.text(&text), r.json(&js)); err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || back.Rows[0].CPU != r.Rows[0].CPU {
		t.Errorf("JSON: %v: %s", err, js.String())
	}
	if !strings.Contains(text.String(), "fused") || !strings.Contains(text.String(), "0.500") {
		t.Errorf("text:\n%s", text.String())
	}
}

func TestASliceThatFailsEndsTheRun(t *testing.T) {
	p := plan{arms: []string{"fused"}, rounds: 3, seconds: 1, batch: 10}
	_, err := p.measure(limited(t), "", 100, func(context.Context, slice) (result, error) { return result{}, errInvalid }, func(string) {})
	if !errors.Is(err, errInvalid) {
		t.Errorf("%v", err)
	}
}

func TestRoundsOfRealSlices(t *testing.T) {
	s := testSlice(t, "", false)
	p := plan{arms: []string{"fused"}, rounds: 2, seconds: 1e-6, batch: s.Batch, fetch: int(s.Fetch), gogc: 100, commit: time.Second}
	ps, err := p.measure(limited(t), s.Addr, s.Size, inProcess, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(ps) != 1 || len(ps[0].own) != 1 || ps[0].own[0].Records != int64(s.Batch)*partitions {
		t.Errorf("%+v", ps)
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

func TestFlagsNameEveryMistake(t *testing.T) {
	_, err := parse([]string{"-arms", "fused,slow,fused", "-sizes", "100,x", "-rounds", "1", "-seconds", "0", "-batch", "0", "-fetch", "1",
		"-gogc", "0", "-ballast", "-1", "-commit", "0s", "rest"}, io.Discard)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`"slow"`, `"fused" is there twice`, `"x"`, "-rounds: 1", "-seconds: 0", "-batch: 0", "-fetch: 1", "-gogc: 0", "-ballast: -1", "-commit: 0s", `"rest"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing in:\n%v", want, err)
		}
	}
	if _, err := parse(nil, io.Discard); err != nil {
		t.Errorf("defaults: %v", err)
	}
}
