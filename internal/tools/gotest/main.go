// Command gotest runs go test, shows its ok and FAIL lines and the output of what failed, and ends
// with a line that says how many tests ran:
//
//	312 passed, 0 failed, 2 skipped
//
// Every test and subtest counts, as go test -v lists them; a package that fails without a failed
// test (it does not build, or its TestMain exits) counts as one failure. The exit code is that of
// go test, and 1 if nothing ran: a run without tests proves nothing. One whose tests have all been
// skipped, as where they need what a machine lacks, says so by its count.
//
//	gotest [arguments of go test]
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		fmt.Fprintln(stderr, "gotest:", err)
		return 1
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(stderr, "gotest:", err)
		return 1
	}
	s := newSummary(stdout)
	readErr := s.read(out)
	err = cmd.Wait()
	if st := cmd.ProcessState; st != nil {
		fmt.Fprintf(stdout, "%v of processor time, building included, in %v\n", (st.UserTime() + st.SystemTime()).Round(time.Second), time.Since(begin).Round(time.Second))
	}
	fmt.Fprintln(stdout, s)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1)
	case err != nil || readErr != nil:
		fmt.Fprintln(stderr, "gotest:", errors.Join(err, readErr))
		return 1
	case s.failed > 0:
		return 1
	case s.passed == 0 && s.skipped == 0:
		fmt.Fprintln(stderr, "gotest: no test ran")
		return 1
	}
	return 0
}
