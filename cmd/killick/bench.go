package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/killick-io/killick/cmd/killick/internal/bench"
	"github.com/killick-io/killick/internal/bench/alo"
)

const benchUsage = `killick bench measures killick on Apache Kafka.

usage: killick bench alo [flags]      processor time and rate beside the bare franz-go loop
       killick bench pause [flags]    what a partition that is paused does to others of its broker

Without --kafka a broker is started, which needs Java 17, and Maven on first use; it ends with the command. At another
Kafka, topics and groups have names of their own and are deleted at the end. What the numbers mean: docs/performance.md.

help: killick help bench alo
`

const aloHead = `killick bench alo measures what the at-least-once path costs beside the bare franz-go loop.

Slices of killick (source, bolt, ack, floor, commit) and of the loop (poll, call, commit) take turns, each in a process of
its own with one processor, over the same topic of 8 partitions. Their processor time per record is compared by pairs. Each
slice is checked: the records' number and sum, the committed offsets. The broker is another process and does not count.

arms, each beside the loop with pooled records, as killick has them:
  fused      source -> bolt
  fused3     source -> three bolts in line
  hop        source -> bolt with two tasks, on goroutines of their own
  sink       source -> bolt -> Kafka sink; the loop produces, and flushes before it commits
  defaults   fused beside the loop as franz-go has it by default, and Go's collector by default on both sides
  null       the loop beside itself: the noise floor

usage: killick bench alo [flags]

flags:
`

const pauseHead = `killick bench pause measures what a paused partition does to others of its broker.

A worker is left without records first. Then it reads a busy partition and seven others, into which a clock writes. The
latency of those, from the time that a record was due to its execution, is measured while the busy partition has nothing
(quiet), is paused because its window is full (held), and pauses and goes on in turns (pulsing). Then the seven are silent,
and the busy one is drained with windows of several sizes: whenever it goes on, it waits for the fetch in flight.

usage: killick bench pause [flags]

flags:
`

// whereFlags are those of all benchmarks.
func whereFlags(fs *flag.FlagSet, w *bench.Where, asJSON *bool) {
	nonEmpty(fs, &w.Kafka, "kafka", "use the Kafka at `host:port`. TLS and SASL come from the environment, as for any worker\n"+
		"(KILLICK_KAFKA__SECURITY_PROTOCOL, ...) (default: start one)")
	fs.BoolVar(asJSON, "json", false, "print the report as one JSON object, with every slice")
}

func aloFlags(o *bench.ALOOptions, asJSON *bool) *flag.FlagSet {
	fs := quiet("killick bench alo")
	whereFlags(fs, &o.Where, asJSON)
	o.Flags(fs)
	fs.StringVar(&o.Arms, "arms", o.Arms, "`names` of the arms to run")
	fs.StringVar(&o.Records, "records", o.Records, "`number` of records that a slice reads: for each size, or one for all")
	nonEmpty(fs, &o.Profile, "profile", "write a processor profile of killick's arms to `file`: as many slices as were measured, after\n"+
		"them and in one process. With several arms or sizes, f.pprof becomes f-fused-100.pprof and so on (default: none)")
	return fs
}

func pauseFlags(o *bench.PauseOptions, asJSON *bool) *flag.FlagSet {
	fs := quiet("killick bench pause")
	whereFlags(fs, &o.Where, asJSON)
	listFlag(fs, &o.Waits, "waits", "fetch_max_wait `times`, with commas", time.ParseDuration, time.Duration.String)
	listFlag(fs, &o.Windows, "windows", "windows of the busy partition in `bytes`, with commas; KiB and MiB may follow", bench.ParseBytes, bench.FormatBytes)
	fs.DurationVar(&o.For, "for", o.For, "`time` of each measurement")
	fs.IntVar(&o.Rate, "rate", o.Rate, "`records` a second into each of the seven partitions")
	fs.IntVar(&o.Records, "records", o.Records, "`number` of records in the busy partition")
	return fs
}

// listFlag is a flag with several values; those that it has now are the default.
func listFlag[T any](fs *flag.FlagSet, p *[]T, name, help string, parse func(string) (T, error), format func(T) string) {
	var def []string
	for _, v := range *p {
		def = append(def, format(v))
	}
	fs.Func(name, help+" (default "+strings.Join(def, ",")+")", func(s string) error {
		*p = nil
		for s := range strings.SplitSeq(s, ",") {
			v, err := parse(s)
			if err != nil {
				return fmt.Errorf("%s is none: %w", strconv.Quote(s), err)
			}
			*p = append(*p, v)
		}
		return nil
	})
}

func aloUsage() string {
	o := bench.NewALO()
	return defaults(aloHead, aloFlags(&o, new(bool)))
}

func pauseUsage() string {
	o := bench.NewPause()
	return defaults(pauseHead, pauseFlags(&o, new(bool)))
}

// reporter is what a benchmark has found.
type reporter interface {
	Text(io.Writer) error
	JSON(io.Writer) error
}

// benchCommand is killick bench and all below it.
func benchCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	const name = "killick bench"
	var asJSON bool
	var fs *flag.FlagSet
	var help string
	var measure func() (reporter, error)
	where := bench.Where{Environ: os.Environ(), Log: stderr}
	sub := ""
	if len(args) > 0 {
		sub, args = args[0], args[1:]
	}
	switch sub {
	case "alo":
		o := bench.NewALO()
		o.Where, o.Run = where, alo.Child(stderr, bench.SliceCommand)
		fs, help = aloFlags(&o, &asJSON), aloUsage()
		measure = func() (reporter, error) { return bench.ALO(ctx, o) }
	case "pause":
		o := bench.NewPause()
		o.Where = where
		fs, help = pauseFlags(&o, &asJSON), pauseUsage()
		measure = func() (reporter, error) { return bench.Pause(ctx, o) }
	case "help", "--help", "-help", "-h":
		return helpCommand(append([]string{"bench"}, args...), stdout, stderr)
	case "":
		return benchMisuse(stderr, name, errors.New("what? there are alo and pause"))
	default:
		return benchMisuse(stderr, name, fmt.Errorf("unknown subcommand %q: there are alo and pause", sub))
	}
	full := name + " " + sub
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, help)
		return exitOK
	case err != nil:
		return benchMisuse(stderr, full, err)
	case fs.NArg() > 0:
		return benchMisuse(stderr, full, fmt.Errorf("unexpected argument %q", fs.Arg(0)))
	}
	r, err := measure()
	if err != nil {
		return benchFailed(ctx, full, err, stderr)
	}
	write := r.Text
	if asJSON {
		write = r.JSON
	}
	if err := write(stdout); err != nil {
		fmt.Fprintf(stderr, "%s: write the report: %v\n", full, err)
		return exitFailure
	}
	return exitOK
}

// benchMisuse says what is wrong with a call, in one line.
func benchMisuse(stderr io.Writer, command string, err error) int {
	fmt.Fprintf(stderr, "%s: %v (killick help bench tells how it is used)\n", command, err)
	return exitUsage
}

// benchFailed says what went wrong and returns the exit code for it.
func benchFailed(ctx context.Context, name string, err error, stderr io.Writer) int {
	switch {
	case errors.Is(err, bench.ErrUsage):
		return benchMisuse(stderr, name, err)
	case errors.Is(err, bench.ErrUnreachable):
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return exitUnreachable
	case ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))):
		fmt.Fprintf(stderr, "%s: interrupted\n", name)
	default:
		fmt.Fprintf(stderr, "%s: %s\n", name, strings.TrimPrefix(err.Error(), "bench: "))
	}
	return exitFailure
}

// sliceCommand is the process that killick bench alo runs slices in.
func sliceCommand(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		return misuse(stderr, "killick "+bench.SliceCommand, fmt.Errorf("unexpected argument %q", args[0]))
	}
	// An interrupt on the terminal goes to this process, too. Who started it ends it.
	signal.Ignore(os.Interrupt)
	if err := alo.Serve(ctx, stdin, stdout); err != nil {
		fmt.Fprintf(stderr, "killick %s: %s\n", bench.SliceCommand, strings.TrimPrefix(err.Error(), "bench: "))
		return exitUsage
	}
	return exitOK
}
