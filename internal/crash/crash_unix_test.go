//go:build unix

package crash

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func build(t *testing.T, tags string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "child")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-race=false", "-tags="+tags, "-o", bin, "./testdata/child")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// TestCostsNothing: the normal build has neither the function nor what arms it.
func TestCostsNothing(t *testing.T) {
	bin := build(t, "")
	cmd := exec.Command(bin, "fetched")
	cmd.Env = append(os.Environ(), Var+"=fetched:1:exit")
	out, err := cmd.Output()
	if err != nil || string(out) != "passed fetched\nenabled false\n" {
		t.Errorf("%q, %v", out, err)
	}
	for tags, want := range map[string]bool{"": false, "killick_crash": true} {
		syms, err := exec.Command("go", "tool", "nm", build(t, tags)).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Contains(syms, []byte("internal/crash.")); got != want {
			t.Errorf("built with tags %q, a program has something of package crash in it: %v", tags, got)
		}
	}
}

func TestActions(t *testing.T) {
	bin := build(t, "killick_crash")
	start := func(t *testing.T, crash string, args ...string) (*exec.Cmd, *bufio.Reader) {
		t.Helper()
		cmd := exec.Command(bin, args...)
		cmd.Env = append(os.Environ(), Var+"="+crash)
		errs, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		t.Cleanup(func() { kill.Stop(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd, bufio.NewReader(errs)
	}
	line := func(t *testing.T, r *bufio.Reader, want string) {
		t.Helper()
		if got, err := r.ReadString('\n'); err != nil || got != want+"\n" {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	}
	status := func(cmd *exec.Cmd) syscall.WaitStatus {
		var ee *exec.ExitError
		if err := cmd.Wait(); err != nil && !errors.As(err, &ee) {
			t.Fatal(err)
		}
		return cmd.ProcessState.Sys().(syscall.WaitStatus)
	}
	t.Run("exit", func(t *testing.T) {
		cmd, errs := start(t, "opened:2:exit", "opened", "lost", "opened", "opened")
		line(t, errs, "crash point opened passage 2: exit")
		if got := status(cmd); got.ExitStatus() != ExitCode {
			t.Errorf("%v", got)
		}
	})
	t.Run("kill", func(t *testing.T) {
		cmd, errs := start(t, "opened:1:kill,lost:1:exit", "opened", "lost")
		line(t, errs, "crash point opened passage 1: kill")
		if got := status(cmd); got.Signal() != syscall.SIGKILL {
			t.Errorf("%v", got)
		}
	})
	t.Run("stop", func(t *testing.T) {
		cmd, errs := start(t, "opened:1:stop,lost:1:exit", "opened", "lost")
		line(t, errs, "crash point opened passage 1: stop")
		var st syscall.WaitStatus
		if _, err := syscall.Wait4(cmd.Process.Pid, &st, syscall.WUNTRACED, nil); err != nil || !st.Stopped() {
			t.Fatalf("%v, %v", st, err)
		}
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		line(t, errs, "crash point lost passage 1: exit")
		if got := status(cmd); got.ExitStatus() != ExitCode {
			t.Errorf("%v", got)
		}
	})
	t.Run("sleep", func(t *testing.T) {
		begin := time.Now()
		cmd, errs := start(t, "opened:2+:sleep(30ms)", "opened", "opened", "opened", "opened")
		for _, n := range []string{"2", "3", "4"} {
			line(t, errs, "crash point opened passage "+n+": sleep(30ms)")
		}
		if got := status(cmd); got != 0 {
			t.Errorf("%v", got)
		}
		if d := time.Since(begin); d < 90*time.Millisecond {
			t.Errorf("it took %v", d)
		}
	})
	t.Run("wrong", func(t *testing.T) {
		cmd, errs := start(t, "open:2:exit", "opened")
		line(t, errs, `crash: "open" is no point; see internal/crash/points.go`)
		if got := status(cmd); got.ExitStatus() != 2 {
			t.Errorf("%v", got)
		}
	})
	t.Run("none", func(t *testing.T) {
		cmd, _ := start(t, "", "opened")
		if got := status(cmd); got != 0 {
			t.Errorf("%v", got)
		}
	})
}
