package engine

import (
	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/core"
)

// router sends what one emitter emits to tasks: it keeps a batch per target task and the
// state of the groupings. It belongs to whoever holds its emitter.
type router struct {
	e       *Engine
	x       *exec // nil: nothing runs in line from here
	r       *runner
	frame   *frame
	targets []target
	states  []state
	probe   core.Tuple // a view of what is being routed, for user functions
	picks   []int
	starts  []int // of the picks made ahead, per edge with user code
	counts  []int
	tmp     item   // the output that is being routed
	ready   []item // outputs that were checked ahead
	scratch []int
}

type target struct {
	t *task
	b *batch // nil: nothing waits
}

// state is what a grouping remembers between tuples.
type state struct {
	next  int     // shuffle
	loads []int64 // partial key: tuples per task
}

func newRouter(e *Engine, x *exec) *router { return &router{e: e, x: x} }

// lay lays out the targets. It runs twice for most routers: tasks are made after the
// subscriptions are known, so the targets are filled on first use.
func (o *router) lay(ports []*port) {
	n := 0
	for _, p := range ports {
		for _, ed := range p.edges {
			ed.base, ed.index = n, len(o.states)
			n += ed.to.spec.Tasks
			o.states = append(o.states, state{})
		}
	}
	o.targets = make([]target, n)
}

func (o *router) target(ed *edge, i int) *target {
	tg := &o.targets[ed.base+i]
	if tg.t == nil {
		tg.t = ed.to.tasks[i]
	}
	return tg
}

// keyTask returns the task of a key. The hash is FNV-1a, so that the same key has the same
// task in every process and run.
func keyTask(key []byte, n int) int {
	if n == 1 {
		return 0
	}
	return int(fnv(key, 14695981039346656037) % uint64(n))
}

func fnv(key []byte, h uint64) uint64 {
	for _, c := range key {
		h = (h ^ uint64(c)) * 1099511628211
	}
	// FNV's low bits are weak for short keys: mix them.
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	return h ^ h>>29
}

// choose appends to picks the tasks of ed that get it. User code runs here and may panic.
func (o *router) choose(ed *edge, it *item) {
	n := ed.to.spec.Tasks
	st := &o.states[ed.index]
	switch ed.grouping {
	case killick.ShuffleGrouping, killick.LocalGrouping:
		st.next++
		if st.next >= n {
			st.next = 0
		}
		o.picks = append(o.picks, st.next)
	case killick.ByPartitionGrouping:
		p := 0
		if it.chunk != nil {
			p = int(it.chunk.Partition())
		}
		o.picks = append(o.picks, p%n)
	case killick.FieldsGrouping:
		o.picks = append(o.picks, keyTask(o.key(ed, it), n))
	case killick.PartialKeyGrouping:
		if st.loads == nil {
			st.loads = make([]int64, n)
		}
		k := o.key(ed, it)
		a := keyTask(k, n)
		b := int(fnv(k, 0x84222325cbf29ce4) % uint64(n))
		if st.loads[b] < st.loads[a] {
			a = b
		}
		st.loads[a]++
		o.picks = append(o.picks, a)
	case killick.GlobalGrouping:
		o.picks = append(o.picks, 0)
	case killick.AllGrouping:
		for i := range n {
			o.picks = append(o.picks, i)
		}
	case killick.CustomGrouping:
		it.fill(&o.probe)
		o.scratch = ed.pick(o.scratch[:0], (*killick.Tuple)(&o.probe), n)
		for _, i := range o.scratch {
			if i < 0 || i >= n {
				panic(pickError{ed.to.spec.Name, i, n})
			}
			o.picks = append(o.picks, i)
		}
	}
}

func (o *router) key(ed *edge, it *item) []byte {
	if ed.key == nil {
		return it.record().Key()
	}
	it.fill(&o.probe)
	return ed.key((*killick.Tuple)(&o.probe))
}

// send appends a copy of it to the batch of each task picked by choose for ed: picks is
// their part of o.picks.
func (o *router) send(ed *edge, it *item, picks []int) {
	all := ed.grouping == killick.AllGrouping && len(picks) > 1
	for _, i := range picks {
		tg := o.target(ed, i)
		if tg.b == nil {
			tg.b = o.e.get()
		}
		slot := tg.b.add()
		*slot = *it
		if all {
			if slot.rec != nil {
				slot.own()
			}
			if slot.path.Empty() {
				slot.path = slot.path.Then(core.Step{Port: &slot.port.Port})
			}
			slot.path = slot.path.Copied(i)
		}
		if tg.b.n == batchSize {
			o.flushOne(tg)
		}
	}
}

// flush sends what waits.
func (o *router) flush() {
	for i := range o.targets {
		if o.targets[i].b != nil {
			o.flushOne(&o.targets[i])
		}
	}
}

// flushOne runs a target's batch in line, if it can, or hands it over.
func (o *router) flushOne(tg *target) {
	b, t := tg.b, tg.t
	tg.b = nil
	if o.r != nil && t.inline && !t.slow.Load() && t.tryAcquire() {
		n := t.x.run(b, o.frame, o.r, true)
		t.release()
		if n == b.n {
			o.e.put(b)
			return
		}
		// The task turned out to be slow: the rest goes to its own goroutine.
		rest := o.e.get()
		rest.n = copy(rest.items[:], b.items[n:b.n])
		o.e.put(b)
		b = rest
	}
	o.open(b)
	o.push(t, b)
}

// open opens an edge for each item of b that has none yet.
func (o *router) open(b *batch) {
	for i := range b.n {
		o.frame.attach(&b.items[i])
	}
}

// push hands b to t, and waits while its queue is full.
func (o *router) push(t *task, b *batch) {
	select {
	case t.in <- b:
		return
	default:
	}
	if o.r != nil {
		cur := o.r.pause()
		defer o.r.resume(cur)
	}
	select {
	case t.in <- b:
	case <-o.e.hard.Done(): // the roots stay open
	}
}

type pickError struct {
	component string
	got, n    int
}

// frame is the source run that is being executed in a synchronous call, and the trees that
// its roots needed so far. A root without a tree ends with the run.
//
// Items of a frame's stages have no edges: the sync edge of their tree (or the absence of
// one) covers them, because a run ends only after all its stages have returned.
type frame struct {
	d       *dispatcher
	run     Run
	attempt int
	trees   []*root // by index - run.From; nil: none needed yet
	vals    []any   // decoded values, when the spout has a codec; a part of vals0
	vals0   []any
	dead    []bool // by index - run.From; ended already or undecodable: not to be executed
	hasDead bool
	hasTree bool
}

// root returns the tree of the i-th root, making it with the sync edge open.
func (f *frame) root(i int) *root {
	k := i - f.run.From
	if f.trees[k] == nil {
		f.trees[k] = f.d.newRoot(f.run.Chunk, i, f.attempt)
		f.hasTree = true
	}
	return f.trees[k]
}

// attach makes sure that it has an open edge of its own on its trees.
func (f *frame) attach(it *item) {
	if it.edge || it.loose {
		return
	}
	if it.anchors.None() {
		it.anchors = onRoot(f.root(it.i))
	}
	it.anchors.Open(1)
	it.edge = true
}
