package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/rs/zerolog"
)

// SlogHandler returns a handler that writes to where the log lines of a worker with this
// configuration go, in their form and from their level on, so that a program has one log:
//
//	slog.SetDefault(slog.New(c.SlogHandler()))
//
// Groups become objects. The time of a line is when it is written.
func (c Config) SlogHandler() slog.Handler {
	if c.Slog != nil {
		return c.Slog.Handler()
	}
	return &slogHandler{log: c.logger(), attrs: [][]slog.Attr{nil}}
}

// slogHandler turns slog's records into zerolog's events. (zerolog has one, which flattens groups, and
// puts attributes that were there before a group into it.)
type slogHandler struct {
	log    zerolog.Logger
	groups []string
	attrs  [][]slog.Attr // of the top, and of each group; one more than groups
}

// Enabled implements slog.Handler.
func (h *slogHandler) Enabled(_ context.Context, l slog.Level) bool {
	return zeroLevel(l) >= h.log.GetLevel()
}

// Handle implements slog.Handler.
func (h *slogHandler) Handle(_ context.Context, r slog.Record) error {
	if e := h.log.WithLevel(zeroLevel(r.Level)); e != nil {
		h.fill(e, 0, r)
		e.Msg(r.Message)
	}
	return nil
}

// fill writes the attributes of group number depth and of those inside it. An empty group is left out.
func (h *slogHandler) fill(e *zerolog.Event, depth int, r slog.Record) {
	for _, a := range h.attrs[depth] {
		addAttr(e, a)
	}
	if depth == len(h.groups) {
		r.Attrs(func(a slog.Attr) bool { addAttr(e, a); return true })
		return
	}
	if r.NumAttrs() > 0 || slices.ContainsFunc(h.attrs[depth+1:], func(as []slog.Attr) bool { return len(as) > 0 }) {
		d := e.CreateDict()
		h.fill(d, depth+1, r)
		e.Dict(h.groups[depth], d)
	}
}

// WithAttrs implements slog.Handler.
func (h *slogHandler) WithAttrs(as []slog.Attr) slog.Handler {
	n := &slogHandler{log: h.log, groups: h.groups, attrs: slices.Clone(h.attrs)}
	last := len(n.attrs) - 1
	n.attrs[last] = slices.Concat(n.attrs[last], as)
	return n
}

// WithGroup implements slog.Handler.
func (h *slogHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &slogHandler{log: h.log, groups: append(slices.Clip(h.groups), name), attrs: append(slices.Clip(h.attrs), nil)}
}

func addAttr(e *zerolog.Event, a slog.Attr) {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindGroup:
		as := v.Group()
		if a.Key == "" { // its attributes are the parent's
			for _, a := range as {
				addAttr(e, a)
			}
		} else if len(as) > 0 {
			d := e.CreateDict()
			for _, a := range as {
				addAttr(d, a)
			}
			e.Dict(a.Key, d)
		}
		return
	case slog.KindString:
		e.Str(a.Key, v.String())
	case slog.KindInt64:
		e.Int64(a.Key, v.Int64())
	case slog.KindUint64:
		e.Uint64(a.Key, v.Uint64())
	case slog.KindFloat64:
		e.Float64(a.Key, v.Float64())
	case slog.KindBool:
		e.Bool(a.Key, v.Bool())
	case slog.KindDuration:
		e.Dur(a.Key, v.Duration())
	case slog.KindTime:
		e.Str(a.Key, v.Time().Format(time.RFC3339Nano))
	default:
		switch x := v.Any().(type) {
		case nil:
			if !a.Equal(slog.Attr{}) { // an empty attribute is none
				e.Interface(a.Key, nil)
			}
		case error:
			e.AnErr(a.Key, x)
		default:
			e.Interface(a.Key, x)
		}
	}
}

func zeroLevel(l slog.Level) zerolog.Level {
	switch {
	case l < slog.LevelDebug:
		return zerolog.TraceLevel
	case l < slog.LevelInfo:
		return zerolog.DebugLevel
	case l < slog.LevelWarn:
		return zerolog.InfoLevel
	case l < slog.LevelError:
		return zerolog.WarnLevel
	}
	return zerolog.ErrorLevel
}

func slogLevel(l zerolog.Level) slog.Level {
	switch l {
	case zerolog.TraceLevel:
		return slog.LevelDebug - 4
	case zerolog.DebugLevel:
		return slog.LevelDebug
	case zerolog.WarnLevel:
		return slog.LevelWarn
	case zerolog.ErrorLevel, zerolog.FatalLevel, zerolog.PanicLevel:
		return slog.LevelError
	}
	return slog.LevelInfo
}

// slogWriter gives zerolog's lines to a slog.Handler: level, message, and fields in their order as
// attributes, objects as groups. It reads them from the line, since zerolog hands out nothing else;
// log lines are few.
type slogWriter struct{ h slog.Handler }

// Write implements io.Writer, for lines without a level.
func (w slogWriter) Write(p []byte) (int, error) { return w.WriteLevel(zerolog.NoLevel, p) }

// WriteLevel implements zerolog.LevelWriter.
func (w slogWriter) WriteLevel(l zerolog.Level, p []byte) (int, error) {
	ctx := context.Background()
	if !w.h.Enabled(ctx, slogLevel(l)) {
		return len(p), nil
	}
	r := slog.NewRecord(time.Now(), slogLevel(l), "", 0)
	d := json.NewDecoder(bytes.NewReader(p))
	d.UseNumber()
	as, err := readObject(d)
	if err != nil { // no line of ours; better odd than lost
		r.Message = string(bytes.TrimSpace(p))
		return len(p), w.h.Handle(ctx, r)
	}
	for _, a := range as {
		switch a.Key {
		case zerolog.MessageFieldName:
			r.Message = a.Value.String()
		case zerolog.LevelFieldName, zerolog.TimestampFieldName: // the record's own
		default:
			r.AddAttrs(a)
		}
	}
	return len(p), w.h.Handle(ctx, r)
}

// readObject reads one JSON object.
func readObject(d *json.Decoder) ([]slog.Attr, error) {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errNoObject(err)
	}
	return readFields(d)
}

func errNoObject(err error) error {
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// readFields reads the rest of an object behind its brace.
func readFields(d *json.Decoder) (as []slog.Attr, err error) {
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		v, err := readValue(raw)
		if err != nil {
			return nil, err
		}
		as = append(as, slog.Attr{Key: key.(string), Value: v})
	}
	_, err = d.Token()
	return as, err
}

func readValue(raw json.RawMessage) (slog.Value, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if raw[0] == '{' {
		as, err := readObject(d)
		return slog.GroupValue(as...), err
	}
	var v any
	if err := d.Decode(&v); err != nil {
		return slog.Value{}, err
	}
	if n, ok := v.(json.Number); ok {
		if i, err := n.Int64(); err == nil {
			return slog.Int64Value(i), nil
		}
		f, err := n.Float64()
		return slog.Float64Value(f), err
	}
	return slog.AnyValue(v), nil
}
