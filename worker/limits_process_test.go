//go:build linux

package worker_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// hungryMain is a worker whose bolt takes memory without end at "hungry", in a process that may have 128 MB
// more than it has then.
func hungryMain(say func(string, ...any)) int {
	top := killick.New("t")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("work", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		if string(in.Bytes()) == "hungry" {
			if err := limitMemory(128 << 20); err != nil {
				return killick.Permanent(err)
			}
			say("has %s", in.Bytes())
			var all [][]byte
			for {
				b := make([]byte, 1<<20)
				for i := 0; i < len(b); i += 4096 {
					b[i] = 1
				}
				all = append(all, b)
				runtime.KeepAlive(all)
			}
		}
		say("ran %s", in.Bytes())
		return nil
	})).Shuffle("in")
	return worker.Command(top, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
}

// limitMemory bounds the address space of this process to so much more than it has.
func limitMemory(more uint64) error {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	var pages uint64
	if _, err := fmt.Sscan(string(text), &pages); err != nil {
		return err
	}
	most := pages*uint64(os.Getpagesize()) + more
	return syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: most, Max: most})
}

// TestOutOfMemory: a process that has no more memory dies, alone: it says of what, another one takes its
// partitions, and nothing is lost.
func TestOutOfMemory(t *testing.T) {
	if core.Race {
		t.Skip("the race detector needs more addresses than the limit leaves, and says so in its own way")
	}
	b := embedded.Start(t, embedded.Topic("in", 2))
	s := newStory(t, b)
	s.produce("in", 0, "a", "hungry", "b")
	s.produce("in", 1, "c")
	args := []string{"--http=off", "--kafka.session_timeout=2s", "--kafka.heartbeat_interval=200ms", "--commit_interval=100ms"}
	c := spawn(t, b, "hungry", args...)
	c.says(t, "has hungry")
	if code := c.code(t); code != 2 || !strings.Contains(c.out.String(), "out of memory") && !strings.Contains(c.out.String(), "cannot allocate memory") {
		t.Errorf("exit code %d", code)
	}
	if got := s.committed("in")[0]; got > 1 {
		t.Errorf("committed %d, and record 1 has not ended", got)
	}
	other := spawn(t, b, "endless", args...)
	other.says(t, "ran hungry")
	s.until("the other has done all", func() bool { return s.atEnd("in") })
	if err := other.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := other.code(t); code != 0 {
		t.Errorf("the other: exit code %d", code)
	}
}

// fewFilesMain is a worker in a process that can open so many more files, or connections.
func fewFilesMain(more int, say func(string, ...any)) int {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		say("%v", err)
		return 99
	}
	most := uint64(len(open) + more)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
		say("%v", err)
		return 99
	}
	top := killick.New("t")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("work", bolt.Func(func(_ context.Context, in *killick.Tuple, _ killick.Emitter) error {
		say("ran %s", in.Bytes())
		return nil
	})).Shuffle("in")
	return worker.Command(top, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
}

// TestOutOfDescriptors: a process that can open hardly any connection ends, and says why; with a few more it
// works.
func TestOutOfDescriptors(t *testing.T) {
	t.Parallel()
	b := embedded.Start(t, embedded.Topic("in", 1))
	s := newStory(t, b)
	s.produce("in", 0, "a")
	start := time.Now()
	c := spawn(t, b, "no files", "--http=off")
	if code := c.code(t); code != 1 && code != 5 || !strings.Contains(c.out.String(), "too many open files") { // at the first connection, or later
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(start); took > 35*time.Second { // as long as a start may take
		t.Errorf("it took %v", took)
	}
	c = spawn(t, b, "some files", "--http=off")
	c.says(t, "ran a")
}

// TestLogIsFull: a worker whose log takes no line works as any other.
func TestLogIsFull(t *testing.T) {
	b := embedded.Start(t, embedded.Topic("in", 1))
	s := newStory(t, b)
	s.produce("in", 0, numbers(0, 100)...)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	c := spawnAs(t, b, "endless", func(c *child) { c.Stderr = full }, "--http=off", "--log.level=debug")
	c.says(t, "ran 99")
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := c.code(t); code != 0 || !s.atEnd("in") {
		t.Errorf("exit code %d, committed %v", code, s.committed("in"))
	}
}
