package worker

import (
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"
)

// logger returns the logger that c asks for: its own, or one on stderr.
func (c Config) logger() zerolog.Logger {
	if c.Logger != nil {
		return *c.Logger
	}
	if c.Slog != nil {
		return zerolog.New(slogWriter{c.Slog.Handler()})
	}
	c = c.withDefaults()
	var w io.Writer = os.Stderr
	if c.logTo != nil {
		w = c.logTo
	}
	return newLogger(w, isTerminal(os.Stderr), os.Getenv("NO_COLOR") != "", c.LogLevel, c.LogFormat)
}

// newLogger builds a logger on w. Values of level and format are those that
// Validate lets through.
func newLogger(w io.Writer, terminal, noColor bool, level, format string) zerolog.Logger {
	if format == "console" || format == "auto" && terminal {
		w = zerolog.ConsoleWriter{
			Out:        w,
			NoColor:    noColor || !terminal, // no-color.org; escape codes in a file help nobody
			TimeFormat: "15:04:05.000",
		}
	}
	least, err := zerolog.ParseLevel(level)
	switch {
	case level == "off":
		least = zerolog.Disabled
	case err != nil:
		least = zerolog.InfoLevel
	}
	return zerolog.New(w).Level(least).Hook(timestamp{})
}

// timestamp adds the time with milliseconds; zerolog's own field follows a
// package variable, which other parts of a user's program may set.
type timestamp struct{}

// Run is zerolog's hook.
func (timestamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().Format("2006-01-02T15:04:05.000Z07:00"))
}

// isTerminal says whether f is a terminal or another character device; on those
// colours do no harm.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
