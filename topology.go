package killick

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"
)

// Topology is a graph of spouts and bolts under construction. The builder methods record
// what is said and never fail; [Topology.Validate] reports all mistakes at once, each
// with the place in the code. A Topology is not safe for concurrent use.
type Topology struct {
	name      string
	where     string
	retry     Retry
	timeout   time.Duration
	pending   pending
	order     Order
	spouts    []*SpoutDecl
	bolts     []*BoltDecl
	guarantee Guarantee

	retryWhere, orderWhere string // where they were said; "": they were not

	mistakes []error // said by the builder calls themselves
}

type pending struct {
	records int
	bytes   int64
	set     bool
}

// Defaults of a topology.
const (
	DefaultTimeout      = 30 * time.Second
	DefaultPending      = 1024
	DefaultPendingBytes = 8 << 20
)

// New starts a topology. Its name is part of the group id and of topic names: letters,
// digits, '.', '_' and '-', at most 100.
func New(name string) *Topology { return &Topology{name: name, where: caller()} }

// Name returns the topology's name.
func (t *Topology) Name() string { return t.name }

// Retry sets the default policy of all components.
func (t *Topology) Retry(r Retry) *Topology {
	t.retry, t.retryWhere = r, callerAbove(2)
	t.check(r.validate())
	return t
}

// Timeout sets the default message timeout of all components: how long user code may
// have a tuple. Default: 30s.
func (t *Topology) Timeout(d time.Duration) *Topology {
	if d <= 0 {
		t.check(fmt.Errorf("Timeout is %v; it must be positive", d))
	}
	t.timeout = d
	return t
}

// Pending sets the default limits of all spouts. See [SpoutDecl.Pending].
func (t *Topology) Pending(records int, bytes int64) *Topology {
	t.check(checkPending(records, bytes))
	t.pending = pending{records, bytes, true}
	return t
}

// check records what is wrong with a topology-wide setting.
func (t *Topology) check(err error) {
	t.mistakes = append(t.mistakes, mistakes(callerAbove(3), "", err)...)
}

// Spout adds a source under a name that is unique in the topology.
func (t *Topology) Spout(name string, s Source) *SpoutDecl {
	d := &SpoutDecl{name: name, source: s, where: caller(), tasks: 1}
	t.spouts = append(t.spouts, d)
	return d
}

// Bolt adds a step under a name that is unique in the topology. f makes one bolt per
// task.
func (t *Topology) Bolt(name string, f BoltFactory) *BoltDecl {
	d := &BoltDecl{name: name, factory: f, where: caller(), tasks: 1}
	t.bolts = append(t.bolts, d)
	return d
}

// Mistake is one thing that is wrong with a topology.
type Mistake struct {
	Where     string // folder/file:line of the builder call
	Component string // "" for the topology as a whole
	What      string
}

// Error names the place, the component and what to do.
func (m *Mistake) Error() string {
	s := "killick: " + m.Where + ": "
	if m.Component != "" {
		s += fmt.Sprintf("component %q: ", m.Component)
	}
	return s + m.What
}

// mistakes makes one Mistake of each error that err joins.
func mistakes(where, component string, err error) []error {
	if err == nil {
		return nil
	}
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		if joined := errors.Join(j.Unwrap()...); joined != nil && joined.Error() == err.Error() {
			var all []error
			for _, e := range j.Unwrap() {
				all = append(all, mistakes(where, component, e)...)
			}
			return all
		}
	}
	return []error{&Mistake{where, component, err.Error()}}
}

func caller() string { return callerAbove(3) }

// callerAbove returns folder/file:line of the caller that many frames up.
func callerAbove(skip int) string {
	_, file, line, ok := runtime.Caller(skip)
	if !ok {
		return "unknown place"
	}
	dir, base := filepath.Split(file)
	return fmt.Sprintf("%s/%s:%d", filepath.Base(dir), base, line)
}
