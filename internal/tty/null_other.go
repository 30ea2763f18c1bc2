//go:build !unix

package tty

import "os"

// null reports whether a character device is the null device.
func null(info os.FileInfo) bool {
	of, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(info, of)
}
