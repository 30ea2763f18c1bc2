//go:build unix

package jvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Command is a Java program.
type Command struct {
	Dir  string   // working directory
	Out  string   // file that stdout and stderr are appended to
	Args []string // of java: flags, the class, its arguments
}

// Process is a started Java program. Its methods may be called from any goroutine.
type Process struct {
	cmd  *exec.Cmd
	out  string
	done chan struct{} // closed when the process has been waited for

	mu     sync.Mutex
	killed bool // by us: its end is no surprise
}

// Start starts the program. Stop or Kill ends it; without them it ends with the calling process.
func (c Command) Start() (*Process, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("jvm: no java in the path: %w", ErrMissing)
	}
	out, err := os.OpenFile(c.Out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("jvm: %w", err)
	}
	defer out.Close()
	p := &Process{out: c.Out, done: make(chan struct{})}
	p.cmd = exec.Command(java, c.Args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = c.Dir, out, out
	p.cmd.SysProcAttr = attributes()

	started := make(chan error)
	go func() {
		defer close(p.done)
		// The kernel's signal for orphans comes when the thread ends that started them.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // how it ended is in ProcessState
		}
		// The thread stays locked, and so ends with this goroutine.
	}()
	if err := <-started; err != nil {
		<-p.done
		return nil, fmt.Errorf("jvm: %w", err)
	}
	return p, nil
}

// Pid is the process ID.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how a process ended that nobody ended: with the last lines that it printed.
func (p *Process) Err() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed {
		return nil
	}
	text, _ := os.ReadFile(p.out) // what it said is a help, not a need
	return fmt.Errorf("jvm: java ended by itself (%v), it said: %s", p.cmd.ProcessState, tail(text, 8))
}

// Signal sends a signal; os.ErrProcessDone if the process has ended.
func (p *Process) Signal(s syscall.Signal) error {
	if s == syscall.SIGKILL || s == syscall.SIGTERM {
		p.mu.Lock()
		p.killed = true
		p.mu.Unlock()
	}
	return p.cmd.Process.Signal(s)
}

// Kill sends SIGKILL and waits for the end.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("jvm: kill %d: %w", p.Pid(), err)
	}
	<-p.done // SIGKILL is not refused
	return nil
}

// Stop sends SIGTERM and waits for the end, for as long as grace; then it kills.
func (p *Process) Stop(ctx context.Context, grace time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("jvm: stop %d: %w", p.Pid(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("jvm: process %d did not end within %v of SIGTERM and was killed", p.Pid(), grace), p.Kill())
	}
}
