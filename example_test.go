package killick_test

import (
	"context"
	"fmt"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv"
)

func greet(ctx context.Context, in *killick.Tuple, out killick.Emitter) error {
	fmt.Printf("hello %s\n", in.Bytes())
	return nil // nil acks; an error fails this try, and the tuple is tried again
}

// The smallest topology. In a program it ends with worker.Main(t), which reads Kafka; here
// testenv runs it without a broker.
func Example() {
	t := killick.New("hello")
	t.Spout("names", spout.Kafka("names"))
	t.Bolt("greet", bolt.Func(greet)).Shuffle("names")

	r := testenv.RunReal(tb{}, t, testenv.Feed("names",
		killick.Message{Bytes: []byte("Ada")},
		killick.Message{Bytes: []byte("Grace")},
	))
	fmt.Println(r.Acked("names"), "records ended well")
	// Output:
	// hello Ada
	// hello Grace
	// 2 records ended well
}
