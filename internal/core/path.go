package core

import "strconv"

// Step is one emit on the way from a root to a tuple: which stream of which
// component, and the how-manieth emit of that execution.
type Step struct {
	Port    *Port
	Ordinal int32
	Copy    int32 // index of the copy under an all grouping, from 1; 0: not copied
}

const inline = 2

// Path is the way from a root record to a tuple. It is equal on every replay of
// deterministic bolts, because it holds nothing but positions of emits. Paths are
// values; the first steps sit in place, so that short ones need no allocation.
type Path struct {
	up    *Path // full; steps before those here. Never written after it is linked.
	steps [inline]Step
	n     int
}

// Then returns the path with one more step.
func (p Path) Then(s Step) Path {
	if p.n == inline {
		full := p
		p = Path{up: &full}
	}
	p.steps[p.n] = s
	p.n++
	return p
}

// Copied returns the path of copy i (from 0) of an all grouping.
func (p Path) Copied(i int) Path {
	if p.n > 0 {
		p.steps[p.n-1].Copy = int32(i) + 1
	}
	return p
}

func (p *Path) append(b []byte) []byte {
	if p.up != nil {
		b = p.up.append(b)
	}
	for _, s := range p.steps[:p.n] {
		b = append(b, ':')
		b = append(b, s.Port.Component...)
		if s.Port.Stream != "" {
			b = append(b, '/')
			b = append(b, s.Port.Stream...)
		}
		b = append(b, '.')
		b = strconv.AppendInt(b, int64(s.Ordinal), 10)
		if s.Copy > 0 {
			b = append(b, '~')
			b = strconv.AppendInt(b, int64(s.Copy)-1, 10)
		}
	}
	return b
}

// Empty reports whether p is the root itself.
func (p *Path) Empty() bool { return p.n == 0 }
