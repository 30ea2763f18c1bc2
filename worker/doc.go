// Package worker runs a topology in this process.
//
// [Main] is for programs: it reads flags, environment and a file, handles signals, serves health
// and metrics, and ends with an exit code that says how it went. [Run] is for programs that do
// these themselves.
//
// # Stopping
//
// Cancelling Run's context is a soft stop: fetching ends, open trees end within Config.Drain,
// waiting retries run at once, once; then positions are committed and the worker leaves its group.
// What has not ended by then stays uncommitted and runs again after the next start.
//
// # Pausing
//
// [Worker.Pause] stops the intake of a spout, and SIGTSTP that of all: what is under way ends and is
// committed, the worker stays in its group and ready. [Worker.Resume] and SIGCONT let it go on.
//
// # Exit codes of Main
//
//	0  a clean end: stopped and drained, or a bounded run that came to its end
//	1  a run-time failure, a component that stops the worker included
//	2  bad usage, configuration or topology
//	3  the drain limit passed, or a second signal came: work is left that runs again
//	4  fenced: another worker has taken this one's place in the group
//	5  Kafka could not be reached at start, or refused the credentials
//	6  a task has had one tuple for ten times its time-out
package worker
