// Package alo measures what killick's at-least-once path costs beside the bare franz-go loop:
// processor time per record of one process that drains a topic. The commands killick bench alo (on
// Apache Kafka) and go run ./internal/bench (on an embedded broker) share it.
//
// # What runs
//
// Each [Slice] is a process of its own with GOMAXPROCS=1 that reads a bounded number of records as
// the only member of a new group, and commits at an interval. The arms are
//
//	bare         PollFetches, touch each record, CommitUncommittedOffsets at the interval
//	pooled       bare with pooled record slabs (kgo.WithPools and Record.Recycle), as killick has them
//	bare-sink    pooled, and each record is produced again; before a commit all are flushed
//	fused        worker.Run: spout -> one bolt
//	fused3       worker.Run: spout -> three bolts in line, the first two emit what they got
//	hop          worker.Run: spout -> one bolt with two tasks: one hand-over between goroutines
//	sink         worker.Run: spout -> one bolt -> a Kafka sink
//
// All arms have the same client options: fetch sizes and wait, isolation, control records, session
// and heartbeat, producer settings. They have the same collector settings and the same commit
// interval, and the same function touches the record.
//
// # What is measured
//
// User and system time of the process (getrusage), from the first record to the end of the run,
// the last commit included; connecting and joining the group are not. The broker is another
// process and does not count.
//
// # What makes a number valid
//
// Every slice checks the count of records, the sum of their values and the committed offset of
// each partition; with a sink also how many records it wrote. The first round, which is thrown
// away, also marks every single offset in a bitmap: each must come exactly once. One miss ends
// the run with an error.
//
// Arms are compared in pairs that ran next to each other, in the order AB BA BA AB, so that a
// change of the machine's speed hits both. Ratios are above 1 where the own arm is cheaper than
// the base. Absolute times of a shared machine are noise; read ratios and minima. A pair of an arm
// with itself is the noise floor: nothing smaller than its interval means anything.
//
// The collector decides much of what decoding costs, so both arms of a pair get the same GOGC and
// the same ballast (live heap without pointers), and the number of collections is printed: where
// it differs much between two arms, their ratio says little.
package alo
