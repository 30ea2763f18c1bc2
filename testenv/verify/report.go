package verify

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Kind names the rule that was broken. The comments name the invariant that it belongs to; doc.go has them all.
type Kind string

const (
	Loss        Kind = "loss"         // I1: a record without what it wants, though the position has passed it or the run has ended
	EarlyCommit Kind = "early-commit" // I2: a position, or the map beside it, passed the record before what it wants was there

	Regress         Kind = "regress"          // I3: a position went back
	PastEnd         Kind = "past-end"         // I3: a position or its map is beyond the end of the log
	Metadata        Kind = "metadata"         // I3: metadata that is broken, too long, or made for another position
	NotAtEnd        Kind = "not-at-end"       // I8: the last position is not the end of the log
	Stalled         Kind = "stalled"          // I8: a position stood still for too long, or did not catch up in time
	OpenTransaction Kind = "open-transaction" // I8: a log whose last stable offset is not its end

	Duplicate Kind = "duplicate" // I4, I5: more of them than the bound
	Rerun     Kind = "rerun"     // I4: a life ran a record again that was committed, or in the map, when it started

	Torn         Kind = "torn"          // I5: some outputs of a record visible, others not
	Ahead        Kind = "ahead"         // I5: a visible output of a record that the position has not passed
	AbortedRead  Kind = "aborted-read"  // I5: data of an aborted (or undecided) transaction was taken for committed
	HiddenCommit Kind = "hidden-commit" // I5: data of a committed transaction was taken for aborted
	Order        Kind = "order"         // I5: before the one that it should follow

	Swap       Kind = "swap"       // content, key or id of another record
	Altered    Kind = "altered"    // content that no record asks for
	Foreign    Kind = "foreign"    // from no input record
	Unexpected Kind = "unexpected" // an outcome that the rules give to no such record

	DeadLetterMissing Kind = "dead-letter-missing" // I1
	DeadLetterAltered Kind = "dead-letter-altered" // other bytes than the record's

	NonOwner Kind = "non-owner" // I6: a commit was accepted from, or an effect came from, who did not own the partition
	TooSoon  Kind = "too-soon"  // at most once: an effect before its position was confirmed
)

// kinds in the order in which reports have them.
var kinds = []Kind{Loss, EarlyCommit, DeadLetterMissing, Torn, Swap, Altered, DeadLetterAltered, Foreign, Unexpected, AbortedRead, HiddenCommit, Ahead,
	Order, Regress, PastEnd, NonOwner, Rerun, Duplicate, TooSoon, Metadata, NotAtEnd, OpenTransaction, Stalled}

// Finding is one broken rule at one place.
type Finding struct {
	Kind      Kind   `json:"kind"`
	Topic     string `json:"topic,omitempty"` // of the input record; of the log, for findings about one; empty: the run as a whole
	Partition int32  `json:"partition"`       // -1: the run as a whole
	Offset    int64  `json:"offset"`          // of the input record; -1: the partition as a whole
	Evidence  string `json:"evidence"`
}

func (f Finding) String() string {
	switch {
	case f.Topic == "":
		return fmt.Sprintf("%s: %s", f.Kind, f.Evidence)
	case f.Offset < 0:
		return fmt.Sprintf("%s: %s/%d: %s", f.Kind, f.Topic, f.Partition, f.Evidence)
	}
	return fmt.Sprintf("%s: %s/%d@%d: %s", f.Kind, f.Topic, f.Partition, f.Offset, f.Evidence)
}

// Report is the verdict on a run.
type Report struct {
	OK bool `json:"ok"`

	// Findings are the first ones of each kind (Rules.Listed), Counts all of them.
	Findings []Finding      `json:"findings"`
	Counts   map[Kind]int64 `json:"counts"`

	// Unchecked says what could not be judged for want of evidence. A test should expect what is in it.
	Unchecked []string `json:"unchecked,omitempty"`

	// Repeats are the first ones (Rules.Listed) of what happened more than once, for each crash and for each bound of
	// Rules.Duplicates, whether within it or not.
	Repeats []Repeat `json:"repeats,omitempty"`

	Totals     Totals            `json:"totals"`
	Crashes    []Crash           `json:"crashes,omitempty"`
	Partitions []PartitionReport `json:"partitions"`
}

// Totals counts what was looked at.
type Totals struct {
	Inputs      int64 `json:"inputs"`       // records that count as input
	Aborted     int64 `json:"aborted"`      // records of aborted transactions in input logs
	Markers     int64 `json:"markers"`      // control records in input logs
	Holes       int64 `json:"holes"`        // offsets without a record in input logs
	Effects     int64 `json:"effects"`      // effect lines
	Unplaced    int64 `json:"unplaced"`     // of these, those where no record is any more (Rules.Holes, or below the log's start)
	Outputs     int64 `json:"outputs"`      // visible ones
	Leftovers   int64 `json:"leftovers"`    // outputs in aborted or open transactions
	DeadLetters int64 `json:"dead_letters"` // visible ones
	Pointers    int64 `json:"pointers"`     // of these, those cut to a pointer: their content was not compared

	Duplicates         int64 `json:"duplicates"`           // effects beyond the first of their records
	Repeated           int64 `json:"repeated"`             // records with more than one
	DuplicateOutputs   int64 `json:"duplicate_outputs"`    // visible outputs beyond the first
	DuplicateLetters   int64 `json:"duplicate_letters"`    // dead letters beyond the first
	OtherDuplicates    int64 `json:"other_duplicates"`     // effects beyond the first that no crash explains
	Lost               int64 `json:"lost"`                 // at most once: records without an outcome
	Lives              int64 `json:"lives"`                // of processes
	TornLines          int64 `json:"torn_lines"`           // last lines of event files that were cut off
	CommitsSent        int64 `json:"commits_sent"`         // commit lines, one per partition
	CommitsRefused     int64 `json:"commits_refused"`      // of these, those that were answered with an error
	CommitsUnknown     int64 `json:"commits_unknown"`      // of these, those without an answer
	CommitsStored      int64 `json:"commits_stored"`       // as the group's own log has them
	LateCommits        int64 `json:"late_commits"`         // positions that went back by a commit whose answer was lost, and came forward again
	Samples            int64 `json:"samples"`              // looks at the group's positions
	Maps               int64 `json:"maps"`                 // completion maps that were read
	ForeignMetadata    int64 `json:"foreign_metadata"`     // metadata that is no completion map
	TakenOver          int64 `json:"taken_over"`           // maps that say that their owner has not released the partition
	LongestMetadata    int64 `json:"longest_metadata"`     // UTF-16 units
	GenerationsStored  int64 `json:"generations_stored"`   // as the group's own log has them
	UndecidedByContent int64 `json:"undecided_by_content"` // outputs with wrong content beyond those that were looked up: Altered, perhaps Swap
}

// Crash is a life of a process that was killed or frozen, and what was repeated because of it.
type Crash struct {
	Life       string `json:"life"`
	Frozen     bool   `json:"frozen,omitempty"`
	Duplicates int64  `json:"duplicates"`
}

// Repeat is an effect, an output or a dead letter beyond the first of its input record.
type Repeat struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Evidence  string `json:"evidence"`
}

// PartitionReport is one input partition at the end.
type PartitionReport struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Records   int64  `json:"records"` // that count as input
	Done      int64  `json:"done"`    // that have all that they want
	Committed int64  `json:"committed"`
	End       int64  `json:"end"` // Committed of -1: not known
}

// Count is how many findings of a kind there are.
func (r *Report) Count(k Kind) int64 { return r.Counts[k] }

// ErrBroken is under the error of Report.Err.
var ErrBroken = errors.New("verify: the run broke its rules")

// Err is nil if the run broke no rule, else an error with the report as text. It wraps ErrBroken.
func (r *Report) Err() error {
	if r.OK {
		return nil
	}
	return fmt.Errorf("%w\n%s", ErrBroken, r)
}

// TB is the part of testing.TB that Fatal and Error need, so that programs which are no tests can link this package.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Fatal ends the test with the report as text if the run broke a rule.
func (r *Report) Fatal(t TB) {
	t.Helper()
	if err := r.Err(); err != nil {
		t.Fatalf("%v", err)
	}
}

// Error marks the test as failed, with the report as text, if the run broke a rule.
func (r *Report) Error(t TB) {
	t.Helper()
	if err := r.Err(); err != nil {
		t.Errorf("%v", err)
	}
}

// String is the report as WriteText writes it.
func (r *Report) String() string {
	var b strings.Builder
	_ = r.WriteText(&b) // cannot fail
	return b.String()
}

// WriteJSON writes the report as indented JSON. The error is w's.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// WriteText writes the report for people. The error is w's.
func (r *Report) WriteText(w io.Writer) error {
	var b bytes.Buffer
	t := &r.Totals
	if r.OK {
		b.WriteString("verify: all rules kept\n")
	} else {
		n := int64(0)
		for _, k := range r.Counts {
			n += k
		}
		fmt.Fprintf(&b, "verify: RULES BROKEN, %d findings\n", n)
	}
	for _, k := range kinds {
		if r.Counts[k] == 0 {
			continue
		}
		listed := 0
		for _, f := range r.Findings {
			if f.Kind == k {
				fmt.Fprintf(&b, "  %s\n", f)
				listed++
			}
		}
		if more := r.Counts[k] - int64(listed); more > 0 {
			fmt.Fprintf(&b, "  %s: and %d more\n", k, more)
		}
	}
	row := func(name string, n int64, format string, args ...any) {
		fmt.Fprintf(&b, "  %-12s %10d", name, n)
		if format != "" {
			fmt.Fprintf(&b, "   "+format, args...)
		}
		b.WriteByte('\n')
	}
	row("inputs", t.Inputs, "beside them %d aborted, %d markers, %d holes", t.Aborted, t.Markers, t.Holes)
	row("effects", t.Effects, "by %d lives; %d beyond the first, of %d records; %d of them without a crash", t.Lives, t.Duplicates, t.Repeated, t.OtherDuplicates)
	row("outputs", t.Outputs, "%d beyond the first; %d left over in transactions", t.DuplicateOutputs, t.Leftovers)
	row("dead letters", t.DeadLetters, "%d beyond the first", t.DuplicateLetters)
	row("commits", t.CommitsSent, "sent, %d of them refused, %d unanswered; %d stored, %d of them late; %d samples",
		t.CommitsRefused, t.CommitsUnknown, t.CommitsStored, t.LateCommits, t.Samples)
	row("maps", t.Maps, "%d other metadata, the longest of %d units", t.ForeignMetadata, t.LongestMetadata)
	for _, c := range r.Crashes {
		what := "killed"
		if c.Frozen {
			what = "frozen"
		}
		fmt.Fprintf(&b, "  %s %s: %d effects were repeated\n", what, c.Life, c.Duplicates)
	}
	for _, x := range r.Repeats {
		if r.Counts[Duplicate] == 0 { // else these are among the findings
			fmt.Fprintf(&b, "  again: %s/%d@%d: %s\n", x.Topic, x.Partition, x.Offset, x.Evidence)
		}
	}
	for _, p := range r.Partitions {
		fmt.Fprintf(&b, "  %s/%d: %d of %d records done, committed %s of %d\n", p.Topic, p.Partition, p.Done, p.Records, shown(p.Committed), p.End)
	}
	for _, u := range r.Unchecked {
		fmt.Fprintf(&b, "  not judged: %s\n", u)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func shown(o int64) string {
	if o < 0 {
		return "nothing"
	}
	return fmt.Sprint(o)
}

// finder collects findings: all are counted, the first of each kind kept.
type finder struct {
	most   int
	counts map[Kind]int64
	kept   map[Kind][]Finding
}

// add notes a finding. The evidence is only written down if it is kept.
func (f *finder) add(k Kind, topic string, partition int32, offset int64, format string, args ...any) {
	f.counts[k]++
	if len(f.kept[k]) < f.most {
		f.kept[k] = append(f.kept[k], Finding{k, topic, partition, offset, fmt.Sprintf(format, args...)})
	}
}

// findings are the kept ones by kind and place.
func (f *finder) findings() []Finding {
	out := []Finding{}
	for _, k := range kinds {
		fs := f.kept[k]
		slices.SortStableFunc(fs, func(a, b Finding) int {
			return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
		})
		out = append(out, fs...)
	}
	return out
}
