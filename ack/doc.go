// Package ack holds tuple trees: which tuples of a root are still open, and how
// the root has ended.
//
// A root is a record that a spout emitted. Every tuple that descends from it is
// an edge of its [Tree] from the moment it is emitted until its last try has
// ended. Edges are counted, one by one; they are never hashed together, so a
// verdict given twice cannot cancel another tuple out (Storm's acker XORs random
// ids and loses the tree then).
//
//	spout --- root tuple ---> bolt --- a ---> bolt     open = 1 + a + b
//	                            \----- b ---> bolt     ended when open = 0
//
// The package is pure: no goroutine, no clock, no network. It trusts its caller
// on one thing: an edge is ended once. Where user code decides (a held tuple, a
// second ack from another goroutine, a time-out racing with an ack) a [Word] makes
// that true: the first verdict wins by compare-and-swap, and only the winner may
// touch the tree.
//
// # How a tree ends
//
// The first failure that reaches the tree (dead, or replay) is its fate. From
// then on its waiting tuples are skipped ([Anchors.Live] is false), but the tree
// ends only when its last edge has ended, so that two attempts of one root never
// overlap. A tree whose [Epoch] is closed is gone: nothing happens to it any more.
package ack
