//go:build unix

package faults

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
)

// output takes what a process writes. The file has it whole; those who wait for a text read it there.
type output struct {
	path string

	mu      sync.Mutex
	f       *os.File
	closed  bool
	changed chan struct{} // closed and replaced at each write, and at the end
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.f.Write(b)
	close(o.changed)
	o.changed = make(chan struct{})
	return n, err
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed = true
		close(o.changed)
		o.f.Close()
	}
}

// contains waits until a line contains text, and reports whether one does.
func (o *output) contains(ctx context.Context, text string) (bool, error) {
	f, err := os.Open(o.path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var line []byte // the unfinished one
	buf := make([]byte, 32<<10)
	for {
		o.mu.Lock()
		changed, closed := o.changed, o.closed
		o.mu.Unlock()
		for {
			n, err := f.Read(buf)
			line = append(line, buf[:n]...)
			for part := range bytes.SplitSeq(line, []byte("\n")) {
				if bytes.Contains(part, []byte(text)) {
					return true, nil
				}
			}
			if i := bytes.LastIndexByte(line, '\n'); i >= 0 {
				line = append(line[:0], line[i+1:]...)
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return false, err
			}
		}
		if closed {
			return false, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// tail is the end of a file, for people.
func tail(path string, lines int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
