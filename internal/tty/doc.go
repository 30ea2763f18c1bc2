// Package tty tells whether somebody sits at the other end of a file: whether to colour, to draw, to prompt.
//
// It goes by the kind of the file, so it needs nothing but the standard library. A character device
// counts as a terminal, but for the null device: a service whose output goes to /dev/null has no
// terminal, and must not be treated as a program that somebody watches.
package tty
