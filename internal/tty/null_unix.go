//go:build unix

package tty

import (
	"os"
	"syscall"
)

// null reports whether a character device is the null device. It compares the device, not the file:
// a sandbox may have a /dev of its own while the file was opened outside of it.
func null(info os.FileInfo) bool {
	of, err := os.Stat(os.DevNull)
	if err != nil {
		return false
	}
	a, ok := info.Sys().(*syscall.Stat_t)
	b, also := of.Sys().(*syscall.Stat_t)
	return ok && also && a.Rdev == b.Rdev
}
