package dev

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// pipeLimit bounds the wait for pipes that a grandchild still holds when the command has ended.
const pipeLimit = 2 * time.Second

// Command is a program to run beside a broker.
type Command struct {
	Args    []string // the program, and its arguments
	Environ []string
	Stdin   io.Reader // files are handed on as they are, others are copied
	Stdout  io.Writer
	Stderr  io.Writer
}

// Find returns the path of the program. The error is ErrUsage if there is none.
func (c Command) Find() (string, error) {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return "", wrong("no command after --: want killick dev -- COMMAND ARGUMENTS")
	}
	path, err := exec.LookPath(c.Args[0])
	if e := (*exec.Error)(nil); errors.As(err, &e) {
		err = e.Err // the name is said below
	}
	if err != nil {
		return "", wrong("command %q: %w", c.Args[0], err)
	}
	return path, nil
}

// Exec runs the command to its end and returns its exit code, 128 and the signal's number if a signal ended it, as a shell
// has it. Signals are handed on to the command, and to nothing else: by its process id. Two that come in one moment are two
// for the command as well, and an interrupt from the terminal reaches it on its own beside the one that is handed on.
//
// Exec returns when the command has ended, however long that takes: what the command does with a signal is its business.
func Exec(c Command, signals <-chan os.Signal, say io.Writer) (int, error) {
	path, err := c.Find()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(path, c.Args[1:]...)
	cmd.Args[0] = c.Args[0]
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Environ, c.Stdin, c.Stdout, c.Stderr
	cmd.WaitDelay = pipeLimit
	if err := cmd.Start(); err != nil {
		return 0, wrong("command %q cannot be started: %w", c.Args[0], err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
				fmt.Fprintf(say, "killick dev: %v cannot be handed on to process %d: %v\n", s, cmd.Process.Pid, err)
			}
		case err := <-done:
			return exitCode(cmd.ProcessState, err)
		}
	}
}

func exitCode(state *os.ProcessState, err error) (int, error) {
	if state == nil {
		return 0, fmt.Errorf("dev: wait for the command: %w", err)
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return state.ExitCode(), nil
}
