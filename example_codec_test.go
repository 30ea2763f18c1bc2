package killick_test

import (
	"encoding/binary"
	"fmt"

	"github.com/killick-io/killick"
)

// A codec of one's own, for numbers of eight bytes. What it cannot decode is a dead letter at
// once, with the raw bytes.
func ExampleNewCodec() {
	numbers := killick.NewCodec(
		func(n uint64) ([]byte, error) { return binary.BigEndian.AppendUint64(nil, n), nil },
		func(b []byte) (uint64, error) {
			if len(b) != 8 {
				return 0, fmt.Errorf("a number has 8 bytes, not %d", len(b))
			}
			return binary.BigEndian.Uint64(b), nil
		})
	b, _ := numbers.Encode(uint64(258))
	v, _ := numbers.Decode(b)
	_, err := numbers.Decode([]byte("twelve"))
	fmt.Println(b, v, err)
	// Output: [0 0 0 0 0 0 1 2] 258 a number has 8 bytes, not 6
}
