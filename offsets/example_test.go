package offsets_test

import (
	"fmt"

	"github.com/killick-io/killick/offsets"
)

// A batch ends out of order, the owner dies after a commit, and the next owner runs only what was open.
func Example() {
	first := offsets.Open(40, offsets.Map{})
	batch, err := first.Deliver([]int64{40, 41, 42, 43, 46, 47, 48}) // 44 and 45 hold no record
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, i := range []int{6, 0, 3, 1, 5} {
		batch.End(i)
	}
	fmt.Println("end 41 again:", batch.End(1))
	fmt.Println("floor", first.Floor(), "next", first.Next(), "pending", first.Pending())

	m := first.Snapshot()
	metadata := offsets.Encode(m) // committed as the metadata of m.Base
	first.Close()                 // what ends from now on is the next owner's business

	remembered, err := offsets.Decode(metadata, 42) // as fetched by the next owner
	if err != nil {
		fmt.Println("nothing is known to be done:", err) // not fatal: the ledger opens all the same
	}
	second := offsets.Open(42, remembered)
	again, err := second.Deliver([]int64{42, 43, 46, 47, 48, 49})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range again.Len() {
		if !again.Ended(i) {
			fmt.Println("run", again.Offset(i))
		}
	}
	// Output:
	// end 41 again: false
	// floor 42 next 49 pending 2
	// run 42
	// run 46
	// run 49
}

// A map that belongs to another offset is refused, and says so.
func ExampleDecode() {
	metadata := offsets.Encode(offsets.Map{Base: 42, Next: 49, Open: []int64{42, 46}, Held: offsets.State{Suspect: offsets.None}})
	_, err := offsets.Decode(metadata, 40)
	fmt.Println(err)
	_, err = offsets.Decode("kgo-5f3c", 40)
	fmt.Println(err)
	// Output:
	// offsets: completion map belongs to another offset: made for 42, committed is 40
	// offsets: commit metadata is not a completion map of killick: 8 bytes that begin with "kgo-5f3c"
}
