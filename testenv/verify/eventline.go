package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// parse reads a line into e.ev. Lines are many and of one shape: an object of plain strings and whole numbers without
// white space, which quick reads without garbage. All else goes to encoding/json.
func (e *events) parse(b []byte) error {
	if e.quick(b) {
		return nil
	}
	e.ev = Event{}
	return e.slow(b)
}

// quick reports whether it could read the line. If not, the line may be good all the same.
func (e *events) quick(b []byte) bool {
	if len(b) < 2 || b[0] != '{' || b[len(b)-1] != '}' || !utf8.Valid(b) {
		return false
	}
	i := 1
	for {
		name, next, ok := plain(b, i)
		if !ok || next >= len(b) || b[next] != ':' {
			return false
		}
		i = next + 1
		if i >= len(b) {
			return false
		}
		if b[i] == '"' {
			text, next, ok := plain(b, i)
			if !ok || !e.text(string(name), text) {
				return false
			}
			i = next
		} else {
			v, next, ok := whole(b, i)
			if !ok || !e.number(string(name), v) {
				return false
			}
			i = next
		}
		switch {
		case i >= len(b):
			return false
		case b[i] == ',':
			i++
		default:
			return b[i] == '}' && i == len(b)-1
		}
	}
}

// plain reads a string without escapes that begins at b[i].
func plain(b []byte, i int) (s []byte, next int, ok bool) {
	if i >= len(b) || b[i] != '"' {
		return nil, 0, false
	}
	i++
	for j := i; j < len(b); j++ {
		switch c := b[j]; {
		case c == '"':
			return b[i:j:j], j + 1, true
		case c == '\\' || c < 0x20:
			return nil, 0, false
		}
	}
	return nil, 0, false
}

// whole reads a whole number of at most 18 digits, as JSON writes it.
func whole(b []byte, i int) (v int64, next int, ok bool) {
	neg := b[i] == '-'
	if neg {
		i++
	}
	j := i
	for j < len(b) && b[j] >= '0' && b[j] <= '9' {
		v = v*10 + int64(b[j]-'0')
		j++
	}
	if n := j - i; n == 0 || n > 18 && !(n == 19 && b[i] == '1') || n > 1 && b[i] == '0' {
		return 0, 0, false
	}
	if neg {
		v = -v
	}
	return v, j, true
}

// text sets a field. It reports false if the field is no text.
func (e *events) text(name string, v []byte) bool {
	ev := &e.ev
	switch name {
	case "proc":
		ev.Proc, ev.has = e.word(v), ev.has|hasProc
	case "kind":
		ev.Kind, ev.has = e.word(v), ev.has|hasKind
	case "topic":
		ev.Topic, ev.has = e.word(v), ev.has|hasTopic
	case "key":
		ev.Key = v
	case "id":
		ev.ID = v
	case "group":
		ev.Group, ev.has = e.word(v), ev.has|hasGroup
	case "member":
		ev.Member = e.word(v)
	case "metadata":
		ev.Metadata = string(v)
	case "txn":
		ev.Txn = e.word(v)
	case "error":
		ev.Error = e.word(v)
	case "target":
		ev.Target, ev.has = e.word(v), ev.has|hasTarget
	case "signal":
		ev.Signal = e.word(v)
	case "at", "seq", "life", "pid", "partition", "offset", "attempt", "next", "generation", "request", "life_of", "target_pid", "code":
		return false
	}
	return true
}

// number sets a field. It reports false if the field is no number, or one that it cannot hold.
func (e *events) number(name string, v int64) bool {
	ev := &e.ev
	switch name {
	case "at":
		ev.At, ev.has = v, ev.has|hasAt
	case "seq":
		ev.Seq, ev.has = v, ev.has|hasSeq
	case "life":
		ev.Life, ev.has = v, ev.has|hasLife
	case "pid":
		ev.PID, ev.has = v, ev.has|hasPID
	case "partition":
		ev.Partition, ev.has = int32(v), ev.has|hasPartition
		return v >= math.MinInt32 && v <= math.MaxInt32
	case "offset":
		ev.Offset, ev.has = v, ev.has|hasOffset
	case "attempt":
		ev.Attempt = v
	case "next":
		ev.Next, ev.has = v, ev.has|hasNext
	case "generation":
		ev.Generation, ev.has = int32(v), ev.has|hasGeneration
		return v >= math.MinInt32 && v <= math.MaxInt32
	case "request":
		ev.Request = v
	case "life_of":
		ev.LifeOf, ev.has = v, ev.has|hasLifeOf
	case "target_pid":
		ev.TargetPID = v
	case "code":
		ev.Code = v
	case "proc", "kind", "topic", "key", "id", "group", "member", "metadata", "txn", "error", "target", "signal":
		return false
	}
	return true
}

// slow reads any JSON object. Fields that are not known may be anything.
func (e *events) slow(b []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	if all == nil {
		return errors.New("not an object")
	}
	for name, raw := range all {
		probe := events{intern: map[string]string{}}
		isText, isNumber := probe.text(name, nil), probe.number(name, 0)
		switch {
		case isText != isNumber && string(raw) == "null":
			return fmt.Errorf("field %s: null", name)
		case isText && isNumber: // unknown to both
		case isText:
			var s string
			if err := json.Unmarshal(raw, &s); err != nil {
				return fmt.Errorf("field %s: %w", name, err)
			}
			e.text(name, []byte(s))
		default:
			var v int64
			if err := json.Unmarshal(raw, &v); err != nil {
				return fmt.Errorf("field %s: %w", name, err)
			}
			if !e.number(name, v) {
				return fmt.Errorf("field %s: %d is out of range", name, v)
			}
		}
	}
	return nil
}
