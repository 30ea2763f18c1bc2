package engine

import (
	"sync/atomic"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/core"
)

// router sends what one emitter emits to tasks: it keeps a batch per target task and the
// state of the groupings. It belongs to whoever holds its emitter.
type router struct {
	e       *Engine
	c       *component // whose outputs they are; nil: a spout's
	inline  bool       // targets may run on this goroutine, r
	r       *runner
	frame   *frame
	targets []target
	states  []state
	probe   core.Tuple // a view of what is being routed, for user functions
	picks   []int      // tasks chosen ahead
	counts  []int      // of picks, per edge
	ready   []item     // outputs that were checked ahead; what is behind the length is zero
	scratch []int
	emitted []int64       // per port, since the last flush
	blocked *atomic.Int64 // nanoseconds of waiting for room at tasks, of all routers of the component
	away    time.Duration // that sending full batches has taken since its emitter looked last
}

type target struct {
	t *task
	b *batch // nil: nothing waits
}

// slot returns a zero item at the end of the target's batch.
func (tg *target) slot(e *Engine) *item {
	if tg.b == nil {
		tg.b = e.get()
	}
	return tg.b.add()
}

// state is what a grouping remembers between tuples.
type state struct {
	next  int     // shuffle
	loads []int64 // partial key: tuples per task
}

func newRouter(e *Engine, c *component, blocked *atomic.Int64, inline bool) *router {
	o := &router{e: e, c: c, blocked: blocked, inline: inline}
	if c != nil {
		o.emitted = make([]int64, len(c.ports))
	}
	return o
}

// lay lays out the targets, which are filled on first use: tasks are made later. It numbers the
// edges, too; routers of the same ports agree.
func (o *router) lay(ports []*port) {
	n := 0
	for _, p := range ports {
		p.simple = p.codec == nil
		for _, ed := range p.edges {
			ed.base, ed.index = n, len(o.states)
			n += ed.to.spec.Tasks
			o.states = append(o.states, state{})
			p.simple = p.simple && ed.simple()
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

// pick returns the one task of ed that gets a message with that key, for groupings that choose
// one without user code. c may be nil.
func (o *router) pick(ed *edge, key []byte, c Chunk) int {
	n := ed.to.spec.Tasks
	if n == 1 {
		return 0
	}
	switch ed.grouping {
	case killick.ShuffleGrouping, killick.LocalGrouping:
		st := &o.states[ed.index]
		st.next++
		if st.next >= n {
			st.next = 0
		}
		return st.next
	case killick.ByPartitionGrouping:
		if c != nil {
			return int(c.Partition()) % n
		}
	case killick.FieldsGrouping:
		return keyTask(key, n)
	case killick.PartialKeyGrouping:
		st := &o.states[ed.index]
		if st.loads == nil {
			st.loads = make([]int64, n)
		}
		a, b := twoTasks(key, n)
		if st.loads[b] < st.loads[a] {
			a = b
		}
		st.loads[a]++
		return a
	}
	return 0 // global
}

// twoTasks returns the two tasks of a key under partial-key grouping: different ones. n > 1.
func twoTasks(key []byte, n int) (a, b int) {
	a = keyTask(key, n)
	b = int(fnv(key, 0x84222325cbf29ce4) % uint64(n-1))
	if b >= a {
		b++
	}
	return a, b
}

// choose appends to picks the tasks of ed that get it, whose emitter's input is of c. User code
// runs here and may panic.
func (o *router) choose(ed *edge, it *item, c Chunk) {
	n := ed.to.spec.Tasks
	switch {
	case ed.grouping == killick.AllGrouping:
		for i := range n {
			o.picks = append(o.picks, i)
		}
	case ed.grouping == killick.CustomGrouping:
		o.scratch = ed.pick(o.scratch[:0], o.view(it), n)
		for _, i := range o.scratch {
			if i < 0 || i >= n {
				panic(pickError{ed.to.spec.Name, i, n})
			}
			o.picks = append(o.picks, i)
		}
		o.unview()
	case ed.key != nil:
		key := ed.key(o.view(it))
		o.unview()
		o.picks = append(o.picks, o.pick(ed, key, c))
	default:
		var key []byte
		if ed.keyed() {
			key = it.record().Key()
		}
		o.picks = append(o.picks, o.pick(ed, key, c))
	}
}

// view shows it to user code; unview makes a kept view useless.
func (o *router) view(it *item) *killick.Tuple {
	if core.Race {
		t := new(core.Tuple)
		it.fill(t)
		return (*killick.Tuple)(t)
	}
	it.fill(&o.probe)
	return (*killick.Tuple)(&o.probe)
}

func (o *router) unview() {
	if !core.Race {
		o.probe = core.Tuple{} // it keeps payloads alive else
	}
}

type pickError struct {
	component string
	got, n    int
}
