package tty_test

import (
	"os"
	"testing"

	"github.com/killick-io/killick/internal/tty"
)

func TestIs(t *testing.T) {
	open := func(path string) *os.File {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	file := open(t.TempDir() + "/f")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for name, f := range map[string]*os.File{"a file": file, "the null device": open(os.DevNull), "a pipe": w} {
		if tty.Is(f) {
			t.Errorf("%s counts as a terminal", name)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if tty.Is(file) {
		t.Error("a closed file counts as a terminal")
	}
	// Where there are pseudo-terminals, one of them.
	if p, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0); err == nil {
		defer p.Close()
		if !tty.Is(p) {
			t.Error("a pseudo-terminal does not count as a terminal")
		}
	}
}
