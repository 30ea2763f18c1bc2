// Package spout has the sources of a topology: topics of Kafka, slices and sequences, and
// whatever implements [killick.Spout].
package spout
