package verify

import (
	"io"
	"iter"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// History is what the outside world saw of a run. Read, Watcher.Stop and EventDir collect it; tests may write it down.
type History struct {
	// Group is whose commits are judged; commits of other groups in event files are ignored. Empty: all are of one group.
	Group string

	// Inputs are the logs that the topology reads, one per partition; Outputs and DeadLetters what it wrote.
	Inputs, Outputs, DeadLetters []Log

	// Stored is what the group stored, in the order of its log. Nil: not known.
	Stored iter.Seq2[Stored, error]

	// Samples are what an observer saw of the group's positions, in the order of time. Nil: nobody looked.
	Samples []Sample

	// Events are the event files of the processes.
	Events []EventFile

	// Notes say what could not be collected, and why. They go into Report.Unchecked.
	Notes []string
}

// Log is one partition of a topic.
type Log struct {
	Topic     string
	Partition int32

	// Start is the first offset that is still there, Stable the last stable offset (a read_committed reader stops there),
	// End the next offset to be written: all at one moment after the run.
	Start, Stable, End int64

	// Entries are all records in [Start, End), with those of aborted transactions and control records, by ascending
	// offset. It is iterated once.
	Entries iter.Seq2[Entry, error]
}

// State is what became of a record.
type State uint8

const (
	Visible State = iota // a read_committed reader sees it
	Aborted              // of an aborted transaction
	Open                 // at or above the last stable offset: not decided, or behind what is not decided
	Marker               // a control record: no record to any reader
)

func (s State) String() string {
	switch s {
	case Visible:
		return "visible"
	case Aborted:
		return "aborted"
	case Open:
		return "open"
	}
	return "marker"
}

// Entry is a record of a log.
type Entry struct {
	// Record is valid until the next one: the bytes may be kept, the struct not.
	*kgo.Record
	State State
}

// Entries are es as a Log has them: for histories that are written down.
func Entries(es ...Entry) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for _, e := range es {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Records are visible records as a Log has them: for histories that are written down.
func Records(rs ...*kgo.Record) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for _, r := range rs {
			if !yield(Entry{Record: r}, nil) {
				return
			}
		}
	}
}

// Stored is one of two: a position that the broker stored for the group, or a generation of it.
type Stored struct {
	// At is the moment. For a commit, the latest at which it can have been stored (Kafka notes milliseconds, so these are
	// rounded up); for a generation, the earliest.
	At time.Time

	// Ref says where it was read, for people.
	Ref string

	Commit     *Commit
	Generation *Generation
}

// Commit is a position that was stored.
type Commit struct {
	Topic     string
	Partition int32
	Next      int64 // the offset to be read next; -1: the position was deleted
	Metadata  string
}

// Generation is who owned what in one generation of the group.
type Generation struct {
	Number  int32
	Members map[string][]Partition // by member id
}

// Partition names a partition.
type Partition struct {
	Topic     string
	Partition int32
}

// Sample is one look at the group.
type Sample struct {
	// Asked and Answered enclose the moment at which the positions were read.
	Asked, Answered time.Time

	// Positions are all that the group had.
	Positions []Commit

	// Ends are the ends of input and output partitions, read after Answered. What a position covers must lie below.
	Ends []End
}

// End is the next offset to be written to a partition.
type End struct {
	Topic     string
	Partition int32
	End       int64
}

// EventFile is the file of one life of a process.
type EventFile struct {
	Name string // for people
	Open func() (io.ReadCloser, error)
}
