package worker

import "strings"

// Variables in values of the file, in the syntax that Benthos made known:
//
//	${NAME}            the variable; a mistake when it is not set
//	${NAME:default}    the default when it is not set or empty
//	${{...}}, $${...}  the text "${...}"
//
// They are put in after the file was parsed, so a variable's value cannot
// change the structure of the file, whatever characters it has.

// expandVars puts variables in; wrong names the variable, never its value.
func expandVars(s string, lookup func(string) (string, bool)) (out, wrong string) {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "${")
		if !ok {
			b.WriteString(s)
			return b.String(), ""
		}
		if before, ok := strings.CutSuffix(before, "$"); ok {
			b.WriteString(before + "${")
			s = rest
			continue
		}
		b.WriteString(before)
		if literal, ok := strings.CutPrefix(rest, "{"); ok {
			text, after, ok := strings.Cut(literal, "}}")
			if !ok {
				return "", "${{ without }}"
			}
			b.WriteString("${" + text + "}")
			s = after
			continue
		}
		inside, after, ok := strings.Cut(rest, "}")
		if !ok {
			return "", "${ without }; write $${ for the text itself"
		}
		name, def, hasDef := strings.Cut(inside, ":")
		if !isVarName(name) {
			return "", quote("${"+inside+"}") + " names no variable; write ${NAME} or ${NAME:default}"
		}
		value, set := lookup(name)
		switch {
		case hasDef && value == "":
			value = def
		case !hasDef && !set:
			return "", "variable " + name + " is not set; write ${" + name + ":default} for a default"
		}
		b.WriteString(value)
		s = after
	}
}

// isVarName says whether s is a name that a shell accepts.
func isVarName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// escapeVars writes s so that expandVars gives it back.
func escapeVars(s string) string { return strings.ReplaceAll(s, "${", "$${") }
