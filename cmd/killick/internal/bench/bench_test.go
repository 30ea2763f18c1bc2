package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/killick-io/killick/internal/bench/alo"
)

func ms2(ns ...int) (ds []time.Duration) {
	for _, n := range ns {
		ds = append(ds, time.Duration(n)*time.Millisecond)
	}
	return ds
}

// TestPercentiles: the nearest rank, also where there are few.
func TestPercentiles(t *testing.T) {
	var hundred []int
	for i := range 100 {
		hundred = append(hundred, i+1)
	}
	for _, tt := range []struct {
		of   []int
		p    int
		want int
	}{{hundred, 50, 50}, {hundred, 99, 99}, {hundred, 100, 100}, {[]int{7}, 50, 7}, {[]int{7}, 99, 7}, {[]int{1, 2}, 50, 1}, {[]int{1, 2}, 51, 2},
		{[]int{1, 2, 3, 4}, 99, 4}, {[]int{1, 2, 3}, 0, 1}} {
		if got := percentile(ms2(tt.of...), tt.p); got != ms2(tt.want)[0] {
			t.Errorf("p%d of %v is %v, want %d ms", tt.p, tt.of, got, tt.want)
		}
	}
}

func TestPauseRows(t *testing.T) {
	c := counts{fetches: 50, read: 3000, ended: 2000, gaps: 10}
	row := newLatencyRow(25*time.Millisecond, held, ms2(3, 1, 2), c, 500*time.Millisecond)
	if want := (LatencyRow{Wait: 25, State: "held", Records: 3, P50: 2, P99: 3, Max: 3, Fetches: 100, Busy: 4000, Pauses: 20}); row != want {
		t.Errorf("%+v, want %+v", row, want)
	}
	if got, want := newIdleRow(50*time.Millisecond, c, 20*time.Millisecond, 2*time.Second), (IdleRow{Wait: 50, Fetches: 25, CPU: 10}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	d := newDrainRow(100*time.Millisecond, 1<<20, c, c.minus(counts{fetches: 10, read: 1000, ended: 1000}), 2*time.Second)
	if want := (DrainRow{Wait: 100, Window: "1MiB", Rate: 500, Fetches: 20, Again: 1.5, Pauses: 5}); d != want {
		t.Errorf("%+v, want %+v", d, want)
	}
	if d := newDrainRow(0, 1, counts{}, counts{}, time.Second); d.Rate != 0 || d.Again != 0 {
		t.Errorf("nothing was read: %+v", d)
	}
	var text, js bytes.Buffer
	r := PauseReport{Broker: "a broker", Idle: []IdleRow{{Wait: 7}}, Latency: []LatencyRow{row}, Drain: []DrainRow{d}}
	if err := errors.Join(r.Text(&text), r.JSON(&js)); err != nil {
		t.Fatal(err)
	}
	var back PauseReport
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || len(back.Latency) != 1 || back.Latency[0] != row {
		t.Errorf("%v: %s", err, &js)
	}
	for _, want := range []string{"a broker", "7ms", "25ms", "held", "1MiB"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, &text)
		}
	}
}

func TestBytes(t *testing.T) {
	for _, s := range []string{"1", "1000", "64KiB", "8MiB"} {
		if n, err := ParseBytes(s); err != nil || FormatBytes(n) != s {
			t.Errorf("%s: %d, %v, and back %s", s, n, err, FormatBytes(n))
		}
	}
	for _, s := range []string{"", "0", "-1", "8MB", "MiB", "1.5MiB", "99999999999999999999"} {
		if n, err := ParseBytes(s); err == nil {
			t.Errorf("%q is read as %d", s, n)
		}
	}
}

// TestBetween: what is due at the beginning counts, what is due at the end does not.
func TestBetween(t *testing.T) {
	c := clock{from: time.Unix(100, 0), every: time.Second, n: 10}
	for _, tt := range []struct {
		from, to int64
		want     []int64
	}{{102, 105, []int64{2, 3, 4}}, {90, 101, []int64{0}}, {108, 200, []int64{8, 9}}, {110, 200, nil}} {
		if got := c.between(time.Unix(tt.from, 0), time.Unix(tt.to, 0)); !slices.Equal(got, tt.want) {
			t.Errorf("from %d to %d: %v, want %v", tt.from, tt.to, got, tt.want)
		}
	}
	n, due, err := decode(encode(7, c.due(7)))
	if err != nil || n != 7 || !due.Equal(c.due(7)) {
		t.Errorf("record %d, due %v, %v", n, due, err)
	}
	if _, _, err := decode([]byte("x")); err == nil {
		t.Error("a record of another's is read")
	}
}

// TestALOOptions: all mistakes in one line, by flag and value, and nothing is started.
func TestALOOptions(t *testing.T) {
	o := NewALO()
	if err := o.check(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	// 5,000,000 and 1,500,000 records in 8 partitions, whole batches of 500.
	if o.Ends[100] != 625_000 || o.Ends[1024] != 187_500 || len(o.Pairings) != 3 || o.Pairings[1].Base != "bare" || !o.Pairings[1].Plain {
		t.Errorf("ends %v, pairings %+v", o.Ends, o.Pairings)
	}
	o.Records = "1"
	if err := o.check(); err != nil || o.Ends[100] != 500 || o.Ends[1024] != 500 {
		t.Errorf("%v, ends %v: want one batch in each partition", err, o.Ends)
	}
	for _, a := range arms {
		if !alo.Known(a.Own) || !alo.Known(a.Base) {
			t.Errorf("%+v has an arm that is unknown", a)
		}
	}
	o = NewALO()
	o.Arms, o.Records, o.Rounds, o.Kafka = "fused,slow,fused", "many,2,3", 1, "nowhere"
	_, err := ALO(t.Context(), o)
	if !errors.Is(err, ErrUsage) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "bench:") {
		t.Fatalf("want one line under ErrUsage: %v", err)
	}
	for _, want := range []string{`-arms: there is no arm "slow", but fused,fused3,hop,sink,defaults,null`, `"fused" is there twice`, "-records: 3 numbers for 2 sizes",
		`-records: "many"`, "-rounds: 1", `"nowhere"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	o = NewALO()
	o.Sizes, o.Records, o.Batch = []int{1 << 20}, "1", 1
	if err := o.check(); err == nil || !strings.Contains(err.Error(), "-batch: 1 records of 1048576 B are more than Kafka takes") {
		t.Errorf("%v", err)
	}
}

func TestPauseOptions(t *testing.T) {
	o := NewPause()
	if err := o.check(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	o.Waits, o.Windows, o.For, o.Rate, o.Records, o.Kafka = []time.Duration{0}, []int64{0}, 0, 0, 0, "nowhere"
	_, err := Pause(t.Context(), o)
	if !errors.Is(err, ErrUsage) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("want one line under ErrUsage: %v", err)
	}
	for _, want := range []string{"-waits: 0s", "-windows: 0", "-for: 0s", "-rate: 0", "-records: 0", `"nowhere"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	o = NewPause()
	o.For = time.Minute
	if err := o.check(); err == nil || !strings.Contains(err.Error(), "-records: 2000000 is not in 12200000 to") {
		t.Errorf("a minute with two million records: %v", err)
	}
}
