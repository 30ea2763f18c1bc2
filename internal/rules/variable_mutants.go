//go:build mutants

package rules

// Variable is the environment variable that names the rule that is broken.
const Variable = "KILLICK_MUTANT"
