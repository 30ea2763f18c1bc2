//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/killick-io/killick/internal/bench/alo"
	"github.com/killick-io/killick/testenv/kafkaenv"
)

// TestBenchALO: the command runs its slices in processes of their own, and its report is one JSON object.
func TestBenchALO(t *testing.T) {
	t.Parallel()
	k := kafkaenv.Start(t)
	bin := binary(t, "killick")
	profile := filepath.Join(t.TempDir(), "cpu.pprof")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, bin, "bench", "alo", "--kafka", k.Addrs()[0], "--json", "--sizes", "100,200", "--records", "1600,800", "--batch", "100",
		"--rounds", "3", "--arms", "fused,null", "--gogc", "300", "--profile", profile)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\nstderr:\n%s", err, &errs)
	}
	var r alo.Report
	dec := json.NewDecoder(&out)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil || dec.More() {
		t.Fatalf("stdout is not one JSON object: %v", err)
	}
	if len(r.Rows) != 4 || r.Procs != 1 || r.Batch != 100 || r.Partitions != alo.Partitions {
		t.Fatalf("report %+v", r)
	}
	for i, x := range r.Rows {
		records := int64(1600)
		if i >= 2 {
			records = 800
		}
		if x.Records != records || x.Pairs != 2 || len(x.OwnSlices) != 2 || len(x.BaseSlices) != 2 || x.GOGC != 300 || x.CPU.Median <= 0 || x.Own.Rate.Median <= 0 {
			t.Errorf("row %d: %+v", i, x)
		}
	}
	for _, size := range []int{100, 200} {
		if info, err := os.Stat(alo.ProfileName(profile, "fused", size)); err != nil || info.Size() == 0 {
			t.Errorf("no profile: %v", err)
		}
	}
}

// TestBenchInterrupted: an interrupt ends the broker that the command has started, and takes its data away.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	kafkaenv.Start(t) // here or nowhere
	bin := binary(t, "killick")
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "bench", "alo", "--sizes", "100", "--records", "8000", "--rounds", "1000")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	var brokers []string // their folders, while they ran
	for s := bufio.NewScanner(stderr); s.Scan(); {
		lines = append(lines, s.Text())
		if brokers == nil && strings.HasSuffix(s.Text(), "round 1 of 1000") {
			if brokers, err = filepath.Glob(filepath.Join(dir, "kafkaenv-*")); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != exitFailure || lines[len(lines)-1] != "killick bench alo: interrupted" {
		t.Fatalf("%v, stderr:\n%s", err, strings.Join(lines, "\n"))
	}
	if len(brokers) != 1 {
		t.Fatalf("while it ran there were %q", brokers)
	}
	// Its folder is removed once its process is gone.
	if left, err := filepath.Glob(filepath.Join(dir, "kafkaenv-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
