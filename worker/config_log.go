package worker

import (
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/killick-io/killick/internal/tty"
)

// logger returns the logger that c asks for: its own, or one on stderr. It is asked for its level before
// a line is made.
func (c Config) logger() zerolog.Logger {
	log, g := c.gated()
	if g != nil {
		log = log.Level(zerologLevel(c.withDefaults().LogLevel))
	}
	return log
}

// gated is logger with a level that may change, and what changes it; nil: that is somebody else's.
func (c Config) gated() (zerolog.Logger, *gate) {
	if c.Logger != nil {
		return *c.Logger, nil
	}
	if c.Slog != nil {
		return zerolog.New(slogWriter{c.Slog.Handler()}), nil
	}
	c = c.withDefaults()
	var w io.Writer = os.Stderr
	if c.logTo != nil {
		w = c.logTo
	}
	return newGated(w, tty.Is(os.Stderr), os.Getenv("NO_COLOR") != "", c.LogLevel, c.LogFormat)
}

// newLogger builds a logger on w that keeps its level. Values of level and format are those that
// Validate lets through.
func newLogger(w io.Writer, terminal, noColor bool, level, format string) zerolog.Logger {
	log, _ := newGated(w, terminal, noColor, level, format)
	return log.Level(zerologLevel(level)) // so that nothing is made of lines that nobody wants
}

// newGated builds a logger on w. Its gate decides about the level; lines of the worker are too few for
// those below it to cost anything.
func newGated(w io.Writer, terminal, noColor bool, level, format string) (zerolog.Logger, *gate) {
	raw := w
	if format == "console" || format == "auto" && terminal {
		w = zerolog.ConsoleWriter{
			Out:        w,
			NoColor:    noColor || !terminal, // no-color.org; escape codes in a file help nobody
			TimeFormat: "15:04:05.000",
		}
	}
	g := &gate{w: &lostLines{w: w, raw: raw}}
	g.least.Store(int32(zerologLevel(level)))
	return zerolog.New(g).Hook(timestamp{}), g
}

// timestamp adds the time with milliseconds; zerolog's own field follows a
// package variable, which other parts of a user's program may set.
type timestamp struct{}

// Run is zerolog's hook.
func (timestamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().Format("2006-01-02T15:04:05.000Z07:00"))
}
