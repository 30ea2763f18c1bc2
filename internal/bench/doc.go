// Command bench measures what killick costs beside the bare franz-go loop: processor time per
// record of one process that drains a topic, in at-least-once mode.
//
//	go run ./internal/bench                     all arms, 100 B and 1 KiB
//	go run ./internal/bench -arms fused -sizes 100 -rounds 5
//	go run ./internal/bench -json > result.json
//
// # What runs
//
// Each slice is a process of its own with GOMAXPROCS=1 that reads a bounded number of records as
// the only member of a new group, and commits each second. The arms are
//
//	bare    PollFetches, touch each record, CommitUncommittedOffsets each second
//	fused   worker.Run: spout -> one bolt
//	fused3  worker.Run: spout -> three bolts in line, the first two emit what they got
//	hop     worker.Run: spout -> one bolt with two tasks: one hand-over between goroutines
//	null    bare again: its interval is the noise floor
//	pooled  bare with pooled record slabs (kgo.WithPools and Record.Recycle)
//
// All arms have the same fetch sizes, isolation, collector settings and commit interval, and the
// same function touches the record.
//
// # What is measured
//
// User and system time of the process (getrusage), from the first record to the end of the run,
// the last commit included; connecting and joining the group are not. The broker is another
// process and does not count. It serves copies of one batch from any offset (kfake's
// SyntheticFetch), so nothing is stored and slices can be as long as they need to be.
//
// # What makes a number valid
//
// Every slice checks the count of records, the sum of their values and the committed offset of
// each partition. The first round, which is thrown away, also marks every single offset in a bitmap: each must
// come exactly once. One miss ends the program with an error.
//
// Arms are compared in pairs that ran next to each other, in the order AB BA BA AB, so that a
// change of the machine's speed hits both. Ratios are above 1 where the arm is cheaper
// than the bare loop. Absolute times of a shared machine are noise; read ratios and minima.
//
// The collector decides much of what decoding costs, so both arms get the same GOGC and
// the same ballast (live heap without pointers), and the number of collections is printed: where
// it differs much between two arms, their ratio says little.
package main
