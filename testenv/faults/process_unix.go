//go:build unix && !linux

package faults

import (
	"context"
	"syscall"
)

// orphansDie: this system kills no orphans. In the group of its owner it gets the same Ctrl-C.
func orphansDie() *syscall.SysProcAttr { return nil }

// still cannot be seen here.
func (l *life) still(context.Context) error { return nil }
