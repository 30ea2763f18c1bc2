package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const head6 = `{"at":1790000000000000001,"seq":%d,"proc":"w1","life":1,"pid":4242,"kind":`

// readAll reads a file that is given as text.
func readAll(text string) (kinds []string, torn bool, err error) {
	e := newEvents(strings.NewReader(text), "w1-1.jsonl")
	for {
		ev, err := e.next()
		if errors.Is(err, io.EOF) {
			return kinds, e.torn, nil
		}
		if err != nil {
			return kinds, e.torn, err
		}
		kinds = append(kinds, ev.Kind)
	}
}

// TestEventFields reads every field, in the quick way and in the slow one.
func TestEventFields(t *testing.T) {
	text := `{"at":1790000000000000002,"seq":1,"proc":"w1","life":1,"pid":4242,"kind":"commit","group":"g","topic":"in","partition":3,"offset":17,` +
		`"key":"k1","id":"17","attempt":2,"next":18,"generation":4,"member":"m-1","metadata":"kl","request":9,"txn":"t","error":"X","target":"w2","life_of":7,` +
		`"target_pid":8,"code":-1,"signal":"killed","client":"c","text":"x","more":1}` + "\n"
	want := Event{At: 1790000000000000002, Seq: 1, Proc: "w1", Life: 1, PID: 4242, Kind: "commit", Topic: "in", Partition: 3, Offset: 17, Key: []byte("k1"),
		ID: []byte("17"), Attempt: 2, Group: "g", Next: 18, Generation: 4, Member: "m-1", Metadata: "kl", Request: 9, Txn: "t", Error: "X", Target: "w2",
		LifeOf: 7, TargetPID: 8, Code: -1, Signal: "killed", has: 1<<14 - 1}
	for ev, err := range Events(strings.NewReader(text), "f") {
		if err != nil || !reflect.DeepEqual(*ev, want) {
			t.Errorf("%+v, %v; want %+v", *ev, err, want)
		}
	}
	if e := newEvents(nil, ""); !e.quick([]byte(strings.TrimSpace(text))) {
		t.Error("the quick way does not take it")
	}
	for _, slow := range []string{
		strings.ReplaceAll(text, ":", ": "),
		strings.Replace(text, `"more":1`, `"more":{"a":[1.5,"b"]}`, 1),
		strings.Replace(text, `"k1"`, `"\u006b1"`, 1),
	} {
		n := 0
		for ev, err := range Events(strings.NewReader(slow), "f") {
			n++
			if err != nil || !reflect.DeepEqual(*ev, want) {
				t.Errorf("%+v, %v; want %+v", *ev, err, want)
			}
		}
		if n != 1 {
			t.Errorf("%d events", n)
		}
	}
}

// TestClockBack: the order of the lines is that of the events, whatever the clock did.
func TestClockBack(t *testing.T) {
	text := fmt.Sprintf(head6, 1) + `"start"}` + "\n" + `{"at":5,"seq":2,"proc":"w1","life":1,"pid":1,"kind":"end"}` + "\n"
	last := int64(0)
	for ev, err := range Events(strings.NewReader(text), "f") {
		if err != nil || ev.At < last {
			t.Errorf("at %d after %d, %v", ev.At, last, err)
		}
		last = ev.At
	}
}

// TestEventKey tells a key that is missing from one that is empty.
func TestEventKey(t *testing.T) {
	for text, want := range map[string][]byte{`,"key":""}`: {}, `}`: nil, `,"key":"\u0000"}`: {0}} {
		for ev, err := range Events(strings.NewReader(fmt.Sprintf(head6, 1)+`"note"`+text+"\n"), "f") {
			if err != nil || (ev.Key == nil) != (want == nil) || string(ev.Key) != string(want) {
				t.Errorf("%s: %q, %v", text, ev.Key, err)
			}
		}
	}
}

func TestTornLines(t *testing.T) {
	start, effect := fmt.Sprintf(head6, 1)+`"start"}`+"\n", fmt.Sprintf(head6, 2)+`"effect","topic":"in","partition":0,"offset":0}`+"\n"
	for _, tail := range []string{"", "{", `{"at":1`, effect[:len(effect)-1], "\x00\x00\x00", "{\n", "garbage\n"} {
		kinds, torn, err := readAll(start + tail)
		if err != nil || len(kinds) != 1 || torn != (tail != "") {
			t.Errorf("%q: %v, torn %v, %v", tail, kinds, torn, err)
		}
	}
	if kinds, torn, err := readAll(start + effect); err != nil || len(kinds) != 2 || torn {
		t.Errorf("%v, torn %v, %v", kinds, torn, err)
	}
}

// TestBrokenFiles: what cannot come from a killed process is an error that names the line.
func TestBrokenFiles(t *testing.T) {
	start := fmt.Sprintf(head6, 1) + `"start"}` + "\n"
	second := func(rest string) string { return start + fmt.Sprintf(head6, 2) + rest + "\n" }
	end := fmt.Sprintf(head6, 3) + `"end"}` + "\n"
	for name, tt := range map[string]struct{ text, want string }{
		"damaged":        {start + "{\"at\n" + end, ":2: unexpected end"},
		"no object":      {start + "null\n" + end, ":2: not an object"},
		"hole":           {start + end, ":2: seq 3 after 1"},
		"unknown kind":   {second(`"effekt"}`), `:2: unknown kind "effekt"`},
		"no offset":      {second(`"effect","topic":"in","partition":0}`), ":2: the effect line has no offset"},
		"no proc":        {`{"at":1,"seq":1,"life":1,"pid":1,"kind":"start"}` + "\n", ":1: the line has no proc"},
		"text as number": {second(`"effect","topic":"in","partition":"0","offset":1}`) + end, ":2: field partition"},
		"number as text": {second(`"effect","topic":7,"partition":0,"offset":1}`) + end, ":2: field topic"},
		"null":           {second(`"effect","topic":"in","partition":0,"offset":null}`) + end, ":2: field offset: null"},
		"fraction":       {second(`"effect","topic":"in","partition":0,"offset":1.5}`) + end, ":2: field offset"},
		"too large":      {second(`"effect","topic":"in","partition":4294967296,"offset":1}`) + end, ":2: field partition: 4294967296 is out of range"},
		"below 0":        {second(`"effect","topic":"in","partition":-1,"offset":1}`) + end, ":2: partition -1"},
		"not UTF-8":      {second(`"note","text":"`+"\xff"+`"`) + end, ":2: "},
		"another life":   {start + `{"at":1,"seq":2,"proc":"w1","life":2,"pid":1,"kind":"end"}` + "\n", ":2: a line of w1-2 in the file of w1-1"},
		"life 0":         {`{"at":1,"seq":1,"proc":"w1","life":0,"pid":1,"kind":"start"}` + "\n", ":1: life 0"},
		"very long":      {start + strings.Repeat("x", maxLine+1) + "\n" + end, ":2: a line of more than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := readAll(tt.text)
			if !errors.Is(err, ErrHistory) || !strings.Contains(err.Error(), "w1-1.jsonl"+tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// TestBrokenEvents are files that are good for themselves, and tell what cannot be.
func TestBrokenEvents(t *testing.T) {
	for name, tt := range map[string]struct {
		write func(b *book, in *bookLog, w *bookFile)
		want  string
	}{
		"effect before start": {func(b *book, in *bookLog, w *bookFile) { w.lines = w.lines[:0]; w.effect(in, 0) }, "w-1.jsonl:1: effect before start"},
		"second start":        {func(b *book, in *bookLog, w *bookFile) { w.write(line{Kind: "start"}) }, "w-1.jsonl:2: a second start of w-1"},
		"one life twice":      {func(b *book, in *bookLog, w *bookFile) { b.worker("w", 1) }, `two event files are named "w-1.jsonl"`},
		"answer to nothing": {func(b *book, in *bookLog, w *bookFile) {
			x := w.send(in, 1, 0)
			x.Request++
			w.answer(x, "")
		}, "w-1.jsonl:3: an answer to no commit"},
		"commit below 0": {func(b *book, in *bookLog, w *bookFile) { w.send(in, -1, 0) }, "w-1.jsonl:2: a commit of -1"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook()
			in := b.input("in", 0)
			in.many(2)
			tt.write(b, in, b.worker("w", 1))
			if rep, err := Check(byValue(), b.history()); !errors.Is(err, ErrHistory) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, %v; want %q", rep, err, tt.want)
			}
		})
	}
}

func TestEventDir(t *testing.T) {
	dir := t.TempDir()
	if _, err := EventDir(dir); !errors.Is(err, ErrHistory) || !strings.Contains(err.Error(), dir) {
		t.Error(err)
	}
	for _, name := range []string{"w1-2.jsonl", "w1-1.jsonl", "other.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := EventDir(dir)
	if err != nil || len(files) != 2 || files[0].Name != "w1-1.jsonl" || files[1].Name != "w1-2.jsonl" {
		t.Fatal(files, err)
	}
	r, err := files[1].Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, err := io.ReadAll(r); err != nil || string(b) != "w1-2.jsonl" {
		t.Errorf("%q, %v", b, err)
	}
}

// FuzzEventLine: what the quick way takes, the slow one reads in the same way; and what it takes is JSON.
func FuzzEventLine(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(head6, 1) + `"effect","topic":"in","partition":0,"offset":0,"key":"k","id":"","attempt":1}`))
	f.Add([]byte(fmt.Sprintf(head6, 1) + `"exit","target":"w1","life_of":1,"code":-1,"signal":"killed","x":"y","z":0}`))
	f.Add([]byte(`{"at":-0,"seq":01}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		quick := newEvents(nil, "f")
		if !quick.quick(b) {
			return
		}
		if !json.Valid(b) {
			t.Fatalf("%q is no JSON", b)
		}
		slow := newEvents(nil, "f")
		if err := slow.slow(b); err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if !reflect.DeepEqual(quick.ev, slow.ev) {
			t.Fatalf("%q: %+v in the quick way, %+v in the slow one", b, quick.ev, slow.ev)
		}
	})
}
