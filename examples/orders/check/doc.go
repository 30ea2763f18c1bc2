// Package check judges a run of the orders example from what the outside world saw of it: the records that went in, the
// records that came out, the book of the payment gateway, and the committed offsets over time.
//
// It imports the standard library only and shares no code, not even types, with what it judges: it has its own
// statement of the story's rules (expect.go), and a mistake in killick or in the topology cannot hide in it. README.md
// of the example has the same rules as a table.
//
// # What is held against a run
//
//   - every order has its notification, an approved one also its ended payment; a record that cannot succeed has one
//     dead letter with its own bytes (loss, dead-letter-missing, dead-letter-extra, dead-letter-altered)
//   - no output says what its record did not ask for (wrong-way, altered, swap, unknown)
//   - payment calls of an order are the tries that the rules give, from the first on, in each process (tries)
//   - a commit passes a record only when the record's effects are there (early-commit), a commit never falls (regress),
//     never passes the end of the log (past-end) and arrives there (not-at-end)
//   - what was committed, or named as finished in the commit's metadata, when a process was killed never runs again
//     (rerun); what runs twice without a kill is wrong (duplicate), and so are more of them than the given bound
//
// # How early commits are seen without trusting clocks of brokers
//
// The observer reads the committed offset first and the ends of the output topics after it (Sample). An output that a
// commit covers must lie below those ends, whatever the record timestamps say. Payments carry the wall clock of the
// machine that the observer runs on too. So a violation is always real; an effect that came in the moment between
// the two reads passes unseen in that sample.
//
// # Failure handling
//
// Check returns an error when the history cannot be judged (no inputs, an order twice, a partition without samples):
// that is a mistake of the caller, and no verdict. A run that broke a rule is a Report with violations, no error.
// Nothing here starts a goroutine or keeps state; a history of 6,000 records takes some milliseconds.
package check
