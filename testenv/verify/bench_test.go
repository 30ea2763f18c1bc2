package verify

import (
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick/offsets"
	"github.com/killick-io/killick/testenv/embedded"
)

// flood is a log of n records that are made when they are asked for.
func flood(topic string, n int) Log {
	return Log{Topic: topic, Stable: int64(n), End: int64(n), Entries: iter.Seq2[Entry, error](func(yield func(Entry, error) bool) {
		value := make([]byte, 100)
		for i := range n {
			copy(value, fmt.Append(value[:0], i))
			r := &kgo.Record{Topic: topic, Offset: int64(i), Key: value[:4], Value: value}
			if !yield(Entry{Record: r}, nil) {
				return
			}
		}
	})}
}

// floodEvents writes an event file with an effect for each of n records and a commit each 10,000.
func floodEvents(tb testing.TB, n int) EventFile {
	path := filepath.Join(tb.TempDir(), "w1-1.jsonl")
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	var b []byte
	seq := 0
	head := func(kind string) {
		seq++
		b = fmt.Appendf(b, `{"at":%d,"seq":%d,"proc":"w1","life":1,"pid":4242,"kind":%q`, epoch+int64(seq), seq, kind)
	}
	head("start")
	b = append(b, "}\n"...)
	for i := range n {
		head("effect")
		b = fmt.Appendf(b, ",\"topic\":\"in\",\"partition\":0,\"offset\":%d,\"id\":\"%d\",\"attempt\":1}\n", i, i)
		if (i+1)%10_000 == 0 || i == n-1 {
			meta := offsets.Encode(offsets.Map{Base: int64(i + 1), Next: int64(i + 1), Held: offsets.State{Suspect: offsets.None}})
			head("commit")
			b = fmt.Appendf(b, ",\"group\":\"g\",\"topic\":\"in\",\"partition\":0,\"next\":%d,\"generation\":1,\"member\":\"m\",\"metadata\":%q,\"request\":%d}\n", i+1, meta, seq)
			request := seq
			head("committed")
			b = fmt.Appendf(b, ",\"group\":\"g\",\"topic\":\"in\",\"partition\":0,\"next\":%d,\"generation\":1,\"request\":%d}\n", i+1, request)
		}
		if len(b) > 1<<20 || i == n-1 {
			if _, err := f.Write(b); err != nil {
				tb.Fatal(err)
			}
			b = b[:0]
		}
	}
	return EventFile{Name: filepath.Base(path), Open: func() (io.ReadCloser, error) { return os.Open(path) }}
}

// BenchmarkCheckEffects is per input record: one effect each.
func BenchmarkCheckEffects(b *testing.B) {
	const n = 1_000_000
	ev := floodEvents(b, n)
	b.ReportAllocs()
	for b.Loop() {
		rep, err := Check(Rules{}, &History{Inputs: []Log{flood("in", n)}, Events: []EventFile{ev}})
		if err != nil || !rep.OK {
			b.Fatal(err, rep)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkCheckOutputs is per input record: one output each, known by its content.
func BenchmarkCheckOutputs(b *testing.B) {
	const n = 1_000_000
	want := func(r *kgo.Record) Want { return Want{Outputs: []Output{{"out", r.Key, r.Value}}} }
	for b.Loop() {
		rep, err := Check(Rules{Want: want}, &History{Inputs: []Log{flood("in", n)}, Outputs: []Log{flood("out", n)}})
		if err != nil || !rep.OK {
			b.Fatal(err, rep)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// TestMemory measures what Check keeps per record while it reads the last of them, for what the package comment promises.
func TestMemory(t *testing.T) {
	const n = 300_000
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	want := func(r *kgo.Record) Want { return Want{Outputs: []Output{{"out", r.Key, r.Value}}} }
	made := func(r *kgo.Record) (Made, error) {
		return Made{Topic: "in", Offset: r.Offset, Key: r.Key, Value: r.Value}, nil
	}
	id := func(r *kgo.Record) string { return "" }
	ends := []End{{"in", 0, n}, {"out", 0, n}}
	samples := []Sample{{Asked: time.Unix(1, 0), Answered: time.Unix(2, 0), Ends: ends, Positions: []Commit{{Topic: "in", Next: n}}}}
	for _, tt := range []struct {
		name  string
		rules Rules
		h     History
		most  float64 // bytes per record
	}{
		{"effects", Rules{Running: true}, History{}, 8},
		{"ids", Rules{Running: true, ID: id}, History{}, 16},
		{"keys", Rules{Running: true, Order: PerKey}, History{}, 12},
		{"outputs", Rules{Want: want, Made: made}, History{}, 8 + 13},
		{"outputs by content", Rules{Want: want}, History{}, 8 + 13 + 16},
		{"outputs and samples", Rules{Want: want, Made: made}, History{Samples: samples}, 8 + 13 + 4},
		{"dead letters", Rules{Want: func(*kgo.Record) Want { return Want{MayDie: true} }}, History{}, 8 + 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := tt.h
			h.Inputs = []Log{flood("in", n)}
			before, after := heap(), int64(0)
			// The last log to be read is the place to measure at.
			h.DeadLetters = []Log{{Topic: "dlq", Entries: func(func(Entry, error) bool) { after = heap() }}}
			h.Outputs = []Log{flood("out", n)}
			if tt.rules.Want == nil {
				h.Outputs = nil
				h.Events = []EventFile{floodEvents(t, 10)}
			}
			if _, err := Check(tt.rules, &h); err != nil {
				t.Fatal(err)
			}
			got := float64(after-before) / n
			t.Logf("%.1f bytes per record", got)
			if got > tt.most*1.3+3 || got < tt.most/3 {
				t.Errorf("%.1f bytes per record, the package comment says %.0f, and a quarter more", got, tt.most)
			}
		})
	}
}

// BenchmarkReadLog is per record of 100 bytes, from the embedded broker.
func BenchmarkReadLog(b *testing.B) {
	const n = 500_000
	ctx := limited(b)
	broker := embedded.Start(b, embedded.Topic("in", 1))
	cl := client(b, broker)
	for i := 0; i < n; i += 10_000 {
		rs := make([]*kgo.Record, 10_000)
		for k := range rs {
			rs[k] = &kgo.Record{Topic: "in", Value: make([]byte, 100)}
		}
		if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		h, err := Read(ctx, cl, Target{Inputs: []string{"in"}})
		if err != nil {
			b.Fatal(err)
		}
		got := 0
		for _, err := range h.Inputs[0].Entries {
			if err != nil {
				b.Fatal(err)
			}
			got++
		}
		if got != n {
			b.Fatal(got)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
