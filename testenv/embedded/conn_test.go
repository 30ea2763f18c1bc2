package embedded

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// The splitter must find the same frames however the bytes are cut.
func TestSplitter(t *testing.T) {
	t.Parallel()
	var stream []byte
	var want []string
	add := func(payload string, keep bool) {
		stream = binary.BigEndian.AppendUint32(stream, uint32(len(payload)))
		stream = append(stream, payload...)
		if keep {
			want = append(want, payload)
		}
	}
	add("Kone", true)
	add("xlong frame that is not of interest", false)
	add("", false)         // empty
	add("K", false)        // shorter than the head
	add("Ktwo more", true) // behind the short ones
	add("x234", false)     // exactly the head
	add("Kend", true)
	split := func(sizes func() int) []string {
		var got []string
		s := splitter{
			peek:  4,
			keep:  func(h []byte) bool { return len(h) == 4 && h[0] == 'K' },
			frame: func(p []byte) { got = append(got, string(p)) },
		}
		for rest := stream; len(rest) > 0; {
			n := min(sizes(), len(rest))
			s.feed(rest[:n])
			rest = rest[n:]
		}
		return got
	}
	if got := split(func() int { return len(stream) }); !slices.Equal(got, want) {
		t.Errorf("in one piece: %q, want %q", got, want)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		if got := split(func() int { return 1 + rnd.IntN(9) }); !slices.Equal(got, want) {
			t.Fatalf("in pieces: %q, want %q", got, want)
		}
	}
}
