//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/killick-io/killick/internal/crash"
)

// ErrNotRunning says that a process is not there to do what was asked.
var ErrNotRunning = errors.New("faults: the process is not running")

// Exit is the end of one life of a process.
type Exit struct {
	Proc   string
	Life   int
	PID    int
	Code   int            // -1 if a signal has ended it
	Signal syscall.Signal // 0 if none has
	Asked  bool           // by Kill, Term or Close
	Armed  bool           // a crash point was armed in it; see Process.Crash
	Output string         // file of what it has written to stdout and stderr
}

func (e Exit) String() string {
	how := fmt.Sprintf("exit code %d", e.Code)
	if e.Signal != 0 {
		how = fmt.Sprintf("signal %d, %v", int(e.Signal), e.Signal)
	}
	return fmt.Sprintf("process %s, life %d: %s", e.Proc, e.Life, how)
}

// Process is one of Processes: a name, and one life after another. Its methods may be called from any
// goroutine.
type Process struct {
	ps   *Processes
	name string

	mu    sync.Mutex // not taken while that of ps is held
	lives int
	crash string // points that the next life has armed
	cur   *life  // the latest; nil: there was none
}

// life is one run of the program.
type life struct {
	p      *Process
	number int
	cmd    *exec.Cmd
	out    *output
	armed  bool
	done   chan struct{} // closed when it has been waited for, and exit is set
	exit   Exit

	// Guarded by p.mu.
	asked bool
}

// Name is the process's name.
func (p *Process) Name() string { return p.name }

// Start begins the next life. It is an error if the process runs.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !isProc(p.name) || p.name == "runner" || p.name == "proxy" {
		return fmt.Errorf("faults: start: %q is no name of a process; use a letter from a to z, then letters, digits and _, and not runner or proxy", p.name)
	}
	if p.cur != nil && !p.cur.ended() {
		return fmt.Errorf("faults: start %s: it is running, life %d", p.name, p.cur.number)
	}
	return p.startLocked()
}

func (p *Process) startLocked() error {
	l := &life{p: p, number: p.lives + 1, done: make(chan struct{}), armed: p.crash != ""}
	path := filepath.Join(p.ps.dir, fmt.Sprintf("%s-%d.log", p.name, l.number))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("faults: start %s: %w", p.name, err)
	}
	l.out = &output{f: f, path: path, changed: make(chan struct{})}
	l.cmd = p.ps.command(l, p.crash)
	l.cmd.Stdout, l.cmd.Stderr = l.out, l.out
	l.cmd.SysProcAttr = orphansDie()
	l.cmd.WaitDelay = p.ps.cfg.Limit // for what a child of the child keeps open
	started := make(chan error, 1)
	if !p.ps.goes(func() { l.run(started) }) {
		f.Close()
		return fmt.Errorf("faults: start %s: %w", p.name, ErrNoProcesses)
	}
	if err := <-started; err != nil {
		return fmt.Errorf("faults: start %s: %w", p.name, err)
	}
	p.lives, p.cur, p.crash = l.number, l, ""
	return p.ps.log.runner("spawn", l, nil)
}

// run starts the process and waits for its end.
func (l *life) run(started chan<- error) {
	defer l.out.close()
	// The kernel's signal for orphans comes when the thread ends that started them. The thread stays
	// locked, and so ends with this goroutine.
	runtime.LockOSThread()
	if err := l.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	_ = l.cmd.Wait() // how it ended is in ProcessState
	st := l.cmd.ProcessState
	e := Exit{Proc: l.p.name, Life: l.number, PID: st.Pid(), Code: st.ExitCode(), Output: l.out.path}
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal = ws.Signal()
	}
	l.p.mu.Lock()
	e.Asked, e.Armed = l.asked, l.armed
	l.exit = e
	l.p.ps.ended(l.p.ps.log.runner("exit", l, &e))
	close(l.done)
	again := !e.Asked && l.p.ps.surprise(e)
	if again && l.p.cur == l {
		l.p.ps.ended(l.p.startLocked())
	}
	l.p.mu.Unlock()
}

func (l *life) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// signal notes what is done, and does it. An end that it asks for is no surprise.
func (p *Process) signal(kind string, s syscall.Signal, ends bool) (*life, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.cur
	if l == nil || l.ended() {
		return nil, fmt.Errorf("%s %s: %w", kind, p.name, ErrNotRunning)
	}
	l.asked = l.asked || ends
	if err := p.ps.log.runner(kind, l, nil); err != nil {
		return nil, err
	}
	// By its own id, which is not given to another process before it has been waited for; and if that has
	// happened just now, package os knows.
	if err := l.cmd.Process.Signal(s); errors.Is(err, os.ErrProcessDone) {
		return nil, fmt.Errorf("%s %s: %w", kind, p.name, ErrNotRunning)
	} else if err != nil {
		return nil, fmt.Errorf("faults: %s %s: %w", kind, p.name, err)
	}
	return l, nil
}

// Kill sends SIGKILL and waits for the end.
func (p *Process) Kill() error {
	l, err := p.signal("kill", syscall.SIGKILL, true)
	if err != nil {
		return err
	}
	return l.wait()
}

// Term sends SIGTERM. It does not wait; see Wait.
func (p *Process) Term() error {
	_, err := p.signal("term", syscall.SIGTERM, true)
	return err
}

// Stop sends SIGSTOP, and waits until the process stands still where the system shows that (on Linux).
func (p *Process) Stop() error {
	l, err := p.signal("stop", syscall.SIGSTOP, false)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.ps.cfg.Limit)
	defer cancel()
	if err := l.still(ctx); err != nil {
		return fmt.Errorf("faults: stop %s: %w", p.name, err)
	}
	return nil
}

// WaitStopped returns when the process stands still, as after a crash point that stops it; it fails when
// it has ended, or with an error that wraps that of ctx. Where the system does not show it (elsewhere than
// on Linux) it returns at once.
func (p *Process) WaitStopped(ctx context.Context) error {
	l := p.life()
	if l == nil || l.ended() {
		return fmt.Errorf("wait for the stop of %s: %w", p.name, ErrNotRunning)
	}
	if err := l.still(ctx); err != nil {
		return fmt.Errorf("faults: wait for the stop of %s: %w", p.name, err)
	}
	return nil
}

// Cont sends SIGCONT: the process goes on where it stood still.
func (p *Process) Cont() error {
	_, err := p.signal("cont", syscall.SIGCONT, false)
	return err
}

// Wait returns how the latest life has ended, or an error that wraps that of ctx.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	l := p.life()
	if l == nil {
		return Exit{}, fmt.Errorf("wait for %s: %w", p.name, ErrNotRunning)
	}
	select {
	case <-l.done:
		return l.exit, nil
	case <-ctx.Done():
		return Exit{}, fmt.Errorf("faults: process %s, life %d, has not ended: %w; its output is in %s", p.name, l.number, ctx.Err(), l.out.path)
	}
}

// wait is Wait within the limit.
func (l *life) wait() error {
	limit := time.NewTimer(l.p.ps.cfg.Limit)
	defer limit.Stop()
	select {
	case <-l.done:
		return nil
	case <-limit.C:
		return fmt.Errorf("faults: process %s (%d) has not ended within %v", l.p.name, l.cmd.Process.Pid, l.p.ps.cfg.Limit)
	}
}

func (p *Process) life() *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cur
}

// Running reports whether the process runs, or stands still.
func (p *Process) Running() bool {
	l := p.life()
	return l != nil && !l.ended()
}

// Life is the number of the latest life, from 1; 0 before the first.
func (p *Process) Life() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lives
}

// PID is the process id of the latest life; 0 before the first.
func (p *Process) PID() int {
	if l := p.life(); l != nil {
		return l.cmd.Process.Pid
	}
	return 0
}

// Output is the file of what the latest life has written to stdout and stderr; "" before the first.
func (p *Process) Output() string {
	if l := p.life(); l != nil {
		return l.out.path
	}
	return ""
}

// WaitOutput returns when the latest life has written a line that contains text, or with an error when it
// has ended without, or that wraps that of ctx.
func (p *Process) WaitOutput(ctx context.Context, text string) error {
	l := p.life()
	if l == nil {
		return fmt.Errorf("output of %s: %w", p.name, ErrNotRunning)
	}
	ok, err := l.out.contains(ctx, text)
	switch {
	case err != nil:
		return fmt.Errorf("faults: process %s, life %d, has not written %q: %w; its output is in %s", p.name, l.number, text, err, l.out.path)
	case !ok:
		return fmt.Errorf("faults: process %s, life %d, has ended and not written %q; its output is in %s", p.name, l.number, text, l.out.path)
	}
	return nil
}

// ErrNoCrashPoints says that this build has none: killick's crash points are in builds with the tag
// killick_crash only (go test -tags killick_crash).
var ErrNoCrashPoints = errors.New("faults: this program was built without the tag killick_crash, and has no crash points")

// CrashPoints are the names of killick's crash points, in order: places where a process can be made to
// end, stop or wait. What they mean is in internal/crash/points.go.
func CrashPoints() []string {
	var out []string
	for _, p := range crash.Points() {
		out = append(out, string(p))
	}
	return out
}

// CrashBuild reports whether this program has crash points; see ErrNoCrashPoints.
func CrashBuild() bool { return crash.Enabled }

// Crash arms killick's crash points in the next life, and no other: "before-commit:3:kill" for the third
// time that a commit is about to be sent; several with commas between them. Actions are exit (with code
// 97), kill, stop and sleep(300ms); with 3+ for 3 it happens each time from then on. A point writes
// "crash point before-commit passage 3: kill" to stderr before it acts, which WaitOutput can wait for.
// The end of such a life is no error. A program that is not this one must be built with the tag, too; that it
// is cannot be seen.
func (p *Process) Crash(points string) error {
	steps, err := crash.Parse(points)
	if err == nil && len(steps) == 0 {
		err = errors.New("faults: Crash: no points")
	}
	if !crash.Enabled && p.ps.own {
		err = errors.Join(err, ErrNoCrashPoints)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crash = points
	return nil
}
