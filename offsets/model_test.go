package offsets

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// The model test runs random stories against a twin that is too simple to be wrong: maps and loops. A story is
// the life of a partition: records with random gaps, batches, ends in any order and twice, skips, commits that
// are kept or lost, owners that crash or release, compaction while nobody looks.
//
// Steps per run are set by KILLICK_MODEL_STEPS; a soak is
//
//	KILLICK_MODEL_STEPS=1000000 go test ./offsets -run TestLedgerModel -timeout 30m

const (
	modelSteps  = 8_000 // without KILLICK_MODEL_STEPS
	modelRounds = 6     // Repeat calls per story: longer lives than rapid's 30 steps
)

func stepsWanted(t *testing.T) int {
	s := os.Getenv("KILLICK_MODEL_STEPS")
	if s == "" {
		return modelSteps
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("KILLICK_MODEL_STEPS=%q: want a number of steps, at least 1", s)
	}
	return n
}

func TestLedgerModel(t *testing.T) {
	want, steps := stepsWanted(t), 0
	for steps < want && !t.Failed() {
		rapid.Check(t, func(rt *rapid.T) {
			if steps >= want {
				return
			}
			s := newStory(rt)
			for range modelRounds {
				rt.Repeat(map[string]func(*rapid.T){
					"deliver":  s.deliver,
					"deliver2": s.deliver, // often enough for a window to build up
					"rewind":   s.rewind,
					"skip":     s.skip,
					"end":      s.end,
					"endRun":   s.endRun,
					"endOld":   s.endOldest,
					"commit":   s.commit,
					"crash":    s.crash,
					"release":  s.release,
					"":         func(rt *rapid.T) { steps++; s.compare(rt) },
				})
			}
			s.finish(rt)
		})
	}
	t.Logf("%d steps", steps)
}

// record is a record of the log, which outlives all ledgers.
type record struct {
	offset int64
	ended  bool // at least once, under any owner
	gone   bool // compacted away
}

type handle struct {
	c    *Chunk
	offs []int64
}

// story is a partition with its ledger under test and the naive twin of it.
type story struct {
	log       []*record // ascending
	byOffset  map[int64]*record
	logEnd    int64 // end of the log
	committed int64
	text      string // metadata of the commit
	owners    int

	l      *Ledger
	live   []handle // chunks of the ledger
	stale  []handle // some chunks of earlier ledgers
	open   map[int64]bool
	known  map[int64]bool // ended under this ledger or by its opening map
	next   int64
	floor  int64
	memory Map // opening map, read by a loop only
}

func newStory(rt *rapid.T) *story {
	s := &story{byOffset: map[int64]*record{}}
	s.committed = rapid.Int64Range(0, 1<<40).Draw(rt, "start")
	s.logEnd = s.committed
	s.reopen(rt)
	return s
}

// doneInMemory is Map.Done by a loop.
func (s *story) doneInMemory(o int64) bool {
	return o >= s.memory.Base && o < s.memory.Next && !slices.Contains(s.memory.Open, o)
}

func (s *story) reopen(rt *rapid.T) {
	if s.l != nil {
		s.l.Close()
		s.stale = append(s.stale, s.live...)
		if n := len(s.stale); n > 4 {
			s.stale = s.stale[n-4:]
		}
	}
	m, err := Decode(s.text, s.committed)
	if err != nil && !(s.text == "" && errors.Is(err, ErrForeign)) {
		rt.Fatalf("Decode(%q, %d): %v", s.text, s.committed, err)
	}
	s.l, s.memory = Open(s.committed, m), m
	if s.l.Ignored() != nil {
		rt.Fatalf("the map was ignored: %v", s.l.Ignored())
	}
	s.live, s.open, s.known = nil, map[int64]bool{}, map[int64]bool{}
	s.next, s.floor = s.committed, s.committed
	s.owners++
}

// produce appends records to the log until n lie at or above next.
func (s *story) produce(rt *rapid.T, n int) []int64 {
	var offs []int64
	i, _ := slices.BinarySearchFunc(s.log, s.next, func(r *record, o int64) int { return int(min(max(r.offset-o, -1), 1)) })
	for ; i < len(s.log) && len(offs) < n; i++ {
		if !s.log[i].gone {
			offs = append(offs, s.log[i].offset)
		}
	}
	holes := rapid.SampledFrom([]int64{0, 0, 1, 3, 200, 100_000_000}).Draw(rt, "holes")
	for len(offs) < n {
		o := max(s.logEnd, s.next)
		if holes > 0 {
			o += rapid.Int64Range(0, holes).Draw(rt, "gap")
		}
		r := &record{offset: o}
		s.log = append(s.log, r)
		s.byOffset[o] = r
		s.logEnd = o + 1
		offs = append(offs, o)
	}
	return offs
}

func (s *story) deliver(rt *rapid.T) {
	if len(s.open) > 400 {
		rt.Skip("enough is pending")
	}
	offs := s.produce(rt, rapid.SampledFrom([]int{0, 1, 2, 7, 63, 64, 65, 130}).Draw(rt, "records"))
	given := slices.Clone(offs)
	c, err := s.l.Deliver(given)
	if err != nil {
		rt.Fatalf("Deliver(%v): %v", offs, err)
	}
	for i := range given {
		given[i] = -7 // the slice is the caller's again
	}
	if c.Len() != len(offs) {
		rt.Fatalf("Len is %d, want %d", c.Len(), len(offs))
	}
	for i, o := range offs {
		if c.Offset(i) != o {
			rt.Fatalf("record %d has offset %d, want %d", i, c.Offset(i), o)
		}
		if s.doneInMemory(o) {
			s.known[o] = true
		} else {
			s.open[o] = true
		}
		s.next = o + 1
	}
	s.live = append(s.live, handle{c, offs})
}

func (s *story) rewind(rt *rapid.T) {
	var offs []int64
	switch rapid.IntRange(0, 3).Draw(rt, "kind") {
	case 0:
		offs = []int64{s.next - 1}
	case 1:
		offs = []int64{s.next, s.next + 1, s.next + 1}
	case 2:
		offs = []int64{s.next + 9, s.next + 2}
	case 3:
		if err := s.l.Skip(s.next - 1 - rapid.Int64Range(0, 50).Draw(rt, "back")); !errors.Is(err, ErrRewind) {
			rt.Fatalf("Skip back: %v", err)
		}
		return
	}
	if c, err := s.l.Deliver(offs); !errors.Is(err, ErrRewind) || c != nil {
		rt.Fatalf("Deliver(%v) at %d: %v", offs, s.next, err)
	}
}

// skip moves over a hole, at most to the next record of the log.
func (s *story) skip(rt *rapid.T) {
	to := s.next + rapid.SampledFrom([]int64{0, 1, 5, 100_000_000}).Draw(rt, "hole")
	for _, r := range s.log {
		if r.offset >= s.next && !r.gone {
			to = min(to, r.offset)
			break
		}
	}
	if err := s.l.Skip(to); err != nil {
		rt.Fatalf("Skip(%d) at %d: %v", to, s.next, err)
	}
	s.next = to
	s.logEnd = max(s.logEnd, to)
}

func (s *story) pick(rt *rapid.T) handle {
	if len(s.live) == 0 {
		rt.Skip("nothing delivered")
	}
	h := s.live[rapid.IntRange(0, len(s.live)-1).Draw(rt, "chunk")]
	if len(h.offs) == 0 {
		rt.Skip("empty chunk")
	}
	return h
}

// endNaive is End of the twin.
func (s *story) endNaive(o int64) bool {
	if !s.open[o] {
		return false
	}
	delete(s.open, o)
	s.known[o] = true
	s.byOffset[o].ended = true
	return true
}

func (s *story) end(rt *rapid.T) {
	h := s.pick(rt)
	i := rapid.IntRange(0, len(h.offs)-1).Draw(rt, "record")
	for range 2 { // the second is a double end
		want := s.endNaive(h.offs[i])
		if got := h.c.End(i); got != want {
			rt.Fatalf("End of offset %d says %t, want %t", h.offs[i], got, want)
		}
	}
}

func (s *story) endRun(rt *rapid.T) {
	h := s.pick(rt)
	from := rapid.IntRange(0, len(h.offs)).Draw(rt, "from")
	to := rapid.IntRange(from, len(h.offs)).Draw(rt, "to")
	want := 0
	for _, o := range h.offs[from:to] {
		if s.endNaive(o) {
			want++
		}
	}
	if got := h.c.EndRun(from, to); got != want {
		rt.Fatalf("EndRun(%d, %d) ended %d, want %d", from, to, got, want)
	}
}

// endOldest ends the first open records, so that the floor moves.
func (s *story) endOldest(rt *rapid.T) {
	for range rapid.IntRange(1, 80).Draw(rt, "records") {
		o, ok := s.l.Oldest()
		if !ok {
			return
		}
		for _, h := range s.live {
			if i, found := slices.BinarySearch(h.offs, o); found {
				if !s.endNaive(o) || !h.c.End(i) {
					rt.Fatalf("the oldest offset %d cannot be ended", o)
				}
			}
		}
	}
}

func (s *story) commit(rt *rapid.T) {
	m := s.l.Snapshot()
	text := Encode(m)
	if units(text) > MaxUnits {
		rt.Fatalf("a text of %d units", units(text))
	}
	back, err := Decode(text, m.Base)
	if err != nil {
		rt.Fatalf("Decode of an own text: %v", err)
	}
	if back.Next == m.Next && !slices.Equal(back.Open, m.Open) {
		rt.Fatalf("open offsets %v read back as %v", m.Open, back.Open)
	}
	for _, r := range s.log {
		switch {
		case r.gone:
		case back.Done(r.offset) && !r.ended:
			rt.Fatalf("offset %d is remembered as done and never ended", r.offset)
		case m.Base > r.offset && !r.ended:
			rt.Fatalf("the commit at %d passes offset %d, which never ended", m.Base, r.offset)
		case back.Done(r.offset) && !s.known[r.offset] && !s.doneInMemory(r.offset):
			rt.Fatalf("offset %d is remembered and this owner cannot know it", r.offset)
		case r.offset >= m.Base && r.offset < back.Next && s.known[r.offset] && !back.Done(r.offset):
			rt.Fatalf("the end of offset %d is forgotten", r.offset)
		}
	}
	if rapid.IntRange(0, 3).Draw(rt, "lost") == 0 {
		return
	}
	s.committed, s.text = m.Base, text
}

// crash: the next owner has the last commit that was not lost. Meanwhile the log is compacted.
func (s *story) crash(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "really") != 0 {
		return
	}
	for range rapid.IntRange(0, 3).Draw(rt, "compacted") {
		if len(s.log) > 0 {
			s.log[rapid.IntRange(0, len(s.log)-1).Draw(rt, "record")].gone = true
		}
	}
	s.reopen(rt)
	s.checkStale(rt)
}

// release: the last commit is the last state, so nothing that ended comes back.
func (s *story) release(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "really") != 0 {
		return
	}
	m := s.l.Snapshot()
	s.committed, s.text = m.Base, Encode(m)
	whole := m.Next
	if back, _ := Decode(s.text, s.committed); back.Next < whole {
		whole = back.Next
	}
	known := maps.Clone(s.known)
	s.reopen(rt)
	for o := range known {
		if o >= s.committed && o < whole && !s.doneInMemory(o) {
			rt.Fatalf("a clean release forgets the end of %d", o)
		}
	}
	s.checkStale(rt)
}

// checkStale: ends of an earlier owner change nothing.
func (s *story) checkStale(rt *rapid.T) {
	for _, h := range s.stale {
		open := h.c.Open()
		if n := h.c.EndRun(0, len(h.offs)); n != 0 {
			rt.Fatalf("a closed ledger ended %d", n)
		}
		for i := range h.offs {
			if h.c.End(i) {
				rt.Fatalf("a closed ledger ended %d", h.offs[i])
			}
		}
		if h.c.Open() != open {
			rt.Fatal("a closed ledger has changed its counts")
		}
	}
}

// compare holds the ledger against the twin.
func (s *story) compare(rt *rapid.T) {
	floor := s.next
	for o := range s.open {
		floor = min(floor, o)
	}
	if got := s.l.Floor(); got != floor {
		rt.Fatalf("floor is %d, want %d", got, floor)
	}
	if floor < s.floor {
		rt.Fatalf("the floor falls from %d to %d", s.floor, floor)
	}
	s.floor = floor
	if s.l.Next() != s.next || s.l.Pending() != len(s.open) {
		rt.Fatalf("next, pending are %d, %d; want %d, %d", s.l.Next(), s.l.Pending(), s.next, len(s.open))
	}
	o, ok := s.l.Oldest()
	if ok != (len(s.open) > 0) || ok && o != floor {
		rt.Fatalf("oldest is %d, %t; want %d", o, ok, floor)
	}
	// The snapshot, by sets.
	want := slices.Sorted(maps.Keys(s.open))
	for _, o := range s.memory.Open {
		if o >= s.next {
			want = append(want, o)
		}
	}
	m := s.l.Snapshot()
	if m.Base != floor || m.Next != max(s.next, s.memory.Next) || !slices.Equal(m.Open, want) || m.Held != clean {
		rt.Fatalf("snapshot is %+v, want open %v in [%d, %d)", m, want, floor, max(s.next, s.memory.Next))
	}
	if err := m.check(); err != nil {
		rt.Fatalf("snapshot: %v", err)
	}
}

// finish ends all there is: the floor has to reach the end of the log.
func (s *story) finish(rt *rapid.T) {
	checkInvariants(rt, s.l)
	for _, h := range s.live {
		h.c.EndRun(0, len(h.offs))
		if h.c.Open() != 0 {
			rt.Fatalf("%d records stay open", h.c.Open())
		}
		for i := range h.offs {
			if !h.c.Ended(i) {
				rt.Fatalf("offset %d stays open", h.offs[i])
			}
		}
	}
	checkInvariants(rt, s.l)
	if s.l.Floor() != s.next || s.l.Pending() != 0 || s.l.head != nil {
		rt.Fatalf("after all ends: floor %d, next %d, pending %d", s.l.Floor(), s.next, s.l.Pending())
	}
}
