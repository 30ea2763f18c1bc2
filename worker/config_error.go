package worker

import (
	"errors"
	"fmt"
	"strings"
)

// ErrConfig matches every error of Load and Validate. The worker has not
// started; a person must change the configuration (exit code 2).
var ErrConfig = errors.New("worker: invalid configuration")

// mistake is one thing wrong with the configuration. It never carries the value
// of a secret.
type mistake struct {
	place string // "flag --drain", "env KILLICK_DRAIN", "killick.yaml:3:8", "Config.Drain"
	text  string
}

// Error returns "place: text", the form that editors jump to.
func (m *mistake) Error() string { return m.place + ": " + m.text }

// mistakes collects; its zero value is ready.
type mistakes []error

// add appends a mistake at a place.
func (m *mistakes) add(place, format string, args ...any) {
	*m = append(*m, &mistake{place, fmt.Sprintf(format, args...)})
}

// err returns nil or all mistakes as one error.
func (m mistakes) err() error {
	if len(m) == 0 {
		return nil
	}
	return &configError{m}
}

// configError is all mistakes at once, as errors.Join would have them, under
// one heading. errors.Is finds ErrConfig and each mistake.
type configError struct{ all mistakes }

// Error is one line for one mistake, else a heading and a line for each.
func (e *configError) Error() string {
	if len(e.all) == 1 {
		return ErrConfig.Error() + ": " + e.all[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %d mistakes", ErrConfig, len(e.all))
	for _, m := range e.all {
		b.WriteString("\n  ")
		b.WriteString(m.Error())
	}
	return b.String()
}

// Unwrap makes errors.Is and errors.As see all of them.
func (e *configError) Unwrap() []error { return append([]error{ErrConfig}, e.all...) }

// quote shows a value in a mistake: quoted, shortened, and without the user
// part of an address, where people put passwords.
func quote(s string) string {
	if at := strings.LastIndexByte(s, '@'); at > 0 {
		s = redacted + s[at:]
	}
	const most = 80
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "..."
	}
	return fmt.Sprintf("%q", s)
}

// suggest returns the candidate nearest to name by edit distance, or "" when
// none is near enough to be a slip of the fingers.
func suggest(name string, candidates []string) string {
	best, least := "", max(2, len(name)/5)+1
	for _, c := range candidates {
		if d := editDistance(name, c, least); d < least {
			best, least = c, d
		}
	}
	return best
}

// editDistance is Levenshtein's distance of a and b, or some number >= limit
// when it is not below limit.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
