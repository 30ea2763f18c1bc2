package alo

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Pairs are the slices of an arm next to those of its base, by round. Slices of the same index ran
// one after the other.
type Pairs struct {
	Pairing
	Size      int
	Base, Own []Result
}

// ratios of base and own, by pair.
func (ps Pairs) ratios(f func(base, own Result) float64) []float64 {
	var out []float64
	for i := range ps.Own {
		out = append(out, f(ps.Base[i], ps.Own[i]))
	}
	return out
}

// Measure runs all rounds of one size.
func (p *Plan) Measure(ctx context.Context, size int) ([]Pairs, error) {
	var out []Pairs
	for _, q := range p.Pairings {
		out = append(out, Pairs{Pairing: q, Size: size})
	}
	groups := p.groups()
	one := func(arm string, q Pairing, round int) (Result, error) {
		s := p.slice(arm, q, size)
		s.Group = groups()
		if round == 0 {
			s.Verify = true
			s.End = max(s.End/int64(s.Batch)/4, 1) * int64(s.Batch)
		}
		ctx, cancel := context.WithTimeoutCause(ctx, s.limit(), fmt.Errorf("not over after %v", s.limit()))
		defer cancel()
		rs, err := p.Run(ctx, Job{Slices: []Slice{s}})
		if err != nil {
			return Result{}, fmt.Errorf("bench: slice %s of %d B: %w", arm, size, err)
		}
		return rs[0], nil
	}
	for round := range p.Rounds {
		for i := range out {
			ps := &out[i]
			swap := round%4 == 1 || round%4 == 2 // AB BA BA AB
			arms := [2]string{ps.Pairing.Base, ps.Pairing.Own}
			if swap {
				arms[0], arms[1] = arms[1], arms[0]
			}
			var got [2]Result
			for k, arm := range arms {
				r, err := one(arm, ps.Pairing, round)
				if err != nil {
					return nil, err
				}
				got[k] = r
			}
			if swap {
				got[0], got[1] = got[1], got[0]
			}
			if round > 0 {
				ps.Base, ps.Own = append(ps.Base, got[0]), append(ps.Own, got[1])
			}
		}
		p.Say(fmt.Sprintf("%d B: round %d of %d", size, round+1, p.Rounds))
	}
	return out, nil
}

// groups makes names of groups. Each is used once: a slice starts at the beginning.
func (p *Plan) groups() func() string {
	stamp, n := time.Now().UnixNano(), 0
	return func() string {
		n++
		return fmt.Sprintf("%s-%d-%d", p.Prefix, stamp, n)
	}
}

// Profile runs killick's arms of all pairs and sizes again, each as often as there were pairs and in one process, and writes
// their processor profiles: to file, or with several to files that ProfileName names. It returns the names.
func (p *Plan) Profile(ctx context.Context, file string) (files []string, err error) {
	groups := p.groups()
	var jobs []Job
	for _, size := range p.Sizes {
		for _, q := range p.Pairings {
			if !killicks(q.Own) {
				continue
			}
			s := p.slice(q.Own, q, size)
			j := Job{Profile: ProfileName(file, q.Name, size)}
			for range p.Rounds - 1 {
				s.Group = groups()
				j.Slices = append(j.Slices, s)
			}
			jobs = append(jobs, j)
		}
	}
	if len(jobs) == 1 {
		jobs[0].Profile = file
	}
	for _, j := range jobs {
		p.Say("profile: " + j.Profile)
		limit := j.Slices[0].limit() * time.Duration(len(j.Slices))
		err := func() error {
			ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not over after %v", limit))
			defer cancel()
			_, err := p.Run(ctx, j)
			return err
		}()
		if err != nil {
			return files, fmt.Errorf("bench: profile %s: %w", j.Profile, err)
		}
		files = append(files, j.Profile)
	}
	return files, nil
}

// ProfileName is cpu-fused-100.pprof for cpu.pprof.
func ProfileName(file, arm string, size int) string {
	ext := filepath.Ext(file)
	return fmt.Sprintf("%s-%s-%d%s", strings.TrimSuffix(file, ext), arm, size, ext)
}
