package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// endLimit bounds how long a worker may take to end when it is told to.
const endLimit = 5 * time.Second

// child is a worker process. One goroutine waits for its end and closes done; end waits for that.
type child struct {
	cmd      *exec.Cmd
	lifeline io.Closer // the worker's standard input: it ends when this does
	log      string    // file with what it wrote
	done     chan struct{}
	err      error // of Wait; valid after done
}

// start runs a worker that writes to the file log. The caller calls end.
func start(argv, environ []string, log string) (*child, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("demo: log of the worker: %w", err)
	}
	defer f.Close() // the worker has its own descriptor
	c := &child{cmd: exec.Command(argv[0], argv[1:]...), log: log, done: make(chan struct{})}
	c.cmd.Env = environ
	c.cmd.Stdout, c.cmd.Stderr = f, f
	if c.lifeline, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("demo: start the worker: %w", err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("demo: start the worker: %w", err)
	}
	go func() {
		defer close(c.done)
		c.err = c.cmd.Wait()
	}()
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// kill sends SIGKILL and waits until the process is gone. It reports whether it was the kill that ended it.
func (c *child) kill(ctx context.Context) (bool, error) {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return false, fmt.Errorf("demo: kill worker %d: %w", c.pid(), err)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	return !c.cmd.ProcessState.Exited(), nil
}

// end makes sure that the process is gone: it is told, then killed. It returns when it has been waited for.
func (c *child) end() {
	_ = c.lifeline.Close() // closed already when the process has ended
	t := time.NewTimer(endLimit)
	defer t.Stop()
	select {
	case <-c.done:
		return
	case <-t.C:
	}
	_ = c.cmd.Process.Kill() // an error means that it has ended
	<-c.done                 // a killed process ends
}

// failed describes an end that nobody asked for, with the last lines of the log. Only after done.
func (c *child) failed(what string) error {
	how := "exit status 0"
	if c.err != nil {
		how = c.err.Error()
	}
	return fmt.Errorf("demo: worker %d %s: %s\nits log %s ends with:\n%s", c.pid(), what, how, c.log, tail(c.log, 4096))
}

// tail is the end of a file, from the beginning of a line on.
func tail(path string, most int) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	if len(b) > most {
		b = b[len(b)-most:]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			b = b[i+1:]
		}
	}
	return bytes.TrimRight(b, "\n")
}
