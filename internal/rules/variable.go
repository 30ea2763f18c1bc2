//go:build !mutants

package rules

// Variable is the environment variable that names the rule that is broken; "": no rule can be.
const Variable = ""
