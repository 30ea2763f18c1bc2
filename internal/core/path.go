package core

import "strconv"

// Step is one emit on the way from a root to a tuple: which stream of which
// component, and the how-manieth emit of that execution.
type Step struct {
	Port    *Port // nil: no step
	Ordinal int32
	Copy    int32 // index of the copy when one emit goes to several tasks, from 1; 0: not copied
}

// Path is the way from a root record to a tuple: its last step, and the path of the
// tuple that emitted it. It is equal on every replay of deterministic bolts, because it
// holds nothing but positions of emits. The zero Path is the root itself.
//
// A path points at its parent's, which lives in the parent's item: that is what makes an
// emit cost no allocation. Own makes it independent of it.
type Path struct {
	up   *Path // nil: the step is the first
	step Step
}

// Then returns the path of what the tuple at p emits, which refers to p.
func (p *Path) Then(s Step) Path {
	if p.Empty() {
		return Path{step: s}
	}
	return Path{up: p, step: s}
}

// Copied returns the path of the i-th copy, when one emit goes to several tasks.
func (p Path) Copied(i int) Path {
	p.step.Copy = int32(i) + 1
	return p
}

// Empty reports whether p is the root itself.
func (p *Path) Empty() bool { return p.step.Port == nil }

// Up returns the parent's path, nil when it is the root.
func (p *Path) Up() *Path { return p.up }

// Own returns the path with its parents copied to slab, which grows: one allocation for the
// paths of many tuples.
func (p Path) Own(slab *[]Path) Path {
	if p.up == nil {
		return p
	}
	up := p.up.Own(slab)
	if len(*slab) == cap(*slab) {
		*slab = make([]Path, 0, max(1, 2*cap(*slab))) // the full one lives on in what points at it
	}
	*slab = append(*slab, up)
	p.up = &(*slab)[len(*slab)-1]
	return p
}

// Under returns the path with another copy of the same parent.
func (p Path) Under(up *Path) Path {
	p.up = up
	return p
}

func (p *Path) append(b []byte) []byte {
	if p.Empty() {
		return b
	}
	if p.up != nil {
		b = p.up.append(b)
	}
	s := p.step
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
	return b
}
