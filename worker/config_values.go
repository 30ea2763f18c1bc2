package worker

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The values of keys: text in, field out, and back. The type of a key is the
// type of the field that its ptr returns.

// isSet says whether the field has a value; false for a default that has none.
func (k *key) isSet(c *Config) bool {
	switch p := k.ptr(c).(type) {
	case *string:
		return *p != ""
	case *[]string:
		return len(*p) > 0
	case *time.Duration:
		return *p != 0
	case *int:
		return *p != 0
	case *int32:
		return *p != 0
	case *int64:
		return *p != 0
	case *bool:
		return *p
	case *inverted:
		return bool(*p)
	case *Secret:
		return p.IsSet()
	}
	return false
}

// text is the value as a flag or variable would give it; a secret is redacted.
func (k *key) text(c *Config) string {
	switch p := k.ptr(c).(type) {
	case *string:
		return *p
	case *[]string:
		return strings.Join(*p, ",")
	case *time.Duration:
		return shortDuration(max(*p, 0))
	case *int:
		return strconv.Itoa(*p)
	case *int32:
		return shortBytes(int64(*p))
	case *int64:
		return shortBytes(*p)
	case *bool:
		return strconv.FormatBool(*p)
	case *inverted:
		return strconv.FormatBool(!bool(*p))
	case *Secret:
		return p.String()
	}
	return ""
}

// yaml is the value as the file would give it.
func (k *key) yaml(c *Config) string {
	switch p := k.ptr(c).(type) {
	case *string:
		return yamlString(*p)
	case *Secret:
		return yamlString(p.String())
	case *[]string:
		quoted := make([]string, len(*p))
		for i, s := range *p {
			quoted[i] = yamlString(s)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	}
	return k.text(c)
}

// yamlString quotes a text so that the file gives it back, "${" included.
func yamlString(s string) string {
	return strconv.Quote(escapeVars(s))
}

// defaultText is the default, as the comment of the field has it.
func (k *key) defaultText() string {
	if k.def != "" {
		return k.def
	}
	full := Config{}.withDefaults()
	return k.text(&full)
}

// set parses values (several only for a list) and stores them; it returns what
// is wrong, or "". With millis the text is the Java form of a duration. shown is
// the value as messages may show it.
func (k *key) set(c *Config, values []string, millis bool, shown string) string {
	p := k.ptr(c)
	if list, ok := p.(*[]string); ok {
		return setList(list, values)
	}
	if len(values) != 1 {
		return "wants one value, not a list"
	}
	text := values[0]
	if text == "" {
		return "is empty; leave it out for the default (" + k.defaultText() + ")"
	}
	switch p := p.(type) {
	case *string:
		return k.setString(p, text, shown)
	case *Secret:
		*p = NewSecret(text)
		return ""
	case *bool:
		b, wrong := parseBool(text, shown)
		*p = b
		return wrong
	case *inverted:
		b, wrong := parseBool(text, shown)
		*p = inverted(!b)
		return wrong
	case *time.Duration:
		return setNumber(k, p, text, shown, func(s string) (int64, string) { return parseDuration(s, millis, shown) })
	case *int:
		return setNumber(k, p, text, shown, func(s string) (int64, string) { return parseInt(s, shown) })
	case *int32:
		return setNumber(k, p, text, shown, func(s string) (int64, string) { return parseBytes(s, shown) })
	case *int64:
		return setNumber(k, p, text, shown, func(s string) (int64, string) { return parseBytes(s, shown) })
	}
	return "has no parser" // unreachable: a test sets every key
}

// setString stores a text, an enumeration's in its canonical spelling.
func (k *key) setString(p *string, text, shown string) string {
	if k.values == nil {
		*p = text
		return ""
	}
	i := slices.IndexFunc(k.values, func(v string) bool { return strings.EqualFold(v, text) })
	if i < 0 {
		return k.notOneOf(shown)
	}
	*p = k.values[i]
	return ""
}

// notOneOf is what an enumeration says of any other value.
func (k *key) notOneOf(shown string) string {
	return quote(shown) + " is not one of " + strings.Join(k.values, ", ")
}

// setList stores the elements; each may itself be a comma list.
func setList(p *[]string, values []string) string {
	var out []string
	for _, v := range values {
		for s := range strings.SplitSeq(v, ",") {
			if s = strings.TrimSpace(s); s == "" {
				return "has an empty element"
			}
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return "is an empty list"
	}
	*p = out
	return ""
}

// setNumber parses, checks the range and stores.
func setNumber[T ~int | ~int32 | ~int64](k *key, p *T, text, shown string, parse func(string) (int64, string)) string {
	n, wrong := parse(text)
	if wrong != "" {
		return wrong
	}
	if n == 0 && k.zero {
		*p = -1
		return ""
	}
	if wrong := k.outOfRange(n); wrong != "" {
		return quote(shown) + " " + wrong
	}
	*p = T(n)
	return ""
}

// outOfRange says how n misses [min, max], or "".
func (k *key) outOfRange(n int64) string {
	show := strconv.FormatInt
	switch k.ptr(&Config{}).(type) {
	case *time.Duration:
		show = func(n int64, _ int) string { return shortDuration(time.Duration(n)) }
	case *int32, *int64:
		show = func(n int64, _ int) string { return shortBytes(n) }
	}
	switch {
	case n < 0 && k.min >= 0:
		return "is negative; at least " + show(k.min, 10)
	case n < k.min:
		return "is too small; at least " + show(k.min, 10)
	case n > k.max:
		return "is too large; at most " + show(k.max, 10)
	}
	return ""
}

// parseBool takes true and false only: YAML 1.1's yes and on mean different
// things to different readers.
func parseBool(text, shown string) (bool, string) {
	switch text {
	case "true":
		return true, ""
	case "false":
		return false, ""
	}
	return false, quote(shown) + " is neither true nor false"
}

// parseInt takes a decimal number.
func parseInt(text, shown string) (int64, string) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, quote(shown) + " is not a whole number"
	}
	return n, ""
}

// parseDuration takes Go's syntax, or whole milliseconds under a Java name.
func parseDuration(text string, millis bool, shown string) (int64, string) {
	if millis {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n > math.MaxInt64/int64(time.Millisecond) || n < math.MinInt64/int64(time.Millisecond) {
			return 0, quote(shown) + " is not a whole number of milliseconds, as this Java name wants"
		}
		return n * int64(time.Millisecond), ""
	}
	d, err := time.ParseDuration(text)
	if err == nil {
		return int64(d), ""
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, quote(shown) + " has no unit; write " + shown + "s or " + shown + "ms"
	}
	return 0, quote(shown) + " is not a duration such as 500ms, 10s or 1m30s"
}

// byteUnits, largest first; a bare number is bytes.
func byteUnits() []struct {
	name string
	size int64
} {
	return []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}
}

// parseBytes takes 1048576, 1024KiB, 1MiB or 1GiB.
func parseBytes(text, shown string) (int64, string) {
	number, size := text, int64(1)
	for _, u := range byteUnits() {
		if n, ok := strings.CutSuffix(text, u.name); ok {
			number, size = strings.TrimSpace(n), u.size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > math.MaxInt64/size || n < math.MinInt64/size {
		return 0, quote(shown) + " is not a size such as 65536, 64KiB or 8MiB"
	}
	return n * size, ""
}

// shortBytes prints a size in the largest unit that divides it.
func shortBytes(n int64) string {
	for _, u := range byteUnits() {
		if n%u.size == 0 && n != 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// shortDuration is Duration.String without zero parts at its end: 1m, not 1m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
