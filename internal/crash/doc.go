// Package crash has named points in killick's code at which a test can have the process end, freeze or
// wait: between a record that is durable and the tree that hears of it, between a commit and its answer,
// inside a release. A kill at a random moment hits them once in a million times.
//
// In the normal build [At] is an empty function and costs nothing:
//
//	crash.At(crash.BeforeCommit)
//	send(request)
//
// Under the build tag killick_crash the environment variable KILLICK_TEST_CRASH arms points, several with
// commas between them:
//
//	KILLICK_TEST_CRASH=before-commit:3:kill           the third time that this point is passed
//	KILLICK_TEST_CRASH=revoked:1+:sleep(3s)           the first time, and each time after it
//
// What an armed point does is said on stderr first, then done by the goroutine that is there:
//
//	exit       end the process with exit code 97, without anything deferred
//	kill       SIGKILL to the process itself
//	stop       SIGSTOP to the process itself; it goes on here after a SIGCONT
//	sleep(d)   this goroutine waits for d, "300ms"
//
// Never ship a binary that was built with that tag. A new point is a line in points.go and the call;
// a test compares the two. testenv/faults arms points of child processes.
package crash
