// Command killick shows killick at work, measures it, and has a Kafka for your laptop.
//
//	killick demo       run the order story with a crash in the middle, and check the result
//	killick dev        run a Kafka for a laptop, alone or beside a command; feed and read its topics
//	killick bench      measure killick on Apache Kafka, beside the bare franz-go loop
//	killick version    print the version
//	killick help       print help, of a command too
//
// Exit codes: 0 all is well, 1 something is not, 2 wrong usage, 5 Kafka cannot be reached. killick dev -- COMMAND ends with
// the exit code of the command.
//
// A topology is no argument of this command: it is a program that imports killick and calls worker.Main.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/killick-io/killick/cmd/killick/internal/bench"
	"github.com/killick-io/killick/cmd/killick/internal/demo"
)

// The exit codes, as package worker has them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitUnreachable = 5
)

func main() {
	// A reader that goes away (killick demo | head) must not end the process before it has cleaned up.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

const usage = `killick shows killick at work, measures it, and has a Kafka for your laptop.

usage: killick <command> [flags]

commands:
  demo       run the order story with a crash in the middle, and check the result
  dev        run a Kafka for a laptop, alone or beside a command; feed and read its topics
  bench      measure killick on Apache Kafka, beside the bare franz-go loop
  version    print the version
  help       print this, or help of a command: killick help demo

exit codes: 0 all is well, 1 something is not, 2 wrong usage, 5 Kafka cannot be reached
`

// run is main without the process: it returns the exit code. Results go to stdout, all else to stderr.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	switch name, rest := args[0], args[1:]; name {
	case "demo":
		return demoCommand(ctx, rest, stdout, stderr)
	case "dev":
		return devCommand(ctx, rest, stdin, stdout, stderr)
	case "bench":
		return benchCommand(ctx, rest, stdout, stderr)
	case bench.SliceCommand:
		return sliceCommand(ctx, rest, stdin, stdout, stderr)
	case demo.WorkerCommand:
		return workerCommand(ctx, rest, stdin, stderr)
	case "version", "--version", "-version":
		if len(rest) > 0 {
			return misuse(stderr, "killick version", fmt.Errorf("unexpected argument %q", rest[0]))
		}
		fmt.Fprintln(stdout, version())
		return exitOK
	case "help", "--help", "-help", "-h":
		return helpCommand(rest, stdout, stderr)
	default:
		return misuse(stderr, "killick", fmt.Errorf("unknown command %q", name))
	}
}

func helpCommand(args []string, stdout, stderr io.Writer) int {
	switch {
	case len(args) == 0, len(args) == 1 && (args[0] == "help" || args[0] == "version"):
		fmt.Fprint(stdout, usage)
	case len(args) == 1 && args[0] == "demo":
		fmt.Fprint(stdout, demoUsage())
	case len(args) == 1 && args[0] == "dev":
		fmt.Fprint(stdout, devUsage())
	case len(args) == 1 && args[0] == "bench":
		fmt.Fprint(stdout, benchUsage)
	case len(args) == 2 && args[0] == "bench" && args[1] == "alo":
		fmt.Fprint(stdout, aloUsage())
	case len(args) == 2 && args[0] == "bench" && args[1] == "pause":
		fmt.Fprint(stdout, pauseUsage())
	case len(args) == 2 && args[0] == "dev" && args[1] == "produce":
		fmt.Fprint(stdout, produceUsage())
	case len(args) == 2 && args[0] == "dev" && args[1] == "consume":
		fmt.Fprint(stdout, consumeUsage())
	case len(args) == 1:
		return misuse(stderr, "killick help", fmt.Errorf("unknown command %q", args[0]))
	default:
		return misuse(stderr, "killick help", fmt.Errorf("unexpected argument %q", args[1]))
	}
	return exitOK
}

// misuse says what is wrong with a call, and where help is.
func misuse(stderr io.Writer, command string, err error) int {
	fmt.Fprintf(stderr, "%s: %v\n", command, err)
	fmt.Fprintln(stderr, "killick help tells how it is used")
	return exitUsage
}
