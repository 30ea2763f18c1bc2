//go:build race

package core

// Race says that the race detector is on: every execution gets a fresh tuple, poisoned
// when it returns.
const Race = true
