package killick

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"
)

func TestCeiling(t *testing.T) {
	policies := []Retry{
		{},
		{Min: time.Second, Max: time.Minute},
		{Min: time.Second, Max: time.Second},
		{Min: 1, Max: math.MaxInt64},
		{Min: math.MaxInt64 - 1, Max: math.MaxInt64},
		{Min: math.MaxInt64, Max: math.MaxInt64},
		{Min: 3, Max: math.MaxInt64/2 + 1},
	}
	for _, r := range policies {
		full := r.withDefaults(defaultRetry)
		last := time.Duration(0)
		for _, n := range append(upTo(200), math.MaxInt) {
			c := r.Ceiling(n)
			if c < last || c <= 0 || c > full.Max {
				t.Fatalf("%+v: Ceiling(%d) = %v after %v", r, n, c, last)
			}
			// A naive twin, in floating point.
			if want := math.Min(float64(full.Min)*math.Pow(2, float64(n-1)), float64(full.Max)); math.Abs(float64(c)-want) > want/1e9 {
				t.Fatalf("%+v: Ceiling(%d) = %v, want %v", r, n, c, time.Duration(want))
			}
			last = c
			for range 20 {
				if d := r.Delay(n); d < 0 || d > c {
					t.Fatalf("%+v: Delay(%d) = %v, ceiling %v", r, n, d, c)
				}
			}
		}
		if last != full.Max {
			t.Errorf("%+v: ends at %v", r, last)
		}
	}
	// Nonsense must not hang or panic.
	for _, n := range []int{0, -1, math.MinInt} {
		if c := (Retry{}).Ceiling(n); c != 100*time.Millisecond {
			t.Errorf("Ceiling(%d) = %v", n, c)
		}
	}
	if d := (Retry{Min: -5, Max: -5}).Delay(3); d != 0 {
		t.Errorf("negative limits: %v", d)
	}
}

func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i + 1
	}
	return out
}

// Full jitter: delays spread over all of [0, ceiling], so that what failed together is not
// tried again together.
func TestDelaySpreads(t *testing.T) {
	r := Retry{Min: time.Second, Max: time.Minute}
	var quarters [4]int
	const n = 4000
	for range n {
		quarters[min(int(r.Delay(3)/time.Second), 3)]++
	}
	for i, got := range quarters {
		if got < n/5 || got > n*3/10 {
			t.Errorf("quarter %d of [0, 4s] has %d of %d delays", i, got, n)
		}
	}
}

func TestRetryWithDefaults(t *testing.T) {
	base := Retry{Attempts: 9, Min: 2, Max: 3, After: Stop()}
	for _, c := range []struct{ in, want Retry }{
		{Retry{}, base},
		{Retry{Attempts: 1}, Retry{Attempts: 1, Min: 2, Max: 3, After: Stop()}},
		{Retry{Min: 1}, Retry{Attempts: 9, Min: 1, Max: 3, After: Stop()}},
		{Retry{Max: 8}, Retry{Attempts: 9, Min: 2, Max: 8, After: Stop()}},
		{Retry{Tree: true}, Retry{Attempts: 9, Min: 2, Max: 3, Tree: true, After: Stop()}},
		{Retry{After: DeadLetter()}, Retry{Attempts: 9, Min: 2, Max: 3, After: DeadLetter()}},
	} {
		if got := c.in.withDefaults(base); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.in, got, c.want)
		}
	}
	if got := (Retry{}).withDefaults(Retry{Tree: true}); !got.Tree {
		t.Error("a topology's Tree counts for all components")
	}
}

func TestAfter(t *testing.T) {
	for _, c := range []struct {
		a          After
		name       string
		stop, skip bool
	}{
		{After{}, "dead-letter", false, false},
		{DeadLetter(), "dead-letter", false, false},
		{Stop(), "stop", true, false},
		{Skip(), "skip", false, true},
	} {
		if c.a.String() != c.name || c.a.IsStop() != c.stop || c.a.IsSkip() != c.skip {
			t.Errorf("%v: stop %v, skip %v", c.a, c.a.IsStop(), c.a.IsSkip())
		}
	}
}

func TestErrorKinds(t *testing.T) {
	plain := errors.New("plain")
	wraps := map[string]func(error) error{
		"as it is": func(err error) error { return err },
		"wrapped":  func(err error) error { return fmt.Errorf("ctx: %w", fmt.Errorf("more: %w", err)) },
		"joined":   func(err error) error { return errors.Join(errors.New("other"), err) },
	}
	for how, wrap := range wraps {
		for _, c := range []struct {
			name        string
			err         error
			perm, tree  bool
			after       time.Duration
			hasRetry    bool
			wantMessage string
		}{
			{"plain", plain, false, false, 0, false, "plain"},
			{"permanent", Permanent(plain), true, false, 0, false, "plain"},
			{"fail tree", FailTree(plain), false, true, 0, false, "plain"},
			{"retry after", RetryAfter(time.Minute, plain), false, false, time.Minute, true, "plain"},
			{"retry in the past", RetryAfter(-time.Minute, plain), false, false, 0, true, "plain"},
			{"tree, and when", FailTree(RetryAfter(time.Hour, plain)), false, true, time.Hour, true, "plain"},
		} {
			err := wrap(c.err)
			d, ok := RetryDelay(err)
			if IsPermanent(err) != c.perm || IsFailTree(err) != c.tree || d != c.after || ok != c.hasRetry {
				t.Errorf("%s, %s: permanent %v, tree %v, delay %v %v", c.name, how, IsPermanent(err), IsFailTree(err), d, ok)
			}
			if !errors.Is(err, plain) || c.err.Error() != c.wantMessage {
				t.Errorf("%s, %s: %q has lost its cause", c.name, how, err)
			}
		}
	}
	for name, err := range map[string]error{"Permanent": Permanent(nil), "RetryAfter": RetryAfter(time.Second, nil), "FailTree": FailTree(nil)} {
		if err != nil {
			t.Errorf("%s(nil) = %v: an error where there is none", name, err)
		}
	}
	if _, ok := RetryDelay(nil); ok || IsPermanent(nil) || IsFailTree(nil) {
		t.Error("nil is of no kind")
	}
	if IsPermanent(context.Canceled) {
		t.Error("a cancelled context is not permanent")
	}
}
