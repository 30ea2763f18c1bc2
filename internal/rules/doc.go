// Package rules names the rules that killick's guarantees rest on, so that a test build can break
// them one at a time and prove that a test notices.
//
// In the normal build each rule is the constant true, and a condition on it costs nothing:
//
//	if rules.OutputsBeforeEnd {
//		x.out.flush()
//	}
//
// Under the build tag mutants it is a variable, which the environment variable KILLICK_MUTANT
// switches off by its name. Never ship a binary that was built with that tag. make mutants runs
// through all of them; which test stands behind which rule is in internal/tools/mutants/table.go.
//
// A new rule needs three lines: here, in its twin rules_mutants.go, and in that table; the
// mutants command refuses to run if they differ.
package rules
