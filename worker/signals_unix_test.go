//go:build unix

package worker_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/killick-io/killick/testenv/embedded"
)

// SIGTSTP and SIGCONT, as a process gets them. SIGCONT alone changes nothing.
func TestPauseBySignal(t *testing.T) {
	b := embedded.Start(t, embedded.Topic("in", 1))
	s := newStory(t, b)
	s.produce("in", 0, "a")
	c := spawn(t, b, "endless", "--http=off")
	c.says(t, "ran a")
	send := func(sig syscall.Signal, text string) {
		t.Helper()
		if err := c.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		s.until(text, func() bool { return contains(c.out.String(), text) })
	}
	if err := c.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	send(syscall.SIGTSTP, "the spout is paused")
	s.produce("in", 0, "b")
	// Nothing tells that a record does not run: give it the time that it would need.
	select {
	case l := <-c.lines:
		t.Errorf("a paused worker says %q", l)
	case <-time.After(300 * time.Millisecond):
	}
	if contains(c.out.String(), "the spout goes on") {
		t.Error("a SIGCONT without a SIGTSTP has changed something")
	}
	send(syscall.SIGCONT, "the spout goes on")
	c.says(t, "ran b")
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := c.code(t); code != 0 || !s.atEnd("in") {
		t.Errorf("exit code %d, committed %v", code, s.committed("in"))
	}
}

// SIGHUP: another log level counts at once, other settings are named, and a file that is not sound
// changes nothing. SIGUSR1 has a dump written.
func TestReloadBySignal(t *testing.T) {
	b := embedded.Start(t, embedded.Topic("in", 1))
	s := newStory(t, b)
	file := filepath.Join(t.TempDir(), "k.yaml")
	set := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set("log: {level: warn}\ndrain: 9s\n")
	s.produce("in", 0, "a")
	c := spawn(t, b, "endless", "--http=off", "--config="+file)
	c.says(t, "ran a")
	send := func(sig syscall.Signal, parts ...string) {
		t.Helper()
		if err := c.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		s.until(strings.Join(parts, ", "), func() bool { return contains(c.out.String(), parts...) })
	}
	set("log: {level: loud}\n")
	send(syscall.SIGHUP, "the configuration is not sound", "k.yaml:1:", "loud")
	if contains(c.out.String(), `"level":"info"`) {
		t.Error("the log level is not the one of the file")
	}
	set("log: {level: info}\ndrain: 8s\n")
	send(syscall.SIGHUP, "the log level has changed", `"key":"drain","old":"9s","new":"8s"`)
	send(syscall.SIGUSR1, "dump: the worker", "dump: partition")
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := c.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A service whose log goes to the null device has no terminal that could hang up: SIGHUP is to read the
// configuration again there, too, and not the end.
func TestReloadWithoutALog(t *testing.T) {
	b := embedded.Start(t, embedded.Topic("in", 1))
	s := newStory(t, b)
	s.produce("in", 0, "a")
	c := spawnAs(t, b, "endless", func(c *child) { c.Stderr = nil }, "--http=off") // nil: the null device
	c.says(t, "ran a")
	if err := c.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.produce("in", 0, "b")
	c.says(t, "ran b")
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := c.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
