//go:build killick_crash && unix

package crash

import (
	"os"
	"syscall"
)

const canStop = true

func killSelf() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }

// stopSelf returns after a SIGCONT: the signal stops the thread that sends it before it goes on.
func stopSelf() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) }
