//go:build !unix

package faults

// childMain is not reached: Processes is for Unix.
func childMain(string) int { return 1 }
