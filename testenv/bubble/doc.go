// Package bubble runs tests in virtual time, with or without the race detector.
//
// [Test] is testing/synctest's Test for code that uses timers from several goroutines, which
// is all code that talks to Kafka. Under the race detector of Go 1.26 two timers of one
// synctest bubble that expire in two threads at once damage the detector's own state: the test
// process dies, rarely, with SIGSEGV or with "ThreadSanitizer: CHECK failed"
// (https://go.dev/issue/78156). Each bubble has one race context for all its timers, and a
// goroutine that finds a timer's channel due runs that timer itself, beside the goroutine that
// moves the bubble's clock. So Test keeps a process that has a bubble open on one processor
// while the race detector is on, and does nothing else.
package bubble
