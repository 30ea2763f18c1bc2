// Package verify judges a run of a Kafka consumer from outside: by the records in the topics that it read and wrote, by the
// positions that its group committed, and by event files in which its processes noted their side effects. It shares no
// code with killick (its own decoder of completion maps included), so a mistake there cannot hide here, and it is not
// bound to killick: any program whose effects can be seen can be judged.
//
//	w, err := verify.Watch(client, target, verify.WatchConfig{}) // sample the group while the run goes on
//	...                                                         // kill, freeze, rebalance
//	h, err := w.Stop(ctx)                                       // read what is in Kafka
//	h.Events, err = verify.EventDir(dir)                        // and what the processes noted
//	report, err := verify.Check(verify.Rules{...}, h)
//	report.Fatal(t)
//
// # What is judged
//
// I1 to I10 are the invariants of a robust run; kinds of findings are in quotes.
//
//	I1   no record without its outcome that a position has passed, or that is left at the end: "loss", "dead-letter-missing"
//	I2   no position, and no map beside one, passes a record before all that it wants was there: "early-commit"
//	I3   a position never goes back but to a declared Reset, is never beyond the log, its metadata is whole: "regress",
//	     "past-end", "metadata". A commit whose answer was lost and that lands late is no finding if a later one repairs it
//	I4   what happens twice is within Rules.Duplicates, per crash and besides: "duplicate"; what was committed, or in the
//	     map, when a life started does not run in it again: "rerun"
//	I5   visible outputs are exactly those that are wanted: "torn", "ahead", "aborted-read", "hidden-commit", "duplicate"; in
//	     order per key or partition, as effects are: "order"
//	I6   no commit is accepted from an older generation or from who does not own the partition; with Rules.Exclusive no
//	     effects of an old owner after its successor has begun: "non-owner"
//	I8   positions arrive at the end of the log, over markers and holes ("not-at-end", "open-transaction"), do not stand
//	     still and catch up after a fault has healed ("stalled")
//	     at most once: no effect before its position is confirmed: "too-soon"
//	     nothing that was no input, or of another record: "foreign", "swap", "altered", "dead-letter-altered", "unexpected"
//
// Not here, since it does not show outside: that each try ends once (I7; a record that has both a dead letter and an effect
// is "unexpected"), growth of goroutines, files and memory (I9), and that each fault is logged (I10).
//
// # What an outcome is
//
// Rules.Want says for each input record what it must leave behind: an effect (a line in an event file), records in output
// topics, a dead letter, or nothing. Outputs are assigned to inputs by Rules.Made, or by their content alone if it is
// different for each. Contents are compared by 64-bit sums with a seed of their own for each Check.
//
// # How before and after are told
//
// A finding must be real, whatever the timing was, so each rule uses the latest moment at which something can have been,
// and says nothing within the resolution of what it knows:
//
//   - Lines of one event file are in the order of what happened. A commit line is written before its request leaves, so
//     all effects that it covers are above it, or in another file with an earlier time.
//   - Times of event files are compared with each other: all processes, and the watcher, run on one machine, whose clock
//     does not jump. The broker may be elsewhere; Rules.Skew is by how much its clock may be off.
//   - What the group stored has the broker's milliseconds, rounded up.
//   - A sample reads the positions first and the ends of the output topics afterwards. An output that a position covers lies
//     below these ends, whatever its timestamp. What was written in the moment between passes unseen.
//   - If outputs carry the time of their writing (Rules.Timed), they are held against every stored commit.
//
// # What a broken history is
//
// An error of Check means that there is no verdict: a log that does not ascend, an event file with a missing or damaged line
// (only its last one may be torn), records that want what no log is given for. Report.Unchecked says what could not be judged
// because nothing was known of it. A test that means to check everything looks at it, too.
//
// # Cost
//
// Logs and event files are read as streams (of each event file the first line twice); what is kept are numbers per record.
// Per input record 8 bytes: 8 more with Rules.ID, 4 more if ordered by key, 9 more where dead letters may be, 4 more if samples
// are held against outputs or dead letters, 8 more with Rules.Timed. Per wanted output 13 bytes, and 16 more without
// Rules.Made. A hole in a log takes 16 bytes. Slices grow as they fill, so up to a third more may be in use. 10 million records
// with an effect each take about 80 MB; TestMemory measures all this. Beside it: one fetch answer (8 MiB and its decoded
// records), 64 KiB per event file of a life that is going on, about 50 bytes per partition and sample, and what generations and
// open commits there are. Findings are counted; the first Rules.Listed of a kind are kept.
//
// A million records with their event lines (130 MB) take about a second of processor time.
//
// Check starts no goroutine. A Watcher has one, which Stop or Close ends. Reading from a broker tries again until its context ends.
package verify
