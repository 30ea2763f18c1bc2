package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/killick-io/killick/internal/bench/alo"
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
	alo.Plan
	seconds float64
	profile string
	json    bool
	broker  int  // bytes of a value: this process is the broker
	slice   bool // this process runs slices
}

// arms can be run here; those with a sink need a broker that stores.
var arms = []string{"fused", "fused3", "hop", "pooled", "null"}

// parse reads the flags and reports every mistake in them.
func parse(args []string, stderr io.Writer) (options, error) {
	o := options{Plan: alo.Plan{Sizes: []int{100, 1024}, Rounds: 9, Batch: 500, Fetch: 1 << 20, GOGC: 100, Ballast: 32, Commit: time.Second}}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	o.Flags(fs)
	all := strings.Join(arms, ",")
	names := fs.String("arms", all, "arms to run beside bare")
	fs.Float64Var(&o.seconds, "seconds", 2, "rough length of a slice")
	fs.StringVar(&o.profile, "profile", "", "write a processor profile of killick's arms to `file`, of rounds beside the measured ones")
	fs.BoolVar(&o.json, "json", false, "print the result as JSON, with every slice")
	fs.IntVar(&o.broker, "child-broker", 0, "used by the program itself")
	fs.BoolVar(&o.slice, "child-slice", false, "used by the program itself")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	errs := []error{o.Check()}
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("bench: "+format, args...)) }
	if fs.NArg() > 0 {
		fail("argument %q is not a flag", fs.Arg(0))
	}
	for name := range strings.SplitSeq(*names, ",") {
		if !slices.Contains(arms, name) {
			fail("-arms: %q is not an arm to run beside bare; there are %s", name, all)
		}
		if slices.ContainsFunc(o.Pairings, func(q alo.Pairing) bool { return q.Name == name }) {
			fail("-arms: %q is there twice", name)
		}
		q := alo.Pairing{Name: name, Own: name, Base: "bare"}
		if name == "null" {
			q.Own = "bare"
		}
		o.Pairings = append(o.Pairings, q)
	}
	if o.seconds <= 0 || o.seconds > 600 {
		fail("-seconds: %v is not in (0, 600]", o.seconds)
	}
	if o.profile != "" && len(o.Sizes) != 1 {
		fail("-profile: one size is needed, since each has a broker of its own; -sizes has %d", len(o.Sizes))
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
		return brokerMain(o.Batch, o.broker, stdin, stdout)
	case o.slice:
		return alo.Serve(ctx, stdin, stdout)
	}
	o.Topic, o.Prefix, o.Run = topicOf, "bench", alo.Child(stderr, "-child-slice")
	o.Say = func(s string) { fmt.Fprintln(stderr, s) }
	o.Ends = map[int]int64{}
	load := alo.Load()
	var all []alo.Pairs
	for _, size := range o.Sizes {
		o.Ends[size] = end(size, o.Batch, o.seconds)
		ps, err := o.size(ctx, size)
		if err != nil {
			return err
		}
		all = append(all, ps...)
	}
	r := o.Report(all, "embedded broker")
	if load != "" {
		r.Load = load + ", " + alo.Load()
	}
	if o.json {
		return r.JSON(stdout)
	}
	return r.Text(stdout)
}

// end is how many records of a partition take about the given time at the speed of the bare loop.
func end(size, batch int, seconds float64) int64 {
	perRecord := 150e-9 + 0.5e-9*float64(size)
	batches := int64(seconds / perRecord / alo.Partitions / float64(batch))
	return max(batches, 1) * int64(batch)
}

// size measures all arms at one size, beside a broker of its own.
func (o *options) size(ctx context.Context, size int) (ps []alo.Pairs, err error) {
	addr, stop, err := startBroker(o.Batch, size)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	o.Addr = addr
	if ps, err = o.Measure(ctx, size); err != nil || o.profile == "" {
		return ps, err
	}
	_, err = o.Profile(ctx, o.profile)
	return ps, err
}
