package alo

import (
	"math"
	"math/rand/v2"
	"slices"
)

// median of xs, NaN for none.
func median(xs []float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(xs))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// interval is the 95 % bootstrap interval of the median of xs. The same xs give the same interval.
func interval(xs []float64) (lo, hi float64) {
	const resamples = 4000
	if len(xs) == 0 {
		return math.NaN(), math.NaN()
	}
	rng := rand.New(rand.NewPCG(7, uint64(len(xs))))
	medians := make([]float64, resamples)
	sample := make([]float64, len(xs))
	for i := range medians {
		for j := range sample {
			sample[j] = xs[rng.IntN(len(xs))]
		}
		medians[i] = median(sample)
	}
	slices.Sort(medians)
	return medians[resamples*25/1000], medians[resamples*975/1000-1]
}
