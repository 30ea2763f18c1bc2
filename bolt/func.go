package bolt

import (
	"context"

	"github.com/killick-io/killick"
)

// ExecuteFunc is Execute as a function. See [killick.Bolt].
type ExecuteFunc func(ctx context.Context, in *killick.Tuple, out killick.Emitter) error

// Execute calls f.
func (f ExecuteFunc) Execute(ctx context.Context, in *killick.Tuple, out killick.Emitter) error {
	return f(ctx, in, out)
}

// Func makes bolts of one function. All tasks share it, so it must be safe for concurrent
// use when there are several. A nil f is a mistake that the topology's validation names.
func Func(f ExecuteFunc) killick.BoltFactory {
	if f == nil {
		return nil
	}
	return func() killick.Bolt { return f }
}

// Async is Func for work that waits, such as calls to other services: up to n executions per
// task run at a time, each on a goroutine of its own. It is short for
// Func(f) with [killick.BoltDecl.InFlight](n). Tuples of one task then end out of order, which
// committed offsets take care of.
func Async(n int, f ExecuteFunc) killick.BoltFactory {
	if f == nil {
		return nil
	}
	return func() killick.Bolt { return async{f, n} }
}

type async struct {
	ExecuteFunc
	n int
}

func (a async) BoltInfo() (killick.BoltInfo, error) {
	if a.n < 1 {
		return killick.BoltInfo{}, errCount("bolt.Async", "n", a.n)
	}
	return killick.BoltInfo{InFlight: a.n}, nil
}
