package main

import (
	"slices"
	"testing"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/testenv"
)

// TestHello runs the topology without a broker.
func TestHello(t *testing.T) {
	r := testenv.Run(t, topology(), testenv.Feed("names",
		killick.Message{Bytes: []byte("Ada")},
		killick.Message{Key: []byte("k"), Bytes: []byte(" Grace\n")},
		killick.Message{Bytes: []byte("  ")},
	))
	var got []string
	for _, m := range r.Written("greetings") {
		got = append(got, string(m.Key)+"|"+string(m.Bytes))
	}
	slices.Sort(got)
	if want := []string{"k|hello Grace", "|hello Ada"}; !slices.Equal(got, want) {
		t.Errorf("greetings %q, want %q", got, want)
	}
	dead := r.DeadLetters()
	if len(dead) != 1 || dead[0].Component != "greet" {
		t.Errorf("dead letters %v, want the name that is none", dead)
	}
}
