//go:build !unix

package alo

import (
	"errors"
	"time"
)

// CPUTime needs getrusage.
func CPUTime() (time.Duration, error) {
	return 0, errors.New("bench: processor time can be measured on Unix only")
}
