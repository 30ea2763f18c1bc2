package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick/offsets"
)

// epoch is when the histories of tests begin.
const epoch = int64(1_790_000_000_000_000_000)

// book is a history that a test writes down, step by step. Each step takes a millisecond.
type book struct {
	now     int64
	inputs  []*bookLog
	outs    []*bookLog
	letters []*bookLog
	files   []*bookFile
	stored  []Stored
	store   bool // stored is known
	samples []Sample
}

// bookLog is a log that grows.
type bookLog struct {
	topic   string
	id      int32
	next    int64
	start   int64
	stable  int64 // -1: the end
	entries []Entry
}

func newBook() *book { return &book{now: epoch} }

func (b *book) tick() int64 {
	b.now += int64(time.Millisecond)
	return b.now
}

func log(to *[]*bookLog, topic string, id int32) *bookLog {
	l := &bookLog{topic: topic, id: id, stable: -1}
	*to = append(*to, l)
	return l
}

func (b *book) input(topic string, id int32) *bookLog  { return log(&b.inputs, topic, id) }
func (b *book) output(topic string, id int32) *bookLog { return log(&b.outs, topic, id) }
func (b *book) letter(topic string, id int32) *bookLog { return log(&b.letters, topic, id) }

// put appends a record.
func (l *bookLog) put(state State, r *kgo.Record) *kgo.Record {
	r.Topic, r.Partition, r.Offset = l.topic, l.id, l.next
	l.next++
	l.entries = append(l.entries, Entry{Record: r, State: state})
	return r
}

// add appends a visible record.
func (l *bookLog) add(key, value string) *kgo.Record {
	return l.put(Visible, &kgo.Record{Key: []byte(key), Value: []byte(value)})
}

// many appends n records whose key and value are their offset.
func (l *bookLog) many(n int) {
	for range n {
		l.add(fmt.Sprint(l.next%3), fmt.Sprint(l.next))
	}
}

// txn appends a transactional record, and marker the end of the transaction.
func (l *bookLog) txn(state State, producer int64, value string) *kgo.Record {
	return l.put(state, &kgo.Record{Value: []byte(value), ProducerID: producer, Attrs: kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: true})})
}

func (l *bookLog) marker(producer int64, commit bool) {
	key := []byte{0, 0, 0, 0}
	if commit {
		key[3] = 1
	}
	l.put(Marker, &kgo.Record{Key: key, ProducerID: producer, Attrs: kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: true, Control: true})})
}

func (l *bookLog) hole(n int64) { l.next += n }

func (l *bookLog) log() Log {
	stable := l.stable
	if stable < 0 {
		stable = l.next
	}
	return Log{Topic: l.topic, Partition: l.id, Start: l.start, Stable: stable, End: l.next, Entries: Entries(l.entries...)}
}

// line is a line of an event file, as JSON has it.
type line struct {
	At         int64   `json:"at"`
	Seq        int64   `json:"seq"`
	Proc       string  `json:"proc"`
	Life       int64   `json:"life"`
	PID        int64   `json:"pid"`
	Kind       string  `json:"kind"`
	Topic      *string `json:"topic,omitempty"`
	Partition  *int32  `json:"partition,omitempty"`
	Offset     *int64  `json:"offset,omitempty"`
	Key        *string `json:"key,omitempty"`
	ID         *string `json:"id,omitempty"`
	Attempt    int64   `json:"attempt,omitempty"`
	Group      *string `json:"group,omitempty"`
	Next       *int64  `json:"next,omitempty"`
	Generation *int32  `json:"generation,omitempty"`
	Member     string  `json:"member,omitempty"`
	Metadata   string  `json:"metadata,omitempty"`
	Request    int64   `json:"request,omitempty"`
	Txn        string  `json:"txn,omitempty"`
	Error      string  `json:"error,omitempty"`
	Target     *string `json:"target,omitempty"`
	LifeOf     *int64  `json:"life_of,omitempty"`
	Code       int64   `json:"code,omitempty"`
	Signal     string  `json:"signal,omitempty"`
	Text       string  `json:"text,omitempty"`
}

// bookFile is an event file.
type bookFile struct {
	b       *book
	proc    string
	life    int64
	lines   []line
	request int64
	tail    string // torn
	gen     int32
	member  string
}

func (b *book) file(proc string, life int64) *bookFile {
	f := &bookFile{b: b, proc: proc, life: life, gen: 1, member: fmt.Sprintf("m-%s-%d", proc, life)}
	b.files = append(b.files, f)
	return f
}

// worker begins a life.
func (b *book) worker(proc string, life int64) *bookFile {
	f := b.file(proc, life)
	f.write(line{Kind: "start"})
	return f
}

func (f *bookFile) write(l line) {
	l.At, l.Proc, l.Life, l.PID = f.b.tick(), f.proc, f.life, 100+f.life
	f.lines = append(f.lines, l)
}

// effect has the effect of an input record, which is told by its key and its value as id.
func (f *bookFile) effect(l *bookLog, offset int64) { f.act("effect", l, offset) }

func (f *bookFile) act(kind string, l *bookLog, offset int64) {
	x := line{Kind: kind, Topic: &l.topic, Partition: &l.id, Offset: &offset, Attempt: 1}
	for _, e := range l.entries {
		if e.Offset == offset && e.Value != nil && e.State == Visible {
			id := string(e.Value)
			x.ID = &id
			if e.Key != nil {
				key := string(e.Key)
				x.Key = &key
			}
		}
	}
	f.write(x)
}

// effects has those of the offsets [from, to).
func (f *bookFile) effects(l *bookLog, from, to int64) {
	for o := from; o < to; o++ {
		f.effect(l, o)
	}
}

// send writes a commit line. open are the offsets that had not ended below end; end of 0: no map.
func (f *bookFile) send(l *bookLog, next, end int64, open ...int64) line {
	f.request++
	g := "g"
	x := line{Kind: "commit", Group: &g, Topic: &l.topic, Partition: &l.id, Next: &next, Generation: &f.gen, Member: f.member, Request: f.request}
	gen := f.gen
	x.Generation = &gen
	if end > 0 {
		x.Metadata = offsets.Encode(offsets.Map{Base: next, Next: end, Open: open, Held: offsets.State{Suspect: offsets.None}})
	}
	f.write(x)
	return x
}

// answer writes the answer to a commit line.
func (f *bookFile) answer(x line, err string) {
	x.Kind, x.Metadata, x.Error = "committed", "", err
	f.write(x)
}

// commit sends, stores and answers a commit.
func (f *bookFile) commit(l *bookLog, next, end int64, open ...int64) {
	x := f.send(l, next, end, open...)
	f.b.keep(l, next, x.Metadata)
	f.answer(x, "")
}

// keep stores a position.
func (b *book) keep(l *bookLog, next int64, metadata string) {
	at := b.tick()
	b.store = true
	b.stored = append(b.stored, Stored{At: time.UnixMilli(at/1e6 + 1).Add(-1), Ref: fmt.Sprint(len(b.stored)),
		Commit: &Commit{Topic: l.topic, Partition: l.id, Next: next, Metadata: metadata}})
}

// generation stores a generation.
func (b *book) generation(n int32, members map[string][]Partition) {
	b.store = true
	b.stored = append(b.stored, Stored{At: time.Unix(0, b.tick()), Generation: &Generation{Number: n, Members: members}})
}

// look takes a sample of what is stored.
func (b *book) look() {
	s := Sample{Asked: time.Unix(0, b.tick()), Answered: time.Unix(0, b.tick())}
	last := map[Partition]Commit{}
	for _, x := range b.stored {
		if x.Commit != nil {
			last[Partition{x.Commit.Topic, x.Commit.Partition}] = *x.Commit
		}
	}
	for _, c := range last {
		if c.Next >= 0 {
			s.Positions = append(s.Positions, c)
		}
	}
	b.tick()
	for _, ls := range [][]*bookLog{b.inputs, b.outs, b.letters} {
		for _, l := range ls {
			s.Ends = append(s.Ends, End{l.topic, l.id, l.next})
		}
	}
	b.samples = append(b.samples, s)
}

// kill notes that a runner has killed a life, stop that it froze it.
func (b *book) runner(kind string, f *bookFile) {
	r := slices.IndexFunc(b.files, func(f *bookFile) bool { return f.proc == "runner" })
	if r < 0 {
		b.file("runner", 1)
		r = len(b.files) - 1
	}
	b.files[r].write(line{Kind: kind, Target: &f.proc, LifeOf: &f.life})
}

func (b *book) kill(f *bookFile) { b.runner("kill", f) }

// history is the book as History has it.
func (b *book) history() *History {
	h := &History{Group: "g", Samples: b.samples}
	for _, x := range []struct {
		from []*bookLog
		to   *[]Log
	}{{b.inputs, &h.Inputs}, {b.outs, &h.Outputs}, {b.letters, &h.DeadLetters}} {
		for _, l := range x.from {
			*x.to = append(*x.to, l.log())
		}
	}
	if b.store {
		h.Stored = each(b.stored)
	}
	for _, f := range b.files {
		h.Events = append(h.Events, f.file())
	}
	return h
}

func each(all []Stored) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		for _, s := range all {
			if !yield(s, nil) {
				return
			}
		}
	}
}

func (f *bookFile) file() EventFile {
	var b bytes.Buffer
	for i, l := range f.lines {
		l.Seq = int64(i + 1)
		text, err := json.Marshal(l)
		if err != nil {
			panic(err)
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	b.WriteString(f.tail)
	return EventFile{Name: fmt.Sprintf("%s-%d.jsonl", f.proc, f.life), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(b.String())), nil
	}}
}

// byValue are rules for inputs whose value is their id.
func byValue() Rules { return Rules{ID: func(in *kgo.Record) string { return string(in.Value) }} }

// judge checks b and prints what a failing test needs.
func judge(t testing.TB, b *book, r Rules) *Report {
	t.Helper()
	rep, err := Check(r, b.history())
	if err != nil {
		t.Fatalf("no verdict: %v", err)
	}
	return rep
}

// clean demands that all rules were kept.
func clean(t testing.TB, b *book, r Rules) *Report {
	t.Helper()
	rep := judge(t, b, r)
	if !rep.OK || len(rep.Findings) > 0 {
		t.Fatalf("a run without fault:\n%v", rep)
	}
	return rep
}

// at is where a finding must be.
type at struct {
	kind      Kind
	topic     string
	partition int32
	offset    int64
}

// finds demands exactly these findings.
func finds(t testing.TB, b *book, r Rules, want ...at) *Report {
	t.Helper()
	rep := judge(t, b, r)
	var got []at
	for _, f := range rep.Findings {
		got = append(got, at{f.Kind, f.Topic, f.Partition, f.Offset})
	}
	if !slices.Equal(got, want) || rep.OK {
		t.Fatalf("findings %v, want %v\n%v", got, want, rep)
	}
	n := int64(0)
	for _, k := range rep.Counts {
		n += k
	}
	if n != int64(len(want)) {
		t.Fatalf("%d findings counted, want %d\n%v", n, len(want), rep)
	}
	return rep
}

func timeOf(at int64) time.Time { return time.Unix(0, at) }
