package verify

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestNumbering compares with a list of the offsets.
func TestNumbering(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var o numbering
		var list []int64
		at := rapid.Int64Range(0, 1<<40).Draw(rt, "first")
		for _, gap := range rapid.SliceOfN(rapid.SampledFrom([]int64{1, 1, 1, 1, 2, 3, 1 << 30}), 0, 200).Draw(rt, "gaps") {
			o.add(at)
			list = append(list, at)
			at += gap
		}
		for range 50 {
			x := at + rapid.Int64Range(-5, 5).Draw(rt, "ask")
			if len(list) > 0 && rapid.Bool().Draw(rt, "near") {
				x = list[rapid.IntRange(0, len(list)-1).Draw(rt, "of")] + rapid.Int64Range(-2, 2).Draw(rt, "by")
			}
			want, ok := slices.BinarySearch(list, x)
			if got := o.lower(x); got != want {
				rt.Fatalf("lower(%d) = %d, want %d of %v", x, got, want, list)
			}
			if got, is := o.find(x); got != want || is != ok {
				rt.Fatalf("find(%d) = %d %v, want %d %v of %v", x, got, is, want, ok, list)
			}
		}
		for i, x := range list {
			if got := o.at(i); got != x {
				rt.Fatalf("at(%d) = %d, want %d", i, got, x)
			}
		}
	})
}

// TestWords compares with bits one by one.
func TestWords(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		lo := rapid.IntRange(0, 300).Draw(rt, "lo")
		hi := lo + rapid.IntRange(0, 300).Draw(rt, "n")
		var got []int
		words(lo, hi, func(w int, mask uint64) { ones(w, mask, func(i int) { got = append(got, i) }) })
		var want []int
		var b bitmap
		b.grow(hi)
		for i := lo; i < hi; i++ {
			want = append(want, i)
			b.set(i)
		}
		if !slices.Equal(got, want) || b.count() != int64(hi-lo) || hi > lo && (!b.get(lo) || !b.get(hi-1) || lo > 0 && b.get(lo-1)) {
			rt.Fatalf("[%d, %d): %v", lo, hi, got)
		}
	})
}
