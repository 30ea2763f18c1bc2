package alo

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Pairing is an arm and what it is compared with.
type Pairing struct {
	Name string // in the report
	Own  string
	Base string
	// Plain gives both the collector as Go has it by default: GOGC=100, no ballast.
	Plain bool
}

// Plan is what runs. Its flags fill the numbers in; where things are, the caller does.
type Plan struct {
	Pairings []Pairing
	Sizes    []int
	// Ends is how many records of each partition a slice reads, by size: a multiple of Batch.
	Ends    map[int]int64
	Rounds  int // the first is thrown away
	Batch   int // records in a batch
	Fetch   int // bytes of a partition in a fetch
	GOGC    int
	Ballast int // MiB
	Commit  time.Duration

	Addr string
	Env  bool // see Slice
	// Topic and Out name the topics with values of a size; Out is for arms with a sink.
	Topic, Out func(size int) string
	Prefix     string // of groups
	Run        Runner
	Say        func(string) // a line about the progress
}

// FlagSet is what of a [flag.FlagSet] a plan needs.
type FlagSet interface {
	Func(name, usage string, fn func(string) error)
	IntVar(p *int, name string, value int, usage string)
	DurationVar(p *time.Duration, name string, value time.Duration, usage string)
}

// Flags adds the flags of the numbers; those that the plan has now are the defaults.
func (p *Plan) Flags(fs FlagSet) {
	sizes := make([]string, len(p.Sizes))
	for i, n := range p.Sizes {
		sizes[i] = strconv.Itoa(n)
	}
	fs.Func("sizes", "`bytes` of a value, several with commas (default "+strings.Join(sizes, ",")+")", func(s string) error {
		p.Sizes = nil
		for s := range strings.SplitSeq(s, ",") {
			n, err := strconv.Atoi(s)
			switch {
			case err != nil || n < 16 || n > 1<<20:
				return fmt.Errorf("%q is not a number of bytes from 16 to %d", s, 1<<20)
			case slices.Contains(p.Sizes, n):
				return fmt.Errorf("%d is there twice", n)
			}
			p.Sizes = append(p.Sizes, n)
		}
		return nil
	})
	fs.IntVar(&p.Rounds, "rounds", p.Rounds, "`number` of rounds; the first one checks every offset and is not counted")
	fs.IntVar(&p.Batch, "batch", p.Batch, "`records` in a batch")
	fs.IntVar(&p.Fetch, "fetch", p.Fetch, "`bytes` of a partition in a fetch, in all arms")
	fs.IntVar(&p.GOGC, "gogc", p.GOGC, "GOGC of all arms, in `percent`")
	fs.IntVar(&p.Ballast, "ballast", p.Ballast, "live heap without pointers in all arms, in `MiB`")
	fs.DurationVar(&p.Commit, "commit", p.Commit, "commit `interval` of all arms")
}

// Check reports all mistakes in the numbers, by the names of their flags.
func (p *Plan) Check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("bench: "+format, args...)) }
	if p.Rounds < 2 || p.Rounds > 1000 {
		fail("-rounds: %d is not in 2 to 1000; the first is not counted", p.Rounds)
	}
	if p.Batch < 1 || p.Batch > 100_000 {
		fail("-batch: %d is not in 1 to 100000", p.Batch)
	}
	if p.Fetch < 1<<10 || p.Fetch > 64<<20 {
		fail("-fetch: %d bytes are not in 1024 to %d", p.Fetch, 64<<20)
	}
	if p.GOGC < 1 {
		fail("-gogc: %d; at least 1 is needed", p.GOGC)
	}
	if p.Ballast < 0 || p.Ballast > 4096 {
		fail("-ballast: %d MiB is not in 0 to 4096", p.Ballast)
	}
	if p.Commit <= 0 {
		fail("-commit: %v; it must be above 0", p.Commit)
	}
	return errors.Join(errs...)
}

// slice is a run of an arm, without its group.
func (p *Plan) slice(arm string, q Pairing, size int) Slice {
	s := Slice{Arm: arm, Addr: p.Addr, Env: p.Env, Topic: p.Topic(size), Size: size, Batch: p.Batch, End: p.Ends[size],
		Fetch: int32(p.Fetch), GOGC: p.GOGC, Ballast: p.Ballast, Commit: p.Commit}
	if withSink(arm) {
		s.Out = p.Out(size)
	}
	if q.Plain {
		s.GOGC, s.Ballast = 100, 0
	}
	return s
}

// limit bounds a slice: the slowest machine drains some 10 MB a second.
func (s Slice) limit() time.Duration {
	return time.Minute + time.Duration(s.End*Partitions*int64(s.Size+20))*100
}
