//go:build !unix

package alo

import (
	"errors"
	"time"
)

// cpuTime needs getrusage.
func cpuTime() (time.Duration, error) {
	return 0, errors.New("bench: processor time can be measured on Unix only")
}
