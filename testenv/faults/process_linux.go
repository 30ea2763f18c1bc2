package faults

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
)

// orphansDie: a process group of its own, so that a Ctrl-C at the tests does not reach it before its
// owner, and an end with the thread that started it, however that ends.
func orphansDie() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// still waits until the process stands still, or has ended.
func (l *life) still(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", l.cmd.Process.Pid))
		if err != nil {
			return fmt.Errorf("%w (%w)", ErrNotRunning, err)
		}
		// pid (name) state: a name may have brackets in it.
		if i := bytes.LastIndexByte(b, ')'); i >= 0 && i+2 < len(b) && b[i+2] == 'T' {
			return nil
		}
		select {
		case <-tick.C:
		case <-l.done:
			return ErrNotRunning
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
