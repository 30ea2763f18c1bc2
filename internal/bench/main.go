package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	plan
	json   bool
	broker int    // bytes of a value: this process is the broker
	slice  string // this process is a slice
}

// parse reads the flags and reports every mistake in them.
func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	names := fs.String("arms", "fused,fused3,hop,pooled,null", "arms to run beside bare: "+armNames())
	sizes := fs.String("sizes", "100,1024", "bytes of a value")
	fs.IntVar(&o.rounds, "rounds", 9, "rounds; the first one checks every offset and is not counted")
	fs.Float64Var(&o.seconds, "seconds", 2, "rough length of a slice")
	fs.IntVar(&o.batch, "batch", 500, "records in a batch")
	fs.IntVar(&o.fetch, "fetch", 1<<20, "bytes of a partition in a fetch, in all arms")
	fs.IntVar(&o.gogc, "gogc", 100, "GOGC of all arms")
	fs.IntVar(&o.ballast, "ballast", 32, "live heap without pointers in all arms, in MiB")
	fs.DurationVar(&o.commit, "commit", time.Second, "commit interval of all arms")
	fs.StringVar(&o.profiles, "profiles", "", "folder for processor profiles of the last round")
	fs.BoolVar(&o.json, "json", false, "print the result as JSON, with every slice")
	fs.IntVar(&o.broker, "child-broker", 0, "used by the program itself")
	fs.StringVar(&o.slice, "child-slice", "", "used by the program itself")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("bench: "+format, args...)) }
	if fs.NArg() > 0 {
		fail("argument %q is not a flag", fs.Arg(0))
	}
	for name := range strings.SplitSeq(*names, ",") {
		if _, ok := arms()[name]; !ok || name == "bare" {
			fail("-arms: %q is not an arm to run beside bare; there are %s", name, armNames())
		}
		if slices.Contains(o.arms, name) {
			fail("-arms: %q is there twice", name)
		}
		o.arms = append(o.arms, name)
	}
	for s := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 16 || n > 1<<20 {
			fail("-sizes: %q is not a number of bytes from 16 to %d", s, 1<<20)
		}
		o.sizes = append(o.sizes, n)
	}
	if o.rounds < 2 {
		fail("-rounds: %d; at least 2 are needed, since the first is not counted", o.rounds)
	}
	if o.seconds <= 0 || o.seconds > 600 {
		fail("-seconds: %v is not in (0, 600]", o.seconds)
	}
	if o.batch < 1 || o.batch > 100_000 {
		fail("-batch: %d is not in 1 to 100000", o.batch)
	}
	if o.fetch < 1<<10 || o.fetch > 64<<20 {
		fail("-fetch: %d bytes are not in 1024 to %d", o.fetch, 64<<20)
	}
	if o.gogc < 1 {
		fail("-gogc: %d; at least 1 is needed", o.gogc)
	}
	if o.ballast < 0 || o.ballast > 4096 {
		fail("-ballast: %d MiB is not in 0 to 4096", o.ballast)
	}
	if o.commit <= 0 {
		fail("-commit: %v; it must be above 0", o.commit)
	}
	return o, errors.Join(errs...)
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	switch {
	case o.broker > 0:
		return brokerMain(o.batch, o.broker, stdin, stdout)
	case o.slice != "":
		var s slice
		if err := json.Unmarshal([]byte(o.slice), &s); err != nil {
			return fmt.Errorf("bench: -child-slice: %w", err)
		}
		r, err := s.run(ctx)
		if err != nil {
			return err
		}
		return json.NewEncoder(stdout).Encode(r)
	}
	var all []pairs
	for _, size := range o.sizes {
		ps, err := o.size(ctx, size, func(s string) { fmt.Fprintln(stderr, s) })
		if err != nil {
			return err
		}
		all = append(all, ps...)
	}
	if o.json {
		return o.report(all).json(stdout)
	}
	return o.report(all).text(stdout)
}

// size measures all arms at one size, beside a broker of its own.
func (p plan) size(ctx context.Context, size int, say func(string)) (ps []pairs, err error) {
	addr, stop, err := startBroker(p.batch, size)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return p.measure(ctx, addr, size, child, say)
}
