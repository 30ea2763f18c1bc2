package killick

import "time"

// Spec is a validated topology: what the engine, the coordinator and tools read. It is
// read-only.
type Spec struct {
	Name      string
	Guarantee Guarantee
	Spouts    []SpoutSpec
	Bolts     []BoltSpec // in topological order: inputs come from spouts and earlier bolts
}

// SpoutSpec is one spout, with its defaults filled in.
type SpoutSpec struct {
	Name         string
	Source       Source
	Info         SourceInfo
	Tasks        int // of a spout other than Kafka
	Pending      int // roots per partition or task
	PendingBytes int64
	Order        Order
	OnEnd        func(o Origin, err error) // nil: nobody asks
	Streams      []StreamSpec              // the default stream
}

// Kafka reports whether the spout reads topics of Kafka.
func (s *SpoutSpec) Kafka() bool { return s.Info.New == nil }

// BoltSpec is one bolt, with its defaults filled in.
type BoltSpec struct {
	Name     string
	Factory  BoltFactory
	Info     BoltInfo
	Tasks    int
	InFlight int // executions per task at a time, from 1
	Tick     time.Duration
	Timeout  time.Duration
	Retry    Retry
	Placed   bool
	Inputs   []InputSpec
	Streams  []StreamSpec // the default stream first
}

// InputSpec is one input of a bolt.
type InputSpec struct {
	From     string // component
	Stream   string
	Grouping Grouping
	Key      func(*Tuple) []byte // Fields and PartialKey; nil: the tuple's key
	Pick     func(dst []int, t *Tuple, tasks int) []int
}

// StreamSpec is one output.
type StreamSpec struct {
	Name  string
	Codec Codec
}
