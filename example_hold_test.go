package killick_test

import (
	"context"
	"fmt"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv"
)

// pairs joins each order with its payment: it holds what comes first until the other is there.
type pairs struct{ waiting map[string]*killick.Held }

func (p *pairs) Prepare(context.Context, killick.Task) error {
	p.waiting = map[string]*killick.Held{}
	return nil
}

func (p *pairs) Execute(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
	key := string(in.Key())
	h := out.Hold() // from here on returning nil does not ack: the handle does
	first := p.waiting[key]
	if first == nil || first.Context().Err() != nil { // none yet, or it has timed out meanwhile
		p.waiting[key] = h
		return nil
	}
	delete(p.waiting, key)
	// The pair is anchored to both: if it fails further on, both come again.
	pair := fmt.Sprintf("%s: %s, %s", key, first.Tuple().Bytes(), h.Tuple().Bytes())
	if err := h.Emit(killick.Message{Key: in.Key(), Bytes: []byte(pair)}, first); err != nil {
		return err
	}
	first.Ack()
	h.Ack()
	return nil
}

// A bolt that holds tuples decides about them later, from any goroutine.
func ExampleEmitter_Hold() {
	t := killick.New("join")
	t.Spout("orders", spout.Kafka("orders"))
	t.Spout("payments", spout.Kafka("payments"))
	t.Bolt("pairs", func() killick.Bolt { return &pairs{} }).Fields("orders", nil).Fields("payments", nil)

	r := testenv.RunReal(tb{}, t,
		testenv.Feed("orders", killick.Message{Key: []byte("7"), Bytes: []byte("two books")}),
		testenv.Feed("payments", killick.Message{Key: []byte("7"), Bytes: []byte("two books")}))
	for _, m := range r.Emitted("pairs") {
		fmt.Printf("%s\n", m.Bytes)
	}
	fmt.Println(r.Acked("orders"), r.Acked("payments"))
	// Output:
	// 7: two books, two books
	// 1 1
}
