package verify

import "testing"

// TestCleanRun is one process that does all there is to do.
func TestCleanRun(t *testing.T) {
	b := newBook()
	in := b.input("in", 0)
	in.many(100)
	w := b.worker("w", 1)
	w.effects(in, 0, 50)
	w.commit(in, 50, 0)
	b.look()
	w.effects(in, 60, 100)
	w.commit(in, 50, 100, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59)
	w.effects(in, 50, 60)
	w.commit(in, 100, 0)
	b.look()
	rep := clean(t, b, byValue())
	if got := rep.Totals; got.Inputs != 100 || got.Effects != 100 || got.CommitsSent != 3 || got.CommitsStored != 3 || got.Samples != 2 || got.Maps != 1 {
		t.Errorf("%+v", got)
	}
	t.Log(rep)
}
