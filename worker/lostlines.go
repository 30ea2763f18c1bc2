package worker

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/killick-io/killick/internal/rules"
)

// lostLines writes log lines, and counts those that cannot be written: the disk is full, or whoever reads
// the pipe has gone. That is no reason to stop, and nothing is tried again, since lines must not hold up
// records. As soon as a line gets through one before it says how many did not.
type lostLines struct {
	w    io.Writer    // may make text of them
	raw  io.Writer    // below w
	lost atomic.Int64 // lines, since the start

	mu   sync.Mutex
	told int64 // of lost, those that a line has told of
	torn bool  // the last line was written in part
	last error // of the last line that was lost
}

// Write implements io.Writer, for one line. It never fails: zerolog would say so on stderr, once a line.
func (l *lostLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.lost.Load() - l.told; n > 0 {
		l.tellLocked(n)
	}
	if n, err := l.w.Write(p); err != nil {
		l.noteLocked(n, err)
	}
	return len(p), nil
}

// tellLocked says what was lost, if it can, on a line of its own.
func (l *lostLines) tellLocked(n int64) {
	if l.torn {
		if _, err := l.raw.Write([]byte("\n")); err != nil {
			return
		}
		l.torn = false
	}
	var line line
	log := zerolog.New(&line).Hook(timestamp{})
	log.Error().Int64("lines", n).AnErr("reason", l.last).Msg("log lines were lost: the log could not be written")
	if k, err := l.w.Write(line); err == nil {
		l.told += n
	} else {
		l.torn = k > 0
	}
}

func (l *lostLines) noteLocked(n int, err error) {
	l.torn = l.torn || n > 0
	l.last = err
	if rules.LostLinesAreCounted {
		l.lost.Add(1)
	}
}

// line keeps one line.
type line []byte

func (l *line) Write(p []byte) (int, error) {
	*l = append(*l, p...)
	return len(p), nil
}
