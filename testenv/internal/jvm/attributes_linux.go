package jvm

import "syscall"

// attributes: a process group of its own, so that a Ctrl-C at the tests does not reach it before
// its owner, and an end with the thread that started it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
