package worker

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/killick-io/killick/internal/tty"
)

// progress keeps one line below everything else on a terminal. It is the writer of the log: a log line
// takes the progress line away and puts it back below itself.
//
// While it is shown the cursor stands on an empty line above it, so that what the program itself
// prints comes in the right place, and is followed by the line again with the next draw.
type progress struct {
	mu   sync.Mutex
	out  io.Writer
	line string // as shown; "": none
}

const (
	eraseBelow = "\r\x1b[J"
	wrapOff    = "\x1b[?7l" // a line that is too long is cut, not wrapped: nobody knows the width
	wrapOn     = "\x1b[?7h"
	lineUp     = "\x1b[A"
)

// Write implements io.Writer.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line == "" {
		return p.out.Write(b)
	}
	// One write: others use the terminal, too.
	if _, err := io.WriteString(p.out, eraseBelow+string(b)+p.shownLocked()); err != nil {
		return 0, err
	}
	return len(b), nil
}

// draw shows another line, "" none.
func (p *progress) draw(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	erase := ""
	if p.line != "" {
		erase = eraseBelow
	}
	p.line = strings.Map(func(r rune) rune { // a name must not move the cursor
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, line)
	if s := erase + p.shownLocked(); s != "" {
		_, _ = io.WriteString(p.out, s) // a terminal that is gone is no reason to stop
	}
}

func (p *progress) shownLocked() string {
	if p.line == "" {
		return ""
	}
	return "\n" + wrapOff + p.line + wrapOn + lineUp + "\r"
}

// show draws the worker's progress once a second until stop is closed, and then takes it away.
func (p *progress) show(w *Worker, stop <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	defer p.draw("")
	var last sample
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			if now, ok := w.sample(); ok {
				p.draw(now.text(last))
				last = now
			}
		}
	}
}

// wanted reports whether the progress line is to be drawn: on a terminal, between log lines that
// people read. logs is where those of c go.
func (c Config) wantsProgress(terminal bool, term string) bool {
	return terminal && term != "" && term != "dumb" && c.LogFormat != "json" && c.Logger == nil && c.Slog == nil && !c.NoProgress
}

// sample is what the progress line shows, at one moment.
type sample struct {
	at       time.Time
	topology string
	state    state
	ended    int64 // roots
	pending  int64
	retries  int   // that wait
	lag      int64 // of all partitions; -1: of one of them it is not known
	kafka    bool
	standby  bool
	paused   []string
	stuck    int
}

// sample takes a sample; false: there is nothing to show yet.
func (w *Worker) sample() (sample, bool) {
	if !w.built.Load() {
		return sample{}, false
	}
	s := sample{at: time.Now(), topology: w.spec.Name, state: state(w.state.Load()), retries: w.engine.Waiting(), paused: w.Paused(), stuck: len(w.engine.Stuck())}
	_, spouts := w.engine.Stats()
	for _, sp := range spouts {
		s.ended += sp.Acked + sp.Dead + sp.Skipped
		s.pending += sp.Pending
	}
	if w.reader != nil {
		st := w.reader.Status()
		s.kafka, s.standby = true, st.Standby != ""
		for i := range st.Partitions {
			if lag := st.Partitions[i].Lag(); lag < 0 || s.lag < 0 {
				s.lag = -1
			} else {
				s.lag += lag
			}
		}
	}
	return s, true
}

// text is the line, with the rate since the sample before.
func (s sample) text(before sample) string {
	var b strings.Builder
	b.WriteString(s.topology)
	if s.state != stateRunning {
		fmt.Fprintf(&b, " (%v)", s.state)
	}
	rate := "?"
	if d := s.at.Sub(before.at); !before.at.IsZero() && d > 0 {
		rate = thousands(int64(float64(s.ended-before.ended)/d.Seconds() + 0.5))
	}
	fmt.Fprintf(&b, ": %s/s", rate)
	switch {
	case s.kafka && s.lag < 0:
		b.WriteString(", lag ?")
	case s.kafka:
		fmt.Fprintf(&b, ", lag %s", thousands(s.lag))
	}
	fmt.Fprintf(&b, ", pending %s, retries %s", thousands(s.pending), thousands(int64(s.retries)))
	if s.standby {
		b.WriteString(", stands by")
	}
	if len(s.paused) > 0 {
		b.WriteString(", paused: " + strings.Join(s.paused, " "))
	}
	if s.stuck > 0 {
		fmt.Fprintf(&b, ", STUCK: %s", count(s.stuck, "task"))
	}
	return b.String()
}

// thousands is n with commas.
func thousands(n int64) string {
	t := fmt.Sprint(n)
	for i := len(t) - 3; i > 0 && t[i-1] != '-'; i -= 3 {
		t = t[:i] + "," + t[i:]
	}
	return t
}

// withProgress has w's log lines, and a line of progress, written to the terminal that p.stderr is. It
// returns what ends that; a program without a terminal gets nothing.
func (p *program) withProgress() (begin func(*Worker), end func()) {
	f, ok := p.stderr.(*os.File)
	if !ok || !p.cfg.wantsProgress(tty.Is(f), os.Getenv("TERM")) {
		return func(*Worker) {}, func() {}
	}
	line := &progress{out: f}
	p.cfg.logTo = line
	stop, done := make(chan struct{}), make(chan struct{})
	begin = func(w *Worker) {
		go func() {
			defer close(done)
			line.show(w, stop)
		}()
	}
	return begin, func() { close(stop); <-done }
}
