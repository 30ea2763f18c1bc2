package worker

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/bubble"
)

// screen is a terminal that knows what progress uses: lines of text, a cursor, and the width.
type screen struct {
	lines [][]rune
	x, y  int
	width int
	wrap  bool
}

func newScreen(width int) *screen { return &screen{lines: [][]rune{nil}, width: width, wrap: true} }

func (s *screen) Write(b []byte) (int, error) {
	t := string(b)
	for t != "" {
		code := func(c string) bool {
			rest, ok := strings.CutPrefix(t, c)
			if ok {
				t = rest
			}
			return ok
		}
		switch {
		case code("\r"):
			s.x = 0
		case code("\n"): // terminals turn it into CR LF
			s.x = 0
			if s.y++; s.y == len(s.lines) {
				s.lines = append(s.lines, nil)
			}
		case code("\x1b[J"):
			s.lines = s.lines[:s.y+1]
			s.lines[s.y] = s.lines[s.y][:min(s.x, len(s.lines[s.y]))]
		case code("\x1b[A"):
			s.y = max(0, s.y-1)
		case code("\x1b[?7l"):
			s.wrap = false
		case code("\x1b[?7h"):
			s.wrap = true
		case t[0] < ' ':
			return 0, fmt.Errorf("the screen does not know %q", t)
		default:
			r := []rune(t)[0]
			t = t[len(string(r)):]
			if s.x == s.width {
				if s.wrap {
					return 0, fmt.Errorf("a line is wrapped")
				}
				s.x--
			}
			l := s.lines[s.y]
			for len(l) <= s.x {
				l = append(l, ' ')
			}
			l[s.x] = r
			s.lines[s.y] = l
			s.x++
		}
	}
	return len(b), nil
}

func (s *screen) text() (out []string) {
	for _, l := range s.lines {
		out = append(out, string(l))
	}
	return out
}

// What a person sees: log lines in order, what the program prints in between, and the progress below.
func TestProgressOnAScreen(t *testing.T) {
	scr := newScreen(20)
	p := &progress{out: scr}
	say := func(want ...string) {
		t.Helper()
		if d := cmp.Diff(want, scr.text()); d != "" {
			t.Fatal(d)
		}
	}
	log := newLogger(p, false, true, "info", "console")
	write := func(text string) {
		t.Helper()
		if n, err := fmt.Fprintln(p, text); err != nil || n != len(text)+1 {
			t.Fatalf("%d, %v", n, err)
		}
	}
	write("first")
	say("first", "")
	p.draw("")
	say("first", "")
	p.draw("10/s")
	say("first", "", "10/s")
	p.draw("7/s")
	say("first", "", "7/s")
	write("second")
	say("first", "second", "", "7/s")
	fmt.Fprintln(scr, "printed") // by the program, past p
	say("first", "second", "printed", "7/s")
	p.draw("8/s")
	say("first", "second", "printed", "", "8/s")
	p.draw("longer than the screen is wide")
	say("first", "second", "printed", "", "longer than the scre"[:19]+"e")
	p.draw("bad\x1b[2J\nname")
	say("first", "second", "printed", "", "bad?[2J?name")
	p.draw("")
	say("first", "second", "printed", "")
	write("last")
	say("first", "second", "printed", "last", "")
	log.Info().Msg("x")
	if got := scr.text(); !strings.Contains(got[4], "INF x") {
		t.Errorf("%q", got)
	}
}

func TestProgressText(t *testing.T) {
	at := time.Unix(100, 0)
	before := sample{at: at, ended: 1000}
	for _, tt := range []struct {
		s      sample
		before sample
		want   string
	}{
		{sample{at: at, state: stateRunning, kafka: true}, sample{}, "t: ?/s, lag 0, pending 0, retries 0"},
		{sample{at: at.Add(2 * time.Second), state: stateRunning, kafka: true, ended: 3_469_000, lag: 1_234_567, pending: 1024, retries: 3}, before,
			"t: 1,734,000/s, lag 1,234,567, pending 1,024, retries 3"},
		{sample{at: at.Add(time.Second), state: stateDraining, kafka: true, ended: 1000, lag: -1, paused: []string{"a", "b"}, standby: true, stuck: 2}, before,
			"t (draining): 0/s, lag ?, pending 0, retries 0, stands by, paused: a b, STUCK: 2 tasks"},
		{sample{at: at.Add(time.Second), state: stateRunning, ended: 1001, stuck: 1}, before, "t: 1/s, pending 0, retries 0, STUCK: 1 task"},
		{sample{at: at, state: stateRunning, ended: 1001}, before, "t: ?/s, pending 0, retries 0"},
	} {
		tt.s.topology = "t"
		if got := tt.s.text(tt.before); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -999: "-999", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

func TestWantsProgress(t *testing.T) {
	log := zerolog.Nop()
	for _, tt := range []struct {
		name     string
		c        Config
		terminal bool
		term     string
		want     bool
	}{
		{"a terminal", Config{}, true, "xterm", true},
		{"console lines on a terminal", Config{LogFormat: "console"}, true, "xterm", true},
		{"JSON on a terminal", Config{LogFormat: "json"}, true, "xterm", false},
		{"no terminal", Config{}, false, "xterm", false},
		{"console lines in a file", Config{LogFormat: "console"}, false, "xterm", false},
		{"a dumb terminal", Config{}, true, "dumb", false},
		{"a terminal of no kind", Config{}, true, "", false},
		{"switched off", Config{NoProgress: true}, true, "xterm", false},
		{"another logger", Config{Logger: &log}, true, "xterm", false},
		{"slog", Config{Slog: slog.Default()}, true, "xterm", false},
	} {
		if got := tt.c.wantsProgress(tt.terminal, tt.term); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// each is a spout that emits a message each second.
type each struct{}

func (each) Next(ctx context.Context) (killick.Message, func(error), error) {
	select {
	case <-time.After(time.Second):
		return killick.Message{}, nil, nil
	case <-ctx.Done():
		return killick.Message{}, nil, ctx.Err()
	}
}

// The line is drawn once a second while the worker runs, with the rate since the one before, and is gone at
// the end. Before the start there is none.
func TestProgressShow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		top := killick.New("t")
		top.Spout("in", spout.New(func() killick.Spout { return each{} }))
		top.Bolt("b", bolt.Func(func(context.Context, *killick.Tuple, killick.Emitter) error { return nil })).Shuffle("in")
		w, err := New(top, Config{HTTP: "off", LogLevel: "off"})
		if err != nil {
			t.Fatal(err)
		}
		scr := newScreen(80)
		p := &progress{out: scr}
		stop, done := make(chan struct{}), make(chan struct{})
		go func() { defer close(done); p.show(w, stop) }()
		pass := func(d time.Duration, want ...string) {
			t.Helper()
			<-time.After(d)
			synctest.Wait()
			p.mu.Lock()
			got := scr.text()
			p.mu.Unlock()
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		}
		pass(3500*time.Millisecond, "")
		ctx, cancel := context.WithCancel(context.Background())
		ran := make(chan error, 1)
		go func() { ran <- w.Run(ctx) }()
		pass(time.Second, "", "t: ?/s, pending 0, retries 0")
		pass(5*time.Second, "", "t: 1/s, pending 0, retries 0")
		if err := w.Pause(ctx, "in"); err != nil {
			t.Error(err)
		}
		pass(5*time.Second, "", "t: 0/s, pending 0, retries 0, paused: in")
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		close(stop)
		<-done
		pass(0, "")
	})
}
