package faults

import (
	"fmt"
	"os"
	"strconv"
)

// What a process of Processes is told by its environment. (Variables of this form are left alone by
// killick's own configuration.)
const (
	roleVar = "KILLICK_TEST_ROLE"
	procVar = "KILLICK_TEST_PROC"
	lifeVar = "KILLICK_TEST_LIFE"
	dirVar  = "KILLICK_TEST_DIR"
)

// Role is what this process is, if Processes has started it: its ProcessesConfig.Role. Else it is "". A
// test binary that is started again by its own tests asks before anything else:
//
//	func TestMain(m *testing.M) {
//		if faults.Role() == "worker" {
//			os.Exit(workerMain())
//		}
//		os.Exit(m.Run())
//	}
func Role() string { return os.Getenv(roleVar) }

// OpenLog makes the event file of this process, which Processes must have started, and notes the start.
// A life has one.
func OpenLog() (*Log, error) {
	proc, dir := os.Getenv(procVar), os.Getenv(dirVar)
	life, err := strconv.Atoi(os.Getenv(lifeVar))
	if proc == "" || dir == "" || err != nil {
		return nil, fmt.Errorf("faults: OpenLog: this process was not started by Processes (%s, %s and %s are %q, %q and %q)",
			procVar, lifeVar, dirVar, proc, os.Getenv(lifeVar), dir)
	}
	return CreateLog(dir, proc, life)
}
