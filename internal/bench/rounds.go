package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// plan is what the flags ask for.
type plan struct {
	arms     []string
	sizes    []int
	rounds   int // the first is thrown away
	seconds  float64
	batch    int
	fetch    int // bytes of a partition in a fetch
	gogc     int
	ballast  int
	commit   time.Duration
	profiles string // folder for profiles of the last round; "": none
}

// end is how many records of a partition take about the given time at the speed of the bare loop.
func (p plan) end(size int, seconds float64) int64 {
	perRecord := 150e-9 + 0.5e-9*float64(size)
	batches := int64(seconds / perRecord / partitions / float64(p.batch))
	return max(batches, 1) * int64(p.batch)
}

// pairs are the slices of one arm next to the bare loop, by round. Slices of the same index ran
// one after the other.
type pairs struct {
	arm       string
	size      int
	bare, own []result
}

// ratios of bare to own, by pair: above 1 where the arm is cheaper.
func (ps pairs) ratios(f func(bare, own result) float64) []float64 {
	var out []float64
	for i := range ps.own {
		out = append(out, f(ps.bare[i], ps.own[i]))
	}
	return out
}

// runner runs one slice; tests run it in this process.
type runner func(ctx context.Context, s slice) (result, error)

// child runs s in a process of its own.
func child(ctx context.Context, s slice) (result, error) {
	self, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	spec, err := json.Marshal(s)
	if err != nil {
		return result{}, err
	}
	cmd := exec.CommandContext(ctx, self, "-child-slice", string(spec))
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return result{}, fmt.Errorf("bench: slice %s of %d B: %w", s.Arm, s.Size, err)
	}
	var r result
	if err := json.Unmarshal(out, &r); err != nil {
		return result{}, fmt.Errorf("bench: slice %s of %d B: answer %q: %w", s.Arm, s.Size, bytes.TrimSpace(out), err)
	}
	return r, nil
}

// measure runs all rounds of one size against the broker at addr.
func (p plan) measure(ctx context.Context, addr string, size int, run runner, say func(string)) ([]pairs, error) {
	var out []pairs
	for _, arm := range p.arms {
		out = append(out, pairs{arm: arm, size: size})
	}
	// A group is used once: each slice starts at the beginning.
	stamp, groups := time.Now().UnixNano(), 0
	slice := func(arm string, round int) (result, error) {
		groups++
		s := slice{Arm: arm, Addr: addr, Group: fmt.Sprintf("bench-%d-%d", stamp, groups), Size: size, Batch: p.batch,
			End: p.end(size, p.seconds), Fetch: int32(p.fetch), GOGC: p.gogc, Ballast: p.ballast, Commit: p.commit, Verify: round == 0}
		if s.Verify {
			s.End = p.end(size, p.seconds/4)
		}
		if p.profiles != "" && round == p.rounds-1 {
			s.Profile = fmt.Sprintf("%s/%s-%d.pprof", p.profiles, arm, size)
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute+20*time.Duration(p.seconds*float64(time.Second)))
		defer cancel()
		return run(ctx, s)
	}
	for round := range p.rounds {
		for i := range out {
			ps := &out[i]
			order := []string{"bare", ps.arm}
			if round%4 == 1 || round%4 == 2 { // AB BA BA AB
				order[0], order[1] = order[1], order[0]
			}
			var got [2]result
			for k, arm := range order {
				r, err := slice(arm, round)
				if err != nil {
					return nil, err
				}
				got[k] = r
			}
			if round == 0 {
				continue
			}
			if order[0] != "bare" {
				got[0], got[1] = got[1], got[0]
			}
			ps.bare, ps.own = append(ps.bare, got[0]), append(ps.own, got[1])
		}
		say(fmt.Sprintf("%d B: round %d of %d", size, round+1, p.rounds))
	}
	return out, nil
}
