package bolt_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv"
)

type Line struct{ Text string }

// Functions over typed values: key, headers and time go along by themselves, and the builder
// checks that the types of a stream fit.
func ExampleMap() {
	t := killick.New("words")
	t.Spout("lines", spout.KafkaSource{Topics: []string{"lines"}, Codec: killick.JSON[Line]()})
	t.Bolt("split", bolt.FlatMap(func(_ context.Context, l Line, emit func(string)) error {
		for w := range strings.FieldsSeq(l.Text) {
			emit(w)
		}
		return nil
	})).Shuffle("lines").Stream("", killick.String())
	t.Bolt("long", bolt.Filter(func(_ context.Context, w string) (bool, error) {
		return len(w) > 3, nil
	})).Shuffle("split").Stream("", killick.String())
	t.Bolt("upper", bolt.Map(func(_ context.Context, w string) (string, error) {
		return strings.ToUpper(w), nil
	})).Shuffle("long").Stream("", killick.String())
	t.Bolt("out", bolt.Kafka("words")).Shuffle("upper")

	r := testenv.RunReal(tb{}, t, testenv.Feed("lines",
		killick.Message{Key: []byte("1"), Value: Line{"a small anchor"}},
		killick.Message{Key: []byte("2"), Bytes: []byte("not JSON")}))
	for _, m := range r.Written("words") {
		fmt.Printf("%s: %s\n", m.Key, m.Bytes)
	}
	fmt.Printf("dead letter: %s\n", r.DeadLetters()[0].Bytes)
	// Output:
	// 1: SMALL
	// 1: ANCHOR
	// dead letter: not JSON
}
