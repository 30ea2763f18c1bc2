//go:build unix

package jvm

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// ErrMissing says that this machine lacks a program that a server needs, or a way to fetch it: a
// test may be skipped for it.
var ErrMissing = errors.New("a program is missing")

// Line is one release of a server.
type Line struct {
	Name string // of the folder in the cache, such as kafka-4.4.0
	POM  []byte // Maven project whose runtime dependencies are the server
	Lock []byte // "name sha256" for each jar, a line each, sorted
}

// Jars returns the folder that holds the line's jars and whatever is made of them, and fetches
// them on first use, which takes Maven and a network. Test processes that ask at the same time
// wait for each other. A folder that is there is used as it is, without Maven and without reading
// every jar again: it is moved to its place when its jars are complete and checked.
func (l Line) Jars(ctx context.Context) (*Jars, error) {
	if _, err := exec.LookPath("java"); err != nil {
		return nil, fmt.Errorf("jvm: %s needs Java 17 or later: no java in the path: %w", l.Name, ErrMissing)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("jvm: no folder for caches: set HOME or XDG_CACHE_HOME: %w", err)
	}
	sum := sha256.Sum256(slices.Concat(l.POM, []byte{0}, l.Lock))
	j := &Jars{Dir: filepath.Join(cache, "killick", l.Name+"-"+hex.EncodeToString(sum[:6]))}
	want, err := parseLock(l.Lock)
	if err != nil {
		return nil, fmt.Errorf("jvm: %s: %w", l.Name, err)
	}
	for _, w := range want {
		j.names = append(j.names, w.name)
	}
	if j.complete() {
		return j, nil
	}
	if err := os.MkdirAll(filepath.Dir(j.Dir), 0o755); err != nil {
		return nil, fmt.Errorf("jvm: %w", err)
	}
	unlock, err := j.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if j.complete() { // another process was quicker
		return j, nil
	}
	return j, l.fetch(ctx, j, want)
}

func (l Line) fetch(ctx context.Context, j *Jars, want []locked) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("jvm: %s needs Maven to fetch its jars, or a filled %s: no mvn in the path: %w", l.Name, j.Dir, ErrMissing)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(j.Dir), l.Name+"-part-")
	if err != nil {
		return fmt.Errorf("jvm: %w", err)
	}
	defer os.RemoveAll(tmp)
	pom, lib := filepath.Join(tmp, "pom.xml"), filepath.Join(tmp, "lib")
	if err := os.WriteFile(pom, l.POM, 0o644); err != nil {
		return fmt.Errorf("jvm: %w", err)
	}
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "-f", pom, "dependency:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory="+lib)
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("jvm: %s: Maven could not fetch the jars (%w), it said: %s", l.Name, errors.Join(err, ctx.Err()), tail(out, 10))
	}
	if err := checkLock(lib, want); err != nil {
		return fmt.Errorf("jvm: %s: %w", l.Name, err)
	}
	if err := os.RemoveAll(j.Dir); err != nil { // what a killed process may have left
		return fmt.Errorf("jvm: %w", err)
	}
	if err := os.Rename(tmp, j.Dir); err != nil {
		return fmt.Errorf("jvm: %w", err)
	}
	return nil
}

// Jars is a folder of a server's jars.
type Jars struct {
	Dir   string // jars are in its folder lib; the rest is for what is derived of them
	names []string
}

// ClassPath lists the jars in one order: an archive of shared classes fits no other.
func (j *Jars) ClassPath() string {
	all := make([]string, len(j.names))
	for i, n := range j.names {
		all[i] = filepath.Join(j.Dir, "lib", n)
	}
	return strings.Join(all, string(os.PathListSeparator))
}

func (j *Jars) complete() bool {
	for _, n := range j.names {
		if st, err := os.Stat(filepath.Join(j.Dir, "lib", n)); err != nil || !st.Mode().IsRegular() {
			return false
		}
	}
	return true
}

// Lock waits for this folder to be nobody else's, among all processes of this machine.
func (j *Jars) Lock(ctx context.Context) (unlock func(), err error) {
	unlock, err = lockFile(ctx, j.Dir+".lock")
	if err != nil {
		return nil, fmt.Errorf("jvm: waiting for another process that fills %s: %w", j.Dir, err)
	}
	return unlock, nil
}

type locked struct{ name, sum string }

func parseLock(text []byte) (all []locked, err error) {
	sc := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; sc.Scan(); n++ {
		f := strings.Fields(sc.Text())
		if len(f) != 2 || len(f[1]) != 2*sha256.Size || filepath.Base(f[0]) != f[0] {
			return nil, fmt.Errorf("line %d of its list of jars is %q, want a file name and its SHA-256", n, sc.Text())
		}
		all = append(all, locked{f[0], f[1]})
	}
	if len(all) == 0 {
		return nil, errors.New("its list of jars is empty")
	}
	return all, sc.Err()
}

// checkLock compares a folder with the list: a jar more or less is as wrong as another one.
func checkLock(dir string, want []locked) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	sums := map[string]string{}
	for _, w := range want {
		sums[w.name] = w.sum
	}
	for _, e := range entries {
		sum, ok := sums[e.Name()]
		if !ok {
			return fmt.Errorf("%s was brought by Maven and is not in the list of jars", e.Name())
		}
		delete(sums, e.Name())
		got, err := hashFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		if got != sum {
			return fmt.Errorf("%s has the SHA-256 %s, the list of jars says %s: it is another file", e.Name(), got, sum)
		}
	}
	for name := range sums {
		return fmt.Errorf("%s was not brought by Maven", name)
	}
	return nil
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// tail is the last n lines of a program's output, on one line.
func tail(out []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}
