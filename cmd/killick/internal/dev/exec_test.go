package dev

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// program is this test binary as a program.
func program(t *testing.T, what string, args ...string) Command {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Command{Args: append([]string{self}, args...), Environ: append(os.Environ(), helper+"="+what)}
}

// TestExec: the command has its input, output, environment and arguments, and its exit code is the result.
func TestExec(t *testing.T) {
	t.Parallel()
	b := start(t, Options{})
	c := program(t, "echo", "--flag", "a b", "--")
	c.Environ = b.Environ(c.Environ)
	var out, errs, say bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader("in\x00put\n"), &out, &errs
	code, err := Exec(c, nil, &say)
	if code != 7 || err != nil {
		t.Errorf("exit code %d, %v; want 7", code, err)
	}
	if want := "in\x00put\n" + b.Address() + " " + b.Address() + ` ["--flag" "a b" "--"]` + "\n"; out.String() != want {
		t.Errorf("it wrote %q, want %q", &out, want)
	}
	if errs.String() != "on stderr\n" || say.Len() > 0 {
		t.Errorf("stderr %q, said %q", &errs, &say)
	}
}

// TestExecSignals: each signal goes on to the command, and what it does then counts.
func TestExecSignals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		what string
		send []os.Signal
		out  []string
		code int
	}{
		{"signals", []os.Signal{os.Interrupt, syscall.SIGTERM}, []string{"interrupt", "terminated"}, 9},
		{"dies", []os.Signal{syscall.SIGTERM}, nil, 128 + int(syscall.SIGTERM)},
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			c := program(t, tt.what)
			r, w := io.Pipe()
			c.Stdout = w
			signals := make(chan os.Signal)
			type result struct {
				code int
				err  error
			}
			done := make(chan result, 1)
			go func() {
				code, err := Exec(c, signals, io.Discard)
				w.Close()
				done <- result{code, err}
			}()
			lines := bufio.NewScanner(r)
			if !lines.Scan() || lines.Text() != "ready" {
				t.Fatalf("it says %q", lines.Text())
			}
			ctx := limited(t)
			for i, s := range tt.send {
				select {
				case signals <- s:
				case <-ctx.Done():
					t.Fatal("the signal is not taken")
				}
				if i < len(tt.out) {
					if !lines.Scan() || lines.Text() != tt.out[i] {
						t.Errorf("after %v it says %q, want %q", s, lines.Text(), tt.out[i])
					}
				}
			}
			select {
			case got := <-done:
				if got.code != tt.code || got.err != nil {
					t.Errorf("exit code %d, %v; want %d", got.code, got.err, tt.code)
				}
			case <-ctx.Done():
				t.Fatal("it does not end")
			}
		})
	}
}

func TestExecNotFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "no command after --"},
		{[]string{""}, "no command after --"},
		{[]string{"no-such-program-here"}, `command "no-such-program-here"`},
		{[]string{filepath.Join(dir, "absent")}, "absent"},
		{[]string{plain}, "plain"},
	} {
		_, err := Exec(Command{Args: tt.args}, nil, io.Discard)
		if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v; want ErrUsage with %q", tt.args, err, tt.want)
		}
	}
}
