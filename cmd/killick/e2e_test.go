package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/killick-io/killick/cmd/killick/internal/demo"
	"github.com/killick-io/killick/internal/core"
)

// binaries is the folder of the programs that tests run, made and removed by TestMain.
var binaries = ""

// built makes them: this command and examples/hello. They are under the race detector if the tests are: everything is
// compiled for it already.
var built = sync.OnceValue(func() error {
	out, err := exec.Command("go", "build", fmt.Sprintf("-race=%v", core.Race), "-o", binaries+string(filepath.Separator), ".", "../../examples/hello").CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
})

// binary is the path of one of them.
func binary(t *testing.T, name string) string {
	t.Helper()
	if err := built(); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(binaries, name)
}

// start runs the binary to its end, with a folder of its own for temporary files.
func start(t *testing.T, bin string, args ...string) (code int, stdout, stderr string, tmp []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	tmp, err = filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String(), tmp
}

// TestDemo: a real worker is really killed, and everything adds up. 2,100 orders have both dead letters among them.
// FC-05: twmb/franz-go #57.
func TestDemo(t *testing.T) {
	t.Parallel()
	bin := binary(t, "killick")
	keep := filepath.Join(t.TempDir(), "kept")
	const records = 2100
	code, stdout, stderr, tmp := start(t, bin, "demo", "--json", "--records", "2100", "--keep", keep)
	var res demo.Result
	dec := json.NewDecoder(strings.NewReader(stdout))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&res); err != nil || dec.More() {
		t.Fatalf("exit %d, stdout is not one JSON object: %v\nstdout:\n%s\nstderr:\n%s", code, err, stdout, stderr)
	}
	if code != exitOK || !res.OK || res.Report == nil || !res.Report.OK {
		t.Fatalf("exit %d\nstdout:\n%s\nstderr:\n%s", code, stdout, stderr)
	}
	rep := res.Report
	if w := rep.Ways; rep.Records != records || w.Poison != 1 || w.GatewayDown != 1 || w.Rejected == 0 || w.PaymentFailed == 0 ||
		w.Paid+w.Rejected+w.PaymentFailed+w.Poison+w.GatewayDown != records {
		t.Errorf("%d records, ways %+v", rep.Records, w)
	}
	if res.Kill.PID == 0 || res.Successor == 0 || res.Kill.PID == res.Successor {
		t.Errorf("worker %d was killed, %d went on: want two processes", res.Kill.PID, res.Successor)
	}
	// The decision falls between 30 and 70 %; some more come through until the process is dead.
	if n := res.Kill.Through; n < records*30/100 || n > records*85/100 {
		t.Errorf("killed when %d of %d orders were through, want about half", n, records)
	}
	if len(rep.Kills) != 1 || rep.Kills[0].Open == 0 || len(rep.Kills[0].Partitions) != 4 {
		t.Errorf("kills %+v, want one with orders left to run", rep.Kills)
	}
	if d := rep.Duplicates; d.Roots > d.Bound || d.Bound >= records/2 {
		t.Errorf("duplicates %+v, want a bound far below the number of orders, and kept", d)
	}
	for _, p := range rep.Partitions {
		if p.Committed != p.LogEnd {
			t.Errorf("partition %d: committed %d of %d", p.Partition, p.Committed, p.LogEnd)
		}
	}
	if !strings.Contains(stderr, "killed with SIGKILL") || strings.Contains(stdout, "SIGKILL") {
		t.Errorf("the lines about the progress belong to stderr:\n%s", stderr)
	}
	if len(tmp) > 0 {
		t.Errorf("left behind: %q", tmp)
	}
	for _, name := range []string{"worker-1.log", "worker-2.log", "payments.jsonl", "history.json", "result.json"} {
		if info, err := os.Stat(filepath.Join(keep, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s is not kept: %v", name, err)
		}
	}
}
