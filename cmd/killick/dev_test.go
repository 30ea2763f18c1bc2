package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// user is somebody at a terminal: all that he runs has one home, of its own, and ends with the test.
type user struct {
	t    *testing.T
	ctx  context.Context
	home map[string]string
}

func newUser(t *testing.T) user {
	t.Helper()
	binary(t, "killick") // built before the time runs
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return user{t, ctx, newHome(t)}
}

// command is killick with arguments.
func (u user) command(args ...string) *exec.Cmd {
	u.t.Helper()
	cmd := exec.CommandContext(u.ctx, binary(u.t, "killick"), args...)
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "KILLICK_") })
	for name, value := range u.home {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// run runs killick to its end.
func (u user) run(stdin string, args ...string) (code int, stdout, stderr string) {
	u.t.Helper()
	var out, errs bytes.Buffer
	cmd := u.command(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		u.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// session is a killick that runs on.
type session struct {
	u     user
	cmd   *exec.Cmd
	lines *bufio.Scanner // of stdout or stderr
	seen  strings.Builder
	other bytes.Buffer // the other of the two; to be read after end
}

// start starts killick, whose stderr, or else stdout, can be waited for.
func (u user) start(stderr bool, args ...string) *session {
	u.t.Helper()
	s := &session{u: u, cmd: u.command(args...)}
	pipe := s.cmd.StdoutPipe
	if stderr {
		pipe = s.cmd.StderrPipe
		s.cmd.Stdout = &s.other
	} else {
		s.cmd.Stderr = &s.other
	}
	r, err := pipe()
	if err != nil {
		u.t.Fatal(err)
	}
	s.lines = bufio.NewScanner(r)
	if err := s.cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() {
		if s.cmd.ProcessState == nil { // the test has failed
			_ = s.cmd.Process.Signal(syscall.SIGTERM)
			_ = s.cmd.Wait()
		}
	})
	return s
}

// wait returns the next line that matches. The deadline of the test ends the process, and so the lines.
func (s *session) wait(pattern string) []string {
	s.u.t.Helper()
	re := regexp.MustCompile(pattern)
	for s.lines.Scan() {
		s.seen.WriteString(s.lines.Text() + "\n")
		if m := re.FindStringSubmatch(s.lines.Text()); m != nil {
			return m
		}
	}
	s.u.t.Fatalf("no line like %q in\n%s", pattern, &s.seen)
	return nil
}

// end sends SIGTERM to this process alone and returns its exit code.
func (s *session) end() int {
	s.u.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.u.t.Fatal(err)
	}
	for s.lines.Scan() { // Wait closes the pipe
		s.seen.WriteString(s.lines.Text() + "\n")
	}
	err := s.cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		s.u.t.Fatal(err)
	}
	return s.cmd.ProcessState.ExitCode()
}

// announced are the files of brokers that run, or were killed.
func (u user) announced() []string {
	u.t.Helper()
	var all []string
	err := filepath.WalkDir(u.home["HOME"], func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		u.t.Fatal(err)
	}
	return all
}

// TestNewUser is the path of a new user, as README.md has it: a worker beside a broker, names by hand, greetings seen. Nobody
// says an address, and nobody makes a topic.
func TestNewUser(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	hello := binary(t, "hello")
	worker := u.start(true, "dev", "--", hello)
	worker.wait(`topic names made, with 4 partitions`)

	code, stdout, stderr := u.run("Ada\nGrace\n", "dev", "produce", "names")
	if code != exitOK || stdout != "" || !strings.Contains(stderr, "2 records to names") {
		t.Fatalf("produce: exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	code, stdout, stderr = u.run("", "dev", "consume", "greetings", "-n", "2")
	got := strings.Split(stdout, "\n")
	slices.Sort(got)
	if want := []string{"", "hello Ada", "hello Grace"}; code != exitOK || !slices.Equal(got, want) {
		t.Errorf("consume: exit %d, stdout %q, stderr %q; want %q", code, stdout, stderr, want)
	}
	if n := len(u.announced()); n != 1 {
		t.Errorf("announced: %q", u.announced())
	}
	// SIGTERM reaches the worker, which drains and ends well; the broker goes after it.
	if code := worker.end(); code != exitOK || worker.other.Len() > 0 || !strings.Contains(worker.seen.String(), `"message":"stopped"`) {
		t.Errorf("exit %d, stdout %q, stderr\n%s", code, &worker.other, &worker.seen)
	}
	if files := u.announced(); len(files) > 0 {
		t.Errorf("left behind: %q", files)
	}
	if code, _, stderr := u.run("x\n", "dev", "produce", "names"); code != exitUsage || !strings.Contains(stderr, "no killick dev runs") {
		t.Errorf("after the end: exit %d, stderr %q", code, stderr)
	}
}

// TestDevKeeps: a broker alone says where it is and how it is used; --data brings everything back, at a new port as well.
func TestDevKeeps(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	data := filepath.Join(t.TempDir(), "data")
	args := []string{"dev", "--port", "0", "--topics", "names:2", "--data", data}
	broker := u.start(false, args...)
	address := broker.wait(`^Kafka for development at (127\.0\.0\.1:\d+), kept in `)[1]
	broker.wait(`export KILLICK_KAFKA__BOOTSTRAP_SERVERS=` + address + ` `)
	if code, _, stderr := u.run("k:v\n", "dev", "produce", "--key-separator", ":", "names", "--partition", "1"); code != exitOK {
		t.Errorf("produce: exit %d, %s", code, stderr)
	}
	if code, _, stderr := u.run("", "dev", "--port", "0", "--data", data); code != exitUsage || !strings.Contains(stderr, address) {
		t.Errorf("a second broker on the data: exit %d, stderr %q; want exit 2 and who has it", code, stderr)
	}
	if code := broker.end(); code != exitOK {
		t.Errorf("exit %d, stderr %q", code, &broker.other)
	}
	broker = u.start(false, args...)
	address = broker.wait(`^Kafka for development at (127\.0\.0\.1:\d+), `)[1]
	code, stdout, stderr := u.run("", "dev", "consume", "names", "-n", "1", "--format", "key-value", "--bootstrap", address)
	if code != exitOK || stdout != "k\tv\n" {
		t.Errorf("consume: exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	// A consumer that waits for more ends well with a signal.
	follow := u.start(false, "dev", "consume", "names")
	follow.wait("^v$")
	if code := follow.end(); code != exitOK {
		t.Errorf("consume ends with %d, stderr %q", code, &follow.other)
	}
	if code := broker.end(); code != exitOK {
		t.Errorf("exit %d, stderr %q", code, &broker.other)
	}
}

// TestDevExitCode: the command's own, and its output with nothing between.
func TestDevExitCode(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	code, stdout, stderr := u.run("", "dev", "--", binary(t, "hello"), "--no-such-flag")
	if code != exitUsage || stdout != "" || !strings.Contains(stderr, "no-such-flag") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	code, stdout, stderr = u.run("", "dev", "--", binary(t, "killick"), "version")
	if code != exitOK || !regexp.MustCompile(`^killick \S+ go\S+ \S+\n$`).MatchString(stdout) {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	// The command inside finds the broker by the environment; the data of the one does not outlive it.
	code, stdout, stderr = u.run("", "dev", "--topics", "t:1", "--", binary(t, "killick"), "dev", "produce", "t", "--partition", "1")
	if code != exitUsage || !strings.Contains(stderr, "--partition 1: topic t has 1 partitions") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// TestDevHangup: SIGHUP is for the command as well, and does not leave it behind without its broker.
func TestDevHangup(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no SIGHUP there")
	}
	u := newUser(t)
	worker := u.start(true, "dev", "--", binary(t, "hello"))
	worker.wait(`"message":"assigned"`)
	if err := worker.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	worker.wait("SIGHUP: the configuration has not changed")
	if code := worker.end(); code != exitOK {
		t.Errorf("exit %d\n%s", code, &worker.seen)
	}
}

// TestDevBrokenPipe: a reader that has seen enough is no failure.
func TestDevBrokenPipe(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	broker := u.start(false, "dev", "--port", "0", "--topics", "t:1")
	broker.wait("^Kafka for development at ")
	// More than a pipe holds, so that the writer is sure to notice.
	if code, _, stderr := u.run(strings.Repeat(strings.Repeat("x", 1000)+"\n", 500), "dev", "produce", "t"); code != exitOK {
		t.Fatal(stderr)
	}
	cmd := u.command("dev", "consume", "t")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := io.ReadFull(r, make([]byte, 1001)); err != nil {
		t.Error(err)
	}
	r.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, &errs)
	}
	if code := broker.end(); code != exitOK {
		t.Errorf("exit %d", code)
	}
}
