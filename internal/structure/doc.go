// Package structure holds rules about the code as a whole, as tests: which package may import which
// (the picture is in ARCHITECTURE.md), what a user's binary links, what no file may contain. It has
// no code of its own.
//
// A rule that stands in the way has a reason, which its test names. Change both together.
package structure
