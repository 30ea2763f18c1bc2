//go:build unix

package jvm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is a PATH with just a java and a mvn, which are shell scripts, and an empty cache.
// mvn finds its output folder in "$out".
func machine(t *testing.T, java, mvn string) {
	t.Helper()
	bin := t.TempDir()
	for name, body := range map[string]string{"java": java, "mvn": mvn} {
		if body == "" {
			continue
		}
		script := "#!/bin/sh\nPATH=/bin:/usr/bin\nfor a in \"$@\"; do case $a in -DoutputDirectory=*) out=${a#*=};; esac; done\n" + body + "\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
}

func line(jars ...string) Line {
	l := Line{Name: "server-1", POM: []byte("<project/>")}
	for _, j := range jars {
		sum := sha256.Sum256([]byte(j + "\n")) // what echo writes
		l.Lock = fmt.Appendf(l.Lock, "%s %s\n", j, hex.EncodeToString(sum[:]))
	}
	return l
}

const bring = `mkdir -p "$out"; for j in a.jar b.jar; do echo $j > "$out/$j"; done`

func TestJars(t *testing.T) {
	machine(t, "true", bring)
	j, err := line("a.jar", "b.jar").Jars(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := j.Dir + "/lib/a.jar:" + j.Dir + "/lib/b.jar"; j.ClassPath() != want {
		t.Errorf("class path %s, want %s", j.ClassPath(), want)
	}
	// From now on without Maven.
	if err := os.Remove(filepath.Join(os.Getenv("PATH"), "mvn")); err != nil {
		t.Fatal(err)
	}
	if _, err := line("a.jar", "b.jar").Jars(t.Context()); err != nil {
		t.Errorf("jars that are there: %v", err)
	}
	// A jar that got lost is fetched again, or its lack is told.
	if err := os.Remove(filepath.Join(j.Dir, "lib", "a.jar")); err != nil {
		t.Fatal(err)
	}
	if _, err := line("a.jar", "b.jar").Jars(t.Context()); !errors.Is(err, ErrMissing) {
		t.Errorf("a jar is missing, and Maven: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(j.Dir), "*part*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

func TestJarsMistakes(t *testing.T) {
	for _, tt := range []struct {
		name, java, mvn string
		line            Line
		want            string
		missing         bool
	}{
		{"no java", "", bring, line("a.jar"), "server-1 needs Java 17 or later: no java in the path", true},
		{"no maven", "true", "", line("a.jar"), "no mvn in the path", true},
		{"maven fails", "true", "echo 'in offline mode'; exit 1", line("a.jar"), "in offline mode", false},
		{"a jar too many", "true", bring, line("a.jar"), "b.jar was brought by Maven and is not in the list", false},
		{"a jar too few", "true", bring, line("a.jar", "b.jar", "c.jar"), "c.jar was not brought by Maven", false},
		{"another jar", "true", bring + `; echo evil > "$out/a.jar"`, line("a.jar", "b.jar"), "a.jar has the SHA-256", false},
		{"no list", "true", bring, line(), "its list of jars is empty", false},
		{"a list that is none", "true", bring, Line{Name: "server-1", Lock: []byte("a.jar\n")}, `line 1 of its list of jars is "a.jar"`, false},
		{"a list that leaves its folder", "true", bring, Line{Name: "server-1", Lock: fmt.Appendf(nil, "../a.jar %064d\n", 0)}, "want a file name", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			machine(t, tt.java, tt.mvn)
			j, err := tt.line.Jars(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, ErrMissing) != tt.missing {
				t.Errorf("%v\nwant %q, missing %v", err, tt.want, tt.missing)
			}
			if j != nil && j.complete() {
				t.Error("the folder counts as complete")
			}
		})
	}
}

// TestJarsTogether: who comes second waits, and fetches nothing.
func TestJarsTogether(t *testing.T) {
	machine(t, "true", `echo fetched >> "$HOME/count"; `+bring)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := line("a.jar", "b.jar").Jars(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	count, err := os.ReadFile(filepath.Join(os.Getenv("HOME"), "count"))
	if err != nil || string(count) != "fetched\n" {
		t.Errorf("fetched %q, %v", count, err)
	}
	j, err := line("a.jar", "b.jar").Jars(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := j.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := j.Lock(ctx); err == nil || !strings.Contains(err.Error(), "another process that fills "+j.Dir+": enough") {
		t.Errorf("locked twice: %v", err)
	}
}

func start(t *testing.T, java string) (*Process, string) {
	t.Helper()
	machine(t, java, "")
	dir := t.TempDir()
	p, err := Command{Dir: dir, Out: filepath.Join(dir, "out"), Args: []string{"Main"}}.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p, dir
}

func TestProcessEndsByItself(t *testing.T) {
	p, _ := start(t, `echo "cannot bind $1" >&2; exit 3`)
	<-p.Done()
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "cannot bind Main") {
		t.Errorf("%v does not say how it ended", err)
	}
	if err := p.Signal(syscall.SIGSTOP); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a signal to a process that is gone: %v", err)
	}
}

func TestProcessStops(t *testing.T) {
	p, _ := start(t, "exec sleep 1000")
	if err := p.Err(); err != nil {
		t.Errorf("it runs: %v", err)
	}
	if err := p.Stop(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
	if err := p.Err(); err != nil {
		t.Errorf("it was stopped: %v", err)
	}
}

// TestProcessDoesNotStop: one that ignores SIGTERM is killed when its time is over.
func TestProcessDoesNotStop(t *testing.T) {
	p, dir := start(t, `trap '' TERM; echo up > up; exec sleep 1000`)
	await(t, filepath.Join(dir, "up"))
	if err := p.Stop(t.Context(), 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "did not end within 50ms") {
		t.Errorf("%v", err)
	}
	if err := syscall.Kill(p.Pid(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is left: %v", p.Pid(), err)
	}
}

func await(t *testing.T, file string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if text, err := os.ReadFile(file); err == nil && len(text) > 0 {
			return
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}

func TestPorts(t *testing.T) {
	ports, err := Ports(20)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		if seen[p] || p < 11_000 || p >= 31_000 {
			t.Errorf("ports %v: %d is twice there, or in the range of outgoing connections", ports, p)
		}
		seen[p] = true
	}
}
