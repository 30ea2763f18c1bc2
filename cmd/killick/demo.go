package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/killick-io/killick/cmd/killick/internal/demo"
	"github.com/killick-io/killick/worker"
)

// demoFlags are the flags of killick demo. Their errors are returned, not printed.
func demoFlags(o *demo.Options, asJSON *bool) *flag.FlagSet {
	fs := flag.NewFlagSet("killick demo", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&o.Kafka, "kafka", "", "use the Kafka at `host:port` instead of an embedded broker; topics and group\n"+
		"have names of their own there and are deleted at the end. TLS and SASL come from\n"+
		"the environment, as for any worker (KILLICK_KAFKA__SECURITY_PROTOCOL, ...)")
	fs.BoolVar(asJSON, "json", false, "print the report as one JSON object")
	fs.IntVar(&o.Records, "records", demo.MaxRecords, fmt.Sprintf("take the first `n` orders, %d to %d", demo.MinRecords, demo.MaxRecords))
	fs.StringVar(&o.Keep, "keep", "", "keep the workers' logs, the payments and all that was observed in `folder`, which\n"+
		"must be empty or not exist")
	return fs
}

func demoUsage() string {
	const head = `killick demo runs the order story (examples/orders) and kills its worker half way.

A Kafka broker is started in this process and gets 6,000 orders. A worker process takes them through fraud check, payment
and notification. Half way it is killed with SIGKILL; a second one goes on. Then code that shares nothing with killick
checks every output, payment and committed offset, and a report follows. It takes some 10 seconds.

usage: killick demo [flags]

flags:
`
	var text flagText
	fs := demoFlags(&demo.Options{}, new(bool))
	fs.SetOutput(&text)
	fs.PrintDefaults()
	return head + string(text)
}

// flagText collects what a flag set prints.
type flagText string

func (t *flagText) Write(p []byte) (int, error) {
	*t += flagText(p)
	return len(p), nil
}

func demoCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	const name = "killick demo"
	o := demo.Options{Log: stderr, Environ: os.Environ()}
	var asJSON bool
	fs := demoFlags(&o, &asJSON)
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, demoUsage())
		return exitOK
	case err != nil:
		return misuse(stderr, name, err)
	case fs.NArg() > 0:
		return misuse(stderr, name, fmt.Errorf("unexpected argument %q", fs.Arg(0)))
	case o.Records == 0: // Options would take all
		return misuse(stderr, name, fmt.Errorf("0 records: want %d to %d", demo.MinRecords, demo.MaxRecords))
	}
	res, err := demo.Run(ctx, o)
	switch {
	case errors.Is(err, demo.ErrUsage):
		return misuse(stderr, name, err)
	case errors.Is(err, demo.ErrUnreachable):
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return exitUnreachable
	case err != nil && ctx.Err() != nil:
		fmt.Fprintf(stderr, "%s: interrupted\n", name)
		return exitFailure
	case err != nil:
		fmt.Fprintf(stderr, "%s: %s\n", name, strings.TrimPrefix(err.Error(), "demo: "))
		return exitFailure
	}
	write := res.WriteText
	if asJSON {
		write = res.WriteJSON
	}
	if err := write(stdout); err != nil {
		fmt.Fprintf(stderr, "%s: write the report: %v\n", name, err)
		return exitFailure
	}
	if !res.OK {
		return exitFailure
	}
	return exitOK
}

// workerCommand is the process that killick demo starts and kills.
func workerCommand(ctx context.Context, args []string, stdin io.Reader, stderr io.Writer) int {
	// An interrupt on the terminal goes to this process, too. What becomes of it is for the demo to say.
	signal.Ignore(os.Interrupt)
	switch err := demo.Worker(ctx, args, os.Environ(), stdin); {
	case errors.Is(err, demo.ErrUsage):
		return misuse(stderr, "killick "+demo.WorkerCommand, err)
	case err != nil:
		fmt.Fprintf(stderr, "killick %s: %v\n", demo.WorkerCommand, err)
		return worker.ExitCode(err)
	}
	return exitOK
}
