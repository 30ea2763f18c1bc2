package worker

import "log/slog"

// redacted stands for a secret wherever one is printed.
const redacted = "***"

// Secret is a text that does not print: every verb of fmt, JSON, YAML, zerolog
// and slog show *** (or nothing when it is not set). The text sits behind a
// pointer rather than in a string type, because fmt does not call the methods
// of a value that it reaches through an unexported field and would print a
// string's content; a pointer prints as an address there.
//
// The zero Secret is unset. Secrets are compared with Equal, not ==.
type Secret struct{ text *string }

// NewSecret wraps a text; an empty one gives the unset Secret.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{&text}
}

// Reveal returns the text, "" when unset. What calls it owns what happens next.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsSet says whether there is a text.
func (s Secret) IsSet() bool { return s.text != nil }

// Equal says whether both hold the same text.
func (s Secret) Equal(o Secret) bool { return s.Reveal() == o.Reveal() }

// String returns *** or, when unset, "".
func (s Secret) String() string {
	if s.text == nil {
		return ""
	}
	return redacted
}

// GoString returns what %#v prints.
func (s Secret) GoString() string { return `worker.Secret("` + s.String() + `")` }

// MarshalText serves encoding/json, YAML and zerolog's Interface.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue serves log/slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
