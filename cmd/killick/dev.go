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
	"strconv"
	"strings"
	"syscall"

	"github.com/killick-io/killick/cmd/killick/internal/dev"
	"github.com/killick-io/killick/internal/tty"
)

const devHead = `killick dev runs a Kafka for a laptop: an embedded broker at 127.0.0.1, as long as the command lives.

usage: killick dev [flags]                    a broker, until SIGINT or SIGTERM
       killick dev [flags] -- COMMAND ARGS    a broker as long as the command runs; its exit code is the command's
       killick dev produce TOPIC [flags]      records from standard input, a line each
       killick dev consume TOPIC [flags]      print records

  killick dev -- go run ./examples/hello      try it: this in one terminal,
  killick dev produce names                   these in two others
  killick dev consume greetings

produce and consume find the broker that was started last by themselves. The command finds its address in
` + dev.EnvBootstrap + ` and KAFKA_BOOTSTRAP_SERVERS; settings for TLS and SASL (KILLICK_KAFKA__...) are not
handed on to it. SIGINT, SIGTERM and SIGHUP go on to the command by its process id: go run passes no SIGTERM to the program that
it runs, a binary of yours takes it.

A topic that a client asks for by name is made on the spot, but those that killick's workers make themselves (dead letters,
and what begins with "killick."). Without --data all is in memory, some 200 bytes for each record of 100.

flags:
`

const produceHead = `killick dev produce writes a record for each line of standard input.

usage: killick dev produce TOPIC [flags]

It writes to the broker at --bootstrap, else at ` + dev.EnvBootstrap + `, else to the killick dev that was
started last. Ctrl-D ends the input. A carriage return before a line's end is dropped.

flags:
`

const consumeHead = `killick dev consume prints the records of a topic, a line each, until SIGINT or SIGTERM.

usage: killick dev consume TOPIC [flags]

It reads from the broker at --bootstrap, else at ` + dev.EnvBootstrap + `, else from the killick dev that was
started last. Records of one partition come in order. Partitions that are added meanwhile are read with --group alone.

flags:
`

// devOptions are what the flags of killick dev say.
type devOptions struct {
	dev.Options
	portGiven bool
}

func devFlags(o *devOptions) *flag.FlagSet {
	fs := quiet("killick dev")
	fs.Func("port", fmt.Sprintf("listen at 127.0.0.1:`N`; 0 picks a free port (default %d; with a command 0)", dev.DefaultPort), func(s string) error {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			return errors.New("want a number from 0 to 65535")
		}
		o.Port, o.portGiven = int(n), true
		return nil
	})
	fs.Func("topics", "make these topics at the start: `name:partitions,...`; without a number --partitions counts", func(s string) error {
		ts, err := dev.ParseTopics(s)
		o.Topics = append(o.Topics, ts...)
		return err
	})
	o.Partitions = dev.DefaultPartitions
	fs.IntVar(&o.Partitions, "partitions", dev.DefaultPartitions, "`number` of partitions of topics that nobody said one for")
	fs.BoolVar(&o.NoCreate, "no-create", false, "make no topic because a client asks for it")
	nonEmpty(fs, &o.Data, "data", "keep everything in `folder`, over restarts (default: in memory)")
	return fs
}

func produceFlags(o *dev.ProduceOptions) *flag.FlagSet {
	fs := quiet("killick dev produce")
	bootstrapFlag(fs, &o.Kafka)
	nonEmpty(fs, &o.KeySeparator, "key-separator", "the first `text` like this in a line parts key and value (default: no keys)")
	o.Partition = -1
	fs.Func("partition", "write to partition `N` (default: by key as Java's clients do, or any)", func(s string) error {
		n, err := strconv.ParseUint(s, 10, 31)
		if err != nil {
			return errors.New("want a number from 0 on")
		}
		o.Partition = int(n)
		return nil
	})
	fs.BoolVar(&o.Create, "create", false, "make the topic if it does not exist")
	return fs
}

func consumeFlags(o *dev.ConsumeOptions) *flag.FlagSet {
	fs := quiet("killick dev consume")
	bootstrapFlag(fs, &o.Kafka)
	fs.Func("from", "begin at this `position`: earliest, or latest for what comes from now on (default earliest; a group\ngoes on where it is)",
		func(s string) error {
			if s != "earliest" && s != "latest" {
				return errors.New("want earliest or latest")
			}
			o.Latest = s == "latest"
			return nil
		})
	fs.Func("n", "end after `count` records (default: no end)", func(s string) error {
		n, err := strconv.ParseUint(s, 10, 31)
		if err != nil || n == 0 {
			return errors.New("want a number from 1 on")
		}
		o.Count = int(n)
		return nil
	})
	nonEmpty(fs, &o.Group, "group", "read as a member of this group `name` and commit what was printed (default: no group)")
	fs.Func("format", "print records in this `form`: value, key-value (a tab between them) or json (default value)", func(s string) (err error) {
		o.Format, err = dev.ParseFormat(s)
		return err
	})
	return fs
}

// quiet is a set of flags whose errors are returned, not printed.
func quiet(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return fs
}

func bootstrapFlag(fs *flag.FlagSet, k *dev.Kafka) {
	nonEmpty(fs, &k.Bootstrap, "bootstrap", "the broker's `host:port`, several with commas (default: see above)")
}

// nonEmpty is a string flag that says nothing when it is left out, and must say something when it is not.
func nonEmpty(fs *flag.FlagSet, p *string, name, help string) {
	fs.Func(name, help, func(s string) error {
		if s == "" {
			return errors.New("it is empty")
		}
		*p = s
		return nil
	})
}

// defaults prints a command's flags below its head.
func defaults(head string, fs *flag.FlagSet) string {
	var text flagText
	fs.SetOutput(&text)
	fs.PrintDefaults()
	return head + string(text)
}

func devUsage() string     { return defaults(devHead, devFlags(new(devOptions))) }
func produceUsage() string { return defaults(produceHead, produceFlags(new(dev.ProduceOptions))) }
func consumeUsage() string { return defaults(consumeHead, consumeFlags(new(dev.ConsumeOptions))) }

// devCommand is killick dev and all below it.
func devCommand(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	const name = "killick dev"
	if len(args) > 0 {
		switch sub, rest := args[0], args[1:]; {
		case sub == "produce":
			return produceCommand(ctx, rest, stdin, stdout, stderr)
		case sub == "consume":
			return consumeCommand(ctx, rest, stdout, stderr)
		case sub == "help":
			return helpCommand(append([]string{"dev"}, rest...), stdout, stderr)
		case !strings.HasPrefix(sub, "-"):
			return misuse(stderr, name, fmt.Errorf("unknown subcommand %q: there are produce and consume; a command to run comes after --", sub))
		}
	}
	var command []string
	withCommand := false
	if i := slices.Index(args, "--"); i >= 0 {
		args, command, withCommand = args[:i], args[i+1:], true
	}
	var o devOptions
	fs := devFlags(&o)
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, devUsage())
		return exitOK
	case err != nil:
		return misuse(stderr, name, err)
	case fs.NArg() > 0:
		return misuse(stderr, name, fmt.Errorf("unexpected argument %q: a command to run comes after --", fs.Arg(0)))
	case o.Partitions == 0: // Options would take the default
		return misuse(stderr, name, errors.New("--partitions 0: want a number from 1 on"))
	}
	if !o.portGiven && !withCommand {
		o.Port = dev.DefaultPort
	}
	o.Log = stderr
	o.Folder = devFolder(name, stderr)
	if withCommand {
		return runBeside(ctx, o.Options, dev.Command{Args: command, Stdin: stdin, Stdout: stdout, Stderr: stderr}, stderr)
	}
	b, err := dev.Start(ctx, o.Options)
	if err != nil {
		return devFailed(ctx, name, err, stderr)
	}
	fmt.Fprint(stdout, devBanner(b.Address(), o.Options))
	<-ctx.Done()
	if err := b.Close(); err != nil {
		return devFailed(context.WithoutCancel(ctx), name, err, stderr)
	}
	return exitOK
}

func devBanner(address string, o dev.Options) string {
	kept := "in memory: it ends with this command"
	if o.Data != "" {
		kept = "kept in " + o.Data
	}
	return fmt.Sprintf(`Kafka for development at %[1]s, %[2]s

  export %[3]s=%[1]s    for killick's workers; --bootstrap %[1]s does as well
  killick dev produce TOPIC    records from standard input
  killick dev consume TOPIC    print records
`, address, kept, dev.EnvBootstrap)
}

// runBeside runs a command with a broker.
func runBeside(ctx context.Context, o dev.Options, c dev.Command, stderr io.Writer) int {
	const name = "killick dev"
	if _, err := c.Find(); err != nil { // before anything is started
		return devFailed(ctx, name, err, stderr)
	}
	// From here on none of these ends this process: the command says what becomes of it.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup: the command ignores it, too
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	// What this process ignores, the command would ignore, too; what it takes notice of, the command has as usual.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer func() { signal.Stop(broken); signal.Ignore(syscall.SIGPIPE) }()
	b, err := dev.Start(ctx, o)
	if err != nil {
		return devFailed(ctx, name, err, stderr)
	}
	fmt.Fprintf(stderr, "killick dev: Kafka for development at %s, for %s\n", b.Address(), strings.Join(c.Args, " "))
	c.Environ = b.Environ(os.Environ())
	code, err := dev.Exec(c, signals, stderr)
	if cerr := b.Close(); cerr != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, cerr)
	}
	if err != nil {
		return devFailed(context.WithoutCancel(ctx), name, err, stderr)
	}
	return code
}

func produceCommand(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	const name = "killick dev produce"
	o := dev.ProduceOptions{In: stdin}
	topic, code, ok := topicAndFlags(name, produceFlags(&o), args, produceUsage, stdout, stderr)
	if !ok {
		return code
	}
	o.Topic, o.Environ, o.Folder = topic, os.Environ(), devFolder(name, stderr)
	at := ""
	o.Ready = func(where string) {
		at = " at " + where
		if terminal(stdin) {
			fmt.Fprintf(stderr, "a record per line to %s at %s; Ctrl-D ends\n", topic, where)
		}
	}
	n, err := dev.Produce(ctx, o)
	if n > 0 || err == nil {
		fmt.Fprintf(stderr, "%s: %d records to %s%s\n", name, n, topic, at)
	}
	if err != nil {
		return devFailed(ctx, name, err, stderr)
	}
	return exitOK
}

func consumeCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	const name = "killick dev consume"
	o := dev.ConsumeOptions{Out: stdout}
	topic, code, ok := topicAndFlags(name, consumeFlags(&o), args, consumeUsage, stdout, stderr)
	if !ok {
		return code
	}
	o.Topic, o.Environ, o.Folder = topic, os.Environ(), devFolder(name, stderr)
	o.Ready = func(where string) { fmt.Fprintf(stderr, "%s: reading %s at %s\n", name, topic, where) }
	_, err := dev.Consume(ctx, o)
	if errors.Is(err, syscall.EPIPE) { // the reader has seen enough: killick dev consume T | head
		err = nil
	}
	if err != nil {
		return devFailed(ctx, name, err, stderr)
	}
	return exitOK
}

// topicAndFlags reads a topic and flags, in any order. If ok is false, code is what the command ends with.
func topicAndFlags(name string, fs *flag.FlagSet, args []string, usage func() string, stdout, stderr io.Writer) (topic string, code int, ok bool) {
	var words []string
	for {
		switch err := fs.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			fmt.Fprint(stdout, usage())
			return "", exitOK, false
		case err != nil:
			return "", misuse(stderr, name, err), false
		}
		if fs.NArg() == 0 {
			break
		}
		words, args = append(words, fs.Arg(0)), fs.Args()[1:]
	}
	switch len(words) {
	case 0:
		return "", misuse(stderr, name, errors.New("which topic? want "+name+" TOPIC")), false
	case 1:
		return words[0], exitOK, true
	}
	return "", misuse(stderr, name, fmt.Errorf("unexpected argument %q after the topic %q", words[1], words[0])), false
}

// devFolder is where brokers are announced, "" with a warning if there is no place for it.
func devFolder(name string, stderr io.Writer) string {
	folder, err := dev.Folder()
	if err != nil {
		fmt.Fprintf(stderr, "%s: no broker can be found without its address: %v\n", name, err)
		return ""
	}
	return folder
}

// terminal reports whether somebody types.
func terminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && tty.Is(f)
}

// devFailed says what went wrong and returns the exit code for it.
func devFailed(ctx context.Context, name string, err error, stderr io.Writer) int {
	switch {
	case errors.Is(err, dev.ErrUsage):
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return exitUsage
	case errors.Is(err, dev.ErrUnreachable):
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return exitUnreachable
	case ctx.Err() != nil && (errors.Is(err, dev.ErrInterrupted) || errors.Is(err, ctx.Err())):
		fmt.Fprintf(stderr, "%s: interrupted\n", name)
	default:
		fmt.Fprintf(stderr, "%s: %s\n", name, strings.TrimPrefix(err.Error(), "dev: "))
	}
	return exitFailure
}
