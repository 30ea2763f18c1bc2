package killick

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Retry is the policy of one component: what happens after a failed try.
type Retry struct {
	// Attempts is the number of executions of one tuple, the first included.
	// Default: 5.
	Attempts int
	// Min and Max bound the wait before the next try: random between 0 and
	// Min * 2^(tries-1), at most Max (full jitter). Default: 100ms and 30s.
	Min, Max time.Duration
	// Tree replays the root's whole tree, as Storm does, instead of the failed tuple. Set for
	// a topology it counts for all of its components.
	Tree bool
	// After says what becomes of the root when the tries are used up, or the failure is
	// permanent. Default: DeadLetter().
	After After
}

// After is what becomes of a root that one of its tuples has given up.
type After struct{ kind afterKind }

type afterKind uint8

const (
	afterUnset afterKind = iota
	afterDeadLetter
	afterStop
	afterSkip
)

// DeadLetter writes the root record to the dead-letter topic; the root ends when that is
// durable. A spout other than Kafka has no such topic: its done is called with the error, and
// nothing else is kept of the message.
func DeadLetter() After { return After{afterDeadLetter} }

// Stop stops the worker; the root stays open, so its partition's offset stays before it.
func Stop() After { return After{afterStop} }

// Skip gives the root up: nothing is kept of it but a warning in the log and a count.
func Skip() After { return After{afterSkip} }

// String names the choice: dead-letter, stop or skip.
func (a After) String() string {
	switch a.kind {
	case afterStop:
		return "stop"
	case afterSkip:
		return "skip"
	}
	return "dead-letter"
}

// IsStop reports whether a is [Stop].
func (a After) IsStop() bool { return a.kind == afterStop }

// IsSkip reports whether a is [Skip]. What is neither that nor Stop is [DeadLetter], the
// default.
func (a After) IsSkip() bool { return a.kind == afterSkip }

// withDefaults fills what is zero from d.
func (r Retry) withDefaults(d Retry) Retry {
	if r.Attempts == 0 {
		r.Attempts = d.Attempts
	}
	if r.Min == 0 {
		r.Min = d.Min
	}
	if r.Max == 0 {
		r.Max = d.Max
	}
	if r.After.kind == afterUnset {
		r.After = d.After
	}
	r.Tree = r.Tree || d.Tree
	return r
}

var defaultRetry = Retry{Attempts: 5, Min: 100 * time.Millisecond, Max: 30 * time.Second, After: DeadLetter()}

func (r Retry) validate() error {
	var errs []error
	if r.Attempts < 0 {
		errs = append(errs, fmt.Errorf("Retry.Attempts is %d; it must be positive, or 0 for the default", r.Attempts))
	}
	if r.Min < 0 || r.Max < 0 {
		errs = append(errs, fmt.Errorf("Retry.Min is %v and Retry.Max %v; neither may be negative", r.Min, r.Max))
	} else if r.Min > 0 && r.Max > 0 && r.Min > r.Max {
		errs = append(errs, fmt.Errorf("Retry.Min is %v, above Retry.Max %v", r.Min, r.Max))
	}
	return errors.Join(errs...)
}

// checkFilled looks at a policy with its defaults filled in, which may contradict what was
// said.
func (r Retry) checkFilled() error {
	if r.Min > r.Max {
		return fmt.Errorf("Retry.Min is %v, above Retry.Max, which is %v by default; set both", r.Min, r.Max)
	}
	return nil
}

// Ceiling returns the upper bound of the wait after the given number of failed tries
// (from 1). It doubles from Min and stays at Max: it cannot overflow. What is zero counts as
// the default.
func (r Retry) Ceiling(tries int) time.Duration {
	r = r.withDefaults(defaultRetry)
	d := r.Min
	for i := 1; i < tries && d < r.Max; i++ {
		if d > r.Max/2 {
			return r.Max
		}
		d *= 2
	}
	return min(d, r.Max)
}

// Delay returns the wait after the given number of failed tries: full jitter, between 0
// and Ceiling.
func (r Retry) Delay(tries int) time.Duration {
	c := r.Ceiling(tries)
	if c <= 0 {
		return 0
	}
	return time.Duration(rand.Uint64N(uint64(c) + 1)) // unsigned, since c may be the largest there is
}

// Permanent says that err will not go away: no retry, [Retry.After] at once. A nil err
// stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// RetryAfter asks for the next try in d. It uses up a try. A nil err stays nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, max(d, 0)}
}

// FailTree replays the root record as a new attempt, when the last open edge of its tree
// has ended: Storm's fail. A nil err stays nil.
func FailTree(err error) error {
	if err == nil {
		return nil
	}
	return &failTreeError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

type retryAfterError struct {
	err error
	d   time.Duration
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

type failTreeError struct{ err error }

func (e *failTreeError) Error() string { return e.err.Error() }
func (e *failTreeError) Unwrap() error { return e.err }

// IsPermanent reports whether err, or what it wraps, was made by [Permanent].
func IsPermanent(err error) bool {
	var e *permanentError
	return errors.As(err, &e)
}

// IsFailTree reports whether err, or what it wraps, was made by [FailTree].
func IsFailTree(err error) bool {
	var e *failTreeError
	return errors.As(err, &e)
}

// RetryDelay returns the wait that a [RetryAfter] error asks for.
func RetryDelay(err error) (d time.Duration, ok bool) {
	var e *retryAfterError
	if !errors.As(err, &e) {
		return 0, false
	}
	return e.d, true
}
