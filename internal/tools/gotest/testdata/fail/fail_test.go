package fail

import "testing"

func TestPass(*testing.T)   {}
func TestFail(t *testing.T) { t.Error("as it should") }
func TestSkip(t *testing.T) { t.Skip("as it should") }
