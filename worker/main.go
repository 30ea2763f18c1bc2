package worker

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/killick-io/killick"
)

// Main runs t as a program and does not return: it ends the process with the exit code that
// [ExitCode] names. Commands, by the first argument:
//
//	run       (default) run the topology
//	validate  check topology and configuration, and say what is wrong
//	help      list the flags
//
// SIGTERM and SIGINT drain, commit and leave the group; a second one ends the process at once.
func Main(t *killick.Topology) { os.Exit(Command(t, os.Args[1:], os.Environ(), os.Stderr)) }

// Command is Main without the end of the process, for programs with commands of their own. It
// returns the exit code.
func Command(t *killick.Topology, args, environ []string, stderr io.Writer) int {
	cmd := "run"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		cmd, args = args[0], args[1:]
	}
	switch cmd {
	case "run", "validate":
	case "help":
		args = []string{"-h"}
	default:
		fmt.Fprintf(stderr, "unknown command %q; use run, validate or help\n", cmd)
		return 2
	}
	c, err := Load(args, environ)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(stderr, "usage: %s [run | validate | help] [flags]\n\nRuns the topology %q.\n\n%s", os.Args[0], t.Name(), helpText())
		return 0
	}
	// Both may be wrong: say it all at once.
	if err := errors.Join(t.Validate(), err); err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	if cmd == "validate" {
		fmt.Fprintf(stderr, "topology %q and configuration are valid\n", t.Name())
		return 0
	}
	ctx, stop := signals()
	defer stop()
	err = Run(ctx, t, c)
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	return ExitCode(err)
}

// echo is how soon after the first signal another one is still the same: a supervisor that signals
// both the process and its group (GNU timeout does) must not cut the drain short.
const echo = 200 * time.Millisecond

// signals returns a context that the first SIGTERM or SIGINT ends. The second ends the process:
// what it was doing is not committed, so it runs again.
func signals() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGTERM, os.Interrupt)
	done := make(chan struct{})
	var over atomic.Bool
	go func() {
		defer close(done)
		var first time.Time
		for s := range ch {
			if ctx.Err() != nil {
				if time.Since(first) < echo {
					continue
				}
				if !over.Load() {
					fmt.Fprintf(os.Stderr, "second %v: ending at once; open records run again after the next start\n", s)
					os.Exit(3)
				}
				return
			}
			first = time.Now()
			cancel()
		}
	}()
	return ctx, func() {
		over.Store(true)
		signal.Stop(ch)
		close(ch)
		<-done
		cancel()
	}
}
