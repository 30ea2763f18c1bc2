//go:build !race

package engine

// cursor is the index of the input that an exec is at, among those of its run. The executor writes it
// for each tuple, and an atomic store would be a fifth of all that a tuple costs; watch reads it of an
// execution that has lasted for two time-outs, so the write is long past. It is one word, which is
// never seen in part, and what it points into is looked up under spot's lock. Under the race detector
// it is atomic.
type cursor struct{ i int }

func (p *cursor) set(i int) { p.i = i }
func (p *cursor) get() int  { return p.i }
