package worker_test

import (
	"os"
	"testing"
)

// TestMain lets this binary be a worker, too; see spawn.
func TestMain(m *testing.M) {
	if topology := os.Getenv(childVar); topology != "" {
		os.Exit(childMain(topology))
	}
	os.Exit(m.Run())
}
