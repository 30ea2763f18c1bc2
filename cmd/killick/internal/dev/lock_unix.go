//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package dev

import (
	"errors"
	"os"
	"syscall"
)

// lock takes a folder for one broker. The lock ends with the file, and so with the process, however
// that one ends; one that is stopped or hangs keeps it, though it answers nobody. taken says that
// somebody else has it. A file system that has no locks is no reason to go without a broker.
func lock(folder string) (f *os.File, taken bool, err error) {
	if f, err = os.Open(folder); err != nil {
		return nil, false, err
	}
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); { // never waits
	case err == nil:
		return f, false, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, true, f.Close()
	default:
		return nil, false, f.Close()
	}
}
