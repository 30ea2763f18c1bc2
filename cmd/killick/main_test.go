package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/killick-io/killick/cmd/killick/internal/bench"
	"github.com/killick-io/killick/cmd/killick/internal/demo"
	"github.com/killick-io/killick/cmd/killick/internal/dev"
)

func TestMain(m *testing.M) {
	var err error
	if binaries, err = os.MkdirTemp("", "killick-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(binaries); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	}))
}

// call runs the command in this process.
func call(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(ctx, args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

// newHome is a home without brokers that are announced, as environment variables.
func newHome(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	return map[string]string{"HOME": dir, "XDG_CACHE_HOME": filepath.Join(dir, "cache"), "LocalAppData": dir, "KILLICK_KAFKA__BOOTSTRAP_SERVERS": ""}
}

// TestUsage: wrong calls are told on stderr by name and value, with exit code 2, and nothing is started.
func TestUsage(t *testing.T) {
	for name, value := range newHome(t) {
		t.Setenv(name, value)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		want string
	}{
		{"", "usage: killick <command>"},
		{"dmeo", `killick: unknown command "dmeo"`},
		{"--json", `killick: unknown command "--json"`},
		{"version now", `killick version: unexpected argument "now"`},
		{"help dmeo", `killick help: unknown command "dmeo"`},
		{"help demo now", `killick help: unexpected argument "now"`},
		{"demo --recrods 2000", "killick demo: flag provided but not defined: -recrods"},
		{"demo now", `killick demo: unexpected argument "now"`},
		{"demo --records many", `invalid value "many" for flag -records`},
		{"demo --records 0", "0 records: want 1000 to 6000"},
		{"demo --records 999", "999 records: want 1000 to 6000"},
		{"demo --records 6001", "6001 records: want 1000 to 6000"},
		{"demo --records -5", "-5 records"},
		{"demo --kafka", "flag needs an argument: -kafka"},
		{"demo --kafka nowhere", "nowhere"},
		{"demo --kafka 127.0.0.1:99999", "127.0.0.1:99999"},
		{"demo --keep " + full, full},
		{"demo --keep " + filepath.Join(full, "x"), filepath.Join(full, "x")},
		{"dev prodcue names", `killick dev: unknown subcommand "prodcue": there are produce and consume`},
		{"dev go run .", `unknown subcommand "go"`},
		{"dev --port 0 go run .", `unexpected argument "go": a command to run comes after --`},
		{"dev --prot 0", "flag provided but not defined: -prot"},
		{"dev --port many", `invalid value "many" for flag -port`},
		{"dev --port 65536", `invalid value "65536" for flag -port`},
		{"dev --port " + port, "killick dev: --port " + port + ": cannot listen at 127.0.0.1:" + port},
		{"dev --port " + port + " -- " + os.Args[0], "killick dev: --port " + port},
		{"dev --topics a:0,b/c", `for flag -topics: "a:0": "0" partitions`},
		{"dev --topics a:0,b/c", `"b/c": '/' is not allowed`},
		{"dev --partitions 0", "--partitions 0"},
		{"dev --partitions 5000", "--partitions 5000: want 1 to 1000"},
		{"dev --data " + full, "--data " + full},
		{"dev --data= --port " + port, "for flag -data: it is empty"},
		{"dev --", "no command after --"},
		{"dev --port 0 -- no-such-program --flag", `command "no-such-program"`},
		{"dev produce", "which topic?"},
		{"dev consume", "which topic?"},
		{"dev produce a b", `unexpected argument "b" after the topic "a"`},
		{"dev produce a/b", `topic "a/b"`},
		{"dev produce names --partition -1", `invalid value "-1" for flag -partition`},
		{"dev produce --key-separator= names", "for flag -key-separator: it is empty"},
		{"dev produce names --bootstrap nowhere", `flag --bootstrap: "nowhere" has no port`},
		{"dev produce names", "killick dev produce: no killick dev runs: start one, or say where Kafka is with --bootstrap"},
		{"dev consume names", "killick dev consume: no killick dev runs"},
		{"dev consume names -n 0", `invalid value "0" for flag -n`},
		{"dev consume names -n many", `invalid value "many" for flag -n`},
		{"dev consume names --from now", `invalid value "now" for flag -from: want earliest or latest`},
		{"dev consume names --format xml", `"xml" is no format`},
		{"dev consume names --group=", "for flag -group: it is empty"},
		{"help dev produce names", `unexpected argument`},
		{"bench", "killick bench: what? there are alo and pause"},
		{"bench eos", `killick bench: unknown subcommand "eos": there are alo and pause`},
		{"bench alo now", `killick bench alo: unexpected argument "now"`},
		{"bench alo --what", "killick bench alo: flag provided but not defined: -what"},
		{"bench alo --kafka=", "for flag -kafka: it is empty"},
		{"bench alo --kafka nowhere", "nowhere"},
		{"bench alo --kafka 127.0.0.1:99999", "127.0.0.1:99999"},
		{"bench alo --profile=", "for flag -profile: it is empty"},
		{"bench alo --rounds many", `invalid value "many" for flag -rounds`},
		{"bench alo --rounds 1 --gogc 0", "killick bench alo: -rounds: 1 is not in 2 to 1000; the first is not counted; -gogc: 0"},
		{"bench alo --sizes 15", `invalid value "15" for flag -sizes`},
		{"bench alo --sizes 100,100", "100 is there twice"},
		{"bench alo --records 0", `-records: "0"`},
		{"bench alo --records 1,2,3", "-records: 3 numbers for 2 sizes"},
		{"bench alo --arms fast", `-arms: there is no arm "fast"`},
		{"bench alo --batch 100000", "-batch: 100000 records of 100 B are more than Kafka takes"},
		{"bench alo --commit 0s", "-commit: 0s"},
		{"bench pause now", `killick bench pause: unexpected argument "now"`},
		{"bench pause --kafka nowhere", "nowhere"},
		{"bench pause --waits 25", `invalid value "25" for flag -waits`},
		{"bench pause --waits 0s", "killick bench pause: -waits: 0s"},
		{"bench pause --windows 8MB", `invalid value "8MB" for flag -windows`},
		{"bench pause --for 0s", "-for: 0s"},
		{"bench pause --rate 0", "-rate: 0"},
		{"bench pause --records 1", "-records: 1 is not in"},
		{"help bench eos", "unexpected argument"},
		{bench.SliceCommand, "run by the command itself"},
		{bench.SliceCommand + " now", `unexpected argument "now"`},
		{demo.WorkerCommand, "started by killick demo"},
		{demo.WorkerCommand + " --kafka 127.0.0.1:1 --book b now", `unexpected argument "now"`},
		{demo.WorkerCommand + " --what", "flag provided but not defined: -what"},
	} {
		code, stdout, stderr := call(t.Context(), strings.Fields(tt.args)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, tt.want) {
			t.Errorf("killick %s: exit %d, stdout %q, stderr %q; want exit 2 and stderr with %q", tt.args, code, stdout, stderr, tt.want)
		}
		if strings.HasPrefix(tt.args, "bench") && strings.Count(stderr, "\n") != 1 && !strings.HasPrefix(tt.args, bench.SliceCommand) {
			t.Errorf("killick %s: %q is not one line", tt.args, stderr)
		}
	}
}

// TestHelp: what is asked for goes to stdout, with exit code 0.
func TestHelp(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"help", "commands:\n  demo"},
		{"--help", "commands:\n  demo"},
		{"-h", "commands:\n  demo"},
		{"help version", "commands:\n  demo"},
		{"help demo", "-kafka host:port"},
		{"help dev", "-topics name:partitions,..."},
		{"help dev produce", "-key-separator text"},
		{"help dev consume", "-format form"},
		{"help bench", "killick bench pause [flags]"},
		{"bench --help", "killick bench alo [flags]"},
		{"bench help", "killick bench alo [flags]"},
		{"help bench alo", "-profile file"},
		{"help bench pause", "-waits times"},
		{"bench alo --help", `(default "5000000,1500000")`},
		{"bench pause -h", "(default 8MiB,1MiB,256KiB)"},
		{"dev --help", "killick dev [flags] -- COMMAND ARGS"},
		{"dev help", "killick dev [flags] -- COMMAND ARGS"},
		{"dev produce --help", "usage: killick dev produce TOPIC [flags]"},
		{"dev consume names -h", "usage: killick dev consume TOPIC [flags]"},
		{"demo --help", "-records n"},
		{"demo -h", "-keep folder"},
		{"version", "killick "},
		{"--version", "go1."},
	} {
		code, stdout, stderr := call(t.Context(), strings.Fields(tt.args)...)
		if code != exitOK || stderr != "" || !strings.Contains(stdout, tt.want) {
			t.Errorf("killick %s: exit %d, stdout %q, stderr %q; want exit 0 and stdout with %q", tt.args, code, stdout, stderr, tt.want)
		}
		if strings.Contains(stdout, demo.WorkerCommand) || strings.Contains(stdout, bench.SliceCommand) {
			t.Errorf("killick %s shows the hidden command", tt.args)
		}
	}
}

// TestUnreachable: no Kafka is one clear line and exit code 5, soon.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	refuses, err := net.Listen("tcp", "127.0.0.1:0") // its port is free again below
	if err != nil {
		t.Fatal(err)
	}
	address := refuses.Addr().String()
	if err := refuses.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"demo", "--kafka", address},
		{"demo", "--kafka", address, "--json"},
		{"dev", "produce", "names", "--bootstrap", address},
		{"dev", "consume", "--bootstrap", address, "names"},
		{"bench", "alo", "--kafka", address, "--json"},
		{"bench", "pause", "--kafka", address},
	} {
		start := time.Now()
		code, stdout, stderr := call(t.Context(), args...)
		if code != exitUnreachable || stdout != "" {
			t.Errorf("killick %q: exit %d, stdout %q; want exit 5 and nothing", args, code, stdout)
		}
		if strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "killick "+args[0]) || !strings.Contains(stderr, ": cannot reach Kafka at "+address) {
			t.Errorf("killick %q: stderr %q, want one line that names the address", args, stderr)
		}
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("killick %q took %v", args, took)
		}
	}
}

// TestMute: something that takes connections and never answers is no Kafka either.
func TestMute(t *testing.T) {
	t.Parallel()                                  // it waits
	mute, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody reads
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	code, _, stderr := call(t.Context(), "demo", "--kafka", mute.Addr().String())
	if code != exitUnreachable || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "no answer within") {
		t.Errorf("exit %d, stderr %q; want exit 5 and one line", code, stderr)
	}
}

// TestDevFailedAfterAnInterrupt: an interrupt is told as one, and does not hide what else went wrong.
func TestDevFailedAfterAnInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		err  error
		code int
		want string
	}{
		{dev.ErrInterrupted, exitFailure, "killick dev x: interrupted\n"},
		{fmt.Errorf("dev: create topic t: %w", ctx.Err()), exitFailure, "killick dev x: interrupted\n"},
		{errors.New("dev: commit what was printed: refused"), exitFailure, "killick dev x: commit what was printed: refused\n"},
		{fmt.Errorf("%w at a:1", dev.ErrUnreachable), exitUnreachable, "killick dev x: cannot reach Kafka at a:1\n"},
	} {
		var errs bytes.Buffer
		if code := devFailed(ctx, "killick dev x", tt.err, &errs); code != tt.code || errs.String() != tt.want {
			t.Errorf("%v: exit %d, %q; want %d, %q", tt.err, code, &errs, tt.code, tt.want)
		}
	}
}
