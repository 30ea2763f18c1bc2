package faults

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/killick-io/killick/testenv/verify"
)

// events reads the event files of a folder as the verifier does.
func events(t testing.TB, dir string) map[string][]verify.Event {
	t.Helper()
	files, err := verify.EventDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]verify.Event{}
	for _, f := range files {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		for ev, err := range verify.Events(r, f.Name) {
			if err != nil {
				t.Fatal(err)
			}
			e := *ev
			e.Key, e.ID = []byte(string(ev.Key)), []byte(string(ev.ID))
			if ev.Key == nil {
				e.Key = nil
			}
			out[f.Name] = append(out[f.Name], e)
		}
		r.Close()
	}
	return out
}

// The verifier reads what a Log writes, whatever is in it.
func TestLog(t *testing.T) {
	dir := t.TempDir()
	begin := time.Now().UnixNano()
	l, err := CreateLog(dir, "w_1", 3)
	if err != nil {
		t.Fatal(err)
	}
	odd := "a\"b\\c\n\x00\x7f\u00e9\u2028<>&\U0001F600"
	for _, err := range []error{
		l.Begin(Record{Topic: "in"}),
		l.Effect(Record{Topic: "in", Partition: 7, Offset: 1 << 50, Key: []byte{}, ID: odd, Attempt: 2}),
		l.Commit(Commit{Group: "g", Topic: odd, Partition: 7, Next: 9, Generation: -1, Member: "m", Metadata: odd, Txn: "x", Request: l.Request()}),
		l.Committed(Commit{Group: "g", Topic: "in", Next: 0, Generation: 4, Metadata: "\xff", Error: "ILLEGAL_GENERATION", Request: l.Request()}),
		l.Note(odd),
		l.End(7),
		l.Close(),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	evs := events(t, dir)["w_1-3.jsonl"]
	if len(evs) != 7 {
		t.Fatalf("%d events", len(evs))
	}
	last := begin
	for i, e := range evs {
		if e.Seq != int64(i+1) || e.Proc != "w_1" || e.Life != 3 || e.PID != int64(os.Getpid()) || e.At < last || e.At > time.Now().UnixNano() {
			t.Errorf("event %d: %+v", i, e)
		}
		last = e.At
	}
	if e := evs[0]; e.Kind != "start" {
		t.Errorf("%+v", e)
	}
	if e := evs[1]; e.Kind != "begin" || e.Topic != "in" || e.Partition != 0 || e.Offset != 0 || e.Key != nil || len(e.ID) != 0 || e.Attempt != 0 {
		t.Errorf("%+v", e)
	}
	if e := evs[2]; e.Kind != "effect" || e.Partition != 7 || e.Offset != 1<<50 || e.Key == nil || len(e.Key) != 0 || string(e.ID) != odd || e.Attempt != 2 {
		t.Errorf("%+v", e)
	}
	if e := evs[3]; e.Kind != "commit" || e.Group != "g" || e.Topic != odd || e.Next != 9 || e.Generation != -1 || e.Member != "m" || e.Metadata != odd || e.Txn != "x" || e.Request != 1 {
		t.Errorf("%+v", e)
	}
	if e := evs[4]; e.Kind != "committed" || e.Next != 0 || e.Generation != 4 || e.Metadata != "" || e.Error != "ILLEGAL_GENERATION" || e.Request != 2 {
		t.Errorf("%+v", e)
	}
	if e := evs[6]; e.Kind != "end" || e.Code != 7 {
		t.Errorf("%+v", e)
	}
}

// Texts of all kinds come back as they were.
func TestLogTexts(t *testing.T) {
	dir := t.TempDir()
	l, err := CreateLog(dir, "w", 1)
	must(t, err)
	texts := []string{" ", "plain", `\`, `"`, "\n", "\x00", "\x1f", "\x7f", "\u00e9", "\u2028", "<&>", `{"a":1}`, `\u0041`}
	for _, s := range texts {
		must(t, l.Effect(Record{Topic: s, Key: []byte(s), ID: s}))
	}
	must(t, l.End(0))
	evs := events(t, dir)["w-1.jsonl"]
	for i, s := range texts {
		if e := evs[i+1]; e.Topic != s || string(e.Key) != s || string(e.ID) != s {
			t.Errorf("%q: %+v", s, e)
		}
	}
}

func TestLogRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		proc string
		life int
		says string
	}{{"", 1, `""`}, {"W", 1, `"W"`}, {"1w", 1, `"1w"`}, {"a/b", 1, `"a/b"`}, {"w", 0, "life 0"}} {
		if _, err := CreateLog(dir, tt.proc, tt.life); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	l, err := CreateLog(dir, "w", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := CreateLog(dir, "w", 1); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second file of one life: %v", err)
	}
	for _, err := range []error{l.Effect(Record{Key: []byte{0xff}}), l.Begin(Record{ID: "\xff"}), l.Note("\xff")} {
		if err == nil || !strings.Contains(err.Error(), `"\xff" is not UTF-8`) {
			t.Errorf("%v", err)
		}
	}
	if err := l.Note("still good"); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Note("closed"); !errors.Is(err, ErrLog) {
		t.Errorf("%v", err)
	}
	if evs := events(t, dir)["w-1.jsonl"]; len(evs) != 2 {
		t.Errorf("%v", evs)
	}
}

// A write that fails leaves a line torn: nothing may come behind it.
func TestLogBreaks(t *testing.T) {
	l, err := CreateLog(t.TempDir(), "w", 1)
	if err != nil {
		t.Fatal(err)
	}
	l.f.Close()
	if l.f, err = os.Open(l.f.Name()); err != nil { // for reading
		t.Fatal(err)
	}
	if err := l.Note("a"); !errors.Is(err, ErrLog) || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("%v", err)
	}
	l.f.Close()
	if l.f, err = os.OpenFile(l.f.Name(), os.O_APPEND|os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}
	if err := l.Note("b"); !errors.Is(err, ErrLog) {
		t.Errorf("it goes on: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// Lines of several goroutines are whole, and numbered in the order in which they stand.
func TestLogFromManyGoroutines(t *testing.T) {
	dir := t.TempDir()
	l, err := CreateLog(dir, "w", 1)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				if err := l.Effect(Record{Topic: "in", Partition: int32(g), Offset: int64(i), Key: []byte("k")}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := l.End(0); err != nil {
		t.Error(err)
	}
	next := [8]int64{}
	evs := events(t, dir)["w-1.jsonl"] // reads the numbers, too
	for _, e := range evs[1 : len(evs)-1] {
		if e.Offset != next[e.Partition] {
			t.Fatalf("%+v", e)
		}
		next[e.Partition]++
	}
	if len(evs) != 8*200+2 {
		t.Errorf("%d events", len(evs))
	}
}

func BenchmarkLog(b *testing.B) {
	l, err := CreateLog(b.TempDir(), "w", 1)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Effect(Record{Topic: "in", Partition: 3, Offset: 17, ID: "17", Attempt: 1}); err != nil {
			b.Fatal(err)
		}
	}
	if st, err := os.Stat(filepath.Join(l.f.Name())); err != nil || st.Size() == 0 {
		b.Error(err)
	}
	if err := l.Close(); err != nil {
		b.Error(err)
	}
}
