package core

import (
	"strconv"
	"time"
)

// Header is one record header.
type Header struct {
	Key   string
	Value []byte
}

// Record is the message below a tuple: a record fetched from Kafka, or an emitted
// message. What it returns is read-only.
type Record interface {
	Key() []byte
	Bytes() []byte
	Headers() []Header // a fresh copy
	Time() time.Time
}

// Origin is where a root record comes from.
type Origin struct {
	Topic     string
	Partition int32
	Offset    int64
}

// Place tells the origin of its i-th root. A chunk of a partition is one.
type Place interface{ Origin(i int) Origin }

// Port is the stream that a tuple came by.
type Port struct{ Component, Stream string }

// Tuple is the body of killick.Tuple: a view, filled for one execution.
type Tuple struct {
	_       noCopy
	rec     Record
	val     any   // valid if typed
	typed   bool  // val is what a codec made or a bolt emitted
	port    *Port // never nil while the tuple is valid
	place   Place // nil: no single origin
	index   int
	path    *Path // nil: the root itself
	attempt int
	loose   bool // anchored to nothing
	joined  bool // anchored to several roots
}

// Fill makes t a view of rec. place may be nil, path too.
func (t *Tuple) Fill(rec Record, port *Port, place Place, index int, path *Path, attempt int) {
	t.rec, t.port, t.place, t.index, t.path, t.attempt = rec, port, place, index, path, attempt
	t.val, t.typed, t.loose, t.joined = nil, false, false, false
}

// Next points t at another root of the same batch, all else being equal.
func (t *Tuple) Next(rec Record, index int) { t.rec, t.index = rec, index }

// SetValue gives t the value that a codec made.
func (t *Tuple) SetValue(v any) { t.val, t.typed = v, true }

// ClearValue takes back what SetValue said.
func (t *Tuple) ClearValue() { t.val, t.typed = nil, false }

// SetJoined marks t as anchored to several roots: it has an ID, but no single origin.
func (t *Tuple) SetJoined() { t.joined = true }

// SetLoose marks t as anchored to nothing: it has no ID.
func (t *Tuple) SetLoose() { t.loose = true }

// Poison makes t unusable, so that a bolt that kept it is found.
func (t *Tuple) Poison() { *t = Tuple{rec: poisoned{}, port: &poisonedPort} }

// Rec returns the message below.
func (t *Tuple) Rec() Record { return t.rec }

// Value returns what the codec made, and whether there is such a value.
func (t *Tuple) Value() (v any, typed bool) { return t.val, t.typed }

// Port returns the stream that t came by.
func (t *Tuple) Port() *Port { return t.port }

// Attempt returns the number of this execution, from 1.
func (t *Tuple) Attempt() int { return t.attempt }

// Origin returns the root record's place; !ok for a tuple of several roots or none.
func (t *Tuple) Origin() (o Origin, ok bool) {
	if t.place == nil || t.loose || t.joined {
		return Origin{}, false
	}
	return t.place.Origin(t.index), true
}

// ID returns the origin and the path, "" for a tuple that is anchored to nothing.
func (t *Tuple) ID() string {
	if t.place == nil || t.loose {
		return ""
	}
	o := t.place.Origin(t.index)
	b := make([]byte, 0, len(o.Topic)+48)
	b = append(b, o.Topic...)
	b = append(b, '/')
	b = strconv.AppendInt(b, int64(o.Partition), 10)
	b = append(b, '/')
	b = strconv.AppendInt(b, o.Offset, 10)
	if t.path != nil {
		b = t.path.append(b)
	}
	return string(b)
}

type poisoned struct{}

const kept = "killick: a tuple was used after Execute had returned; use Hold to keep it, or copy what you need"

func (poisoned) Key() []byte       { panic(kept) }
func (poisoned) Bytes() []byte     { panic(kept) }
func (poisoned) Headers() []Header { panic(kept) }
func (poisoned) Time() time.Time   { panic(kept) }

var poisonedPort = Port{Component: "(returned)"}
