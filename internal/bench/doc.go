// Command bench measures what killick costs beside the bare franz-go loop, on an embedded broker that
// needs nothing but Go: see package alo for the arms, what is measured and what makes a number valid.
// killick bench alo does the same on Apache Kafka.
//
//	go run ./internal/bench                     all arms, 100 B and 1 KiB
//	go run ./internal/bench -arms fused -sizes 100 -rounds 5
//	go run ./internal/bench -json > result.json
//
// The broker serves copies of one batch from any offset (kfake's SyntheticFetch), so nothing is
// stored and slices can be as long as they need to be. Nothing is produced: this broker would be
// measured more than its clients.
package main
