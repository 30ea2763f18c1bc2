package tty

import "os"

// Is reports whether f is a terminal. Of a closed file it is false.
func Is(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && !null(info)
}
