// Package copies copies what must not be copied; vet_test.go checks that go vet finds each line
// that says so.
package copies

import "github.com/killick-io/killick"

func tuple(in *killick.Tuple) killick.Message {
	kept := *in // copy
	return kept.Message()
}

func held(h *killick.Held) bool {
	kept := *h // copy
	return kept.Ack()
}

func list(ts []killick.Tuple) (ids []string) {
	for _, t := range ts { // copy
		ids = append(ids, t.ID())
	}
	return ids
}

func emitters(e killick.Emitter) killick.Emitter { return e } // a value by design

var _, _, _, _ = tuple, held, list, emitters
