package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/killick-io/killick/internal/bench/alo"
)

func TestFlagsNameEveryMistake(t *testing.T) {
	_, err := parse([]string{"-arms", "fused,slow,fused", "-rounds", "1", "-seconds", "0", "-profile", "x", "rest"}, io.Discard)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`"slow"`, `"fused" is there twice`, "-rounds: 1", "-seconds: 0", "-profile: one size", `"rest"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing in:\n%v", want, err)
		}
	}
	o, err := parse(nil, io.Discard)
	if err != nil || len(o.Pairings) != len(arms) {
		t.Errorf("defaults: %v, %+v", err, o.Pairings)
	}
	for _, q := range o.Pairings {
		if !alo.Known(q.Own) || !alo.Known(q.Base) {
			t.Errorf("pairing %+v has an arm that is unknown", q)
		}
	}
}

func TestEndIsWholeBatches(t *testing.T) {
	for _, c := range []struct {
		size, batch int
		seconds     float64
		want        int64
	}{{100, 500, 2, 1_250_000}, {100, 500, 1e-9, 500}, {1024, 7, 1, 188_818}} {
		if got := end(c.size, c.batch, c.seconds); got != c.want {
			t.Errorf("%d B, %d in a batch, %v s: %d records, not %d", c.size, c.batch, c.seconds, got, c.want)
		}
	}
}

// TestBrokerMain: the broker process lives as long as its standard input.
func TestBrokerMain(t *testing.T) {
	in, lifeline := io.Pipe()
	defer in.Close()
	var out bytes.Buffer
	done := make(chan error)
	go func() { done <- brokerMain(5, 100, in, &out) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := lifeline.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil || !strings.HasPrefix(out.String(), "127.0.0.1:") {
			t.Errorf("%v, it said %q", err, &out)
		}
	case <-ctx.Done():
		t.Fatal("the broker lives on")
	}
}
