package alo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/pprof"
)

// Job is what a child process runs, one slice after the other.
type Job struct {
	Slices  []Slice
	Profile string // file for a processor profile of them all; "": none
}

// Run runs the job in this process.
func (j Job) Run(ctx context.Context) (rs []Result, _ error) {
	if j.Profile != "" {
		f, err := os.Create(j.Profile)
		if err != nil {
			return nil, fmt.Errorf("bench: profile: %w", err)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return nil, fmt.Errorf("bench: profile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	for _, s := range j.Slices {
		r, err := s.Run(ctx)
		if err != nil {
			return nil, err
		}
		rs = append(rs, r)
	}
	return rs, nil
}

// Runner runs a job. Tests run it in their own process.
type Runner func(ctx context.Context, j Job) ([]Result, error)

// Child runs jobs in processes of their own: this program with args, which calls [Serve]. What they
// log goes to stderr. A child ends with ctx, and with this process.
func Child(stderr io.Writer, args ...string) Runner {
	return func(ctx context.Context, j Job) ([]Result, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("bench: find the program to run slices in: %w", err)
		}
		spec, err := json.Marshal(j)
		if err != nil {
			return nil, fmt.Errorf("bench: %w", err)
		}
		cmd := exec.CommandContext(ctx, self, args...)
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, stderr
		in, err := cmd.StdinPipe() // closed by Wait: it is the child's lifeline, too
		if err != nil {
			return nil, fmt.Errorf("bench: %w", err)
		}
		if err := cmd.Start(); err != nil {
			return nil, fmt.Errorf("bench: start a slice: %w", err)
		}
		_, werr := in.Write(append(spec, '\n'))
		err = cmd.Wait()
		var a answer
		jerr := json.Unmarshal(out.Bytes(), &a)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, fmt.Errorf("bench: the process of a slice: %w", errors.Join(err, werr))
		case jerr != nil:
			return nil, fmt.Errorf("bench: the process of a slice answered %q: %w", bytes.TrimSpace(out.Bytes()), jerr)
		case a.Invalid:
			return nil, invalid(a.Error)
		case a.Error != "":
			return nil, errors.New(a.Error)
		}
		return a.Results, nil
	}
}

// answer is what a child says.
type answer struct {
	Results []Result
	Error   string
	Invalid bool // the error is ErrInvalid
}

// invalid is an ErrInvalid that a child has told of.
type invalid string

func (e invalid) Error() string        { return string(e) }
func (e invalid) Is(target error) bool { return target == ErrInvalid }

// Serve runs the job that it reads from in, and writes what came of it to out. It stops when in
// ends. The error is one of in or out. One goroutine reads in; it is left behind, as the process ends with Serve.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var j Job
	d := json.NewDecoder(in)
	if err := d.Decode(&j); err != nil {
		return fmt.Errorf("bench: a slice is run by the command itself: %w", err)
	}
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in) // whatever ends it, it has ended
	}()
	rs, err := j.Run(ctx)
	a := answer{Results: rs}
	if err != nil {
		a.Error, a.Invalid = err.Error(), errors.Is(err, ErrInvalid)
	}
	return json.NewEncoder(out).Encode(a)
}
