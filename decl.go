package killick

import (
	"fmt"
	"time"
)

// Limits that keep a typing mistake from taking all memory: tasks and executions are made at
// start.
const (
	maxTasks    = 1 << 15
	maxInFlight = 1 << 16
)

// SpoutDecl is a spout under construction.
type SpoutDecl struct {
	name     string
	source   Source
	where    string
	tasks    int
	tasksSet bool
	pending  pending
	order    Order
	mistakes []error

	onEnd func(Origin, error)

	orderWhere string // Order was called there; "": it was not
}

func (d *SpoutDecl) wrong(err error) {
	d.mistakes = append(d.mistakes, mistakes(callerAbove(3), d.name, err)...)
}

// Pending limits the roots that are started and have not ended, per partition (per task
// for a spout other than Kafka), and the bytes of the polled batches in which a record has
// not ended, started or not: above them fetching of the partition pauses, and goes on at
// half of them (a spout other than Kafka fetches nothing ahead, so its bytes have no limit
// of their own). Default: 1024 records, 8 MiB.
func (d *SpoutDecl) Pending(records int, bytes int64) *SpoutDecl {
	d.wrong(checkPending(records, bytes))
	d.pending = pending{records, bytes, true}
	return d
}

func checkPending(records int, bytes int64) error {
	if records < 1 || bytes < 1 {
		return fmt.Errorf("Pending(%d, %d): both limits must be positive", records, bytes)
	}
	return nil
}

// OnEnd has f called when a root of the spout has ended, once for each: err is nil when its whole
// tree was acked, and else what a tuple of it was given up for, with the component's name (the root
// is then skipped, or its dead letter is about to be written). A replay is not an end, and neither is
// a stop, or the loss of the partition: the root runs again. It is what Storm's spouts know as ack and
// fail. f is called from the goroutine that ends the tree, any of them, several at a time; it must not
// block. A panic of f is reported, and changes nothing.
func (d *SpoutDecl) OnEnd(f func(o Origin, err error)) *SpoutDecl {
	d.onEnd = f
	return d
}

// Tasks sets the number of tasks of a spout other than Kafka. A Kafka spout has none:
// partitions are its unit.
func (d *SpoutDecl) Tasks(n int) *SpoutDecl {
	if n < 1 || n > maxTasks {
		d.wrong(fmt.Errorf("Tasks(%d): use between 1 and %d", n, maxTasks))
	}
	d.tasks, d.tasksSet = n, true
	return d
}

// Grouping says which task of a bolt gets a tuple. The names are Storm's.
type Grouping uint8

// The groupings.
const (
	ShuffleGrouping Grouping = iota
	LocalGrouping
	ByPartitionGrouping
	FieldsGrouping
	PartialKeyGrouping
	GlobalGrouping
	AllGrouping
	CustomGrouping
)

var groupingNames = [...]string{"shuffle", "local", "by-partition", "fields", "partial-key", "global", "all", "custom"}

// String returns Storm's name in lower case.
func (g Grouping) String() string {
	if int(g) < len(groupingNames) {
		return groupingNames[g]
	}
	return fmt.Sprintf("Grouping(%d)", uint8(g))
}

// placed reports whether an input by g makes its component placed: exactly n tasks in
// the topology, wherever they run.
func (g Grouping) placed() bool { return g >= FieldsGrouping }

// BoltDecl is a bolt under construction. Inputs are named "component" for its default
// stream, or "component/stream".
type BoltDecl struct {
	name     string
	factory  BoltFactory
	where    string
	tasks    int
	inFlight int
	tick     time.Duration
	timeout  time.Duration
	retry    Retry
	placed   bool // said so; an input may make it so, too
	inputs   []input
	streams  []stream
	mistakes []error

	retryWhere string
}

type input struct {
	from     string
	grouping Grouping
	key      func(*Tuple) []byte
	pick     func(dst []int, t *Tuple, tasks int) []int
	where    string
}

type stream struct {
	name  string
	codec Codec
	where string
}

func (d *BoltDecl) wrong(err error) {
	d.mistakes = append(d.mistakes, mistakes(callerAbove(3), d.name, err)...)
}

func (d *BoltDecl) input(from string, g Grouping, key func(*Tuple) []byte, pick func([]int, *Tuple, int) []int) *BoltDecl {
	d.inputs = append(d.inputs, input{from, g, key, pick, callerAbove(3)})
	return d
}

// Shuffle deals tuples evenly over the tasks.
func (d *BoltDecl) Shuffle(from string) *BoltDecl { return d.input(from, ShuffleGrouping, nil, nil) }

// Local is Storm's local-or-shuffle: a task of this worker.
func (d *BoltDecl) Local(from string) *BoltDecl { return d.input(from, LocalGrouping, nil, nil) }

// ByPartition gives all tuples of one source partition to one task, and never leaves the
// worker: work per key on a topic that is partitioned by that key.
func (d *BoltDecl) ByPartition(from string) *BoltDecl {
	return d.input(from, ByPartitionGrouping, nil, nil)
}

// Fields gives tuples with equal keys to one task (of this worker, see Tasks). key nil: the
// tuple's key; nil keys go to one task. key runs on the emitter's goroutine and must be quick.
func (d *BoltDecl) Fields(from string, key func(*Tuple) []byte) *BoltDecl {
	return d.input(from, FieldsGrouping, key, nil)
}

// PartialKey gives the tuples of a key to one of two tasks, the one that had less: for
// skewed keys.
func (d *BoltDecl) PartialKey(from string, key func(*Tuple) []byte) *BoltDecl {
	return d.input(from, PartialKeyGrouping, key, nil)
}

// Global gives all tuples to the first task (of this worker, see Tasks).
func (d *BoltDecl) Global(from string) *BoltDecl { return d.input(from, GlobalGrouping, nil, nil) }

// All gives each tuple to every task; each has a tuple of its own, with its own tries.
func (d *BoltDecl) All(from string) *BoltDecl { return d.input(from, AllGrouping, nil, nil) }

// Custom lets pick choose: it appends the indices of the tasks to dst and returns it.
// None means that the tuple goes nowhere; an index that is not in [0, tasks), like a panic here
// or in a key function, is a permanent failure of the emitter's input (of the record itself, where
// a spout emits it). pick runs on the emitter's goroutine and must be quick. It covers Storm's
// direct and none groupings.
func (d *BoltDecl) Custom(from string, pick func(dst []int, t *Tuple, tasks int) []int) *BoltDecl {
	return d.input(from, CustomGrouping, nil, pick)
}

// Tasks sets the number of tasks: of a placed component in the whole topology, of a local
// one in each worker. As of now tuples do not leave their worker, so that each worker runs n
// tasks of a placed component, too. Default: 1.
func (d *BoltDecl) Tasks(n int) *BoltDecl {
	if n < 1 || n > maxTasks {
		d.wrong(fmt.Errorf("Tasks(%d): use between 1 and %d", n, maxTasks))
	}
	d.tasks = n
	return d
}

// Placed makes a component placed that would be local: exactly n tasks in the topology, once
// tuples can leave their worker; see Tasks.
func (d *BoltDecl) Placed() *BoltDecl { d.placed = true; return d }

// InFlight lets up to n executions of each task run at a time, on goroutines of their own:
// for bolts that wait. Execute is not called while n are running, so that no clock runs
// in a queue. Default: 1.
func (d *BoltDecl) InFlight(n int) *BoltDecl {
	if n < 1 || n > maxInFlight {
		d.wrong(fmt.Errorf("InFlight(%d): use between 1 and %d", n, maxInFlight))
	}
	d.inFlight = n
	return d
}

// Tick calls the bolt's [Ticker] at this interval.
func (d *BoltDecl) Tick(every time.Duration) *BoltDecl {
	if every <= 0 {
		d.wrong(fmt.Errorf("Tick(%v): the interval must be positive", every))
		every = -1 // said, if wrongly
	}
	d.tick = every
	return d
}

// Timeout limits how long user code may have a tuple: from the call of Execute to its
// return, or from Hold to the verdict. A try that takes longer has failed. Default: the
// topology's, 30s.
func (d *BoltDecl) Timeout(t time.Duration) *BoltDecl {
	if t <= 0 {
		d.wrong(fmt.Errorf("Timeout(%v): must be positive", t))
	}
	d.timeout = t
	return d
}

// Retry sets the component's policy; what is zero comes from the topology's.
func (d *BoltDecl) Retry(r Retry) *BoltDecl {
	d.retry, d.retryWhere = r, callerAbove(2)
	d.wrong(r.validate())
	return d
}

// Stream declares an output. The default stream is "" and needs no declaration unless its
// values have a codec. c nil: raw bytes, or values that stay in this process. Tuples of a
// stream that nobody subscribes to are dropped.
func (d *BoltDecl) Stream(name string, c Codec) *BoltDecl {
	d.streams = append(d.streams, stream{name, c, callerAbove(2)})
	return d
}
