package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
)

// Log is the event file of one life of a process: what it did, in the order in which it did it, one JSON
// object a line. Each line is one write to a file that is opened for appending, so a killed process
// leaves all that it has noted and at most its last line torn. Nothing is synced: the files survive the
// process, not the machine. testenv/verify reads them; its type Event describes the fields.
//
// Methods may be called from any goroutine. An error is final: the file has a torn line then, and takes
// no other.
type Log struct {
	proc      string
	life, pid int
	topics    topics // of the clients of Dialer

	mu       sync.Mutex
	f        *os.File
	seq      int64
	requests int64
	buf      []byte
	err      error // of the write that failed, or ErrClosed
}

// Proc is the name of the process that the file is of.
func (l *Log) Proc() string { return l.proc }

// ErrLog says that an event file takes no more lines.
var ErrLog = errors.New("faults: the event file takes no more lines")

// Record is a source record, and what a test knows of it.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       []byte // valid UTF-8; nil: not noted
	ID        string // the test's own name of the record, valid UTF-8; "": not noted
	Attempt   int    // from 1; 0: not noted
}

// Commit is one position in a commit of offsets.
type Commit struct {
	Group      string
	Topic      string
	Partition  int32
	Next       int64 // the offset to be read next
	Generation int32
	Member     string // "": none
	Metadata   string // noted if it is valid UTF-8
	Txn        string // transactional id; "": a plain commit
	Client     string // client id, in the file of a Proxy
	// Request is the same number for all positions of a request and for their answers; see Log.Request.
	Request int64
	// Error is Kafka's name of the answer's error; "": accepted.
	Error string
}

// CreateLog makes the file dir/proc-life.jsonl and notes the start. proc is a letter from a to z, and then
// letters, digits and underlines; life counts from 1. It is an error if the file is there already.
func CreateLog(dir, proc string, life int) (*Log, error) {
	return createLog(dir, proc, life, os.Getpid(), true)
}

func createLog(dir, proc string, life, pid int, start bool) (*Log, error) {
	var errs []error
	if !isProc(proc) {
		errs = append(errs, fmt.Errorf("faults: event file: the process is called %q; use a letter from a to z, then letters, digits and _", proc))
	}
	if life < 1 {
		errs = append(errs, fmt.Errorf("faults: event file: life %d of %q; they are counted from 1", life, proc))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	name := filepath.Join(dir, fmt.Sprintf("%s-%d.jsonl", proc, life))
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("faults: event file: %w", err)
	}
	l := &Log{proc: proc, life: life, pid: pid, f: f}
	if start {
		if err := l.line("start", func(b []byte) []byte { return b }); err != nil {
			f.Close()
			return nil, err
		}
	}
	return l, nil
}

func isProc(s string) bool {
	for i, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (i == 0 || (c < '0' || c > '9') && c != '_') {
			return false
		}
	}
	return s != ""
}

// Begin notes that user code was given a tuple of the record.
func (l *Log) Begin(r Record) error { return l.record("begin", r) }

// Effect notes that the side effect for the record is complete: the line is the side effect. Call it
// before Execute returns, or before Ack.
func (l *Log) Effect(r Record) error { return l.record("effect", r) }

// Request returns a number for the commits of one request.
func (l *Log) Request() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	return l.requests
}

// Commit notes that a position is about to be sent. Log.Dialer does it for all that a client commits.
func (l *Log) Commit(c Commit) error { return l.commit("commit", c) }

// Committed notes the answer to a position.
func (l *Log) Committed(c Commit) error { return l.commit("committed", c) }

// Note keeps a text, valid UTF-8, that is not judged.
func (l *Log) Note(text string) error {
	if err := valid("note", text); err != nil {
		return err
	}
	return l.line("note", func(b []byte) []byte { return appendText(b, "text", text) })
}

// fault notes what a rule of a proxy does.
func (l *Log) fault(api, client, text string) error {
	return l.line("fault", func(b []byte) []byte {
		return appendText(appendText(appendText(b, "api", api), "client", client), "text", text)
	})
}

// End notes the orderly end of the process, and closes the file.
func (l *Log) End(code int) error {
	return errors.Join(l.line("end", func(b []byte) []byte { return appendNumber(b, "code", int64(code)) }), l.Close())
}

// Close closes the file. A file without an end is that of a process that has crashed.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f, l.err = nil, fmt.Errorf("%w: it is closed", ErrLog)
	if err != nil {
		return fmt.Errorf("faults: event file: %w", err)
	}
	return nil
}

func (l *Log) record(kind string, r Record) error {
	if err := errors.Join(valid("key", string(r.Key)), valid("id", r.ID), valid("topic", r.Topic)); err != nil {
		return err
	}
	return l.line(kind, func(b []byte) []byte {
		b = appendText(b, "topic", r.Topic)
		b = appendNumber(b, "partition", int64(r.Partition))
		b = appendNumber(b, "offset", r.Offset)
		if r.Key != nil {
			b = appendText(b, "key", string(r.Key))
		}
		if r.ID != "" {
			b = appendText(b, "id", r.ID)
		}
		if r.Attempt != 0 {
			b = appendNumber(b, "attempt", int64(r.Attempt))
		}
		return b
	})
}

func (l *Log) commit(kind string, c Commit) error {
	return l.line(kind, func(b []byte) []byte {
		b = appendText(b, "group", c.Group)
		b = appendText(b, "topic", c.Topic)
		b = appendNumber(b, "partition", int64(c.Partition))
		b = appendNumber(b, "next", c.Next)
		b = appendNumber(b, "generation", int64(c.Generation))
		for _, o := range [...]struct{ name, text string }{{"member", c.Member}, {"metadata", c.Metadata}, {"txn", c.Txn}, {"client", c.Client}, {"error", c.Error}} {
			if o.text != "" && (o.name != "metadata" || utf8.ValidString(o.text)) {
				b = appendText(b, o.name, o.text)
			}
		}
		if c.Request != 0 {
			b = appendNumber(b, "request", c.Request)
		}
		return b
	})
}

// line writes a line: what all lines have, and what fields appends.
func (l *Log) line(kind string, fields func(b []byte) []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	l.seq++
	b := append(l.buf[:0], `{"at":`...)
	b = strconv.AppendInt(b, time.Now().UnixNano(), 10)
	b = appendNumber(b, "seq", l.seq)
	b = appendText(b, "proc", l.proc)
	b = appendNumber(b, "life", int64(l.life))
	b = appendNumber(b, "pid", int64(l.pid))
	l.buf = appendText(b, "kind", kind)
	l.buf = append(fields(l.buf), '}', '\n')
	if _, err := l.f.Write(l.buf); err != nil {
		l.err = fmt.Errorf("%w: line %d of %s: %w", ErrLog, l.seq, l.f.Name(), err)
		return l.err
	}
	return nil
}

func appendNumber(b []byte, name string, n int64) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	return strconv.AppendInt(b, n, 10)
}

func appendText(b []byte, name, text string) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	for i := range len(text) {
		if c := text[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			q, _ := json.Marshal(text) // of a string it cannot fail
			return append(b, q...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

// valid says that a text cannot be noted.
func valid(what, s string) error {
	if utf8.ValidString(s) {
		return nil
	}
	return fmt.Errorf("faults: event file: the %s %q is not UTF-8, which an event file cannot hold", what, s)
}
