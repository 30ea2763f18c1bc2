package engine

import (
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/core"
)

// emit sends outs, emitted on ports while in was executed; ordinal numbers the first. fix, if
// not nil, may change the anchors and the origin of the k-th. On an error nothing has left.
//
// What is sent refers to in, until its batch is handed over: the caller flushes before in ends.
func (o *router) emit(ports []*port, in *item, outs []core.Emit[killick.Message], ordinal int, fix func(k int, it *item)) error {
	// Whatever can fail comes first, so that a failed try leaves nothing behind.
	o.ready, o.picks, o.counts = o.ready[:0], o.picks[:0], o.counts[:0]
	for k := range outs {
		p := ports[outs[k].Stream]
		if fix == nil && p.simple && outs[k].M.Value == nil {
			continue
		}
		if err := o.prepare(p, in, &outs[k].M, k, ordinal+k, outs[k].Loose, fix); err != nil {
			clear(o.ready)
			return err
		}
	}
	ready, pick, chosen := 0, 0, 0
	for k := range outs {
		out := &outs[k]
		p := ports[out.Stream]
		o.emitted[out.Stream]++
		if tell := o.e.cfg.Emitted; tell != nil {
			tell(p.Component, p.Stream, out.M)
		}
		if fix == nil && p.simple && out.M.Value == nil {
			for _, ed := range p.edges {
				tg := o.target(ed, o.pick(ed, out.M.Key, in.chunk))
				it := tg.slot(o.e)
				o.child(it, p, in, &out.M, ordinal+k, out.Loose)
				it.key, it.bytes, it.headers = out.M.Key, out.M.Bytes, out.M.Headers
				if tg.b.full() {
					o.sendFull(tg)
				}
			}
			continue
		}
		it := &o.ready[ready]
		ready++
		for _, ed := range p.edges {
			n := o.counts[chosen]
			chosen++
			o.deliver(ed, it, o.picks[pick:pick+n])
			pick += n
		}
	}
	clear(o.ready)
	return nil
}

// prepare makes the item of one output and chooses its tasks.
func (o *router) prepare(p *port, in *item, m *killick.Message, k, ordinal int, loose bool, fix func(k int, it *item)) error {
	if len(o.ready) == cap(o.ready) {
		o.ready = append(o.ready, item{})
	} else {
		o.ready = o.ready[:len(o.ready)+1]
	}
	it := &o.ready[len(o.ready)-1]
	o.child(it, p, in, m, ordinal, loose)
	if fix != nil {
		fix(k, it)
	}
	if err := p.take(m, it, o.e.cfg.RoundTrip); err != nil {
		return killick.Permanent(err)
	}
	for _, ed := range p.edges {
		if err := o.chooseGuarded(ed, it, in.chunk); err != nil {
			return err
		}
	}
	return nil
}

// child makes it, which is zero, the item of one output of in, but for the message.
func (o *router) child(it *item, p *port, in *item, m *killick.Message, ordinal int, loose bool) {
	it.port, it.tries, it.replays = p, 1, in.replays
	if loose || in.loose { // what comes of an untracked tuple is untracked, too
		it.loose, it.replays = true, 0
	} else {
		it.chunk, it.i, it.anchors = in.chunk, in.i, in.anchors
	}
	it.path = in.path.Then(core.Step{Port: &p.Port, Ordinal: int32(ordinal)})
	if m.Time.IsZero() {
		it.ms = in.millis()
	} else {
		it.ms = m.Time.UnixMilli()
	}
}

// chooseGuarded appends the tasks that get it to picks, and their number to counts. An error is
// what user code did wrong: it will not get better.
func (o *router) chooseGuarded(ed *edge, it *item, c Chunk) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if !ed.user() {
				panic(p)
			}
			err = killick.Permanent(panicError(p))
		}
	}()
	at := len(o.picks)
	o.choose(ed, it, c)
	o.counts = append(o.counts, len(o.picks)-at)
	return nil
}

// deliver appends a copy of it to the batch of each task picked.
func (o *router) deliver(ed *edge, it *item, picks []int) {
	for k, i := range picks {
		tg := o.target(ed, i)
		slot := tg.slot(o.e)
		*slot = *it
		if len(picks) > 1 { // copies: each has an ID of its own, whichever task gets it
			if slot.path.Empty() {
				slot.path = slot.path.Then(core.Step{Port: &slot.port.Port})
			}
			slot.path = slot.path.Copied(k)
		}
		if tg.b.full() {
			o.sendFull(tg)
		}
	}
}

// flush sends what waits.
func (o *router) flush() {
	for i, n := range o.emitted {
		if n > 0 {
			o.c.ports[i].count.add(n)
			o.emitted[i] = 0
		}
	}
	for i := range o.targets {
		if o.targets[i].b != nil {
			o.send(&o.targets[i])
		}
	}
}

// sendFull is send amid an execution, whose time it is not.
func (o *router) sendFull(tg *target) {
	start := time.Now()
	o.send(tg)
	o.away += time.Since(start)
}

// send runs a target's batch in line, if it can, or hands it over.
func (o *router) send(tg *target) {
	b, t := tg.b, tg.t
	tg.b = nil
	if o.inline && t.inline && !t.slow.Load() && t.tryAcquire() {
		n := t.x.run(b, 0, o.frame, o.r, true)
		t.release()
		if o.e.ending.Load() {
			t.poke() // to Flush
		}
		if n == len(b.items) {
			o.e.put(b)
			return
		}
		// The task turned out to be slow: the rest goes to its own goroutine.
		rest := o.e.get()
		rest.items = append(rest.items, b.items[n:]...)
		o.e.put(b)
		b = rest
	}
	o.open(b)
	o.push(t, b)
}

// open opens an edge for each item of b that has none yet, and makes them independent of their
// parents' items.
func (o *router) open(b *batch) {
	for i := range b.items {
		o.frame.attach(&b.items[i])
	}
	// Tuples of one parent share its path.
	n := 0
	var last *core.Path
	for i := range b.items {
		if up := b.items[i].path.Up(); up != last {
			for last = up; up != nil; up = up.Up() {
				n++
			}
		}
	}
	if n == 0 {
		return
	}
	slab := make([]core.Path, 0, n)
	last = nil
	var own *core.Path
	for i := range b.items {
		p := &b.items[i].path
		if p.Up() == nil {
			continue
		}
		if p.Up() != last {
			last = p.Up()
			*p = p.Own(&slab)
			own = p.Up()
			continue
		}
		*p = p.Under(own)
	}
}

// push hands b to t, and waits while its queue is full.
func (o *router) push(t *task, b *batch) {
	t.queued.Add(1)
	select {
	case t.in <- b:
		return
	default:
	}
	if o.inline {
		cur := o.r.pause()
		defer o.r.resume(cur)
	} else {
		o.c.blocked.Add(1)
		defer o.c.blocked.Add(-1)
	}
	began := time.Now()
	select {
	case t.in <- b:
	case <-o.e.hard.Done(): // the roots stay open
	}
	o.blocked.Add(int64(time.Since(began)))
}

// plainRecords reports whether routing the spout's records needs nothing but pick.
func (p *port) plainRecords() bool {
	for _, ed := range p.edges {
		if !ed.simple() {
			return false
		}
	}
	return true
}

// routeRecords sends the frame's records from i on to the tasks.
func (o *router) routeRecords(f *frame, p *port, i int) {
	plain := p.plainRecords()
	f.sole = plain && len(p.edges) == 1
	c := f.run.Chunk
	for ; i < f.run.To; i++ {
		if f.hasDead && f.dead[i-f.run.From] {
			continue
		}
		if !plain {
			o.routeRecord(f, p, i)
			continue
		}
		rec := c.Record(i)
		for _, ed := range p.edges {
			var key []byte
			if ed.keyed() {
				key = rec.Key()
			}
			tg := o.target(ed, o.pick(ed, key, c))
			it := tg.slot(o.e)
			it.rec, it.port, it.chunk, it.i, it.tries, it.replays = rec, p, c, int32(i), 1, int32(f.attempt-1)
			f.value(i, it)
			if tg.b.full() {
				o.send(tg)
			}
		}
	}
}

// routeRecord sends the i-th record by groupings that run user code or make copies: all tasks
// are chosen before anything leaves.
func (o *router) routeRecord(f *frame, p *port, i int) {
	c := f.run.Chunk
	it := item{rec: c.Record(i), port: p, chunk: c, i: int32(i), tries: 1, replays: int32(f.attempt - 1)}
	f.value(i, &it)
	o.picks, o.counts = o.picks[:0], o.counts[:0]
	for _, ed := range p.edges {
		if err := o.chooseGuarded(ed, &it, c); err != nil {
			to := ed.to
			to.stats.dead.Add(1)
			o.e.cfg.Observe(Event{Kind: TupleDead, Component: to.spec.Name, ID: it.id(), Attempt: it.attempt(), Reason: "grouping", Err: err})
			f.kill(i, &ack.Cause{Outcome: ack.Dead, Component: to.spec.Name, Reason: "grouping", Err: err, Policy: to.policy(),
				Attempts: it.attempt(), Key: it.record().Key(), Value: it.safeBytes()})
			return
		}
	}
	at := 0
	for k, ed := range p.edges {
		o.deliver(ed, &it, o.picks[at:at+o.counts[k]])
		at += o.counts[k]
	}
}
