// Command gotest runs go test, shows its ok and FAIL lines and the output of what failed, and ends
// with a line that says how many tests ran:
//
//	312 passed, 0 failed, 2 skipped
//
// Every test and subtest counts, as go test -v lists them; a package that fails without a failed
// test (it does not build, or its TestMain exits) counts as one failure. The exit code is that of
// go test, and 1 if nothing ran: a run without tests proves nothing.
//
//	gotest [-race auto|on|off] [arguments of go test]
//
// With -race auto the race detector is used if it can be built here (it needs a C compiler and
// cgo), and the first line says which.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	race, args, err := raceFlag(args)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	env := os.Environ()
	switch race {
	case "auto":
		if why := raceMissing(); why != nil {
			fmt.Fprintf(stdout, "the race detector is not used: %v\n", why)
			break
		}
		fmt.Fprintln(stdout, "the race detector is used")
		fallthrough
	case "on":
		args = append([]string{"-race"}, args...)
		env = append(env, "CGO_ENABLED=1") // for a compiler other than the default one, it is off
	}
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Env, cmd.Stderr = env, stderr
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
	case s.passed == 0:
		fmt.Fprintln(stderr, "gotest: no test ran")
		return 1
	}
	return 0
}

// raceFlag takes -race off the arguments. Default: off, as go test has it.
func raceFlag(args []string) (mode string, rest []string, err error) {
	mode = "off"
	for i := 0; i < len(args); i++ {
		value, ok := strings.CutPrefix(args[i], "-race=")
		switch {
		case ok:
		case args[i] == "-race" && i+1 < len(args):
			i++
			value = args[i]
		case args[i] == "-args":
			return mode, append(rest, args[i:]...), nil
		default:
			rest = append(rest, args[i])
			continue
		}
		if value != "auto" && value != "on" && value != "off" {
			return "", nil, fmt.Errorf("gotest: -race %q: use auto, on or off", value)
		}
		mode = value
	}
	return mode, rest, nil
}

// raceMissing says why the race detector cannot be built. To find out it builds the one package of
// the standard library that needs a C compiler; the tests need it anyway.
func raceMissing() error {
	cmd := exec.Command("go", "build", "-race", "runtime/cgo")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%w: %s", err, lines[len(lines)-1])
	}
	return nil
}
