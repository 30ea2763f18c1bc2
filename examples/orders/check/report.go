package check

import (
	"bytes"
	"fmt"
	"io"
	"time"
)

// Kind names the rule that was broken.
type Kind string

// The kinds of violations; doc.go says what each protects.
const (
	Loss              Kind = "loss"                // an order without its notification, or without its payment
	WrongWay          Kind = "wrong-way"           // an outcome that the rules give to no such order
	Unknown           Kind = "unknown"             // something that belongs to no input
	Altered           Kind = "altered"             // a notification with other content than its order's
	Swap              Kind = "swap"                // a notification with another order's content or key
	Duplicate         Kind = "duplicate"           // twice without a kill that explains it, or more than the bound
	Rerun             Kind = "rerun"               // ran again though committed, or named as finished, at the kill
	Tries             Kind = "tries"               // payment calls that are not the rule's
	Process           Kind = "process"             // more worker processes than kills explain
	EarlyCommit       Kind = "early-commit"        // the commit passed a record before its effects were there
	Regress           Kind = "regress"             // the committed offset fell
	PastEnd           Kind = "past-end"            // committed beyond the end of the log
	NotAtEnd          Kind = "not-at-end"          // the commit did not arrive at the end of the log
	Metadata          Kind = "metadata"            // more commit metadata than brokers take
	DeadLetterMissing Kind = "dead-letter-missing" // a record that cannot succeed has none
	DeadLetterExtra   Kind = "dead-letter-extra"   // one for a record that succeeds, or more than kills explain
	DeadLetterAltered Kind = "dead-letter-altered" // other bytes, headers or origin than the record's
)

// Violation is one broken rule at one record.
type Violation struct {
	Kind      Kind   `json:"kind"`
	Partition int32  `json:"partition"` // of the input record; -1: the run as a whole, or no input
	Offset    int64  `json:"offset"`    // likewise
	Order     int64  `json:"order,omitempty"`
	Detail    string `json:"detail"`
}

func (v Violation) String() string {
	switch {
	case v.Offset < 0:
		return fmt.Sprintf("%s: %s", v.Kind, v.Detail)
	case v.Order == 0:
		return fmt.Sprintf("%s: record %d@%d: %s", v.Kind, v.Partition, v.Offset, v.Detail)
	}
	return fmt.Sprintf("%s: record %d@%d, order %d: %s", v.Kind, v.Partition, v.Offset, v.Order, v.Detail)
}

// Report is the verdict on one run.
type Report struct {
	OK      bool `json:"ok"`
	Records int  `json:"records"`
	Ways    Ways `json:"ways"`

	// Trees are the runs of roots that left a trace: one per record, and one more for each that ran again (Reruns).
	Trees  int `json:"trees"`
	Reruns int `json:"reruns"`

	Tries   int `json:"tries"`   // payment calls
	Retries int `json:"retries"` // payment calls after the first of a run

	Notifications int        `json:"notifications"` // as found in the topic, duplicates among them
	DeadLetters   int        `json:"dead_letters"`  // likewise
	Duplicates    Duplicates `json:"duplicates"`

	Samples    int               `json:"samples"`
	Partitions []PartitionReport `json:"partitions"`
	Kills      []KillReport      `json:"kills,omitempty"`

	Violations []Violation `json:"violations,omitempty"`
}

// Ways counts the input records by the way that the rules send them.
type Ways struct {
	Paid          int `json:"paid"`
	Rejected      int `json:"rejected"`
	PaymentFailed int `json:"payment_failed"`
	Poison        int `json:"poison"`       // undecodable: dead letter at once
	GatewayDown   int `json:"gateway_down"` // all payment calls fail: dead letter after the tries
}

// Duplicates counts effects beyond the first of each root.
type Duplicates struct {
	Notifications int `json:"notifications"`
	Payments      int `json:"payments"` // ended ones: paid or declined
	DeadLetters   int `json:"dead_letters"`
	Roots         int `json:"roots"` // that left at least one of these
	Bound         int `json:"bound"` // of Roots
}

// PartitionReport is one input partition at the end of the run.
type PartitionReport struct {
	Partition int32 `json:"partition"`
	Records   int   `json:"records"`
	Committed int64 `json:"committed"` // -1: none
	LogEnd    int64 `json:"log_end"`
}

// KillReport is what one killed process left behind.
type KillReport struct {
	At         time.Time       `json:"at"`
	Partitions []KillPartition `json:"partitions"`
	Saved      int             `json:"saved"` // sums over the partitions
	Open       int             `json:"open"`
}

// KillPartition is one input partition at a kill.
type KillPartition struct {
	Partition int32 `json:"partition"`
	Committed int64 `json:"committed"` // -1: none
	LogEnd    int64 `json:"log_end"`
	Saved     int   `json:"saved"` // finished above Committed and named in the completion map: not run again
	Open      int   `json:"open"`  // neither committed nor named: run after the restart
}

const (
	stamp = "15:04:05.000"
	// shown bounds what WriteText prints of the violations; JSON has them all.
	shown = 20
)

// WriteText writes the report for people. The error is w's.
func (r *Report) WriteText(w io.Writer) error {
	var b bytes.Buffer
	row := func(name string, n int, format string, args ...any) {
		fmt.Fprintf(&b, "  %-16s %7d", name, n)
		if format != "" {
			fmt.Fprintf(&b, "   "+format, args...)
		}
		b.WriteByte('\n')
	}
	if r.OK {
		b.WriteString("orders: everything adds up\n")
	} else {
		fmt.Fprintf(&b, "orders: DOES NOT ADD UP, %d violations\n", len(r.Violations))
	}
	row("records", r.Records, "%d paid, %d rejected, %d payment failed, %d undecodable, %d undeliverable",
		r.Ways.Paid, r.Ways.Rejected, r.Ways.PaymentFailed, r.Ways.Poison, r.Ways.GatewayDown)
	row("trees", r.Trees, "%d of them ran again after a kill", r.Trees-r.Records)
	row("payment calls", r.Tries, "%d of them retries", r.Retries)
	row("notifications", r.Notifications, "")
	row("dead letters", r.DeadLetters, "")
	row("duplicates", r.Duplicates.Roots, "records (bound %d): %d notifications, %d payments, %d dead letters",
		r.Duplicates.Bound, r.Duplicates.Notifications, r.Duplicates.Payments, r.Duplicates.DeadLetters)
	row("commits seen", r.Samples, "samples of committed offsets")
	for _, k := range r.Kills {
		fmt.Fprintf(&b, "\nkilled at %s UTC: the completion map saved %d finished records from running again, %d were still to run\n",
			k.At.UTC().Format(stamp), k.Saved, k.Open)
		fmt.Fprintf(&b, "  %9s %10s %10s %10s %10s\n", "partition", "committed", "of", "saved", "to run")
		for _, p := range k.Partitions {
			fmt.Fprintf(&b, "  %9d %10s %10d %10d %10d\n", p.Partition, offset(p.Committed), p.LogEnd, p.Saved, p.Open)
		}
	}
	b.WriteString("\nat the end\n")
	fmt.Fprintf(&b, "  %9s %10s %10s\n", "partition", "committed", "of")
	for _, p := range r.Partitions {
		fmt.Fprintf(&b, "  %9d %10s %10d\n", p.Partition, offset(p.Committed), p.LogEnd)
	}
	if len(r.Violations) > 0 {
		b.WriteString("\nviolations\n")
	}
	for i, v := range r.Violations {
		if i == shown {
			fmt.Fprintf(&b, "  ... and %d more\n", len(r.Violations)-shown)
			break
		}
		fmt.Fprintf(&b, "  %s\n", v)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func offset(o int64) string {
	if o < 0 {
		return "none"
	}
	return fmt.Sprint(o)
}
