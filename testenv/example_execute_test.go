package testenv_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/testenv"
)

// limiter passes the first n tuples of each key on, and the others to stream "over".
type limiter struct {
	n    int
	seen map[string]int
}

func (l *limiter) Execute(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
	if len(in.Key()) == 0 {
		return killick.Permanent(fmt.Errorf("%q has no key", in.Bytes()))
	}
	k := string(in.Key())
	if l.seen[k]++; l.seen[k] > l.n {
		out.EmitTo("over", in.Message())
	} else {
		out.Emit(in.Message())
	}
	return nil
}

// A test of one bolt: call it as often as the story needs, it keeps its state.
func ExampleExecute() {
	ctx := context.Background()
	l := &limiter{n: 2, seen: map[string]int{}}
	for i := range 3 {
		r, err := testenv.Execute(ctx, l, killick.Message{Key: []byte("k"), Bytes: fmt.Append(nil, i)})
		fmt.Println(len(r.Emitted("")), len(r.Emitted("over")), err)
	}
	r, err := testenv.Execute(ctx, l, killick.Message{Bytes: []byte("stray")})
	ended, _ := r.Verdict()
	fmt.Println(ended, killick.IsPermanent(err), err)
	// Output:
	// 1 0 <nil>
	// 1 0 <nil>
	// 0 1 <nil>
	// true true "stray" has no key
}

// A test of a key function, as Fields takes it.
func ExampleTuple() {
	byCountry := func(in *killick.Tuple) []byte {
		country, _, _ := strings.Cut(in.Value().(string), "-")
		return []byte(country)
	}
	fmt.Printf("%s\n", byCountry(testenv.Tuple(killick.Message{Value: "NL-1011"})))
	// Output: NL
}
