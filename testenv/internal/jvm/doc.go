// Package jvm runs Java servers as processes for tests: it fetches their jars with Maven into
// the user's cache, once, checks them against a list of hashes, and starts, pauses, kills and
// restarts the processes.
//
// A process ends with the test binary, whatever ends that (on Linux by the kernel:
// PR_SET_PDEATHSIG), and is only ever signalled by its own pid.
package jvm
