package verify

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Event is a line of an event file. Key and ID are nil if the line has none; both are valid until the next line.
//
// An event file has one JSON object per line and one writer: a life of a process (proc and life), which writes each line
// with one write to a file that is opened for appending. So lines are in the order of what happened, and a killed process
// leaves at most the last one torn. All lines have at (Unix nanoseconds, right before the write), seq (1, 2, 3 ... in the
// file), proc, life, pid and kind. The others depend on the kind:
//
//	start      first line of a life of a process
//	begin      topic partition offset [key id attempt]: user code was given a tuple of that root
//	effect     the same: the side effect for that root is complete; this line is the side effect
//	commit     group topic partition next generation [member metadata request txn]: about to be sent
//	committed  group topic partition next generation [member request error]: its answer has come; no error: accepted
//	end        [code]: orderly end
//	note       text; not judged
//	spawn, kill, stop, cont, term, exit: target life_of target_pid [code signal]: what a runner did to a process
//	fault      api client text: what a proxy did; not judged
type Event struct {
	At, Seq   int64
	Proc      string
	Life, PID int64
	Kind      string

	Topic     string
	Partition int32
	Offset    int64
	Key, ID   []byte
	Attempt   int64

	Group      string
	Next       int64
	Generation int32
	Member     string
	Metadata   string
	Request    int64
	Txn        string
	Error      string // Kafka's name of the error; empty: accepted

	Target    string
	LifeOf    int64
	TargetPID int64
	Code      int64
	Signal    string

	has fields
}

// fields are the ones that a line has.
type fields uint32

const (
	hasAt fields = 1 << iota
	hasSeq
	hasProc
	hasLife
	hasPID
	hasKind
	hasTopic
	hasPartition
	hasOffset
	hasGroup
	hasNext
	hasGeneration
	hasTarget
	hasLifeOf

	hasAll    = hasAt | hasSeq | hasProc | hasLife | hasPID | hasKind
	hasRecord = hasTopic | hasPartition | hasOffset
	hasCommit = hasTopic | hasPartition | hasGroup | hasNext | hasGeneration
	hasOther  = hasTarget | hasLifeOf
)

// needs are the fields of each kind; other kinds are unknown.
var needs = map[string]fields{
	"start": 0, "end": 0, "note": 0, "fault": 0,
	"begin": hasRecord, "effect": hasRecord,
	"commit": hasCommit, "committed": hasCommit,
	"spawn": hasOther, "kill": hasOther, "stop": hasOther, "cont": hasOther, "term": hasOther, "exit": hasOther,
}

// names of the fields, in the order of their bits.
var fieldNames = [...]string{"at", "seq", "proc", "life", "pid", "kind", "topic", "partition", "offset", "group", "next", "generation", "target", "life_of"}

func (f fields) String() string {
	var s []string
	for i, n := range fieldNames {
		if f&(1<<i) != 0 {
			s = append(s, n)
		}
	}
	return strings.Join(s, ", ")
}

// maxLine bounds a line of an event file. Metadata of a commit has 4096 characters; keys are the longest part.
const maxLine = 4 << 20

// EventDir returns the event files (*.jsonl) of a folder, by name. None at all is an error: nothing could be judged.
func EventDir(dir string) ([]EventFile, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("verify: event files: %w", err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%w: there is no event file (*.jsonl) in %s", ErrHistory, dir)
	}
	var out []EventFile
	for _, p := range paths {
		out = append(out, EventFile{Name: filepath.Base(p), Open: func() (io.ReadCloser, error) { return os.Open(p) }})
	}
	return out, nil
}

// Events reads an event file. name is for errors. A last line that is torn did not happen and is left out. Everything
// else that is not as Event says is an error that wraps ErrHistory, and the last element. The Event is valid until the next.
func Events(r io.Reader, name string) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		c := newEvents(r, name)
		for {
			ev, err := c.next()
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

// events reads one file.
type events struct {
	name   string
	r      *bufio.Reader
	long   []byte // a line that does not fit into r's buffer
	line   int    // of ev
	seq    int64
	at     int64 // never falls: the order of the lines is that of the events, whatever the clock did
	torn   bool  // the last line was torn
	ev     Event
	proc   string
	life   int64
	intern map[string]string
}

func newEvents(r io.Reader, name string) *events {
	return &events{name: name, r: bufio.NewReaderSize(r, 64<<10), intern: map[string]string{}}
}

// next returns the next event, or io.EOF. ev.At never falls.
func (e *events) next() (*Event, error) {
	b, err := e.read()
	if err != nil {
		return nil, err
	}
	e.line++
	e.ev = Event{}
	if err := e.parse(b); err != nil {
		b = bytes.Clone(b[:min(len(b), 200)]) // Peek may move what is below
		if _, more := e.r.Peek(1); errors.Is(more, io.EOF) {
			e.torn = true
			return nil, io.EOF
		}
		return nil, e.broken("%v: %.200q", err, b)
	}
	ev := &e.ev
	need, known := needs[ev.Kind]
	switch {
	case ev.has&hasAll != hasAll:
		return nil, e.broken("the line has no %v: %.200q", hasAll&^ev.has, b)
	case !known:
		return nil, e.broken("unknown kind %q", ev.Kind)
	case ev.has&need != need:
		return nil, e.broken("the %s line has no %v: %.200q", ev.Kind, need&^ev.has, b)
	case ev.Seq != e.seq+1:
		return nil, e.broken("seq %d after %d: lines are missing", ev.Seq, e.seq)
	case ev.Life < 1 || ev.At <= 0:
		return nil, e.broken("life %d, at %d: both are positive", ev.Life, ev.At)
	case e.line > 1 && (ev.Proc != e.proc || ev.Life != e.life):
		return nil, e.broken("a line of %s-%d in the file of %s-%d: one file per life", ev.Proc, ev.Life, e.proc, e.life)
	case ev.has&hasPartition != 0 && ev.Partition < 0:
		return nil, e.broken("partition %d", ev.Partition)
	}
	e.seq, e.proc, e.life = ev.Seq, ev.Proc, ev.Life
	e.at = max(e.at, ev.At)
	ev.At = e.at
	return ev, nil
}

func (e *events) broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s:%d: %s", ErrHistory, e.name, e.line, fmt.Sprintf(format, args...))
}

// read returns the next whole line without its end, or io.EOF.
func (e *events) read() ([]byte, error) {
	b, err := e.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		e.long = append(e.long[:0], b...)
		for errors.Is(err, bufio.ErrBufferFull) && len(e.long) <= maxLine {
			b, err = e.r.ReadSlice('\n')
			e.long = append(e.long, b...)
		}
		if b = e.long; err == nil && len(b) > maxLine || errors.Is(err, bufio.ErrBufferFull) {
			e.line++
			return nil, e.broken("a line of more than %d bytes", maxLine)
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		e.torn = len(b) > 0
		return nil, io.EOF
	case err != nil:
		return nil, fmt.Errorf("verify: read %s: %w", e.name, err)
	}
	return b[:len(b)-1], nil
}

// word returns b as a string that is shared by the lines: topics, members and the like are few.
func (e *events) word(b []byte) string {
	if s, ok := e.intern[string(b)]; ok {
		return s
	}
	if len(e.intern) >= 1<<12 { // not so few
		clear(e.intern)
	}
	s := string(b)
	e.intern[s] = s
	return s
}

// when is an event's or a sample's time for people: of one run, so without the date.
func when(at int64) string { return time.Unix(0, at).UTC().Format("15:04:05.000000") }
