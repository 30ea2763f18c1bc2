package worker

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/killick-io/killick"
)

// Main runs t as a program and does not return: it ends the process with the exit code that
// [ExitCode] names. Commands, by the first argument:
//
//	run           (default) run the topology
//	validate      check topology and configuration, and say what is wrong
//	describe      show the topology; --mermaid as a diagram
//	config print  show the configuration, and where each value came from
//	help          list commands and flags
//
// Only run talks to Kafka. What was asked for goes to stdout, what is wrong to stderr.
//
// Signals: SIGTERM and SIGINT drain, commit and leave the group; a second one ends the process at
// once. SIGTSTP pauses all spouts (see [Worker.Pause]), SIGCONT lets those go on that it has paused.
// SIGHUP, if stderr is no terminal, reads the configuration again: another log level counts at once,
// and what else has changed is named as wanting a restart. SIGUSR1 writes to the log what the worker is at: components, partitions, open tuples.
// SIGQUIT is Go's own: it ends the process with the stacks of all goroutines.
//
// Each change may set in the Config what flags, environment and file cannot say, such as options of
// franz-go or a logger. It is called after these have been read, for every command, and again at SIGHUP.
func Main(t *killick.Topology, change ...func(*Config)) {
	os.Exit(Command(t, os.Args[1:], os.Environ(), os.Stdout, os.Stderr, change...))
}

// Command is Main without the end of the process, for programs with commands of their own. It
// returns the exit code.
func Command(t *killick.Topology, args, environ []string, stdout, stderr io.Writer, change ...func(*Config)) int {
	name, args := "run", args
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	var what command
	switch name {
	case "run":
		what = (*program).run
	case "validate":
		what = (*program).validate
	case "describe":
		what = (*program).describe
		args = slices.Clone(args)
		if i := slices.IndexFunc(args, func(a string) bool { return a == "--mermaid" || a == "-mermaid" }); i >= 0 {
			what, args = (*program).mermaid, slices.Delete(args, i, i+1)
		}
	case "config":
		if len(args) == 0 || args[0] != "print" {
			fmt.Fprintln(stderr, "config wants to be told what: use config print")
			return 2
		}
		what, args = (*program).printConfig, args[1:]
	case "help":
		args = []string{"-h"}
	default:
		fmt.Fprintf(stderr, "unknown command %q; use run, validate, describe, config print or help\n", name)
		return 2
	}
	p := &program{t: t, stdout: stdout, stderr: stderr, load: func() (Config, error) { return load(args, environ, change) }}
	var err error
	if p.cfg, err = p.load(); errors.Is(err, flag.ErrHelp) {
		err = p.help()
		return ExitCode(err)
	}
	if name != "config" { // Both may be wrong: say it all at once.
		err = errors.Join(t.Validate(), err)
	}
	if err == nil {
		err = what(p)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	return ExitCode(err)
}

// command is what the first argument of a program asks for.
type command func(p *program) error

// program is one call of Command.
type program struct {
	t              *killick.Topology
	cfg            Config
	load           func() (Config, error) // as cfg was; again, for what may have changed
	stdout, stderr io.Writer
}

// load is Load, and then what the program changes.
func load(args, environ []string, change []func(*Config)) (Config, error) {
	c, err := Load(args, environ)
	if err != nil || len(change) == 0 {
		return c, err
	}
	before := c
	for _, f := range change {
		f(&c)
	}
	// What the program has set did not come from where Load has found it.
	c.origins = maps.Clone(before.origins)
	for k := range configKeys() {
		if k.isSet(&c) != k.isSet(&before) || k.text(&c) != k.text(&before) || k.isSecret() && !k.ptr(&c).(*Secret).Equal(*k.ptr(&before).(*Secret)) {
			delete(c.origins, k.name)
		}
	}
	return c, c.Validate()
}

func (p *program) help() error {
	_, err := fmt.Fprintf(p.stdout, "usage: %s [command] [flags]\n\nRuns the topology %q. Commands:\n\n"+
		"  run           run it (the default)\n"+
		"  validate      check topology and configuration, and say what is wrong\n"+
		"  describe      show the topology; --mermaid as a diagram\n"+
		"  config print  show the configuration, and where each value came from\n"+
		"  help          this\n\n%s", os.Args[0], p.t.Name(), helpText())
	return err
}

func (p *program) validate() error {
	_, err := fmt.Fprintf(p.stdout, "topology %q and configuration are valid\n", p.t.Name())
	return err
}

func (p *program) describe() error {
	spec, err := p.t.Spec()
	if err != nil {
		return err
	}
	_, err = io.WriteString(p.stdout, describe(spec, p.cfg.withGroup(spec.Name)))
	return err
}

func (p *program) mermaid() error {
	spec, err := p.t.Spec()
	if err != nil {
		return err
	}
	_, err = io.WriteString(p.stdout, mermaid(spec))
	return err
}

func (p *program) printConfig() error {
	return p.cfg.withGroup(p.t.Name()).print(p.stdout, true)
}

func (p *program) run() error {
	begin, finish := p.withProgress()
	w, err := New(p.t, p.cfg)
	if err != nil {
		return err
	}
	begin(w)
	defer finish()
	ctx, end := p.signals(w)
	defer end()
	return w.Run(ctx)
}
