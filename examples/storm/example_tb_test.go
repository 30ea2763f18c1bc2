package storm_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tb stands in for the *testing.T that a test has and an Example has not.
type tb struct{ testing.TB }

func (tb) Helper()           {}
func (tb) Fatal(args ...any) { panic(fmt.Sprint(args...)) }
