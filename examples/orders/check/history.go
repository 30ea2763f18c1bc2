package check

import "time"

// History is everything that was seen of one run. Check only reads it.
type History struct {
	InputTopic, OutputTopic, DeadLetterTopic string

	Inputs      []Record // as they lie in the input topic, any order
	Outputs     []Record // all of OutputTopic, from its start to its end after the run
	DeadLetters []Record // all of DeadLetterTopic, likewise
	Payments    []Payment
	Samples     []Sample // committed offsets over time, from before the start until after the end
	LogEnds     []End    // of each partition of InputTopic: the position that the commits must reach
	Kills       []Kill   // each time a worker process was killed, in order of time

	// MaxDuplicates bounds the roots that left an effect twice (notification, ended payment or dead letter) because a
	// kill made them run again. Zero allows none.
	MaxDuplicates int
}

// Record is one Kafka record. nil and empty keys, values and header values are different.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       []byte
	Value     []byte
	Headers   []Header
	// Time is compared between an input and its dead letter, to the millisecond. Zero: not known, not compared (as
	// on a topic whose broker sets LogAppendTime).
	Time time.Time
}

// Header is one record header.
type Header struct {
	Key   string
	Value []byte
}

// Payment is one call of the payment gateway, as the gateway wrote it into its book before it answered.
type Payment struct {
	Order   int64  `json:"order"`
	Attempt int    `json:"attempt"` // of the tuple in its process, from 1
	Outcome string `json:"outcome"` // "paid", "declined" or "error"
	At      int64  `json:"at"`      // Unix time in nanoseconds
	Process int    `json:"process"` // differs between incarnations of the worker, as a process id does
}

// End is the position after the last record of a partition.
type End struct {
	Topic     string
	Partition int32
	Offset    int64
}

// Sample is the committed offset of one input partition at one moment. Take samples one after the other, never two at
// once: the order of At must be the order of the reads.
type Sample struct {
	At        time.Time // when the answer with the committed offset had arrived
	Partition int32
	Offset    int64  // -1: nothing committed
	Metadata  string // of the commit, as the broker gave it
	// Done is what Metadata says of finished offsets above Offset, decoded by the caller. nil when there are none or they
	// were not decoded: then they are not judged.
	Done []int64
	// Ends has all partitions of OutputTopic and DeadLetterTopic, read AFTER the committed offset; 0 for one that does
	// not exist yet. Samples may share one slice.
	Ends []End
}

// Kill is one SIGKILL of the worker.
type Kill struct {
	// At lies after the process had ended and Samples had been read, and before the next process was started.
	At time.Time
	// Samples has one entry per input partition; a partition without a commit has Offset -1. They count as samples
	// like those of History.
	Samples []Sample
}
