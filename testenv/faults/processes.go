//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/killick-io/killick/internal/crash"
)

// ErrNoProcesses is returned once Processes was closed.
var ErrNoProcesses = errors.New("faults: the processes were closed")

// ProcessesConfig says what the processes are.
type ProcessesConfig struct {
	// Program is the file to run. Default: the running program, such as a test's own binary.
	Program string
	// Args are its arguments. Default: none.
	Args []string
	// Env has variables, "NAME=value", beside those of this process. Default: none.
	Env []string
	// Role is what Role returns in the processes. Default: "worker".
	Role string
	// Dir is where event files and outputs go; it must not have any of them yet. Default: a new temporary
	// one, which StartProcesses removes when the test has passed, and NewProcesses leaves.
	Dir string
	// Restart is asked when a process has ended that nobody has asked to: true starts it again at once, as
	// a supervisor does. It must not block, nor call methods of Processes. Default: such an end is an
	// error, if its exit code is not 0 and it had no crash point armed; see Err.
	Restart func(Exit) bool
	// Limit bounds each wait for a process. Default: 30s.
	Limit time.Duration
}

func (c ProcessesConfig) withDefaults() ProcessesConfig {
	if c.Role == "" {
		c.Role = "worker"
	}
	if c.Limit == 0 {
		c.Limit = 30 * time.Second
	}
	return c
}

func (c *ProcessesConfig) validate() error {
	var errs []error
	for _, v := range c.Env {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			errs = append(errs, fmt.Errorf("faults: ProcessesConfig.Env: an entry is not of the form NAME=value: %.20q", name))
		}
	}
	if c.Limit < 0 {
		errs = append(errs, fmt.Errorf("faults: ProcessesConfig.Limit is %v; it is a time to wait", c.Limit))
	}
	return errors.Join(errs...)
}

// Processes runs programs that are to be killed, frozen and started again: several copies of one, each
// under a name. What it does to them stands in an event file of its own, runner-1.jsonl, beside those
// that they write (Log). Its methods may be called from any goroutine.
//
// Each life of a process has a goroutine that has started it and waits for its end, on a thread of its
// own: Linux kills the process when that thread ends, so that none outlives its test, however that ends.
// Close ends all and waits for them.
type Processes struct {
	cfg ProcessesConfig
	own bool // they are copies of this program
	dir string
	log *Log
	all sync.WaitGroup // of lives; Add under mu, and not once closed is set

	mu     sync.Mutex // leaf
	procs  map[string]*Process
	closed bool
	errs   []error
	broken chan struct{} // closed at the first error
}

// NewProcesses prepares to run processes until Close. The error joins all that is wrong.
func NewProcesses(c ProcessesConfig) (*Processes, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	own := c.Program == ""
	if own {
		var err error
		if c.Program, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("faults: processes: %w", err)
		}
	}
	ps := &Processes{cfg: c, own: own, dir: c.Dir, procs: map[string]*Process{}, broken: make(chan struct{})}
	if ps.dir == "" {
		var err error
		if ps.dir, err = os.MkdirTemp("", "killick-faults-"); err != nil {
			return nil, fmt.Errorf("faults: processes: %w", err)
		}
	}
	var err error
	if ps.log, err = createLog(ps.dir, "runner", 1, os.Getpid(), false); err != nil {
		return nil, err
	}
	return ps, nil
}

// StartProcesses starts a process for each name, and ends them with the test. An end that nobody asked
// for fails the test. When a test has failed, event files and outputs are kept, and it says where.
func StartProcesses(t TB, c ProcessesConfig, names ...string) *Processes {
	t.Helper()
	ps, err := NewProcesses(c)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	t.Cleanup(func() {
		if err := errors.Join(ps.Close(), ps.Err()); err != nil {
			t.Errorf("%v", err)
		}
		switch {
		case t.Failed():
			t.Logf("event files and outputs of the processes are in %s", ps.dir)
		case c.Dir == "":
			if err := os.RemoveAll(ps.dir); err != nil {
				t.Errorf("faults: processes: %v", err)
			}
		}
	})
	for _, n := range names {
		if err := ps.Process(n).Start(); err != nil {
			t.Fatalf("%v", err)
			return nil
		}
	}
	return ps
}

// Process is the process of that name, which need not have been started. A name is a letter from a to z,
// and then letters, digits and underlines; Start refuses others.
func (ps *Processes) Process(name string) *Process {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.procs[name]
	if p == nil {
		p = &Process{ps: ps, name: name}
		ps.procs[name] = p
	}
	return p
}

// Dir is where event files and outputs are: what verify.EventDir reads.
func (ps *Processes) Dir() string { return ps.dir }

// Err joins what went wrong: processes that have ended and should not have, with the end of their output,
// and what could not be noted.
func (ps *Processes) Err() error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return errors.Join(ps.errs...)
}

// ended takes an error of a goroutine.
func (ps *Processes) ended(err error) {
	if err == nil || errors.Is(err, ErrNoProcesses) {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if len(ps.errs) == 0 {
		close(ps.broken)
	}
	if len(ps.errs) < 100 {
		ps.errs = append(ps.errs, err)
	}
}

// surprise handles an end that nobody asked for, and reports whether the process is to be started again.
func (ps *Processes) surprise(e Exit) bool {
	if ps.cfg.Restart != nil {
		return ps.cfg.Restart(e)
	}
	if e.Code != 0 && !e.Armed {
		ps.ended(fmt.Errorf("faults: %v, and nobody has asked it to end. The end of its output, %s:\n%s", e, e.Output, tail(e.Output, 20)))
	}
	return false
}

// goes runs a goroutine that Close waits for, unless it is too late for one.
func (ps *Processes) goes(f func()) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closed {
		return false
	}
	ps.all.Go(f)
	return true
}

// command is the program of a life.
func (ps *Processes) command(l *life, points string) *exec.Cmd {
	cmd := exec.Command(ps.cfg.Program, ps.cfg.Args...)
	own := []string{roleVar, procVar, lifeVar, dirVar, crash.Var}
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(own, name)
	})
	cmd.Env = append(cmd.Env, ps.cfg.Env...)
	cmd.Env = append(cmd.Env, roleVar+"="+ps.cfg.Role, procVar+"="+l.p.name, lifeVar+"="+strconv.Itoa(l.number), dirVar+"="+ps.dir)
	if points != "" {
		cmd.Env = append(cmd.Env, crash.Var+"="+points)
	}
	return cmd
}

// Close kills what runs, waits for it, and closes the runner's event file. Closing twice does nothing.
func (ps *Processes) Close() error {
	ps.mu.Lock()
	if ps.closed {
		ps.mu.Unlock()
		return nil
	}
	ps.closed = true
	var procs []*Process
	for _, p := range ps.procs {
		procs = append(procs, p)
	}
	ps.mu.Unlock()
	var errs []error
	for _, p := range procs {
		if _, err := p.signal("kill", syscall.SIGKILL, true); err != nil && !errors.Is(err, ErrNotRunning) {
			errs = append(errs, err)
		}
	}
	late := false
	for _, p := range procs {
		if l := p.life(); l != nil {
			if err := l.wait(); err != nil {
				errs = append(errs, err)
				late = true
			}
		}
	}
	if !late {
		ps.all.Wait()
	}
	return errors.Join(append(errs, ps.log.Close())...)
}

// Run does what a plan says, to processes that run, and returns when all is done. It stops at the first
// error: of a move, of a process that has ended and should not have, or of ctx.
func (ps *Processes) Run(ctx context.Context, plan Plan) error {
	begin := time.Now()
	for _, m := range plan.Moves {
		due := time.NewTimer(time.Until(begin.Add(m.At)))
		select {
		case <-due.C:
		case <-ps.broken:
			due.Stop()
			return fmt.Errorf("faults: plan, before %q: %w", m, ps.Err())
		case <-ctx.Done():
			due.Stop()
			return fmt.Errorf("faults: plan, before %q: %w", m, ctx.Err())
		}
		if err := ps.move(ctx, m); err != nil {
			return fmt.Errorf("faults: plan, at %q: %w", m, errors.Join(err, ps.Err()))
		}
	}
	return nil
}

func (ps *Processes) move(ctx context.Context, m Move) (err error) {
	p := ps.Process(m.Proc)
	switch m.Do {
	case MoveKill:
		err = p.Kill()
	case MoveTerm:
		err = p.Term()
	case MoveFreeze:
		err = p.Stop()
	case MoveThaw:
		err = p.Cont()
	case MoveStart:
		ctx, cancel := context.WithTimeout(ctx, ps.cfg.Limit)
		defer cancel()
		if _, err := p.Wait(ctx); err != nil {
			return err // asked to end, and has not
		}
		return p.Start()
	default:
		return fmt.Errorf("faults: %q is no move", m.Do)
	}
	if ps.cfg.Restart != nil && errors.Is(err, ErrNotRunning) {
		return nil // it has ended by itself just now, and is about to be started again
	}
	return err
}

// runner notes what was done to a process.
func (l *Log) runner(kind string, of *life, e *Exit) error {
	return l.line(kind, func(b []byte) []byte {
		b = appendText(b, "target", of.p.name)
		b = appendNumber(b, "life_of", int64(of.number))
		b = appendNumber(b, "target_pid", int64(of.cmd.Process.Pid))
		if e != nil {
			b = appendNumber(b, "code", int64(e.Code))
			if e.Signal != 0 {
				b = appendText(b, "signal", e.Signal.String())
			}
		}
		return b
	})
}
