package verify

import "math/bits"

// bitmap is one bit per record of a partition.
type bitmap []uint64

func (b bitmap) get(i int) bool { return b[i>>6]&(1<<(i&63)) != 0 }
func (b bitmap) set(i int)      { b[i>>6] |= 1 << (i & 63) }

// grow makes room for n bits.
func (b *bitmap) grow(n int) {
	for len(*b) < (n+63)/64 {
		*b = append(*b, 0)
	}
}

// count is the number of bits that are set.
func (b bitmap) count() (n int64) {
	for _, w := range b {
		n += int64(bits.OnesCount64(w))
	}
	return n
}

// words calls f for each word that has bits of [lo, hi), with a mask of these.
func words(lo, hi int, f func(w int, mask uint64)) {
	for lo < hi {
		w := lo >> 6
		end := min(hi, (w+1)<<6)
		mask := ^uint64(0) << (lo & 63)
		if k := end - w<<6; k < 64 {
			mask &= 1<<k - 1
		}
		f(w, mask)
		lo = end
	}
}

// ones calls f for each bit that is set in word w of a bitmap.
func ones(w int, word uint64, f func(i int)) {
	for ; word != 0; word &= word - 1 {
		f(w<<6 + bits.TrailingZeros64(word))
	}
}

// numbering numbers the records of a partition from 0 on, in the order of their offsets. A log without holes takes one run,
// whatever its length; each hole (a transaction marker, compaction) begins another one of 16 bytes.
type numbering struct {
	runs []run
	n    int // records
	hint int // index of the run that was found last
}

// run is records of consecutive offsets.
type run struct {
	offset int64 // of its first record
	index  int   // likewise
}

// add appends an offset above all others.
func (o *numbering) add(offset int64) {
	if k := len(o.runs); k == 0 || offset != o.runs[k-1].offset+int64(o.n-o.runs[k-1].index) {
		o.runs = append(o.runs, run{offset, o.n})
	}
	o.n++
}

// size is the number of records of run k.
func (o *numbering) size(k int) int {
	if k+1 < len(o.runs) {
		return o.runs[k+1].index - o.runs[k].index
	}
	return o.n - o.runs[k].index
}

// find returns the index of the record at offset.
func (o *numbering) find(offset int64) (int, bool) {
	i := o.lower(offset)
	return i, i < o.n && o.at(i) == offset
}

// lower returns the number of records below offset.
func (o *numbering) lower(offset int64) int {
	k := o.hint
	if k >= len(o.runs) || offset < o.runs[k].offset || k+1 < len(o.runs) && offset >= o.runs[k+1].offset {
		lo, hi := 0, len(o.runs)
		for lo < hi {
			if m := int(uint(lo+hi) >> 1); o.runs[m].offset <= offset {
				lo = m + 1
			} else {
				hi = m
			}
		}
		if lo == 0 {
			return 0
		}
		k = lo - 1
		o.hint = k
	}
	r := o.runs[k]
	return r.index + int(min(offset-r.offset, int64(o.size(k))))
}

// at returns the offset of record i.
func (o *numbering) at(i int) int64 {
	k := o.hint
	if k >= len(o.runs) || i < o.runs[k].index || k+1 < len(o.runs) && i >= o.runs[k+1].index {
		lo, hi := 0, len(o.runs)
		for lo < hi {
			if m := int(uint(lo+hi) >> 1); o.runs[m].index <= i {
				lo = m + 1
			} else {
				hi = m
			}
		}
		k = lo - 1
		o.hint = k
	}
	return o.runs[k].offset + int64(i-o.runs[k].index)
}
