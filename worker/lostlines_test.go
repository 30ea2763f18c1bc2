package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// disk is a log that has room for so many bytes.
type disk struct {
	bytes.Buffer
	room int
}

var errFull = errors.New("no space left on device")

func (d *disk) Write(p []byte) (int, error) {
	n := min(len(p), d.room)
	d.room -= n
	d.Buffer.Write(p[:n])
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

// Lines that the log has no room for are counted, and told of as soon as it has. Nothing is held up, and
// each line that is there is whole but the one that met the end.
func TestLostLines(t *testing.T) {
	for _, format := range []string{"json", "console"} {
		t.Run(format, func(t *testing.T) {
			d := &disk{room: 1 << 20}
			log, g := newGated(d, false, true, "info", format)
			log.Info().Msg("before")
			d.room = 10 // in the middle of a line
			for range 5 {
				log.Info().Msg("lost")
			}
			log.Debug().Msg("not wanted, and not lost")
			if n := g.w.lost.Load(); n != 5 {
				t.Errorf("%d lines were counted, 5 are lost", n)
			}
			d.room = 1 << 20
			log.Info().Msg("after")
			log.Info().Msg("and on")
			lines := strings.Split(strings.TrimSpace(d.String()), "\n")
			if len(lines) != 5 || !strings.Contains(lines[0], "before") || len(lines[1]) > 10 || !strings.Contains(lines[3], "after") || !strings.Contains(lines[4], "and on") {
				t.Fatalf("the log is\n%s", d)
			}
			for _, want := range []string{"log lines were lost", "5", errFull.Error()} {
				if !strings.Contains(lines[2], want) {
					t.Errorf("no %q in %s", want, lines[2])
				}
			}
			if format == "json" && !json.Valid([]byte(lines[2])) {
				t.Errorf("no JSON: %s", lines[2])
			}
		})
	}
}
